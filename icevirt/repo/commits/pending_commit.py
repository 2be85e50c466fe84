"""Make a snapshot of nodes, the manifests written for them, and what its log lists.

Sessions, builds, rewrites and references commit this way: transaction log and snapshot are held, or
written, before `RepoInfoFile.publish` makes them visible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import BuildError, FormatError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.attributes import TWIN_MARKS
from icevirt.model.json import JSONObject
from icevirt.model.repo_info import RepoInfo
from icevirt.model.snapshot import ArrayNode, ManifestFile, Node, Snapshot
from icevirt.model.transaction_log import TransactionLog
from icevirt.repo import layout
from icevirt.repo.assets import Assets, HeldObjects
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.versioning import diff, lookup, repo_updates
from icevirt.versioning.history.timestamps import stamp
from icevirt.versioning.repo_updates import Edit

MAX_LISTED = 100_000
"""Chunks that a transaction log lists: a log of all chunks of a large commit could not be read.

With more of them it lists none. Where the array is not new, it says that the array was updated, so
that others who wrote chunks of it meanwhile look again.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCommit:
    """Nodes whose manifests are written, to be committed on top of one snapshot."""

    base: Snapshot  # the tip of the branch when the work was done
    branch: str | None  # None: on no branch
    message: str
    nodes: tuple[Node, ...]
    written: Mapping[ObjectId12, ManifestFile]
    chunks: Mapping[ObjectId8, NDArray[np.uint32]] = field(default_factory=dict)
    """Indices of chunks that count as written; none where all references mean what they meant."""
    touched: frozenset[ObjectId8] = frozenset()
    """Arrays that count as changed, whose chunks are too many to be listed."""
    metadata: JSONObject = field(default_factory=dict)
    records: Sequence[Mapping[str, Any]] = ()  # of datasets, beside those in the metadata
    is_of_dataset: bool = True  # else what the metadata repeat of a build says nothing of twins

    def put(self, head: RepoInfoFile, assets: Assets, held: HeldObjects) -> tuple[Snapshot, Edit]:
        """Write log and snapshot, or hold them; return the edit that makes them visible.

        Raises:
            FormatError: The base holds what would be lost, or does not list a manifest.
        """
        snapshot = self.write(head, assets, held)
        return snapshot, self.edit(snapshot, is_detached=self.branch is None)

    def edit(self, snapshot: Snapshot, *, is_detached: bool) -> Edit:
        """Return the edit that makes a snapshot visible, which was written: perhaps on no branch.

        One that was on none can be put on its branch later.
        """
        info = lookup.summary_of(snapshot, self.base.id)
        if is_detached or self.branch is None:
            return repo_updates.detach(info)
        return repo_updates.commit(self.branch, info)

    def write(
        self,
        head: RepoInfoFile,
        assets: Assets,
        held: HeldObjects,
        log_of: Callable[[TransactionLog], TransactionLog] = lambda log: log,
    ) -> Snapshot:
        """Write log and snapshot, or hold them; raises as `put`."""
        self.base.refuse_loss()
        nodes, metadata = self._finish()
        snapshot = Snapshot(
            id=ObjectId12.random(),
            nodes=nodes,
            flushed_at=stamp(head.now(), parent=self.base.flushed_at),
            message=self.message,
            metadata=metadata,
            manifest_files=_manifest_files(nodes, self.base, self.written),
            parent_id=self.base.id,
        )
        log = diff.log_of(snapshot.id, self.base.nodes, nodes, self.chunks)
        if self.touched:
            log = replace(log, updated_arrays=log.updated_arrays | self.touched)
        assets.put_transaction_log(log_of(log), held)
        assets.put_snapshot(snapshot, held)
        return snapshot

    def _finish(self) -> tuple[tuple[Node, ...], JSONObject]:
        """Return nodes and metadata with what they say of twins and coarser copies."""
        if not (self.metadata or self.records or TWIN_MARKS in self.base.metadata):
            return self.nodes, self.metadata
        from icevirt.planning.records import records_of
        from icevirt.planning.twins import mark_twins, say_levels_in

        records = (*records_of(self.metadata), *self.records) if self.is_of_dataset else ()
        nodes = say_levels_in(records, self.nodes)
        return nodes, {**self.metadata, **mark_twins(records, self.base.metadata, nodes)}

    def move_onto(self, tip: Snapshot) -> PendingCommit:
        """Return it on top of another snapshot, which has the nodes that it replaces."""
        new = {node.path: node for node in self.nodes if self.base.find(node.path) != node}
        nodes = tuple(new.get(node.path, node) for node in tip.nodes)
        return replace(self, base=tip, nodes=nodes)


def _manifest_files(
    nodes: Sequence[Node], base: Snapshot, written: Mapping[ObjectId12, ManifestFile]
) -> tuple[ManifestFile, ...]:
    """Return the facts about every manifest that nodes refer to, each once.

    Raises:
        FormatError: Neither the base nor what was written knows one of them.
    """
    used = {
        ref.object_id for node in nodes if isinstance(node, ArrayNode) for ref in node.manifests
    }
    found = []
    for key in sorted(used):
        info = written.get(key) or base.manifest(key)
        if info is None:
            raise FormatError(
                "the snapshot refers to a manifest that it does not list",
                do="Restore the snapshot from a copy of the repository.",
                manifest=str(key),
                snapshot=str(base.id),
            )
        found.append(info)
    return tuple(found)


def are_many(files: Sequence[ManifestFile]) -> bool:
    """Say whether manifests hold more chunks than a transaction log lists."""
    return sum(file.num_chunk_refs for file in files) > MAX_LISTED


def in_order(parts: Sequence[NDArray[np.uint32]]) -> NDArray[np.uint32]:
    """Join indices of chunks of one array, ``(n, ndim)`` each, in the order of a log."""
    index = np.concatenate(parts)
    return index[np.lexsort(index.T[::-1])] if index.shape[1] else index


def refuse_missing(assets: Assets, files: Sequence[ManifestFile], *, do: str) -> None:
    """Check that manifests lie in the repository, as they were written. Raises ``BuildError``."""
    listed = assets.storage.list("manifests") if files else ()
    sizes = {info.path: info.size for info in listed}
    for file in files:
        if sizes.get(layout.manifest(file.id)) != file.size_bytes:
            raise BuildError(
                "a manifest that was just written is missing or damaged",
                do=do,
                manifest=str(file.id),
            )


def refuse_collected(info: RepoInfo, snapshot_id: str | None) -> None:
    """Check that a snapshot that waits on no branch is still there, if one does.

    Garbage collection takes it off the list before it deletes what only it refers to.

    Raises:
        BuildError: It is not.
    """
    if snapshot_id is not None and layout.snapshot_id(snapshot_id) not in info.snapshots:
        raise BuildError(
            "garbage was collected while a snapshot was verified, and the snapshot with it",
            do="Do the same again. Garbage collection spares what is younger than its cutoff:"
            " let that be older than the longest build.",
            snapshot=snapshot_id,
        )
