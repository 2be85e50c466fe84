"""Read the indices of latest-format datasets: implicit, fixed arrays, and extensible arrays.

Datasets that cannot grow have one of the first two. Those that grow along one axis have an
extensible array: entries lie in an index block (the first few), in data blocks it names, and in
data blocks named by super blocks, which double in size by turns. Large data blocks have pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from icevirt_scanners.hdf5.index.entries import ChunkEntries, ChunkGrid, EntryFormat
from icevirt_scanners.hdf5.raw.space import (
    CHECKSUM,
    Rows,
    Space,
    check_heads,
    check_sums,
    defined,
    number,
    numbers,
    require,
    signed,
)


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


def fixed_chunks(space: Space, address: int, grid: ChunkGrid) -> ChunkEntries:
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


def extensible_chunks(space: Space, address: int, grid: ChunkGrid) -> ChunkEntries:
    """List the chunks of the extensible array whose header is at ``address``."""
    array = _ExtensibleArray.at(space, address, grid)
    if array.index_block is None:
        return ChunkEntries.joined([], len(grid.chunk))
    return ChunkEntries.joined(list(array.parts(array.index_block)), len(grid.chunk))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Data blocks of one size, which one super block names, or a part of the index block."""

    first: int  # place of its first entry
    blocks: int
    entries: int  # of each block


@dataclass(frozen=True, slots=True, kw_only=True)
class _ExtensibleArray:
    """An extensible array with the numbers of its header."""

    space: Space
    grid: ChunkGrid
    entry: EntryFormat
    owner: bytes  # what stands behind the signature of each block: version, client, header
    direct: int  # entries in the index block
    pointers: int  # the least of data blocks in a super block
    page: int  # entries of a page
    groups: tuple[_Group, ...]
    offset_width: int
    index_block: int | None

    @classmethod
    def at(cls, space: Space, address: int, grid: ChunkGrid) -> _ExtensibleArray:
        """Read the header."""
        wide, long = space.address_width, space.length_width
        head = space.sealed(address, 12 + 6 * long + wide + CHECKSUM, b"EAHD\0")
        filtered, width, bits, direct, least, pointers, page_bits = head[5:12]
        powers = all(n and not n & (n - 1) for n in (least, pointers))
        require(filtered in (0, 1) and powers and pointers > 1, "a client of another kind")
        require(bits <= 40 and page_bits <= bits and least.bit_length() <= bits, "odd parameters")
        block = head[12 + 6 * long :]
        return cls(
            space=space,
            grid=grid,
            entry=EntryFormat.of(width, space, grid, filtered=bool(filtered)),
            owner=bytes([0, filtered]) + address.to_bytes(wide, "little"),
            direct=direct,
            pointers=pointers,
            page=1 << page_bits,
            groups=_groups(bits, direct, least),
            offset_width=-(-bits // 8),
            index_block=None if block == b"\xff" * wide else number(block, 0, wide),
        )

    def parts(self, address: int) -> Iterator[ChunkEntries]:
        """Yield the entries of the index block, then those of all data blocks."""
        wide = self.space.address_width
        # groups whose data blocks the index block names
        inner = min(2 * (self.pointers.bit_length() - 1), len(self.groups))
        named = sum(group.blocks for group in self.groups[:inner])
        head = b"EAIB" + self.owner
        entries, supers_named = self.direct * self.entry.width, len(self.groups) - inner
        ends = np.cumsum([len(head), entries, named * wide, supers_named * wide]).tolist()
        raw = np.frombuffer(self.space.sealed(address, ends[-1] + CHECKSUM, head), np.uint8)
        yield self._decoded(raw[ends[0] : ends[1]], np.arange(self.direct, dtype=np.int64))
        blocks = raw[ends[1] : ends[2]].reshape(-1, wide)
        at = 0
        for group in self.groups[:inner]:
            yield from self._data_blocks(group, blocks[at : at + group.blocks], None)
            at += group.blocks
        supers = raw[ends[2] : ends[3]].reshape(-1, wide)
        for group, one in zip(self.groups[inner:], supers, strict=True):
            if defined(one[None]).all():
                yield from self._super_block(group, int(signed(numbers(one[None]))[0]))

    def _super_block(self, group: _Group, address: int) -> Iterator[ChunkEntries]:
        wide = self.space.address_width
        pages = group.entries // self.page if group.entries > self.page else 0
        head = b"EASB" + self.owner
        start = len(head) + self.offset_width
        bitmap = group.blocks * -(-pages // 8)
        length = start + bitmap + group.blocks * wide + CHECKSUM
        raw = np.frombuffer(self.space.sealed(address, length, head), np.uint8)
        bits = np.unpackbits(raw[start : start + bitmap])[: group.blocks * pages]
        addresses = raw[start + bitmap :].reshape(-1, wide)
        used = bits.reshape(group.blocks, pages).astype(bool) if pages else None
        yield from self._data_blocks(group, addresses, used)

    def _data_blocks(
        self, group: _Group, addresses: Rows, used: NDArray[np.bool_] | None
    ) -> Iterator[ChunkEntries]:
        """Yield the entries of some data blocks; ``used`` says which pages are in use."""
        there = np.flatnonzero(defined(addresses))
        at = signed(numbers(addresses[there]))
        first = group.first + there * group.entries
        head = b"EADB" + self.owner
        start = len(head) + self.offset_width
        if used is None:
            require(group.entries <= self.page, "pages without a bitmap")
            yield from self._runs(at, first, group.entries, head=head, skip=start)
            return
        for _, rows in self.space.rows(at, start + CHECKSUM):
            check_heads(rows, head)
            check_sums(rows)
        block, page = np.nonzero(used[there])
        stride = self.page * self.entry.width + CHECKSUM
        yield from self._runs(
            at[block] + start + CHECKSUM + page * stride, first[block] + page * self.page, self.page
        )

    def _runs(
        self,
        at: NDArray[np.int64],
        first: NDArray[np.int64],
        entries: int,
        *,
        head: bytes = b"",
        skip: int = 0,
    ) -> Iterator[ChunkEntries]:
        """Yield runs of entries between a head and a checksum, from the places ``first`` on."""
        for some, rows in self.space.rows(at, skip + entries * self.entry.width + CHECKSUM):
            check_heads(rows, head)
            check_sums(rows)
            place = (first[some, None] + np.arange(entries)).reshape(-1)
            yield self._decoded(np.ascontiguousarray(rows[:, skip:-CHECKSUM]), place)

    def _decoded(self, raw: Rows, place: NDArray[np.int64]) -> ChunkEntries:
        grows = [axis for axis, limit in enumerate(self.grid.limits) if limit is None]
        require(len(grows) == 1, "another number of unlimited axes")
        index = self.grid.coordinates(place, first=grows[0])
        return self.entry.decode(raw.reshape(-1, self.entry.width), index)


def _groups(bits: int, direct: int, least: int) -> tuple[_Group, ...]:
    """Return the data blocks of an array that numbers its entries with ``bits`` bits."""
    groups: list[_Group] = []
    first = direct
    for number_ in range(1 + bits - (least.bit_length() - 1)):
        group = _Group(
            first=first, blocks=1 << number_ // 2, entries=(1 << (number_ + 1) // 2) * least
        )
        groups.append(group)
        first += group.blocks * group.entries
    return tuple(groups)
