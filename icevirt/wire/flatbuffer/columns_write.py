"""Write vectors of tables as fixed-stride records, all rows of a kind at once.

A record is a vtable, a table and the table's vector of coordinates. Each record carries its own
copy of the vtable: the distance to it is then constant, and zstd makes that smaller than a shared
vtable would be.

Sizes are known before bytes are made, so bytes are made block by block while the file is
compressed: the file never exists uncompressed, and each block stays in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import InvalidInputError
from icevirt.model.strings import Bytes, Places, Strings, copy_ranges
from icevirt.wire.flatbuffer.builder import TableLayout, layout
from icevirt.wire.flatbuffer.schema import Table
from icevirt.wire.header import MAX_PAYLOAD

BLOCK = 1 << 13  # rows made at once
_POOL_BLOCK = 1 << 19  # bytes
_FORMS = 256  # kinds of records that are remembered

type Blocks = Callable[[], Iterable[Bytes]]
"""Makes the bytes of a part; each block is valid until the next one is made."""


class Tail:
    """The parts behind the small tables of a file, and the end of the file so far."""

    def __init__(self, start: int) -> None:
        self.end = start
        self._parts: list[tuple[int, Blocks]] = []  # (zeros before it, what makes it)

    def add(self, size: int, blocks: Blocks, *, align: int = 8) -> int:
        """Append a part of ``size`` bytes, to be made later, and return where it stands.

        Raises:
            InvalidInputError: The file grows beyond what FlatBuffers can address.
        """
        padding = -self.end % align
        self._parts.append((padding, blocks))
        start = self.end + padding
        self.end = start + size
        if self.end > MAX_PAYLOAD:
            raise InvalidInputError(
                "too large for one file", do="Split it: write fewer references.", bytes=self.end
            )
        return start

    def blocks(self) -> Iterator[Bytes]:
        """Make all parts, in order."""
        for padding, blocks in self._parts:
            if padding:
                yield np.zeros(padding, np.uint8)
            yield from blocks()

    def payload(self, small: bytearray) -> Bytes:
        """Return the whole payload, which begins with the small tables."""
        made, at = np.empty(self.end, np.uint8), len(small)
        made[:at] = small
        for part in self.blocks():
            made[at : at + len(part)] = part
            at += len(part)
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Up to ``BLOCK`` rows to be written as records."""

    count: int
    index: NDArray[np.uint32] | None = None  # (count, ndim)
    columns: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)  # (k,), (k, bytes)
    targets: Mapping[str, NDArray[np.integer]] = field(default_factory=dict)
    """Where references are to lead."""


