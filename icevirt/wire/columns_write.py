"""Writes vectors of tables as fixed-stride records, all rows of a kind at once.

A record is a vtable, a table and the table's vector of coordinates. Each record carries its own
copy of the vtable: the distance to it is then the same everywhere, and zstd makes that smaller than
a shared vtable would be.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import InvalidInputError
from icevirt.wire.header import MAX_PAYLOAD
from icevirt.wire.layout import Layout, layout
from icevirt.wire.ranges import Bytes, Places, copy_ranges
from icevirt.wire.schema import Table


class Tail:
    """What stands behind the small tables of a file: parts, and how many bytes they are."""

    def __init__(self, start: int) -> None:
        self.end = start
        self.parts: list[Bytes] = []

    def add(self, part: NDArray[np.generic], *, align: int = 8) -> int:
        """Append an array's bytes and return where they stand.

        Raises:
            InvalidInputError: The file grows beyond what FlatBuffers can address.
        """
        if padding := -self.end % align:
            self.parts.append(np.zeros(padding, np.uint8))
        start = self.end + padding
        self.parts.append(part.reshape(-1).view(np.uint8))
        self.end = start + self.parts[-1].size
        if self.end > MAX_PAYLOAD:
            raise InvalidInputError(
                "more than fits one file", do="Split it: write fewer references.", bytes=self.end
            )
        return start


@dataclass(frozen=True, slots=True)
class Records:
    """How the rows of one kind look: the row before its columns are filled in, and its places."""

    template: Bytes
    table_at: int
    vector_at: int
    shape: Layout

    @classmethod
    def of(cls, table: Table, present: frozenset[str], vector: str, ndim: int) -> Records:
        """Lay out records of ``table`` whose field ``vector`` holds ``ndim`` coordinates."""
        shape = layout(table, present)
        table_at = len(shape.vtable) + -len(shape.vtable) % shape.align
        vector_at = table_at + shape.size + -shape.size % 4
        stride = vector_at + 4 + 4 * ndim
        template = np.zeros(stride + -stride % shape.align, np.uint8)
        template[: len(shape.vtable)] = np.frombuffer(shape.vtable, np.uint8)
        words = template.view("<u4")
        words[table_at // 4] = table_at
        place = table_at + shape.at[vector]
        words[place // 4] = vector_at - place
        words[vector_at // 4] = ndim
        return cls(template, table_at, vector_at, shape)

    def rows(self, index: NDArray[np.uint32]) -> Bytes:
        """Return a record for each row of ``index``, shape (n, stride)."""
        rows = np.empty((len(index), len(self.template)), np.uint8)
        rows[:] = self.template
        low = self.vector_at + 4
        rows[:, low : low + 4 * index.shape[1]].view("<u4")[:] = index
        return rows

    def fill(self, rows: Bytes, name: str, column: NDArray[np.generic]) -> None:
        """Set a field of every row: numbers of its size, or (n, size) bytes."""
        low = self.table_at + self.shape.at[name]
        raw = column.reshape(len(rows), -1)
        width = raw.shape[1] * raw.itemsize
        rows[:, low : low + width].view(raw.dtype)[:] = raw

    def places(self, start: int, count: int) -> Places:
        """Return where the tables stand when the rows stand at ``start``."""
        return start + self.table_at + len(self.template) * np.arange(count, dtype=np.int64)


def references(slots: Places | int, targets: Places) -> NDArray[np.uint32]:
    """Return the references stored at ``slots`` that lead to ``targets``."""
    return (targets - slots).astype("<u4")


def vector_slots(start: int, count: int) -> Places:
    """Return the places of the elements of a vector of references at ``start``."""
    return start + 4 + 4 * np.arange(count, dtype=np.int64)


def pool(source: Bytes, start: Places, length: Places) -> tuple[Bytes, Places]:
    """Return byte vectors (or strings: a zero follows each) and where each stands in the pool."""
    sizes = (4 + length + 1 + 3) // 4 * 4
    at = np.zeros(len(length) + 1, np.int64)
    np.cumsum(sizes, out=at[1:])
    out = np.zeros(int(at[-1]), np.uint8)
    out.view("<u4")[at[:-1] // 4] = length
    copy_ranges(source, start, out, at[:-1] + 4, length)
    return out, at[:-1]
