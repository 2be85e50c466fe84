"""Find conflicts with one commit that came first, and replay our changes on top of it.

Names and rules are icechunk's. They are stricter in three cases in which the official client
silently loses acknowledged changes: a node that others created inside a group we deleted, a node
that they recreated where we recreate ours, and chunks they wrote into an array that we gave another
encoding.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.escaping import escape_line
from icevirt.ids import ObjectId8
from icevirt.model import paths
from icevirt.model.chunks import ChunkTable
from icevirt.model.snapshot import ArrayNode, Node, Snapshot, document_of, node_of
from icevirt.model.transaction_log import TransactionLog
from icevirt.versioning import chunk_tables
from icevirt.versioning import hierarchy as nodes


class ConflictType(IntEnum):
    """Kinds of conflicts; names and numbers are icechunk's."""

    NewNodeConflictsWithExistingNode = 1
    NewNodeInInvalidGroup = 2
    ZarrMetadataDoubleUpdate = 3
    ZarrMetadataUpdateOfDeletedArray = 4
    ZarrMetadataUpdateOfDeletedGroup = 5
    ChunkDoubleUpdate = 6
    ChunksUpdatedInDeletedArray = 7
    ChunksUpdatedInUpdatedArray = 8
    DeleteOfUpdatedArray = 9
    DeleteOfUpdatedGroup = 10
    MoveOperationCannotBeRebased = 11

    def __str__(self) -> str:
        """Return the name as words."""
        return re.sub(r"(?<=[a-z])([A-Z])", lambda found: f" {found[1].lower()}", self.name)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Conflict:
    """One conflict between the changes of a session and a commit that came first."""

    conflict_type: ConflictType
    path: str
    node_id: ObjectId8 | None = None
    conflicted_chunks: NDArray[np.uint32] | None = None  # (n, ndim)

    def __repr__(self) -> str:
        chunks = self.conflicted_chunks
        where = "" if chunks is None else f" in {len(chunks)} chunks, {chunks[0].tolist()} first"
        return f"<{self.conflict_type.name} {escape_line(self.path)}{where}>"


