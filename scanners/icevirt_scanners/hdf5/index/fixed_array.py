"""Read fixed arrays and implicit indices: latest-format datasets that cannot grow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from icevirt_scanners.hdf5.index.entries import ChunkEntries, ChunkGrid, EntryFormat
from icevirt_scanners.hdf5.raw.space import CHECKSUM, Rows, Space, check_sums, number, require


def implicit_chunks(space: Space, address: int, grid: ChunkGrid) -> ChunkEntries:
    """List chunks that stand one behind the other, all of them allocated."""
    n = grid.places()
    require(n * grid.chunk_bytes <= space.size, "more chunks than the file can hold")
    place = np.arange(n, dtype=np.int64)
    index = grid.coordinates(place)
    inside = (index * np.array(grid.chunk) < np.array(grid.shape)).all(axis=1)
    place, index = place[inside], index[inside]
    return ChunkEntries(
        index=index,
        offset=address + place * grid.chunk_bytes,
        length=np.full(len(place), grid.chunk_bytes, np.int64),
        mask=np.zeros(len(place), np.uint32),
    )


def chunks(space: Space, address: int, grid: ChunkGrid) -> ChunkEntries:
    """List the chunks of the fixed array whose header is at ``address``."""
    wide = space.address_width
    head = space.sealed(address, 8 + space.length_width + wide + CHECKSUM, b"FAHD\0")
    filtered, width, page_bits = head[5], head[6], head[7]
    require(filtered in (0, 1) and page_bits < 32, "a client of another kind")
    entry = EntryFormat.of(width, space, grid, filtered=bool(filtered))
    n = number(head, 8, space.length_width)
    require(n == grid.places(), "an array of another length")
    low, high = grid.run or (0, n)
    block = head[8 + space.length_width :]
    if block == b"\xff" * wide:
        return ChunkEntries.joined([], len(grid.chunk))
    require(n * width <= space.size, "an array larger than the file")
    array = _DataBlock(space, number(block, 0, wide), n, entry, grid, low, high)
    prefix = b"FADB\0" + bytes([filtered]) + address.to_bytes(wide, "little")
    if n <= 1 << page_bits:
        return array.whole(prefix)
    return ChunkEntries.joined(list(array.pages(prefix, 1 << page_bits)), len(grid.chunk))


@dataclass(frozen=True, slots=True)
class _DataBlock:
    """The data block of a fixed array."""

    space: Space
    address: int
    length: int  # in entries
    entry: EntryFormat
    grid: ChunkGrid
    low: int  # the first entry that is wanted
    high: int  # and the end of those

    def whole(self, prefix: bytes) -> ChunkEntries:
        """Return the entries of a data block without pages."""
        size = len(prefix) + self.length * self.entry.width
        data = self.space.sealed(self.address, size + CHECKSUM, prefix)
        return self._decoded(np.frombuffer(data, np.uint8, offset=len(prefix)), 0)

    def pages(self, prefix: bytes, page: int) -> Iterator[ChunkEntries]:
        """Yield the entries of pages, of which only those in a bitmap are in use."""
        count = -(-self.length // page)
        start = len(prefix) + -(-count // 8) + CHECKSUM
        bitmap = self.space.sealed(self.address, start, prefix)[len(prefix) :]
        used = np.flatnonzero(np.unpackbits(np.frombuffer(bitmap, np.uint8))[:count])
        used = used[(used * page < self.high) & ((used + 1) * page > self.low)]
        first = self.address + start
        stride = page * self.entry.width + CHECKSUM
        rest = self.length - (count - 1) * page  # entries of the last page
        full = used[used < count - 1] if rest < page else used
        for some, rows in self.space.rows(first + full * stride, stride):
            check_sums(rows)
            place = (full[some, None] * page + np.arange(page)).reshape(-1)
            raw = np.ascontiguousarray(rows[:, :-CHECKSUM]).reshape(-1, self.entry.width)
            yield self._wanted(raw, place)
        if len(full) < len(used):
            last = first + (count - 1) * stride
            data = self.space.sealed(last, rest * self.entry.width + CHECKSUM, b"")
            yield self._decoded(np.frombuffer(data, np.uint8), (count - 1) * page)

    def _decoded(self, raw: NDArray[np.uint8], first: int) -> ChunkEntries:
        rows = raw.reshape(-1, self.entry.width)
        return self._wanted(rows, np.arange(first, first + len(rows), dtype=np.int64))

    def _wanted(self, rows: Rows, place: NDArray[np.int64]) -> ChunkEntries:
        inside = (place >= self.low) & (place < self.high)
        if not inside.all():
            rows, place = rows[inside], place[inside]
        return self.entry.decode(rows, self.grid.coordinates(place))
