"""Read B-trees of chunks.

Files written for HDF5 1.8 and before have trees of version 1. Later ones have trees of version 2
for datasets that grow along several axes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from icevirt_scanners.hdf5.index.entries import ChunkEntries, ChunkGrid, EntryFormat
from icevirt_scanners.hdf5.raw.heaps import DEEPEST, PREFIX, widths_of
from icevirt_scanners.hdf5.raw.space import (
    CHECKSUM,
    Rows,
    Space,
    check_heads,
    check_sum,
    number,
    numbers,
    require,
    signed,
)

_ENTRIES = 64  # of a node, unless a file says otherwise
_LAYOUT, _ADDRESS = b"\3\2", 3  # how layout messages with a tree begin, and where it stands


def btree1_chunks(space: Space, root: int, grid: ChunkGrid) -> ChunkEntries:
    """List the chunks of the tree at ``root``, level by level."""
    node = _Node(space, grid)
    head = space.block(root, 8)
    level = head[5]
    require(level <= DEEPEST, "a tree too deep")
    if not level:  # most trees are one node, which need not be read to its end
        used = int.from_bytes(head[6:8], "little")
        require(head[:5] == b"TREE\1" and used <= _ENTRIES, "a node of another size")
        data = space.block(root, node.head + used * node.entry.itemsize)
        return node.found(node.wanted(np.frombuffer(data, node.entry, used, node.head)))
    addresses = np.array([root], np.int64)
    while level:
        parts = [node.entries(rows, level) for _, rows in space.rows(addresses, node.size)]
        addresses = node.children(node.in_run(np.concatenate(parts)))
        level -= 1
    parts = [node.wanted(node.entries(rows, 0)) for _, rows in space.rows(addresses, node.size)]
    return node.found(np.concatenate(parts))


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tree of one node, to read others that only differ in places and lengths."""

    begin: bytes  # of the node
    start: int  # bytes before its entries
    nbytes: int
    entry: np.dtype[np.void]
    corners: bytes
    masks: bytes
    index: NDArray[np.int64]
    mask: NDArray[np.uint32]

    @classmethod
    def of(cls, found: ChunkEntries, space: Space, layout: bytes) -> Leaf | None:
        """Return the node that holds just these chunks, filtered all; None where there is none.

        Raises:
            NotUnderstoodError: It cannot be read.
        """
        count, ndim = found.index.shape
        root = number(layout, _ADDRESS, space.address_width)
        begin = space.begin().block(root, 8)
        used = int.from_bytes(begin[6:8], "little")
        is_leaf = layout[:2] == _LAYOUT and begin[:6] == b"TREE\1\0"
        if not is_leaf or used != count or not 0 < count <= _ENTRIES or found.mask.any():
            return None
        entry, start = _entry(ndim, space.address_width), 8 + 2 * space.address_width
        nbytes = start + count * entry.itemsize
        rows = np.frombuffer(space.block(root, nbytes), entry, count, start)
        masks = rows["mask"].tobytes()
        if any(masks):
            return None
        index, mask = found.index.copy(), np.zeros(count, np.uint32)
        index.flags.writeable = mask.flags.writeable = False  # files share them
        corners = rows["corner"].tobytes()
        return cls(begin, start, nbytes, entry, corners, masks, index, mask)

    def read(self, space: Space, layout: bytes) -> ChunkEntries | None:
        """Return the chunks of another file, None where the node differs in more.

        Raises:
            NotUnderstoodError: It does not lie in the file.
        """
        root = int.from_bytes(layout[_ADDRESS : _ADDRESS + space.address_width], "little")
        data = space.begin().block(root, self.nbytes)
        rows = np.frombuffer(data, self.entry, len(self.index), self.start)
        if not data.startswith(self.begin) or rows["corner"].tobytes() != self.corners:
            return None
        if rows["mask"].tobytes() != self.masks:
            return None
        offset = rows["child"].astype(np.int64)
        if np.minimum.reduce(offset) < 0:
            return None
        return ChunkEntries(
            index=self.index,
            offset=offset + space.base if space.base else offset,
            length=rows["length"].astype(np.int64),
            mask=self.mask,
        )


