"""Hold a session's uncommitted changes: nodes, and chunk references by node.

It holds the state after the changes, not a list of them; the transaction log is derived from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import ChunkIndexError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.chunks import ChunkTable
from icevirt.model.indices import all_inside, inside
from icevirt.model.snapshot import ArrayNode, Node, Snapshot, node_of
from icevirt.repo.commits.authorship import (
    Authors,
    Part,
    join_many,
    join_small,
    refuse_both,
    refuse_change,
)
from icevirt.versioning import chunk_tables as tables
from icevirt.versioning import hierarchy as nodes
from icevirt.versioning.hierarchy import by_path

if TYPE_CHECKING:
    from icevirt.model.transaction_log import TransactionLog
    from icevirt.versioning.merge.conflicts import Replayed


class ChangeSet:
    """Uncommitted changes on top of one snapshot.

    Tables are joined when they are first read. So threads that read them hold the session's lock,
    or join them before.
    """

    def __init__(
        self,
        base: Snapshot,
        nodes: Mapping[str, Node] | None = None,
        parts: Mapping[ObjectId8, list[Part]] | None = None,
        *,
        authors: Sequence[ObjectId8] = (),
        under: Mapping[ObjectId8, Part] | None = None,
        origin: Mapping[str, Node] | None = None,
        begin: int = 0,
        began_changed: bool = False,
        needs: AbstractSet[ObjectId8] = frozenset(),
        discarded: AbstractSet[ObjectId8] = frozenset(),
    ) -> None:
        """Begin with changes made already.

        Of a fork, ``under`` and ``origin`` are of before it, as are the first ``begin`` authors,
        and ``began_changed`` says whether there was something to commit. What was merged began with
        the changes of the authors ``needs``, too; those of ``discarded`` were taken back.
        """
        self.base = base
        self.nodes: dict[str, Node] = by_path(base.nodes) if nodes is None else dict(nodes)
        self._parts = {key: list(own) for key, own in (parts or {}).items()}
        self._authors = Authors(authors)
        self._under = dict(under or {})
        self._origin = dict(self.nodes if origin is None else origin)
        self._begin = begin
        self._whole: dict[ObjectId8, Part] = {}
        # changes count, also those that were taken back, as they do for the official client
        self._is_changed = False
        self._began_changed = began_changed
        self._needs = frozenset(needs)
        self._discarded = frozenset(discarded)

    # -- reading -----------------------------------------------------------------------------

    def is_empty(self) -> bool:
        """Say whether nothing was changed; what was changed and changed back is a change."""
        is_changed = self._is_changed or self._began_changed
        return not is_changed and self.snapshot().nodes == self.base.nodes

    def snapshot(self) -> Snapshot:
        """Return the nodes as changed so far, as a snapshot."""
        return Snapshot(
            id=self.base.id,
            nodes=tuple(self.nodes.values()),
            flushed_at=self.base.flushed_at,
            message=self.base.message,
            metadata=self.base.metadata,
            manifest_files=self.base.manifest_files,
        )

    def table(self, node: ObjectId8) -> ChunkTable | None:
        """Return the staged references of an array; kind 0 says "deleted". None: there are none."""
        part = self._part(node)
        return None if part is None else part.table

    def tables(self) -> dict[ObjectId8, ChunkTable]:
        """Return all staged references of arrays that still exist."""
        return {key: part.table for key, part in self._alive().items()}

    def join_tables(self) -> None:
        """Join tables, so that those who read join none until more is staged."""
        for node in self._parts:
            self._own(node)

    def log(self, key: ObjectId12) -> TransactionLog:
        """Return the transaction log of committing this as snapshot ``key``."""
        from icevirt.versioning import diff

        chunks = {node: table.index for node, table in self.tables().items()}
        return diff.log_of(key, self.base.nodes, self.nodes.values(), chunks)

    # -- changing ----------------------------------------------------------------------------

    def add_group(self, path: str, zarr_json: bytes) -> None:
        """Add a group; see `icevirt.versioning.hierarchy.add_group`."""
        nodes.add_group(self.nodes, path, zarr_json, ObjectId8.random)
        self._authors.current()

    def add_array(self, path: str, zarr_json: bytes, chunks: ChunkTable) -> None:
        """Add an array and its references."""
        node = node_of(path, zarr_json, ObjectId8.random())
        assert isinstance(node, ArrayNode)
        check_grid(node, chunks.index)
        nodes.add_array(self.nodes, node, ObjectId8.random)
        self._authors.current()
        self._stage(node.id, chunks)

    def put(self, node: ArrayNode, chunks: ChunkTable) -> None:
        """Write references over those that are there."""
        check_grid(node, chunks.index)
        self._stage(node.id, chunks)

    def forget(self, node: ArrayNode, index: NDArray[np.integer]) -> None:
        """Make chunks unwritten again; they may lie outside a grid that is about to shrink."""
        self._stage(node.id, tables.mark_deleted(index))

    def replay(self, base: Snapshot, replayed: Replayed) -> ChangeSet:
        """Return the same changes on top of another snapshot, as a rebase decided.

        They may be none: there is something to commit all the same.
        """
        kept = {key: replayed.chunks(key, table) for key, table in self.tables().items()}
        replaced = ChangeSet(base, replayed.nodes)
        for key, table in kept.items():
            replaced._stage(key, table)
        replaced._is_changed |= not self.is_empty()
        return replaced

    def fork(self) -> ChangeSet:
        """Return a staging area that begins with these changes and knows which are its own."""
        self._authors.close()
        known = self._authors.known
        return ChangeSet(
            self.base,
            self.nodes,
            authors=known,
            under=self._alive(),
            begin=len(known),
            began_changed=not self.is_empty(),
        )

    def copy(self) -> ChangeSet:
        """Return the same changes, for another to take over."""
        self._authors.close()
        return self._with(self.nodes, self._parts, self._authors.known, is_changed=self._is_changed)

    def missing(self) -> frozenset[ObjectId8]:
        """Return authors whose changes merged forks began with, and which nobody merged here."""
        return self._needs.difference(self._authors.known, self._discarded)

    @property
    def begins_after(self) -> int:
        """How many authors it began with: of a fork of a fork more than of that fork."""
        return self._begin

    def undone(self) -> ChangeSet:
        """Return this as it was when it began."""
        self._authors.close()
        known = self._authors.known
        discarded = self._discarded.union(known[self._begin :])
        return self._with(
            self._origin, {}, known[: self._begin], needs=frozenset(), discarded=discarded
        )

    def merge(self, fork: ChangeSet) -> ChangeSet:
        """Return these changes with those that a fork made; see `icevirt.repo.commits.authorship`.

        Raises:
            ConflictError: Both changed one node or wrote one chunk, and neither knew of the other;
                or one wrote chunks of an array that the other removed, or that mean something else
                by what the other made of it.
        """
        now = nodes.merge(fork._origin, self.nodes, fork.nodes)
        after = {node.id: node for node in now.values()}
        unknown = self._authors.unknown_to(fork._authors)
        known, numbers = self._authors.add(fork._authors, fork._begin)
        parts = {key: join_many(own) for key, own in self._parts.items()}
        for node in self.nodes.values():
            if after.get(node.id) != node and (written := self._written(node.id, unknown)):
                refuse_change(node, after.get(node.id), written)
        for node in fork.nodes.values():
            if (own := fork._own(node.id)) and (part := own.renumber(numbers)):
                refuse_change(node, after.get(node.id), [part.table])
                there = self._under.get(node.id)
                refuse_both(node, (there, *parts.get(node.id, ())), unknown, part)
                parts[node.id] = join_small([*parts.get(node.id, ()), part])
        is_changed = self._is_changed or fork._is_changed
        needs = self._needs.union(fork._needs, fork._authors.known[: fork._begin]).difference(known)
        discarded = self._discarded | fork._discarded
        return self._with(
            now, parts, known, is_changed=is_changed, needs=needs, discarded=discarded
        )

    def move(self, source: str, target: str) -> None:
        """Move a node and all below it; what comes back to its place is a change all the same."""
        now = nodes.move(self.nodes, source, target)
        self.nodes = by_path(
            node._replace(path=now.get(path, path)) for path, node in self.nodes.items()
        )
        self._is_changed = True

    def remove(self, path: str) -> None:
        """Remove a node and all below it; one that is not there is no error."""
        before = self.nodes.copy()
        nodes.remove_below(self.nodes, path)
        self.nodes.pop(path, None)
        self._authors.current()
        known = {node.id for node in self.base.nodes}
        gone = (before[each] for each in before.keys() - self.nodes.keys())
        self._is_changed |= any(node.id in known for node in gone)

    def replace(self, node: Node) -> None:
        """Put a node with other metadata in the place of the one that is there."""
        self._is_changed |= self.nodes[node.path] != node
        self.nodes[node.path] = node
        self._authors.current()

    def _with(
        self,
        nodes: Mapping[str, Node],
        parts: Mapping[ObjectId8, list[Part]],
        known: Sequence[ObjectId8],
        *,
        is_changed: bool = False,
        needs: AbstractSet[ObjectId8] | None = None,
        discarded: AbstractSet[ObjectId8] | None = None,
    ) -> ChangeSet:
        made = ChangeSet(
            self.base,
            nodes,
            parts,
            authors=known,
            under=self._under,
            origin=self._origin,
            begin=self._begin,
            began_changed=self._began_changed,
            needs=self._needs if needs is None else needs,
            discarded=self._discarded if discarded is None else discarded,
        )
        made._is_changed = is_changed
        return made

    def _part(self, node: ObjectId8) -> Part | None:
        """Return what is staged here, and in the session this is a fork of."""
        own, under = self._own(node), self._under.get(node)
        if own is None or under is None:
            return under if own is None else own
        if node not in self._whole:
            self._whole[node] = Part.join([under, own])
        return self._whole[node]

    def _alive(self) -> dict[ObjectId8, Part]:
        """Return what is staged of arrays that still exist."""
        alive = {node.id for node in self.nodes.values()}
        found = {key: self._part(key) for key in self._parts.keys() | self._under if key in alive}
        return {key: part for key, part in found.items() if part is not None}

    def _own(self, node: ObjectId8) -> Part | None:
        """Return what was staged here, not in the session this is a fork of."""
        parts = self._parts.get(node)
        if not parts:
            return None
        if len(parts) > 1:
            some = parts.copy()  # another thread may stage more meanwhile
            parts[: len(some)] = [Part.join(some)]
        return parts[0]

    def _written(self, node: ObjectId8, chosen: NDArray[np.bool_]) -> list[ChunkTable]:
        """Return what some authors staged, who are chosen by number."""
        part = self._part(node)
        table = None if part is None else part.of(chosen)
        return [] if table is None else [table]

    def _stage(self, node: ObjectId8, chunks: ChunkTable) -> None:
        if len(chunks):
            self._is_changed = True
            part = Part(chunks, self._authors.current())
            self._parts.setdefault(node, []).append(part)
            self._whole.pop(node, None)


def check_grid(node: ArrayNode, index: NDArray[np.integer]) -> None:
    """Check that chunk indices, shape (k, ndim), lie in the array's grid.

    Raises:
        InvalidInputError: One does not; the first is named.
    """
    check_index(node, index)
    if not all_inside(index, node.num_chunks):
        outside = ~inside(index, node.num_chunks)
        raise ChunkIndexError(
            "a chunk lies outside the array's chunk grid",
            do="Resize the array first.",
            path=node.path,
            chunk=tuple(index[int(outside.argmax())].tolist()),
            num_chunks=node.num_chunks,
        )


def check_index(node: ArrayNode, index: NDArray[np.integer]) -> None:
    """Check that an array is one of chunk indices, shape (k, ndim).

    Raises:
        InvalidInputError: It is not.
    """
    ndim = len(node.num_chunks)
    is_integer = index.dtype.kind in "iu" or not index.size
    if index.ndim != 2 or index.shape[1] != ndim or not is_integer:
        raise ChunkIndexError(
            "chunk indices do not have the array's number of dimensions",
            do=f"Pass an integer array of shape (k, {ndim}).",
            path=node.path,
            shape=index.shape,
        )