class Conflicts(tuple[Conflict, ...]):
    """Several conflicts; only the first few are shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        more = f", and {len(self) - 5} more" if len(self) > 5 else ""
        return ", ".join(map(repr, self[:5])) + more


# -- who wins --------------------------------------------------------------------------------------


class VersionSelection(IntEnum):
    """Which side of a conflict is kept."""

    Fail = 0
    UseOurs = 1
    UseTheirs = 2


class ConflictSolver(ABC):
    """Decides how to resolve a conflict."""

    @abstractmethod
    def choose(self, conflict: Conflict) -> VersionSelection:
        """Return whose version is kept; `VersionSelection.Fail` leaves the conflict unresolved."""


class ConflictDetector(ConflictSolver):
    """Solves no conflict, so only changes without conflicts are rebased."""

    def __repr__(self) -> str:
        return "ConflictDetector()"

    def choose(self, conflict: Conflict) -> VersionSelection:  # noqa: ARG002
        """Leave every conflict unresolved."""
        return VersionSelection.Fail


@dataclass(frozen=True, slots=True, kw_only=True)
class BasicConflictSolver(ConflictSolver):
    """Solves conflicts of chunks, and of deletes with updates; leaves all others unresolved."""

    on_chunk_conflict: VersionSelection = VersionSelection.UseOurs
    fail_on_delete_of_updated_array: bool = False  # False: our delete wins
    fail_on_delete_of_updated_group: bool = False  # False: our delete wins

    def choose(self, conflict: Conflict) -> VersionSelection:
        """Return whose version is kept."""
        match conflict.conflict_type:
            case ConflictType.ChunkDoubleUpdate:
                return self.on_chunk_conflict
            case ConflictType.DeleteOfUpdatedArray:
                fail = self.fail_on_delete_of_updated_array
            case ConflictType.DeleteOfUpdatedGroup:
                fail = self.fail_on_delete_of_updated_group
            case _:
                fail = True
        return VersionSelection.Fail if fail else VersionSelection.UseOurs


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendConflictSolver(BasicConflictSolver):
    """Also reconciles appends to the same array: ours moves behind theirs. Only in icevirt.

    Both must append whole chunks along ``append_dim`` and change nothing else of the metadata. Two
    writers that append the same data append it twice.
    """

    append_dim: str  # name of the dimension


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
    """Yield the conflicts of our changes with a commit to their base, of which this is the log."""
    if log.moved_nodes:
        path = log.moved_nodes[0].from_path
        yield Conflict(conflict_type=ConflictType.MoveOperationCannotBeRebased, path=path)
        return
    yield from _places(ours, theirs)
    yield from _updates(ours, log)
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


def _updates(ours: Ours, log: TransactionLog) -> Iterator[Conflict]:
    """Yield conflicts of our new metadata and chunks with theirs, or with what they deleted."""
    arrays, groups = ours.log.updated_arrays, ours.log.updated_groups
    written = ours.log.updated_chunks.keys()
    recoded = _find_recoded(ours, arrays & log.updated_chunks.keys())
    for kind, ids in (
        (ConflictType.ZarrMetadataDoubleUpdate, arrays & log.updated_arrays),
        (ConflictType.ZarrMetadataDoubleUpdate, groups & log.updated_groups),
        (ConflictType.ZarrMetadataUpdateOfDeletedArray, arrays & log.deleted_arrays),
        (ConflictType.ZarrMetadataUpdateOfDeletedGroup, groups & log.deleted_groups),
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
    new = _of(theirs, log.new_groups | log.new_arrays)
    above = {path for node in new for path in paths.ancestors(node.path)}
    filled = {n.id for n in _of(ours.before, ours.log.deleted_groups) if n.path in above}
    for kind, ids in (
        (
            ConflictType.DeleteOfUpdatedArray,
            ours.log.deleted_arrays & (log.updated_arrays | log.updated_chunks.keys()),
        ),
        (
            ConflictType.DeleteOfUpdatedGroup,
            ours.log.deleted_groups & log.updated_groups | filled,
        ),
        (
            ConflictType.MoveOperationCannotBeRebased,
            ours.moved & (log.deleted_groups | log.deleted_arrays),
        ),
    ):
        yield from (_conflict(kind, node) for node in _of(ours.before, ids))


def _find_recoded(ours: Ours, ids: Iterable[ObjectId8]) -> set[ObjectId8]:
    """Return the arrays whose chunks mean something else after our update."""

    def encoding(node: Node) -> dict[str, Any]:
        return {k: v for k, v in document_of(node).items() if k not in _HARMLESS}

    before = {node.id: node for node in _of(ours.before, ids)}
    after = _of(ours.after, before)
    return {node.id for node in after if encoding(node) != encoding(before[node.id])}


_HARMLESS = ("attributes", "shape", "dimension_names")


def _of(snapshot: Snapshot, ids: Iterable[ObjectId8]) -> list[Node]:
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
        return self.behind[node].move(table) if node in self.behind else table


def step(
    ours: Ours,
    log: TransactionLog,
    theirs: Snapshot,
    solver: ConflictSolver,
    new_id: Callable[[], ObjectId8],
) -> Replayed | Conflicts:
    """Decide how our changes follow a commit to their base, of which this is the log.

    ``new_id`` is for groups that have to be there again. Conflicts that the solver does not resolve
    are returned instead.
    """
    unsolved: list[Conflict] = []
    dropped: dict[ObjectId8, NDArray[np.uint32]] = {}
    behind: dict[ObjectId8, AppendBehind] = {}
    if isinstance(solver, AppendConflictSolver):
        behind = reconcile(ours, log, theirs, solver.append_dim)
    for found in find_conflicts(ours, log, theirs):
        conflict: Conflict | None = found
        if found.node_id is not None and found.node_id in behind:
            conflict = behind[found.node_id].reduce(found)
        if conflict is None:
            continue
        match conflict.conflict_type, solver.choose(conflict):
            case ConflictType.ChunkDoubleUpdate, VersionSelection.UseTheirs:
                assert conflict.node_id is not None
                assert conflict.conflicted_chunks is not None
                dropped[conflict.node_id] = conflict.conflicted_chunks
            case (
                ConflictType.ChunkDoubleUpdate
                | ConflictType.DeleteOfUpdatedArray
                | ConflictType.DeleteOfUpdatedGroup,
                VersionSelection.UseOurs,
            ):
                pass
            case _:  # nothing else has an answer that keeps what both wanted
                unsolved.append(conflict)
    if unsolved:
        return Conflicts(unsolved)
    replayed = _replay(ours, theirs, new_id)
    replayed |= {each.node.path: each.node for each in behind.values()}
    return Replayed(nodes=replayed, dropped=dropped, behind=behind)


def _replay(ours: Ours, theirs: Snapshot, new_id: Callable[[], ObjectId8]) -> dict[str, Node]:
    if ours.moved:
        return _move(ours, theirs)
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
                result[node.path] = node._replace(manifests=there.manifests)
            else:
                result[node.path] = node
    return result


def _move(ours: Ours, theirs: Snapshot) -> dict[str, Node]:
    """Move the nodes we moved, and with them what others created below in the meantime."""
    target = {move.node_id: move.to_path for move in ours.log.moved_nodes}
    now = {node.path: target[node.id] for node in theirs.nodes if node.id in target}

    def new_path(path: str) -> str:
        for above in (path, *reversed(paths.ancestors(path))):
            if above in now:
                return now[above] + path[len(above) :]
        return path

    return nodes.by_path(node._replace(path=new_path(node.path)) for node in theirs.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendBehind:
    """How our append to one array follows theirs."""

    node: ArrayNode  # as long as both appends make it
    axis: int
    edge: int  # the first chunk that is ours, before
    by: int  # chunks that theirs added

    def move(self, table: ChunkTable) -> ChunkTable:
        """Return our staged references, those of the append behind theirs."""
        index = table.index.astype(np.int64)
        index[:, self.axis] += np.where(index[:, self.axis] >= self.edge, self.by, 0)
        return table.reindex(index)

    def reduce(self, conflict: Conflict) -> Conflict | None:
        """Return what is left of a conflict about the array."""
        if conflict.conflict_type is not ConflictType.ChunkDoubleUpdate:
            return None
        assert conflict.conflicted_chunks is not None
        before = conflict.conflicted_chunks[:, self.axis] < self.edge
        chunks = conflict.conflicted_chunks[before]
        return replace(conflict, conflicted_chunks=chunks) if len(chunks) else None


def reconcile(
    ours: Ours, log: TransactionLog, theirs: Snapshot, dimension: str
) -> dict[ObjectId8, AppendBehind]:
    """Return how our appends along a dimension follow theirs, for each array that both extended."""
    both = ours.log.updated_arrays & log.updated_arrays
    before, after, there = (
        {node.id: node for node in snapshot.arrays() if node.id in both}
        for snapshot in (ours.before, ours.after, theirs)
    )
    found = {
        key: _behind(before[key], after[key], there[key], dimension)
        for key in after.keys() & before.keys() & there.keys()
    }
    return {key: behind for key, behind in found.items() if behind is not None}


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
