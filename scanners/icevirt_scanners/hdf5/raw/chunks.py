"""Read the chunk index of a dataset from the bytes of the file, all chunks at once.

libhdf5 lists chunks through a callback per chunk. Here a few numpy operations decode each block of
an index: arrays (`arrays`), or B-trees. Files written for HDF5 1.8 and before have trees of
version 1. Later ones have trees of version 2 for datasets that grow along several axes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from math import prod
from struct import unpack_from

import numpy as np
from numpy.typing import NDArray

from icevirt_scanners.hdf5.raw import arrays
from icevirt_scanners.hdf5.raw.arrays import ChunkEntries, ChunkGrid, EntryFormat
from icevirt_scanners.hdf5.raw.heaps import DEEPEST, RecordTree
from icevirt_scanners.hdf5.raw.space import Rows, Space, check_heads, number, require, to_signed

_CHUNKED = 2
_CONTIGUOUS, _IN_CHUNKS = b"\1", b"\2"
_INDEX_KINDS = {1: "single", 2: "implicit", 3: "fixed", 4: "extensible", 5: "btree2"}
_PARAMETERS = {"implicit": 0, "fixed": 1, "extensible": 5, "btree2": 6}  # their bytes
_RUNS = ("btree1", "fixed")  # whose readers can read runs


@dataclass(frozen=True, slots=True)
class IndexLayout:
    """How the chunks of a dataset are indexed."""

    kind: str
    edges: tuple[int, ...]  # of a chunk, then the bytes of an element
    address: int | None  # of the index; None where no chunk was ever written


def layout_of(message: bytes, space: Space) -> IndexLayout:
    """Decode a layout message of version 3 and later."""
    return _layout(message, space.address_width)


@lru_cache(256)  # each dataset's is read twice
def _layout(message: bytes, wide: int) -> IndexLayout:
    version = number(message, 0, 1)
    require(version in (3, 4, 5) and number(message, 1, 1) == _CHUNKED, "another layout")
    if version == 3:
        count, kind, at = number(message, 2, 1), "btree1", 3
        require(3 + wide + 4 * count <= len(message), "a layout cut short")
        edges = unpack_from(f"<{count}I", message, 3 + wide)
    else:
        count, width = number(message, 3, 1), number(message, 4, 1)
        require(1 <= width <= 8, "edges of an odd size")
        edges = tuple(number(message, 5 + width * axis, width) for axis in range(count))
        at = 5 + width * count
        kind = _INDEX_KINDS.get(number(message, at, 1), "")
        require(kind in _PARAMETERS, "an index that only libhdf5 reads")
        at += 1 + _PARAMETERS[kind]
    address = number(message, at, wide)
    return IndexLayout(kind, edges, None if address == (1 << 8 * wide) - 1 else address)


def without_address(message: bytes, wide: int) -> tuple[bytes, bool]:
    """Return what a layout message says beside an address, and whether that leads anywhere.

    It is all of the message where values stand in it, or where only libhdf5 reads it.
    """
    at = address_at(message)
    address = message[at : at + wide] if at else b""
    if len(address) < wide:
        return message, True
    return message[:at] + message[at + wide :], address != b"\xff" * wide


def address_at(message: bytes) -> int:
    """Return where in a layout message the address stands; 0 where it has none."""
    version, kind = message[:1], message[1:2]
    if version not in (b"\3", b"\4", b"\5") or kind not in (_CONTIGUOUS, _IN_CHUNKS):
        return 0
    if kind == _CONTIGUOUS:
        return 2
    if version == b"\3":
        return 3
    index = 5 + number(message, 3, 1) * number(message, 4, 1)
    name = _INDEX_KINDS.get(number(message, index, 1), "")
    return index + 1 + _PARAMETERS[name] if name in _PARAMETERS else 0


def list_chunks(
    space: Space,
    message: bytes,
    *,
    chunk: tuple[int, ...],
    shape: tuple[int, ...],
    limits: tuple[int | None, ...],
    run: tuple[int, int] | None = None,
) -> ChunkEntries:
    """List the chunks of a dataset by its layout message.

    Args:
        space: The file.
        message: As `header.only` returns it.
        chunk: Edges of a chunk, which the layout message must repeat.
        shape: Of the dataset.
        limits: How far its axes may grow; None without limit.
        run: Of places in its chunk grid, in C order; None for all chunks.

    Raises:
        NotUnderstoodError: The message or the index is not as this reader expects it.
    """
    layout = layout_of(message, space)
    require(layout.edges[:-1] == chunk, "chunks of another shape")
    grid = ChunkGrid(
        chunk=chunk, shape=shape, limits=limits, chunk_bytes=prod(layout.edges), run=run
    )
    require(run is None or layout.kind in _RUNS, "an index that is not in the order of the grid")
    if layout.address is None:
        return ChunkEntries.join([], len(chunk))
    return _READERS[layout.kind](space, layout.address, grid)


_ENTRIES = 64  # of a node of version 1, unless a file says otherwise
_LAYOUT, _ADDRESS = b"\3\2", 3  # how layout messages with a tree begin, and where it stands


def _btree1_chunks(space: Space, root: int, grid: ChunkGrid) -> ChunkEntries:
    """List the chunks of the tree at ``root``, level by level."""
    ndim = len(grid.chunk)
    entry, start = _entry(ndim, space.address_width), 8 + 2 * space.address_width
    head = space.block(root, 8)
    level = head[5]
    require(level <= DEEPEST, "a tree too deep")
    if not level:  # most trees are one node, which need not be read to its end
        used = int.from_bytes(head[6:8], "little")
        require(head[:5] == b"TREE\1" and used <= _ENTRIES, "a node of another size")
        data = space.block(root, start + used * entry.itemsize)
        return _entries_of(_select(np.frombuffer(data, entry, used, start), grid), grid)
    size = start + _ENTRIES * entry.itemsize + 8 + 8 * (ndim + 1)
    addresses = np.array([root], np.int64)
    while True:
        parts = [_node_entries(rows, level, entry) for _, rows in space.rows(addresses, size)]
        if not level:
            return _entries_of(np.concatenate([_select(part, grid) for part in parts]), grid)
        inner = _select(np.concatenate(parts), grid, is_inner=True)
        addresses = to_signed(inner["child"].astype(np.uint64))
        level -= 1


@cache
def _entry(ndim: int, width: int) -> np.dtype[np.void]:
    corner = ("corner", "<u8", (ndim + 1,))
    return np.dtype([("length", "<u4"), ("mask", "<u4"), corner, ("child", f"<u{width}")])


def _node_entries(rows: Rows, level: int, entry: np.dtype[np.void]) -> NDArray[np.void]:
    """Return the entries of some nodes, one behind the other."""
    check_heads(rows, b"TREE\x01" + bytes([level]))
    used = rows[:, 6].astype(np.int64) + 256 * rows[:, 7].astype(np.int64)
    low = 1 if level else 0  # a root loses its last chunk when a dataset shrinks
    require(((used >= low) & (used <= _ENTRIES)).all(), "nodes of another size")
    start = 8 + 2 * entry["child"].itemsize
    body = rows[:, start : start + _ENTRIES * entry.itemsize]
    found: NDArray[np.void] = np.ascontiguousarray(body).view(entry)
    return found[np.arange(_ENTRIES) < used[:, None]]


def _select(
    entries: NDArray[np.void], grid: ChunkGrid, *, is_inner: bool = False
) -> NDArray[np.void]:
    """Return the entries of chunks of the run, or of nodes that hold some."""
    if grid.run is None:
        return entries
    first = to_signed(entries["corner"])[:, :-1] // np.array(grid.chunk, np.int64)
    if not is_inner:
        return entries[grid.within_run(first)]
    # a node holds what lies between its key and the next one's; the last one's end is not said
    reaches = np.ones(len(entries), np.bool_)
    reaches[:-1] = grid.within_run(first[:-1], until=first[1:])
    return entries[reaches]


def _entries_of(entries: NDArray[np.void], grid: ChunkGrid) -> ChunkEntries:
    """Return the chunks that leaf entries stand for."""
    child = entries["child"].astype(np.int64)
    require(int(child.min(initial=0)) >= 0, "a number beyond 63 bits")
    # files of an archive have the same chunks, elsewhere
    find_index = _index_of if len(entries) <= _ENTRIES else _index_of.__wrapped__
    return ChunkEntries(
        index=find_index(entries["corner"].tobytes(), grid.chunk),
        offset=child,
        length=entries["length"].astype(np.int64),
        mask=entries["mask"].astype(np.uint32),
    )


@lru_cache(256)
def _index_of(corners: bytes, chunk: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the coordinates of chunks by their corners; read-only, since files share it."""
    corner = np.frombuffer(corners, "<i8").reshape(-1, len(chunk) + 1)
    require(int(corner.min(initial=0)) >= 0, "a number beyond 63 bits")
    require(not corner[:, -1].any(), "a corner inside an element")
    edges = np.array(chunk, np.int64)
    index: NDArray[np.int64] = corner[:, :-1] // edges
    require(np.array_equal(index * edges, corner[:, :-1]), "a corner off the grid")
    index.flags.writeable = False
    return index


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tree of one node, to read others that only differ in places and lengths."""

    begin: bytes  # of the node
    start: int  # bytes before its entries
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
        rows = np.frombuffer(space.block(root, start + count * entry.itemsize), entry, count, start)
        masks = rows["mask"].tobytes()
        if any(masks):
            return None
        index, mask = found.index.copy(), np.zeros(count, np.uint32)
        index.flags.writeable = mask.flags.writeable = False  # files share them
        return cls(begin, start, entry, rows["corner"].tobytes(), masks, index, mask)

    def read(self, space: Space, layout: bytes) -> ChunkEntries | None:
        """Return the chunks of another file, None where the node differs in more.

        Raises:
            NotUnderstoodError: It does not lie in the file.
        """
        root = int.from_bytes(layout[_ADDRESS : _ADDRESS + space.address_width], "little")
        count = len(self.index)
        data = space.begin().block(root, self.start + count * self.entry.itemsize)
        rows = np.frombuffer(data, self.entry, count, self.start)
        if not data.startswith(self.begin) or rows["corner"].tobytes() != self.corners:
            return None
        offset = rows["child"].astype(np.int64)
        if rows["mask"].tobytes() != self.masks or np.minimum.reduce(offset) < 0:
            return None
        return ChunkEntries(
            index=self.index,
            offset=offset + space.base if space.base else offset,
            length=rows["length"].astype(np.int64),
            mask=self.mask,
        )


_UNFILTERED, _FILTERED = 10, 11  # kinds of records


def _btree2_chunks(space: Space, address: int, grid: ChunkGrid) -> ChunkEntries:
    """List the chunks of the tree whose header is at ``address``."""
    tree, ndim = RecordTree(space, address), len(grid.chunk)
    require(tree.kind in (_UNFILTERED, _FILTERED), "records of another kind")
    filtered = tree.kind == _FILTERED
    entry = EntryFormat.of(tree.record - 8 * ndim, space, grid, filtered=filtered)
    rows = np.frombuffer(b"".join(tree.runs()), np.uint8).reshape(-1, tree.record)
    where = np.ascontiguousarray(rows[:, entry.width :]).view("<u8").reshape(-1, ndim)
    return entry.decode(rows[:, : entry.width], to_signed(where))


_READERS: dict[str, Callable[[Space, int, ChunkGrid], ChunkEntries]] = {
    "btree1": _btree1_chunks,
    "btree2": _btree2_chunks,
    "extensible": arrays.extensible_chunks,
    "fixed": arrays.list_fixed,
    "implicit": arrays.implicit_chunks,
}