@cache
def _entry(ndim: int, width: int) -> np.dtype[np.void]:
    corner = ("corner", "<u8", (ndim + 1,))
    return np.dtype([("length", "<u4"), ("mask", "<u4"), corner, ("child", f"<u{width}")])


class _Node:
    """How the nodes of one tree are written."""

    def __init__(self, space: Space, grid: ChunkGrid) -> None:
        ndim = len(grid.chunk)
        self.entry = _entry(ndim, space.address_width)
        self.head = 8 + 2 * space.address_width
        self.size = self.head + _ENTRIES * self.entry.itemsize + 8 + 8 * (ndim + 1)
        self.grid = grid

    def entries(self, rows: Rows, level: int) -> NDArray[np.void]:
        """Return the entries of some nodes, one behind the other."""
        check_heads(rows, b"TREE\x01" + bytes([level]))
        used = rows[:, 6].astype(np.int64) + 256 * rows[:, 7].astype(np.int64)
        low = 1 if level else 0  # a root loses its last chunk when a dataset shrinks
        require(((used >= low) & (used <= _ENTRIES)).all(), "nodes of another size")
        body = rows[:, self.head : self.head + _ENTRIES * self.entry.itemsize]
        table = np.ascontiguousarray(body).view(self.entry)
        taken: NDArray[np.void] = table[np.arange(_ENTRIES) < used[:, None]]
        return taken

    def in_run(self, entries: NDArray[np.void]) -> NDArray[np.void]:
        """Return the entries of those nodes below that hold chunks of the run."""
        if self.grid.run is None:
            return entries
        first = signed(entries["corner"])[:, :-1] // np.array(self.grid.chunk, np.int64)
        # a node holds what lies between its key and the next one's
        reaches = np.ones(len(entries), np.bool_)  # the last one's end is not said
        reaches[:-1] = self.grid.within_run(first[:-1], until=first[1:])
        return entries[reaches]

    def wanted(self, entries: NDArray[np.void]) -> NDArray[np.void]:
        """Return the entries of chunks of the run."""
        if self.grid.run is None:
            return entries
        corner = signed(entries["corner"])[:, :-1]
        return entries[self.grid.within_run(corner // np.array(self.grid.chunk, np.int64))]

    def children(self, entries: NDArray[np.void]) -> NDArray[np.int64]:
        """Return the addresses of the nodes or chunks below."""
        return signed(entries["child"].astype(np.uint64))

    def found(self, entries: NDArray[np.void]) -> ChunkEntries:
        """Return the chunks that leaf entries stand for."""
        child = entries["child"].astype(np.int64)
        require(int(child.min(initial=0)) >= 0, "a number beyond 63 bits")
        # files of an archive have the same chunks, elsewhere
        indexed = _indexed if len(entries) <= _ENTRIES else _indexed.__wrapped__
        return ChunkEntries(
            index=indexed(entries["corner"].tobytes(), self.grid.chunk),
            offset=child,
            length=entries["length"].astype(np.int64),
            mask=entries["mask"].astype(np.uint32),
        )


@lru_cache(256)
def _indexed(corners: bytes, chunk: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the coordinates of chunks by their corners; read-only, since files share it."""
    corner = np.frombuffer(corners, "<i8").reshape(-1, len(chunk) + 1)
    require(int(corner.min(initial=0)) >= 0, "a number beyond 63 bits")
    require(not corner[:, -1].any(), "a corner inside an element")
    edges = np.array(chunk, np.int64)
    index: NDArray[np.int64] = corner[:, :-1] // edges
    require(np.array_equal(index * edges, corner[:, :-1]), "a corner off the grid")
    index.flags.writeable = False
    return index


_UNFILTERED, _FILTERED = 10, 11


def btree2_chunks(space: Space, address: int, grid: ChunkGrid) -> ChunkEntries:
    """List the chunks of the tree whose header is at ``address``."""
    tree = _ChunkTree.at(space, address, grid)
    if not tree.total:
        return ChunkEntries.joined([], len(grid.chunk))
    parts: list[ChunkEntries] = []
    nodes = tree.root
    for depth in range(tree.depth, 0, -1):
        nodes = tree.descend(nodes, depth, parts)
    tree.leaves(nodes, parts)
    found = ChunkEntries.joined(parts, len(grid.chunk))
    require(len(found.offset) == tree.total, "records that are missing")
    return found


@dataclass(frozen=True, slots=True)
class _Nodes:
    """The nodes of one depth."""

    address: NDArray[np.int64]
    records: NDArray[np.int64]  # in each


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChunkTree:
    space: Space
    kind: int
    entry: EntryFormat
    node_size: int
    record: int  # bytes
    depth: int
    root: _Nodes
    total: int
    ndim: int

    @classmethod
    def at(cls, space: Space, address: int, grid: ChunkGrid) -> _ChunkTree:
        """Read the header."""
        wide, long = space.address_width, space.length_width
        head = space.sealed(address, 18 + wide + long + CHECKSUM, b"BTHD\0")
        kind, record = head[5], number(head, 10, 2)
        require(kind in (_UNFILTERED, _FILTERED), "records of another kind")
        ndim = len(grid.chunk)
        entry = EntryFormat.of(record - 8 * ndim, space, grid, filtered=kind == _FILTERED)
        depth, total = number(head, 12, 2), number(head, 18 + wide, long)
        require(depth <= DEEPEST and total * record <= space.size, "a tree too large")
        root = signed(numbers(np.frombuffer(head[16 : 16 + wide], np.uint8)[None])) if total else 0
        return cls(
            space=space,
            kind=kind,
            entry=entry,
            node_size=number(head, 6, 4),
            record=record,
            depth=depth,
            root=_Nodes(np.atleast_1d(root), np.array([number(head, 16 + wide, 2)])),
            total=total,
            ndim=ndim,
        )

    def leaves(self, nodes: _Nodes, parts: list[ChunkEntries]) -> None:
        """Add the records of all leaves."""
        most = (self.node_size - PREFIX - CHECKSUM) // self.record
        require(most > 0 and (nodes.records <= most).all(), "leaves of another size")
        for some, rows in self.space.rows(nodes.address, self.node_size):
            check_heads(rows, bytes((*b"BTLF\0", self.kind)))
            held = nodes.records[some]
            for row, count in zip(rows, held.tolist(), strict=True):
                check_sum(row[: PREFIX + count * self.record + CHECKSUM].tobytes())
            body = rows[:, PREFIX : PREFIX + most * self.record]
            table = np.ascontiguousarray(body).reshape(len(rows), most, self.record)
            parts.append(self._decoded(table[np.arange(most) < held[:, None]]))

    def descend(self, nodes: _Nodes, depth: int, parts: list[ChunkEntries]) -> _Nodes:
        """Add the records of the inner nodes of a depth; return the nodes below."""
        widths = widths_of(self.node_size, self.record, self.space.address_width, depth)
        pointer = sum(widths)
        addresses: list[NDArray[np.int64]] = []
        counts: list[NDArray[np.int64]] = []
        for some, rows in self.space.rows(nodes.address, self.node_size):
            check_heads(rows, bytes((*b"BTIN\0", self.kind)))
            for row, count in zip(rows, nodes.records[some].tolist(), strict=True):
                middle = PREFIX + count * self.record
                end = middle + (count + 1) * pointer
                require(end + CHECKSUM <= len(row), "a node of another size")
                check_sum(row[: end + CHECKSUM].tobytes())
                parts.append(self._decoded(row[PREFIX:middle].reshape(count, self.record)))
                below = row[middle:end].reshape(count + 1, pointer)
                addresses.append(signed(numbers(below[:, : widths[0]])))
                counts.append(signed(numbers(below[:, widths[0] : widths[0] + widths[1]])))
        return _Nodes(np.concatenate(addresses), np.concatenate(counts))

    def _decoded(self, records: Rows) -> ChunkEntries:
        entry = self.entry.width
        where = np.ascontiguousarray(records[:, entry:]).view("<u8").reshape(-1, self.ndim)
        return self.entry.decode(records[:, :entry], signed(where))
