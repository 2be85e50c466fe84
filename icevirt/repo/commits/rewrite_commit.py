"""Commit manifests that tasks wrote in the place of others, with a new configuration, at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace

import numpy as np
from numpy.typing import NDArray

from icevirt.deferred_dataclass import dataclass
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.json import JSONObject
from icevirt.model.snapshot import ArrayNode, ManifestFile, Node, Snapshot
from icevirt.repo.assets import Assets, HeldObjects
from icevirt.repo.commits.commit import info_of
from icevirt.repo.commits.manifest_writer import manifest_files
from icevirt.repo.repo_info_file import RepoInfoFile, RepoState
from icevirt.versioning import diff, repo_updates
from icevirt.versioning.history.timestamps import stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """Nodes whose manifests are written, to be committed on top of one snapshot."""

    base: Snapshot  # the tip of the branch when the work was done
    branch: str
    message: str
    nodes: tuple[Node, ...]
    written: Mapping[ObjectId12, ManifestFile]
    chunks: Mapping[ObjectId8, NDArray[np.uint32]] = field(default_factory=dict)
    """Indices of chunks that count as written; none where all references mean what they meant."""
    touched: frozenset[ObjectId8] = frozenset()
    """Arrays that count as changed, whose chunks are too many to be listed."""
    metadata: JSONObject = field(default_factory=dict)


def with_manifests(
    nodes: tuple[Node, ...], replaced: Mapping[ObjectId12, ObjectId12]
) -> tuple[Node, ...]:
    """Return nodes that refer to other manifests, in the same boxes of chunks."""
    return tuple(
        replace(
            node,
            manifests=tuple(
                replace(ref, object_id=replaced.get(ref.object_id, ref.object_id))
                for ref in node.manifests
            ),
        )
        if isinstance(node, ArrayNode)
        else node
        for node in nodes
    )


def moved_onto(rewrite: Rewrite, tip: Snapshot) -> Rewrite:
    """Return a rewrite on top of another snapshot, which has the nodes that it replaces."""
    new = {node.path: node for node in rewrite.nodes if rewrite.base.find(node.path) != node}
    nodes = tuple(new.get(node.path, node) for node in tip.nodes)
    return replace(rewrite, base=tip, nodes=nodes)


def publish(
    head: RepoInfoFile,
    assets: Assets,
    current: RepoState,
    *,
    rewrite: Rewrite | None,
    config: Callable[[JSONObject], JSONObject] = lambda document: document,
    ready: Callable[[], None] = lambda: None,
) -> str | None:
    """Change configuration and branch in one step, unless another writer was faster.

    Args:
        head: Of the repository.
        assets: Writes the snapshot.
        current: What was read; the tip of the branch is ``rewrite.base``.
        rewrite: What to commit; None: nothing.
        config: Makes the new configuration of the present one.
        ready: Waits for all that the rewrite refers to, before anybody can see it.

    Returns:
        The id of the snapshot, "" if there is none; None where another writer was faster.
    """
    edits, held = [repo_updates.set_config(config)], HeldObjects(assets.storage)
    made = ""
    if rewrite is not None:
        snapshot = _written(head, assets, rewrite, held)
        edits.append(repo_updates.commit(rewrite.branch, info_of(snapshot, rewrite.base.id)))
        made = str(snapshot.id)
    ready()
    return None if head.swap(current, *edits, held=held) is None else made


def _written(head: RepoInfoFile, assets: Assets, rewrite: Rewrite, held: HeldObjects) -> Snapshot:
    base = rewrite.base
    base.refuse_loss()
    snapshot = Snapshot(
        id=ObjectId12.random(),
        nodes=rewrite.nodes,
        flushed_at=stamp(head.now(), parent=base.flushed_at),
        message=rewrite.message,
        metadata=rewrite.metadata,
        manifest_files=manifest_files(rewrite.nodes, base, rewrite.written),
    )
    log = diff.log_of(snapshot.id, base.nodes, rewrite.nodes, rewrite.chunks)
    log = replace(log, updated_arrays=log.updated_arrays | rewrite.touched)
    assets.put_transaction_log(log, held)
    assets.put_snapshot(snapshot, held)
    return snapshot
