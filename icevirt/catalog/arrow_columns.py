"""Grow Arrow columns part by part, without Python objects or a second copy of the rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from icevirt.archive.facts import Coded, Labels, by_first_appearance
from icevirt.archive.kinds import KindColumn, narrow, spread
from icevirt.archive.repeated import GrowingRepeats, Repeated
from icevirt.catalog.row_checks import check_labels_dtype
from icevirt.model.indices import are_all
from icevirt.model.strings import FoldingStrings, Strings, gather

_SHORT = 64  # bytes of labels that are not looked up among others
_ROWS = 1 << 12  # that a column has room for at first


class GrowingColumns:
    """Columns of numbers that grow, each as long as the others."""

    def __init__(self) -> None:
        self._held: dict[str, Column | GrowingRepeats] = {}
        self.rows = 0

    def add(self, each: int = 0, /, **columns: NDArray[Any]) -> None:
        """Append rows, of files with ``each`` rows if it is not 0."""
        self.rows += len(next(iter(columns.values())))
        for name, values in columns.items():
            held = self._held.get(name)
            if held is None:
                held = GrowingRepeats(values[:each]) if each else Column(values.dtype)
            if isinstance(held, GrowingRepeats) and len(values) and not held.add(values, each):
                rows = np.asarray(held.take())
                held = Column(rows.dtype)
                held.add(rows)
            if isinstance(held, Column):
                held.add(values)
            self._held[name] = held

    def derive(self, name: str, other: str, of: NDArray[np.integer]) -> None:
        """Let a column be what is said of the numbers of another one."""
        held = self._held[other]
        if isinstance(held, GrowingRepeats):
            self._held[name] = held.map(of)
            return
        column = self._held[name] = Column(of.dtype)
        column.add(spread(of, held.held))

    def take(self) -> dict[str, Any]:
        """Return the columns, arrays or `Repeated`; nothing can be added any more."""
        return {name: held.take() for name, held in self._held.items()}


class Column:
    """A column of numbers that grows, in rows and where it must in the bytes of each."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._held = np.empty(_ROWS, dtype)
        self.rows = 0

    @property
    def held(self) -> NDArray[Any]:
        """The values so far."""
        return self._held[: self.rows]

    def add(self, values: NDArray[Any]) -> None:
        """Append values."""
        begin, self.rows = self.rows, self.rows + len(values)
        if not np.can_cast(values.dtype, self._held.dtype):
            self._held = self._held.astype(np.promote_types(values.dtype, self._held.dtype))
        if len(self._held) < self.rows:
            # in place, as pieces to be joined at the end would be there twice
            self._held.resize(self.rows + self.rows // 4, refcheck=False)
        self._held[begin : self.rows] = values

    def take(self) -> NDArray[Any]:
        """Return the values; nothing can be added any more."""
        self._held.resize(self.rows, refcheck=False)
        return self._held


class TextColumn:
    """Texts that grow as bytes, without a Python object for each."""

    def __init__(self) -> None:
        self._data = Column(np.dtype(np.uint8))
        self._starts = Column(np.dtype(np.int64))
        self._starts.add(np.zeros(1, np.int64))

    def add(self, data: NDArray[np.uint8], starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Append texts, end to end in ``data``; return the number of each."""
        first = self._starts.rows - 1
        self._starts.add(starts[1:] + self._data.rows)
        self._data.add(data)
        return np.arange(first, self._starts.rows - 1)

    def take(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return the bytes, and where each text begins and the last one ends."""
        return self._data.take(), self._starts.take()


class LabelColumns:
    """Labels that grow, by row of the arrays as they come."""

    def __init__(self) -> None:
        self._columns = GrowingColumns()
        nothing = np.zeros(0, np.uint8)
        self._columns.add(place=np.zeros(0, np.int64), value=nothing, dtype=nothing)
        self._values = TextColumn()
        self._long: dict[bytes, int] = {}  # what all files repeat is held once
        self._dtypes = Codes(check_labels_dtype)

    def add(self, before: int, labels: Any, dtypes: Any) -> None:
        """Append labels of more rows, after ``before`` rows."""
        rows = np.flatnonzero(are_known(labels.combine_chunks()))
        if not len(rows):
            return
        data, starts = bytes_of(labels)
        length = np.diff(starts)[rows]
        codes = self._dtypes.number(dtypes)[rows]
        kinds = (np.dtype(text).itemsize if text else 0 for text in self._dtypes.texts)
        size = np.array([each or 1 << 62 for each in kinds], np.int64)  # no type: no labels fit
        if (length % size[codes]).any():
            raise ValueError("labels are cut short")
        long, short = length > _SHORT, length <= _SHORT
        value = np.zeros(len(rows), np.int64)
        value[short] = self._values.add(*gather(data, starts[rows[short]], length[short]))
        for at in np.flatnonzero(long).tolist():
            raw = data[starts[rows[at]] : starts[rows[at] + 1]]
            number = self._long.setdefault(raw.tobytes(), -1)
            if number < 0:
                ends = np.array([0, len(raw)])
                number = self._long[raw.tobytes()] = int(self._values.add(raw, ends)[0])
            value[at] = number
        self._columns.add(place=rows + before, value=narrow(value), dtype=codes)

    def take(self) -> Labels:
        """Return all of them."""
        data, starts = self._values.take()
        columns = self._columns.take()
        return Labels(
            row=columns["place"],
            value=columns["value"],
            data=data,
            starts=starts,
            dtype=self._dtypes.encode(columns["dtype"]),
        )


class Codes:
    """Numbers for the texts of a column, the same in all parts."""

    def __init__(self, check: Callable[[str | None], None] | None = None) -> None:
        """Take what raises for a text that may not be there; it is called once for each."""
        self._numbers: dict[str | None, int] = {}
        self._check = check

    @property
    def texts(self) -> list[str | None]:
        """The texts, by their number."""
        return [*self._numbers]

    def number(self, column: Any) -> NDArray[np.integer]:
        """Return the number of each row's text."""
        codes, at = self.distinct(column)
        numbered: NDArray[np.integer] = codes.astype(np.min_scalar_type(len(self._numbers)))[at]
        return numbered

    def distinct(self, column: Any) -> tuple[NDArray[np.int64], NDArray[np.integer]]:
        """Return the numbers of the texts of a column, and which of these each row has."""
        one = column.combine_chunks()
        numbers = self._numbers
        texts = one.dictionary.to_pylist() + [None] * bool(one.null_count)  # what is null, last
        if self._check is not None:
            for text in texts:
                if text not in numbers:
                    self._check(text)
        codes = np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int64)
        at = numbers_of(one.indices)
        return codes, np.where(are_known(one), at, len(texts) - 1) if one.null_count else at

    def encode(self, codes: NDArray[np.integer] | Repeated) -> Coded:
        """Return the column with only the texts that occur, by first appearance."""
        used = by_first_appearance(codes, len(self._numbers))
        rank = np.zeros(len(self._numbers), np.min_scalar_type(len(used)))
        rank[used] = np.arange(len(used))
        texts = list(self._numbers)
        coded = KindColumn(codes, rank) if isinstance(codes, Repeated) else spread(rank, codes)
        return Coded(coded, tuple(texts[number] or "" for number in used.tolist()))


def are(column: Any, text: str) -> NDArray[np.bool_]:
    """Say which rows of a numbered column are a text."""
    one = column.combine_chunks()
    alike = np.array([each == text for each in one.dictionary.to_pylist()], np.bool_)
    found: NDArray[np.bool_] = alike[numbers_of(one.indices)]
    return found


def first_unlike(
    column: Any, usual: str, places: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the row with the first place of each text that is not the usual, and its number."""
    rows = np.flatnonzero(~are(column, usual))
    rows = rows[np.argsort(places[rows], kind="stable")]
    codes = numbers_of(column.combine_chunks().indices)[rows]
    _, first, number = np.unique(codes, return_index=True, return_counts=True)
    return rows[first], number


def one_array(column: Any) -> Any:
    """Return a chunked column as one array, which is a copy only where it has several."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def rows_column(rows: NDArray[np.int32]) -> Any:
    """Return numbers of rows as an Arrow column; `pyarrow.array` would import pandas."""
    return pa.Array.from_buffers(pa.int32(), len(rows), [None, pa.py_buffer(rows)])


def text_column(values: Strings | FoldingStrings) -> Any:
    """Return texts as a column of large strings, without an object for each."""
    starts, data = np.ascontiguousarray(values.starts, np.int64), np.ascontiguousarray(values.data)
    return pa.LargeStringArray.from_buffers(len(values), pa.py_buffer(starts), pa.py_buffer(data))


def numbers_of(column: Any) -> NDArray[Any]:
    """Return the numbers of an Arrow column; where something is missing, any number.

    `to_numpy` and `pyarrow.array` would import pandas: half a second, and 20 MiB of a driver.
    """
    one = one_array(column) if isinstance(column, pa.ChunkedArray) else column
    kind = np.dtype(one.type.to_pandas_dtype())
    held: Any = one.buffers()[1]
    if held is None:
        return np.zeros(0, kind)
    return np.frombuffer(held, kind)[one.offset : one.offset + len(one)]


def places_by_part(part: NDArray[np.integer], count: int) -> list[NDArray[np.int64]]:
    """Return the places of the files of each of ``count`` parts, given the part of each file."""
    order = np.argsort(part, kind="stable")
    return np.split(order, np.searchsorted(part[order], np.arange(1, count)))


def place_of(
    numbers: NDArray[np.integer], rows: NDArray[np.integer], places: NDArray[np.integer]
) -> NDArray[np.int64]:
    """Return for each number the place of the row that it equals, -1 if it is none of ``rows``."""
    size = 1 + max(int(rows.max(initial=0)), int(numbers.max(initial=0)))
    place = np.full(size, -1, np.int64)
    place[rows] = places
    found: NDArray[np.int64] = place[numbers]
    return found


def rows_at(held: NDArray[np.integer], rows: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return where each of some rows stands among ``held``, -1 where it does not."""
    if not len(held):
        return np.full(len(rows), -1, np.int64)
    order = np.argsort(held, kind="stable")
    at = order[np.minimum(np.searchsorted(held, rows, sorter=order), len(held) - 1)]
    return np.where(held[at] == rows, at, -1)


def rows_of(table: Any, rows: NDArray[np.int64]) -> Any:
    """Return some rows of an Arrow table, itself where these are all."""
    if are_all(rows, len(table)):
        return table
    return table.take(pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows)]))


def are_known(array: Any) -> NDArray[np.bool_]:
    """Say which values of an Arrow array are there."""
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    bits = np.unpackbits(np.frombuffer(array.buffers()[0], np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].astype(np.bool_)


def bytes_of(column: Any) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes of an Arrow column, and where each value begins and the last one ends."""
    one = one_array(column)
    offsets: Any
    data: Any
    _, offsets, data = one.buffers()
    starts = np.frombuffer(offsets, np.int32)[one.offset : one.offset + len(one) + 1]
    starts = starts.astype(np.int64) if len(one) else np.zeros(1, np.int64)
    raw = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return raw[starts[0] : starts[-1]], starts - starts[0]
