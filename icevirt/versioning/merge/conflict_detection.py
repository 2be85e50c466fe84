"""Find conflicts between two writers from what each of them changed.

The rules are icechunk's. They are stricter in three cases in which the official client silently
loses acknowledged changes: a node that others created inside a group we deleted, a node that they
recreated where we recreate ours, and chunks they wrote into an array that we gave another encoding.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.deferred_dataclass import dataclass
from icevirt.ids import ObjectId8
from icevirt.model import paths
from icevirt.model.metadata import document_of
from icevirt.model.snapshot import ArrayNode, Node, Snapshot
from icevirt.model.transaction_log import TransactionLog
from icevirt.versioning import chunk_tables
from icevirt.versioning.merge.conflicts import Conflict, ConflictType


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """The changes of a session: from where, to what, and the transaction log of it."""

    before: Snapshot
    after: Snapshot
    log: TransactionLog

    @property
    def deleted(self) -> frozenset[ObjectId8]:
        """Ids of deleted nodes."""
        return self.log.deleted_groups | self.log.deleted_arrays

    @property
    def moved(self) -> frozenset[ObjectId8]:
        """Ids of moved nodes."""
        return frozenset(move.node_id for move in self.log.moved_nodes)


def find(ours: Ours, log: TransactionLog, theirs: Snapshot) -> Iterator[Conflict]:
    """Yield the conflicts of our changes with a commit that was made first.

    Args:
        ours: Changes to the parent of that commit.
        log: What that commit changed.
        theirs: Its snapshot.
    """
    if log.moved_nodes:
        path = log.moved_nodes[0].from_path
        yield Conflict(conflict_type=ConflictType.MoveOperationCannotBeRebased, path=path)
        return
    yield from _places(ours, theirs)
    yield from _metadata(ours, log)
    yield from _chunks(ours, log)
    yield from _deletes(ours, log, theirs)


def _places(ours: Ours, theirs: Snapshot) -> Iterator[Conflict]:
    """Yield conflicts at the new places of our new and moved nodes."""
    arriving = ours.log.new_groups | ours.log.new_arrays | ours.moved
    leaving = ours.deleted | ours.moved

    def stays(node: Node | None) -> bool:
        return node is not None and node.id not in leaving

    for node in _of(ours.after, arriving):
        below = _below(theirs, node.path) if isinstance(node, ArrayNode) else ()
        if stays(theirs.find(node.path)) or any(map(stays, below)):
            yield _conflict(ConflictType.NewNodeConflictsWithExistingNode, node)
        for above in paths.ancestors(node.path):
            found = theirs.find(above)
            if isinstance(found, ArrayNode) and stays(found):
                yield _conflict(ConflictType.NewNodeInInvalidGroup, found)


def _metadata(ours: Ours, log: TransactionLog) -> Iterator[Conflict]:
    arrays, groups = ours.log.updated_arrays, ours.log.updated_groups
    for kind, ids in (
        (ConflictType.ZarrMetadataDoubleUpdate, arrays & log.updated_arrays),
        (ConflictType.ZarrMetadataDoubleUpdate, groups & log.updated_groups),
        (ConflictType.ZarrMetadataUpdateOfDeletedArray, arrays & log.deleted_arrays),
        (ConflictType.ZarrMetadataUpdateOfDeletedGroup, groups & log.deleted_groups),
    ):
        yield from (_conflict(kind, node) for node in _of(ours.after, ids))


def _chunks(ours: Ours, log: TransactionLog) -> Iterator[Conflict]:
    written = ours.log.updated_chunks.keys()
    recoded = _recoded(ours, ours.log.updated_arrays & log.updated_chunks.keys())
    for kind, ids in (
        (ConflictType.ChunksUpdatedInDeletedArray, written & log.deleted_arrays),
        (ConflictType.ChunksUpdatedInUpdatedArray, written & log.updated_arrays | recoded),
    ):
        yield from (_conflict(kind, node) for node in _of(ours.after, ids))
    for node in _of(ours.after, written & log.updated_chunks.keys()):
        both = chunk_tables.common(ours.log.updated_chunks[node.id], log.updated_chunks[node.id])
        if len(both):
            yield _conflict(ConflictType.ChunkDoubleUpdate, node, both)


def _deletes(ours: Ours, log: TransactionLog, theirs: Snapshot) -> Iterator[Conflict]:
    """Yield conflicts of nodes that one side deleted and the other changed or moved."""
    arrays = ours.log.deleted_arrays & (log.updated_arrays | log.updated_chunks.keys())
    groups = ours.log.deleted_groups & log.updated_groups
    for node in _of(ours.before, arrays):
        yield _conflict(ConflictType.DeleteOfUpdatedArray, node)
    for node in _of(ours.before, groups | _groups_filled(ours, log, theirs)):
        yield _conflict(ConflictType.DeleteOfUpdatedGroup, node)
    for node in _of(ours.before, ours.moved & (log.deleted_groups | log.deleted_arrays)):
        yield _conflict(ConflictType.MoveOperationCannotBeRebased, node)


def _groups_filled(ours: Ours, log: TransactionLog, theirs: Snapshot) -> frozenset[ObjectId8]:
    """Return the groups that we deleted and they created something below."""
    deleted = {node.path: node.id for node in _of(ours.before, ours.log.deleted_groups)}
    if not deleted:
        return frozenset()
    new = _of(theirs, log.new_groups | log.new_arrays)
    above = {path for node in new for path in paths.ancestors(node.path)}
    return frozenset(key for path, key in deleted.items() if path in above)


def _recoded(ours: Ours, ids: Iterable[ObjectId8]) -> set[ObjectId8]:
    """Return the arrays whose chunks mean something else after our update."""
    before = {node.id: node for node in _of(ours.before, frozenset(ids))}
    after = _of(ours.after, frozenset(before))
    return {node.id for node in after if _encoding(node) != _encoding(before[node.id])}


def _encoding(node: Node) -> dict[str, Any]:
    document = document_of(node)
    return {key: value for key, value in document.items() if key not in _HARMLESS}


_HARMLESS = ("attributes", "shape", "dimension_names")


def _of(snapshot: Snapshot, ids: Iterable[ObjectId8]) -> list[Node]:
    """Return the nodes of these ids, in snapshot order."""
    wanted = frozenset(ids)
    return [node for node in snapshot.nodes if node.id in wanted] if wanted else []


def _below(snapshot: Snapshot, path: str) -> Iterator[Node]:
    """Yield the nodes below a path, without a look at all others."""
    prefix = path.rstrip("/") + "/"
    start = bisect_left(
        snapshot.nodes, paths.order(prefix), key=lambda node: paths.order(node.path)
    )
    for node in snapshot.nodes[start:]:
        if not node.path.startswith(prefix):
            return
        if node.path != path:
            yield node


def _conflict(kind: ConflictType, node: Node, chunks: NDArray[np.uint32] | None = None) -> Conflict:
    return Conflict(conflict_type=kind, path=node.path, node_id=node.id, conflicted_chunks=chunks)