@dataclass(frozen=True, slots=True)
class Records:
    """How the rows of one kind look: the row before its columns are filled in, and its places."""

    template: Bytes
    table_at: int
    vector_at: int
    shape: TableLayout

    @staticmethod
    @lru_cache(_FORMS)
    def of(
        table: Table,
        present: frozenset[str],
        vector: str | None = None,
        ndim: int = 0,
        *,
        align: int = 1,
    ) -> Records:
        """Lay out records of ``table``; the field ``vector`` holds ``ndim`` numbers of 4 bytes."""
        shape = layout(table, present)
        table_at = len(shape.vtable) + -len(shape.vtable) % shape.align
        vector_at = table_at + shape.size + -shape.size % 4
        stride = vector_at if vector is None else vector_at + 4 + 4 * ndim
        template = np.zeros(stride + -stride % max(shape.align, align), np.uint8)
        template[: len(shape.vtable)] = np.frombuffer(shape.vtable, np.uint8)
        words = template.view("<u4")
        words[table_at // 4] = table_at
        if vector is not None:
            place = table_at + shape.at[vector]
            words[place // 4] = vector_at - place
            words[vector_at // 4] = ndim
        template.flags.writeable = False
        return Records(template, table_at, vector_at, shape)

    @property
    def stride(self) -> int:
        """Bytes from one record to the next."""
        return len(self.template)

    def places(self, start: int, count: int) -> Places:
        """Return where the tables stand when the records stand at ``start``."""
        return start + self.table_at + self.stride * np.arange(count, dtype=np.int64)

    def blocks(self, start: int, count: int, parts: Iterable[Rows]) -> Iterator[Bytes]:
        """Yield the bytes of ``count`` records that are to stand at ``start``."""
        size = min(count, BLOCK)
        buffer = np.empty((size, self.stride), np.uint8)
        buffer[:] = self.template
        places = self.places(start, size).astype(np.uint32)  # which no payload exceeds
        for part in parts:
            rows = buffer[: part.count]
            self._write(rows, places[: part.count], part)
            yield rows.reshape(-1)
            places += np.uint32(self.stride * part.count)

    def scattered(self, starts: Places, part: Rows) -> Bytes:
        """Return the records that are to stand at ``starts``, shape (n, stride)."""
        rows = np.empty((part.count, self.stride), np.uint8)
        rows[:] = self.template
        self._write(rows, starts + self.table_at, part)
        return rows

    def _write(self, rows: Bytes, tables: NDArray[np.integer], part: Rows) -> None:
        """Put columns into copies of the template; ``tables`` is where the tables are to stand."""
        if part.index is not None:
            low = self.vector_at + 4
            vectors = rows[:, low : low + 4 * part.index.shape[1]].view("<u4")
            for axis, column in enumerate(part.index.T):  # a third of the time of rows of three
                vectors[:, axis] = column
        for name, column in part.columns.items():
            self._fill(rows, name, column)
        for name, target in part.targets.items():
            self._fill(rows, name, references(tables + self.shape.at[name], target))

    def _fill(self, rows: Bytes, name: str, column: NDArray[np.generic]) -> None:
        """Set a field of every row: numbers of its size, or (k, size) bytes."""
        low = self.table_at + self.shape.at[name]
        raw = column.reshape(len(rows), -1)
        width = raw.shape[1] * raw.itemsize
        rows[:, low : low + width].view(raw.dtype)[:] = raw


def references(
    slots: NDArray[np.integer] | int, targets: NDArray[np.integer]
) -> NDArray[np.uint32]:
    """Return the references stored at ``slots`` that lead to ``targets``."""
    return (targets - slots).astype("<u4", copy=False)


def vector_blocks(start: int, count: int, targets: Iterable[Places]) -> Iterator[Bytes]:
    """Yield the bytes of a vector of ``count`` references that is to stand at ``start``."""
    yield np.array([count], "<u4").view(np.uint8)
    slot = start + 4
    for part in targets:
        slots = slot + 4 * np.arange(len(part), dtype=np.int64)
        yield references(slots, part).view(np.uint8)
        slot += 4 * len(part)


@dataclass(frozen=True, slots=True)
class Pool:
    """Byte vectors (or strings: a zero follows each), to be copied out of ``source``."""

    source: Bytes
    start: Places
    length: Places  # in bytes
    at: Places  # where each stands in the pool, and at last the pool's size
    element: int = 1  # bytes of what the vectors count

    @classmethod
    def of(cls, source: Bytes, start: Places, length: Places, *, element: int = 1) -> Pool:
        """Lay them out one after the other."""
        at = np.zeros(len(length) + 1, np.int64)
        sizes = at[1:]  # in place: there may be millions
        np.add(length, 4 + 1 + 3, out=sizes)  # what says the length, a zero, and up to 3 more
        sizes &= ~3
        np.cumsum(sizes, out=sizes)
        return cls(source, start, length, at, element)

    @classmethod
    def of_strings(cls, strings: Strings) -> Pool:
        """Lay out a column of strings."""
        return cls.of(strings.data, strings.starts[:-1], strings.lengths)

    @property
    def size(self) -> int:
        """Bytes of the pool."""
        return int(self.at[-1])

    def blocks(self) -> Iterator[Bytes]:
        """Yield the bytes of the pool."""
        bounds = [0, len(self.length)]
        if self.size > _POOL_BLOCK:
            cuts = np.searchsorted(self.at, np.arange(_POOL_BLOCK, self.size, _POOL_BLOCK))
            bounds = np.unique(np.concatenate([[0], cuts, [len(self.length)]])).tolist()
        sizes = np.diff(self.at[bounds])
        buffer = np.empty(int(sizes.max(initial=0)), np.uint8)
        for low, high in pairwise(bounds):
            at, length = self.at[low:high] - self.at[low], self.length[low:high]
            out = buffer[: int(self.at[high] - self.at[low])]
            out.fill(0)
            out.view("<u4")[at >> 2] = length // self.element if self.element > 1 else length
            copy_ranges(self.source, self.start[low:high], out, at + 4, length)
            yield out


def pooled(tail: Tail, pool: Pool) -> Places:
    """Append a pool and return where each of its vectors stands."""
    return tail.add(pool.size, pool.blocks, align=4) + pool.at[:-1]
