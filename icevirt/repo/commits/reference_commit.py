"""Commit references whose manifests are written, into arrays that a session has or adds.

Manifests lie in the repository before; nothing here is as large as the references. If others
committed meanwhile, the commit goes on top of theirs, unless they changed the same nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import BuildError, ConflictError, StorageError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model import paths
from icevirt.model.config.document import RepositoryConfig
from icevirt.model.json import JSONObject
from icevirt.model.snapshot import ArrayNode, ManifestFile, Node, Snapshot
from icevirt.repo import layout
from icevirt.repo.assets import Assets
from icevirt.repo.commits.change_set import ChangeSet
from icevirt.repo.commits.commit import info_of
from icevirt.repo.commits.manifest_writer import manifest_files, write_manifests
from icevirt.repo.repo_info_file import RepoInfoFile, pause, refuse_read_only
from icevirt.versioning import diff, repo_updates
from icevirt.versioning.hierarchy import by_path
from icevirt.versioning.history.timestamps import stamp
from icevirt.versioning.v1_migration import refuse_v1

MAX_LISTED = 100_000
"""Chunks that a transaction log lists. With more of them it says that their array was updated, so
that others who wrote chunks of it meanwhile look again."""

_TRIES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceCommit:
    """Written references, and what is committed with them."""

    assets: Assets
    head: RepoInfoFile
    staging: ChangeSet  # the session's: groups, arrays, and chunks of other arrays
    config: RepositoryConfig
    branch: str
    message: str
    metadata: JSONObject
    arrays: Mapping[str, ArrayNode]  # with all their manifests, by path
    files: Sequence[ManifestFile]
    settings: Callable[[JSONObject], JSONObject]  # makes the configuration of the repository

    def publish(self) -> str:
        """Commit, and return the id of the snapshot; that of the branch if nothing is new.

        Raises:
            ConflictError: Others changed the same arrays or groups meanwhile.
            RefNotFoundError: The branch was deleted.
            BuildError: A manifest is gone.
            ReadOnlyError: The repository is read-only.
            FormatError: It is of the V1 format.
        """
        self._check_files()
        self.assets.list_content_names()
        nodes, staged = write_manifests(self.assets, self.staging, self.config)
        ours = {node.path: self.arrays.get(node.path, node) for node in nodes}
        before = by_path(self.staging.base.nodes)
        changed = {path: node for path, node in ours.items() if before.get(path) != node}
        written = {info.id: info for info in (*staged, *self.files)}
        for attempt in range(_TRIES):
            current = self.head.read()
            info = current.info
            refuse_v1(info, "writing references by tasks")
            refuse_read_only(info)
            tip = repo_updates.branch_tip(info, self.branch)
            base = self.assets.snapshot(tip)
            if not changed:
                return str(tip)
            if tip != self.staging.base.id:
                _refuse_touched(before, by_path(base.nodes), changed, self.branch)
            snapshot = self._write(base, changed, written)
            done = self.head.swap(
                current,
                repo_updates.set_config(self.settings),
                repo_updates.commit(self.branch, info_of(snapshot, tip)),
            )
            if done is not None:
                return str(snapshot.id)
            pause(attempt)
        raise StorageError(
            "other writers changed the repository before every attempt to commit",
            do="Write the references again when fewer processes commit: the same manifests are"
            " written.",
            tries=_TRIES,
        )

    def _write(
        self,
        base: Snapshot,
        changed: Mapping[str, Node],
        written: Mapping[ObjectId12, ManifestFile],
    ) -> Snapshot:
        base.refuse_loss()
        nodes = tuple({**by_path(base.nodes), **changed}.values())
        snapshot = Snapshot(
            id=ObjectId12.random(),
            nodes=nodes,
            flushed_at=stamp(self.head.now(), parent=base.flushed_at),
            message=self.message,
            metadata=self.metadata,
            manifest_files=manifest_files(nodes, base, written),
        )
        there = {node.id for node in base.nodes}
        chunks = {key: table.index for key, table in self.staging.tables().items()}
        log = diff.log_of(snapshot.id, base.nodes, nodes, chunks | self._listed())
        if self._are_many():
            ids = {node.id for node in self.arrays.values() if node.path in changed}
            log = replace(log, updated_arrays=log.updated_arrays | (ids & there))
        self.assets.put_transaction_log(log)
        self.assets.put_snapshot(snapshot)
        return snapshot

    def _listed(self) -> dict[ObjectId8, NDArray[np.uint32]]:
        """Return the chunks in the written manifests, unless they are too many to list."""
        new = {file.id for file in self.files}
        if self._are_many():
            return {}
        found: dict[ObjectId8, NDArray[np.uint32]] = {}
        for node in self.arrays.values():
            refs = [ref for ref in node.manifests if ref.object_id in new]
            tables = [self.assets.read_manifest(ref.object_id).arrays[node.id] for ref in refs]
            if tables:
                index = np.concatenate([table.index for table in tables])
                found[node.id] = index[np.lexsort(index.T[::-1])] if index.shape[1] else index
        return found

    def _are_many(self) -> bool:
        return sum(file.num_chunk_refs for file in self.files) > MAX_LISTED

    def _check_files(self) -> None:
        listed = self.assets.storage.list("manifests") if self.files else ()
        sizes = {info.path: info.size for info in listed}
        for file in self.files:
            if sizes.get(layout.manifest(file.id)) != file.size_bytes:
                raise BuildError(
                    "a manifest that was just written is missing or damaged",
                    do="Find and stop what deletes objects of the repository, and write again.",
                    manifest=str(file.id),
                )


def _refuse_touched(
    before: Mapping[str, Node], now: Mapping[str, Node], ours: Mapping[str, Node], branch: str
) -> None:
    """Check that nobody changed the nodes of a commit, and that the groups above are there."""
    above = {path for each in ours for path in paths.ancestors(each)} - ours.keys()
    gone = {path for path in above if type(before.get(path)) is not type(now.get(path))}
    clash = sorted(gone | {path for path in ours if before.get(path) != now.get(path)})
    if clash:
        raise ConflictError(
            "the branch moved while references were written, and the same nodes were changed",
            do="Write the references again: they go on top of the branch as it is then.",
            branch=branch,
            paths=clash[:10],
        )
