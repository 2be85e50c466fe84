"""Hold the entries of a chunk index as columns, and read indices that are arrays of entries.

The latest format has implicit and fixed arrays for datasets that cannot grow. Those that grow along
one axis have an extensible array: entries lie in an index block (the first few), in data blocks it
names, and in data blocks named by super blocks, which double in size by turns. Large data blocks
have pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from icevirt_scanners.hdf5.raw.space import (
    CHECKSUM,
    Rows,
    Space,
    are_defined,
    check_heads,
    check_sums,
    number,
    numbers,
    require,
    to_signed,
)

_MASK = 4  # bytes of a filter mask


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkEntries:
    """Stored chunks of a dataset, as its index lists them.

    Readers of indices count offsets from the end of the user block; `stored_chunks` counts them
    from the begin of the file.
    """

    index: NDArray[np.int64]  # (n, ndim) chunk coordinates
    offset: NDArray[np.int64]  # (n,)
    length: NDArray[np.int64]  # (n,) bytes
    mask: NDArray[np.uint32]  # (n,) filters that were skipped

    @classmethod
    def join(cls, parts: Sequence[ChunkEntries], ndim: int) -> ChunkEntries:
        """Join the parts of one index."""
        if len(parts) == 1:
            return parts[0]
        none = np.zeros(0, np.int64)
        return cls(
            index=np.concatenate([np.zeros((0, ndim), np.int64), *(part.index for part in parts)]),
            offset=np.concatenate([none, *(part.offset for part in parts)]),
            length=np.concatenate([none, *(part.length for part in parts)]),
            mask=np.concatenate([none.astype(np.uint32), *(part.mask for part in parts)]),
        )

    def take(self, rows: NDArray[np.bool_]) -> ChunkEntries:
        """Return the rows where the mask is true."""
        return ChunkEntries(
            index=self.index[rows],
            offset=self.offset[rows],
            length=self.length[rows],
            mask=self.mask[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkGrid:
    """The chunk grid of a dataset, as far as it may grow, and the size of its chunks."""

    chunk: tuple[int, ...]
    shape: tuple[int, ...]
    limits: tuple[int | None, ...]  # None where there is no limit
    chunk_bytes: int  # of a chunk without filters
    run: tuple[int, int] | None = None  # of places in the grid of the shape, which alone are wanted

    def within_run(
        self, index: NDArray[np.int64], *, until: NDArray[np.int64] | None = None
    ) -> NDArray[np.bool_]:
        """Say which chunks are in the run; with ``until``, what of [index, until) reaches into it.

        Chunks beyond the shape follow in C order like all others; the last run has those at the
        end, so that all runs together hold each chunk once.
        """
        if self.run is None:
            return np.ones(len(index), np.bool_)
        shown = index if until is None else np.concatenate([index, until])
        own = [-(-n // edge) for n, edge in zip(self.shape, self.chunk, strict=True)]
        most = shown.max(axis=0, initial=0).tolist()
        sides = [max(1, n, top + 1) for n, top in zip(own, most, strict=True)]
        steps = [prod(sides[axis + 1 :]) for axis in range(len(own))]
        require(prod(sides) < 1 << 62, "a grid too large")
        low, high = (_rank(place, own, steps) for place in self.run)
        if self.run[1] >= prod(own):
            high = 1 << 62
        ranks = index @ np.array(steps, np.int64)
        ends = ranks + 1 if until is None else until @ np.array(steps, np.int64)
        found: NDArray[np.bool_] = (ends > low) & (ranks < high)
        return found

    @property
    def counts(self) -> tuple[int, ...]:
        """How many chunks an axis can have; 0 without limit."""
        edges = zip(self.limits, self.chunk, strict=True)
        return tuple(-(-(limit or 0) // edge) for limit, edge in edges)

    def coordinates(self, place: NDArray[np.int64], *, first: int = 0) -> NDArray[np.int64]:
        """Return the chunk coordinates of places in an array that has axis ``first`` outermost."""
        counts = self.counts
        inner = [axis for axis in range(len(counts)) if axis != first]
        require(all(counts[axis] for axis in inner), "more than one unlimited axis")
        index = np.empty((len(place), len(counts)), np.int64)
        for axis in reversed(inner):
            place, index[:, axis] = np.divmod(place, counts[axis])
        index[:, first] = place
        return index


def _rank(place: int, own: list[int], steps: list[int]) -> int:
    """Return the rank of a place of the grid ``own`` in a larger grid."""
    rank = 0
    for axis in range(len(own) - 1, 0, -1):
        place, at = divmod(place, own[axis])
        rank += at * steps[axis]
    return rank + place * steps[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFormat:
    """How an entry of an index is written: an address, with filters also a length and a mask."""

    width: int
    filtered: bool
    address_width: int
    chunk_bytes: int

    @classmethod
    def of(cls, width: int, space: Space, grid: ChunkGrid, *, filtered: bool) -> EntryFormat:
        """Check the width of an entry that the index states."""
        wide = space.address_width
        right = 1 <= width - wide - _MASK <= 8 if filtered else width == wide
        require(right, "entries of an odd size")
        return cls(width=width, filtered=filtered, address_width=wide, chunk_bytes=grid.chunk_bytes)

    def decode(self, raw: Rows, index: NDArray[np.int64]) -> ChunkEntries:
        """Return the entries that lead to a chunk; ``index`` has the coordinates of each row."""
        there = are_defined(raw[:, : self.address_width])
        if not there.all():
            raw, index = raw[there], index[there]
        length, mask = np.full(len(raw), self.chunk_bytes, np.int64), np.zeros(len(raw), np.uint32)
        if self.filtered:
            end = self.width - _MASK
            length = to_signed(numbers(raw[:, self.address_width : end]))
            mask = numbers(raw[:, end : self.width]).astype(np.uint32)
        offset = to_signed(numbers(raw[:, : self.address_width]))
        return ChunkEntries(index=index, offset=offset, length=length, mask=mask)


type _Decode = Callable[[Rows, NDArray[np.int64]], ChunkEntries]
"""Takes entries, a row each, and their places in the array."""


def _runs(  # noqa: PLR0917 - two callers
    space: Space,
    at: NDArray[np.int64],
    first: NDArray[np.int64],
    entries: int,
    width: int,
    decode: _Decode,
    head: bytes = b"",
    skip: int = 0,
) -> Iterator[ChunkEntries]:
    """Yield runs of entries between ``skip`` bytes and a checksum, from places ``first`` on."""
    size = skip + entries * width + CHECKSUM
    if len(at) == 1:  # most arrays are one block
        data = np.frombuffer(space.read_sealed(int(at[0]), size, head), np.uint8, offset=skip)
        yield decode(data.reshape(-1, width), first + np.arange(entries))
        return
    for some, rows in space.rows(at, size):
        check_heads(rows, head)
        check_sums(rows)
        place = (first[some, None] + np.arange(entries)).reshape(-1)
        raw = np.ascontiguousarray(rows[:, skip:-CHECKSUM])
        yield decode(raw.reshape(-1, width), place)


def implicit_chunks(space: Space, address: int, grid: ChunkGrid) -> ChunkEntries:
    """List chunks that stand one behind the other, all of them allocated."""
    n = prod(grid.counts)
    require(n * grid.chunk_bytes <= space.size, "more chunks than the file can hold")
    place = np.arange(n, dtype=np.int64)
    found = ChunkEntries(
        index=grid.coordinates(place),
        offset=address + place * grid.chunk_bytes,
        length=np.full(n, grid.chunk_bytes, np.int64),
        mask=np.zeros(n, np.uint32),
    )
    return found.take((found.index * np.array(grid.chunk) < np.array(grid.shape)).all(axis=1))


def list_fixed(space: Space, address: int, grid: ChunkGrid) -> ChunkEntries:
    """List the chunks of the fixed array whose header is at ``address``."""
    wide, long, ndim = space.address_width, space.length_width, len(grid.chunk)
    head = space.read_sealed(address, 8 + long + wide + CHECKSUM, b"FAHD\0")
    filtered, width, page_bits = head[5], head[6], head[7]
    require(filtered in (0, 1) and page_bits < 32, "a client of another kind")
    entry = EntryFormat.of(width, space, grid, filtered=bool(filtered))
    n = number(head, 8, long)
    require(n == prod(grid.counts), "an array of another length")
    low, high = grid.run or (0, n)
    if head[8 + long :] == b"\xff" * wide:
        return ChunkEntries.join([], ndim)
    require(n * width <= space.size, "an array larger than the file")

    def decode(rows: Rows, place: NDArray[np.int64]) -> ChunkEntries:
        inside = (place >= low) & (place < high)
        if not inside.all():
            rows, place = rows[inside], place[inside]
        return entry.decode(rows, grid.coordinates(place))

    block, page = number(head, 8 + long, wide), 1 << page_bits
    prefix = b"FADB\0" + bytes([filtered]) + address.to_bytes(wide, "little")
    if n <= page:
        at, first = np.array([block], np.int64), np.zeros(1, np.int64)
        parts = list(_runs(space, at, first, n, width, decode, prefix, len(prefix)))
        return ChunkEntries.join(parts, ndim)
    # pages, of which only those in a bitmap are in use; the last one may be shorter
    count = -(-n // page)
    start = len(prefix) + -(-count // 8) + CHECKSUM
    bitmap = space.read_sealed(block, start, prefix)[len(prefix) :]
    used = np.flatnonzero(np.unpackbits(np.frombuffer(bitmap, np.uint8))[:count])
    used = used[(used * page < high) & ((used + 1) * page > low)]
    at, is_full = block + start + used * (page * width + CHECKSUM), used < count - 1
    parts = list(_runs(space, at[is_full], used[is_full] * page, page, width, decode))
    rest = n - (count - 1) * page
    parts += _runs(space, at[~is_full], used[~is_full] * page, rest, width, decode)
    return ChunkEntries.join(parts, ndim)


def extensible_chunks(space: Space, address: int, grid: ChunkGrid) -> ChunkEntries:
    """List the chunks of the extensible array whose header is at ``address``."""
    return ChunkEntries.join(list(_ExtensibleArray(space, address, grid).parts()), len(grid.chunk))


@dataclass(frozen=True, slots=True)
class _Group:
    """Data blocks of one size, which one super block names, or a part of the index block."""

    first: int  # place of its first entry
    blocks: int
    entries: int  # of each block


class _ExtensibleArray:
    """An extensible array with the numbers of its header."""

    def __init__(self, space: Space, address: int, grid: ChunkGrid) -> None:
        wide, long = space.address_width, space.length_width
        head = space.read_sealed(address, 12 + 6 * long + wide + CHECKSUM, b"EAHD\0")
        filtered, width, bits, direct, least, pointers, page_bits = head[5:12]
        powers = all(n and not n & (n - 1) for n in (least, pointers))
        require(filtered in (0, 1) and powers and pointers > 1, "a client of another kind")
        require(bits <= 40 and page_bits <= bits and least.bit_length() <= bits, "odd parameters")
        self._space, self._grid = space, grid
        self._entry = EntryFormat.of(width, space, grid, filtered=bool(filtered))
        # what stands behind the signature of each block: version, client, header
        self._owner = bytes([0, filtered]) + address.to_bytes(wide, "little")
        self._direct = direct  # entries in the index block
        self._pointers = pointers  # the least of data blocks in a super block
        self._page = 1 << page_bits  # entries
        self._offset_width = -(-bits // 8)
        self._index_block = head[12 + 6 * long :]
        self._groups: list[_Group] = []
        first = direct
        for nth in range(1 + bits - (least.bit_length() - 1)):
            group = _Group(first, 1 << nth // 2, (1 << (nth + 1) // 2) * least)
            self._groups.append(group)
            first += group.blocks * group.entries

    def parts(self) -> Iterator[ChunkEntries]:
        """Yield the entries of the index block, then those of all data blocks."""
        wide, groups = self._space.address_width, self._groups
        if self._index_block == b"\xff" * wide:
            return
        # groups whose data blocks the index block names
        inner = min(2 * (self._pointers.bit_length() - 1), len(groups))
        named = sum(group.blocks for group in groups[:inner])
        head = b"EAIB" + self._owner
        entries, supers_named = self._direct * self._entry.width, len(groups) - inner
        ends = np.cumsum([len(head), entries, named * wide, supers_named * wide]).tolist()
        block = number(self._index_block, 0, wide)
        raw = np.frombuffer(self._space.read_sealed(block, ends[-1] + CHECKSUM, head), np.uint8)
        own = raw[ends[0] : ends[1]].reshape(-1, self._entry.width)
        yield self._decode(own, np.arange(self._direct, dtype=np.int64))
        blocks = raw[ends[1] : ends[2]].reshape(-1, wide)
        at = 0
        for group in groups[:inner]:
            yield from self._data_blocks(group, blocks[at : at + group.blocks], None)
            at += group.blocks
        supers = raw[ends[2] : ends[3]].reshape(-1, wide)
        for group, one in zip(groups[inner:], supers, strict=True):
            if are_defined(one[None]).all():
                yield from self._super_block(group, int(to_signed(numbers(one[None]))[0]))

    def _super_block(self, group: _Group, address: int) -> Iterator[ChunkEntries]:
        wide = self._space.address_width
        pages = group.entries // self._page if group.entries > self._page else 0
        head = b"EASB" + self._owner
        start = len(head) + self._offset_width
        bitmap = group.blocks * -(-pages // 8)
        length = start + bitmap + group.blocks * wide + CHECKSUM
        raw = np.frombuffer(self._space.read_sealed(address, length, head), np.uint8)
        bits = np.unpackbits(raw[start : start + bitmap])[: group.blocks * pages]
        used = bits.reshape(group.blocks, pages).astype(bool) if pages else None
        yield from self._data_blocks(group, raw[start + bitmap :].reshape(-1, wide), used)

    def _data_blocks(
        self, group: _Group, addresses: Rows, used: NDArray[np.bool_] | None
    ) -> Iterator[ChunkEntries]:
        """Yield the entries of some data blocks; ``used`` says which pages are in use."""
        space, width = self._space, self._entry.width
        there = np.flatnonzero(are_defined(addresses))
        at = to_signed(numbers(addresses[there]))
        first = group.first + there * group.entries
        head = b"EADB" + self._owner
        start = len(head) + self._offset_width
        if used is None:
            require(group.entries <= self._page, "pages without a bitmap")
            yield from _runs(space, at, first, group.entries, width, self._decode, head, start)
            return
        for _, rows in space.rows(at, start + CHECKSUM):
            check_heads(rows, head)
            check_sums(rows)
        block, page = np.nonzero(used[there])
        at = at[block] + start + CHECKSUM + page * (self._page * width + CHECKSUM)
        first = first[block] + page * self._page
        yield from _runs(space, at, first, self._page, width, self._decode)

    def _decode(self, rows: Rows, place: NDArray[np.int64]) -> ChunkEntries:
        grows = [axis for axis, limit in enumerate(self._grid.limits) if limit is None]
        require(len(grows) == 1, "another number of unlimited axes")
        return self._entry.decode(rows, self._grid.coordinates(place, first=grows[0]))
