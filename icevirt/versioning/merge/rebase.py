"""Find conflicts with one commit that came first, and replay our changes on top of it.

The decision is made here, over values; `icevirt.repo.commits.commit` fetches them. An append can
follow another append to the same array without copying chunks. That needs whole chunks at both
seams, and metadata that differs only in length. Values are not compared: two writers that append
the same data append it twice.

The rules of conflicts are icechunk's. They are stricter in three cases in which the official client
silently loses acknowledged changes: a node that others created inside a group we deleted, a node
that they recreated where we recreate ours, and chunks they wrote into an array that we gave another
encoding.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.ids import ObjectId8
from icevirt.model import paths
from icevirt.model.chunks import ChunkTable
from icevirt.model.snapshot import ArrayNode, Node, Snapshot, document_of, node_of
from icevirt.model.transaction_log import TransactionLog
from icevirt.versioning import chunk_tables
from icevirt.versioning import hierarchy as nodes
from icevirt.versioning.merge.conflicts import (
    AppendConflictSolver,
    Conflict,
    Conflicts,
    ConflictSolver,
    ConflictType,
    VersionSelection,
)


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


def find_conflicts(ours: Ours, log: TransactionLog, theirs: Snapshot) -> Iterator[Conflict]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """Our state of the nodes on top of theirs, and the chunks of ours that are given up."""

    nodes: Mapping[str, Node]
    dropped: Mapping[ObjectId8, NDArray[np.uint32]] = field(default_factory=dict)
    behind: Mapping[ObjectId8, AppendBehind] = field(default_factory=dict)

    def chunks(self, node: ObjectId8, table: ChunkTable) -> ChunkTable:
        """Return our staged references of an array as they are after the rebase."""
        if node in self.dropped:
            table = chunk_tables.without(table, self.dropped[node])
        return self.behind[node].moved(table) if node in self.behind else table


@dataclass(frozen=True, slots=True)
class Refused:
    """The conflicts that the solver did not resolve."""

    conflicts: Conflicts


def step(
    ours: Ours,
    log: TransactionLog,
    theirs: Snapshot,
    solver: ConflictSolver,
    new_id: Callable[[], ObjectId8],
) -> Replayed | Refused:
    """Decide how our changes follow a commit that was made first.

    Args:
        ours: Changes to the parent of that commit.
        log: What that commit changed.
        theirs: Its snapshot.
        solver: Decides about conflicts.
        new_id: For groups that have to be there again.
    """
    unsolved: list[Conflict] = []
    dropped: dict[ObjectId8, NDArray[np.uint32]] = {}
    behind: dict[ObjectId8, AppendBehind] = {}
    if isinstance(solver, AppendConflictSolver):
        behind = reconciled(ours, log, theirs, solver.append_dim)
    for conflict in _left(find_conflicts(ours, log, theirs), behind):
        match conflict.conflict_type, solver.choose(conflict):
            case ConflictType.ChunkDoubleUpdate, VersionSelection.UseOurs:
                pass
            case ConflictType.ChunkDoubleUpdate, VersionSelection.UseTheirs:
                assert conflict.node_id is not None
                assert conflict.conflicted_chunks is not None
                dropped[conflict.node_id] = conflict.conflicted_chunks
            case (
                ConflictType.DeleteOfUpdatedArray | ConflictType.DeleteOfUpdatedGroup,
                VersionSelection.UseOurs,
            ):
                pass
            case _:  # nothing else has an answer that keeps what both wanted
                unsolved.append(conflict)
    if unsolved:
        return Refused(Conflicts(unsolved))
    replayed = _replayed(ours, theirs, new_id)
    replayed |= {each.node.path: each.node for each in behind.values()}
    return Replayed(nodes=replayed, dropped=dropped, behind=behind)


def _left(
    found: Iterable[Conflict], behind: Mapping[ObjectId8, AppendBehind]
) -> Iterator[Conflict]:
    """Yield the conflicts that are left when appends were reconciled."""
    for conflict in found:
        if conflict.node_id is None or conflict.node_id not in behind:
            yield conflict
        elif (left := behind[conflict.node_id].left_of(conflict)) is not None:
            yield left


def _replayed(ours: Ours, theirs: Snapshot, new_id: Callable[[], ObjectId8]) -> dict[str, Node]:
    if ours.moved:
        return _moved(ours, theirs)
    result = nodes.by_path(theirs.nodes)
    for gone in (node for node in ours.before.nodes if node.id in ours.deleted):
        if gone.id in ours.log.deleted_groups:
            nodes.remove_below(result, gone.path)
        if (found := result.get(gone.path)) is not None and found.id == gone.id:
            del result[gone.path]
    added = ours.log.new_groups | ours.log.new_arrays
    updated = ours.log.updated_groups | ours.log.updated_arrays
    for node in ours.after.nodes:
        if node.id in added:
            nodes.add_parents(result, node.path, new_id)
            result[node.path] = node
        elif node.id in updated:
            there = result[node.path]
            if isinstance(node, ArrayNode) and isinstance(there, ArrayNode):
                result[node.path] = replace(node, manifests=there.manifests)
            else:
                result[node.path] = node
    return result


def _moved(ours: Ours, theirs: Snapshot) -> dict[str, Node]:
    """Move the nodes we moved, and with them what others created below in the meantime."""
    target = {move.node_id: move.to_path for move in ours.log.moved_nodes}
    now = {node.path: target[node.id] for node in theirs.nodes if node.id in target}
    return nodes.by_path(replace(node, path=_carried(node.path, now)) for node in theirs.nodes)


def _carried(path: str, now: Mapping[str, str]) -> str:
    if path in now:
        return now[path]
    for above in reversed(paths.ancestors(path)):
        if above in now:
            return now[above] + path[len(above) :]
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendBehind:
    """How our append to one array follows theirs."""

    node: ArrayNode  # as long as both appends make it
    axis: int
    edge: int  # the first chunk that is ours, before
    by: int  # chunks that theirs added

    def moved(self, table: ChunkTable) -> ChunkTable:
        """Return our staged references, those of the append behind theirs."""
        index = table.index.astype(np.int64)
        index[:, self.axis] += np.where(index[:, self.axis] >= self.edge, self.by, 0)
        return table.reindexed(index)

    def left_of(self, conflict: Conflict) -> Conflict | None:
        """Return what is left of a conflict about the array."""
        if conflict.conflict_type is not ConflictType.ChunkDoubleUpdate:
            return None
        assert conflict.conflicted_chunks is not None
        before = conflict.conflicted_chunks[:, self.axis] < self.edge
        chunks = conflict.conflicted_chunks[before]
        return replace(conflict, conflicted_chunks=chunks) if len(chunks) else None


def reconciled(
    ours: Ours, log: TransactionLog, theirs: Snapshot, dimension: str
) -> dict[ObjectId8, AppendBehind]:
    """Return how our appends along a dimension follow theirs, for each array that both extended."""
    both = ours.log.updated_arrays & log.updated_arrays
    versions = [
        {node.id: node for node in snapshot.arrays() if node.id in both}
        for snapshot in (ours.before, ours.after, theirs)
    ]
    found = {}
    for key in versions[1]:
        before, mine, other = (version.get(key) for version in versions)
        if before is not None and mine is not None and other is not None:
            behind = _behind(before, mine, other, dimension)
            if behind is not None:
                found[key] = behind
    return found


def _behind(
    before: ArrayNode, ours: ArrayNode, theirs: ArrayNode, dimension: str
) -> AppendBehind | None:
    names = before.dimension_names or ()
    documents = [document_of(node) for node in (before, ours, theirs)]
    rest = [{k: v for k, v in document.items() if k != "shape"} for document in documents]
    if names.count(dimension) != 1 or not rest[0] == rest[1] == rest[2]:
        return None
    axis, grid = names.index(dimension), documents[0]["chunk_grid"]
    if grid["name"] != "regular":
        return None
    edge = int(grid["configuration"]["chunk_shape"][axis])
    start, mine, other = (node.shape[axis] for node in (before, ours, theirs))
    others = {node.shape[:axis] + node.shape[axis + 1 :] for node in (before, ours, theirs)}
    if min(mine, other) <= start or start % edge or other % edge or len(others) > 1:
        return None
    shape = [*theirs.shape]
    shape[axis] = other + mine - start
    document = json.dumps({**documents[1], "shape": shape}, indent=2, allow_nan=False)
    node = node_of(ours.path, document.encode(), ours.id, theirs.manifests)
    assert isinstance(node, ArrayNode)
    return AppendBehind(node=node, axis=axis, edge=start // edge, by=(other - start) // edge)
