"""Read blocks of an HDF5 file's address space: bounded, many of them in few requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numcodecs.jenkins import jenkins_lookup3
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

PAGE = 32 * 1024
"""Bytes that are read at once where a small block is wanted."""

_KEPT = 64  # pages
_GAP = 64 * 1024  # bytes between two blocks that are read rather than skipped
_RUN = 4 * 1024 * 1024  # bytes of one read, roughly
_BATCH = 16 * 1024 * 1024  # bytes of blocks held at a time


class Pages:
    """Reads small ranges from pages that are kept, since headers and heaps stand close together."""

    __slots__ = ("_pages", "_read")

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        self._read = read
        self._pages: dict[int, bytes] = {}

    def __call__(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes at ``offset``, fewer only at the end of the file."""
        number, within = divmod(offset, PAGE)
        if within + length > PAGE:
            return self._read(offset, length)
        page = self._pages.get(number)
        if page is None:
            if len(self._pages) == _KEPT:
                self._pages.clear()
            page = self._pages[number] = self._read(number * PAGE, PAGE)
        return page[within : within + length]


@dataclass(slots=True, kw_only=True)
class Space:
    """Reads blocks by their address, which counts from the end of the user block.

    All blocks of an index together cannot be larger than the file: nothing runs in circles.
    """

    read: Callable[[int, int], bytes]  # offset in the file, length
    base: int  # where addresses count from
    size: int  # of the file
    address_width: int
    length_width: int
    page: int = 0  # bytes of a page of the file, 0 where it has none
    announce: Callable[..., None] | None = None  # takes ranges that will be read, and the page
    _left: int = field(init=False)

    def __post_init__(self) -> None:
        self._left = self.size

    def begin(self) -> Space:
        """Begin to read the blocks of another object."""
        self._left = self.size
        return self

    def soon(self, places: Iterable[tuple[int, int]]) -> None:
        """Announce blocks that will be read, by address and length."""
        if self.announce is None:
            return
        begins = ((self.base + address, length) for address, length in places)
        ranges = [(at, min(at + length, self.size)) for at, length in begins if at < self.size]
        self.announce(ranges, page=self.page)

    def at_most(self, address: int, length: int) -> bytes:
        """Return up to ``length`` bytes at an address, fewer at the end of the file."""
        begin = self.base + address
        require(begin < self.size, "a block outside the file")
        return self.read(begin, min(length, self.size - begin))

    def block(self, address: int, length: int) -> bytes:
        """Return the ``length`` bytes at an address."""
        begin = self.base + address
        require(length >= 0 and begin + length <= self.size, "a block outside the file")
        self._spend(length)
        data = self.read(begin, length)
        require(len(data) == length, "a block cut short")
        return data

    def holds(self, address: int, data: bytes) -> bool:
        """Say whether these bytes stand at an address."""
        begin = self.base + address
        return begin + len(data) <= self.size and self.read(begin, len(data)) == data

    def read_sealed(self, address: int, length: int, head: bytes) -> bytes:
        """Return a block that begins with ``head`` and ends with its checksum, without that."""
        data = self.block(address, length)
        require(data.startswith(head), f"no {head[:4]!r}")
        check_sum(data)
        return data[:-CHECKSUM]

    def rows(self, addresses: NDArray[np.int64], length: int) -> Iterator[tuple[slice, Rows]]:
        """Yield the blocks of one length at all addresses, in their order, some at a time."""
        require(length > 0, "a block without bytes")
        step = max(1, _BATCH // length)
        for first in range(0, len(addresses), step):
            some = slice(first, first + step)
            yield some, self._gather(addresses[some], length)

    def _gather(self, addresses: NDArray[np.int64], length: int) -> Rows:
        self._spend(length * len(addresses))
        order = np.argsort(addresses, kind="stable")
        at = addresses[order]
        inside = at[0] >= 0 and at[-1] <= self.size - self.base - length
        require(inside, "a block outside the file")
        found = np.empty((len(at), length), np.uint8)
        apart = (np.diff(at) > length + _GAP) | (np.diff(at // _RUN) != 0)
        cuts = [0, *(np.flatnonzero(apart) + 1).tolist(), len(at)]
        if self.announce is not None:
            runs = ((int(at[a]), int(at[b - 1] - at[a]) + length) for a, b in pairwise(cuts))
            self.soon(runs)
        for first, stop in pairwise(cuts):
            begin = int(at[first])
            span = int(at[stop - 1]) - begin + length
            data = self.read(self.base + begin, span)
            require(len(data) == span, "a block cut short")
            windows = sliding_window_view(np.frombuffer(data, np.uint8), length)
            found[order[first:stop]] = windows[at[first:stop] - begin]
        return found

    def _spend(self, nbytes: int) -> None:
        self._left -= nbytes
        require(self._left >= 0, "an index larger than its file")


CHECKSUM = 4  # bytes behind everything that has one

type Place = tuple[int, bytes]
"""Address of a block, and all its bytes."""

type Rows = NDArray[np.uint8]  # (n, bytes): a row for each block or entry


class NotUnderstoodError(Exception):
    """A block is not as this reader expects it; libhdf5 must be asked."""


def require(truth: Any, what: str) -> None:
    """Give the dataset up to libhdf5 unless ``truth`` holds."""
    if not truth:
        raise NotUnderstoodError(what)


def number(data: bytes, at: int, width: int) -> int:
    """Return the little-endian unsigned integer of ``width`` bytes at ``at``."""
    end = at + width
    if not 0 <= at <= end <= len(data):
        raise NotUnderstoodError("a field outside its block")
    return int.from_bytes(data[at:end], "little")


def numbers(rows: Rows) -> NDArray[np.uint64]:
    """Return the little-endian unsigned integer in each row of at most 8 bytes."""
    n, width = rows.shape
    wide = np.zeros((n, 8), np.uint8)
    wide[:, :width] = rows
    column: NDArray[np.uint64] = wide.view("<u8").reshape(n)
    return column


def to_signed(column: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return a column that must fit 63 bits."""
    found = column.astype(np.int64)
    require(int(found.min(initial=0)) >= 0, "a number beyond 63 bits")
    return found


def are_defined(addresses: Rows) -> NDArray[np.bool_]:
    """Say which addresses lead anywhere; all bits are set in those that do not."""
    found: NDArray[np.bool_] = (addresses != 0xFF).any(axis=1)
    return found


def check_sum(block: bytes) -> None:
    """Compare the checksum at the end of a block with its content."""
    require(
        len(block) >= CHECKSUM
        and jenkins_lookup3(block[:-CHECKSUM]) == int.from_bytes(block[-CHECKSUM:], "little"),
        "a wrong checksum",
    )


def check_sums(rows: Rows) -> None:
    """Compare the checksum at the end of each row with its content."""
    for row in rows:  # a Python call for each block, not for each chunk
        check_sum(row.tobytes())


def check_heads(rows: Rows, head: bytes) -> None:
    """Compare the first bytes of each row."""
    require((rows[:, : len(head)] == np.frombuffer(head, np.uint8)).all(), f"no {head[:4]!r}")
