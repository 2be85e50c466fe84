"""Hold what arrays of files share once: a column has a value for each kind of row, not each row.

Files of an archive repeat each other. The arrays of ten million files are of a few kinds, which
differ in path, schema, shape, digest or counts; which one a row is takes a byte or two.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_TABLE = 1 << 22  # combinations that are looked up rather than sorted
_MOST_KEYS = 1 << 62  # combinations of codes that a number holds
_BLOCK = 1 << 16  # rows that are looked up at a time: indices are widened, block by block

type Kinds = NDArray[np.integer] | ComputedColumn
"""Which kind each row is of."""

type NumberColumn = NDArray[np.integer] | KindColumn
"""Whole numbers of rows, as an array or by kind."""

type RunColumn = NDArray[np.int32] | EvenRuns
"""The number of each row's run, as an array or by arithmetic."""


class ComputedColumn(ABC):
    """A column of numbers that are computed from less; numpy takes it for an array."""

    __slots__ = ()

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[np.integer]:
        """The type of the numbers."""

    @abstractmethod
    def astype(self, dtype: DTypeLike) -> NDArray[Any]:
        """Return the number of each row."""

    @abstractmethod
    def __len__(self) -> int:
        """Return how many rows there are."""

    @abstractmethod
    def __getitem__(self, rows: Any) -> Any:
        """Return the numbers of some rows."""

    def __array__(
        self, dtype: DTypeLike | None = None, copy: bool | None = None
    ) -> NDArray[np.integer]:
        if copy is False:
            raise ValueError("the numbers of rows are computed, as a copy")
        return self.astype(self.dtype if dtype is None else dtype)


class KindColumn(ComputedColumn):
    """A column of numbers with one for each kind of row; numpy takes it for an array.

    Args:
        kind: (n,) Which of the kinds a row is. Columns of one table share it. It may be computed.
        of_kind: (kinds,) The number of each.
    """

    __slots__ = ("kind", "of_kind")

    def __init__(self, kind: Kinds, of_kind: NDArray[np.integer]) -> None:
        self.kind = kind
        self.of_kind = of_kind

    @property
    def dtype(self) -> np.dtype[np.integer]:
        """The type of the numbers."""
        return self.of_kind.dtype

    def __len__(self) -> int:
        return len(self.kind)

    def __getitem__(self, rows: Any) -> Any:
        return self.of_kind[self.kind[rows]]

    def __eq__(self, other: object) -> NDArray[np.bool_]:  # type: ignore[override]
        return spread(np.asarray(self.of_kind == other), self.kind)

    def __ne__(self, other: object) -> NDArray[np.bool_]:  # type: ignore[override]
        return spread(np.asarray(self.of_kind != other), self.kind)

    __hash__ = None  # type: ignore[assignment]

    def astype(self, dtype: DTypeLike) -> NDArray[Any]:
        """Return the number of each row."""
        return spread(self.of_kind.astype(dtype), self.kind)

    def kinds(self) -> NDArray[np.int64]:
        """Return the kinds that occur, ascending."""
        return occurring(self.kind, len(self.of_kind))

    def tolist(self) -> list[int]:
        """Return the number of each row."""
        found: list[int] = self.astype(self.dtype).tolist()
        return found


def spread[Value: np.generic](
    of_kind: NDArray[Value], kind: NumberColumn | ComputedColumn
) -> NDArray[Value]:
    """Return what is said of kinds for each row."""
    if isinstance(kind, KindColumn):
        of_kind, kind = of_kind[kind.of_kind], kind.kind
    if len(of_kind) and (of_kind == of_kind[0]).all():
        return np.full(len(kind), of_kind[0])
    found = np.empty(len(kind), of_kind.dtype)
    if isinstance(kind, np.ndarray) and kind.itemsize == of_kind.itemsize == 1:
        table = of_kind.tobytes().ljust(256, b"\0")  # several times as fast as an index
        for low in range(0, len(kind), _BLOCK):
            some = kind[low : low + _BLOCK].tobytes().translate(table)
            found[low : low + _BLOCK] = np.frombuffer(some, found.dtype)
        return found
    for low in range(0, len(kind), _BLOCK):
        found[low : low + _BLOCK] = of_kind[kind[low : low + _BLOCK]]
    return found


class EvenRuns(ComputedColumn):
    """The run of each row where all runs are of one length; numpy takes it for an array.

    Args:
        count: How many runs there are.
        each: Rows of each.
    """

    __slots__ = ("count", "each")

    def __init__(self, count: int, each: int) -> None:
        self.count, self.each = count, each

    @property
    def dtype(self) -> np.dtype[np.integer]:
        """The type of the numbers."""
        return np.dtype(np.int32)

    @classmethod
    def of(cls, runs: RunColumn, count: int) -> RunColumn:
        """Return the same column, as arithmetic where ``count`` runs are of one length."""
        found = cls(count, len(runs) // max(1, count))
        if len(found) != len(runs):
            return runs
        for low in range(0, len(runs), _BLOCK):
            if not np.array_equal(found[low : low + _BLOCK], runs[low : low + _BLOCK]):
                return runs
        return found

    def __len__(self) -> int:
        return self.count * self.each

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(len(self)))
        at = np.asarray(rows)
        at = np.flatnonzero(at) if at.dtype == np.bool_ else at
        return (at // max(1, self.each)).astype(np.int32)

    def __eq__(self, other: object) -> NDArray[np.bool_]:  # type: ignore[override]
        return np.repeat(np.arange(self.count) == other, self.each)

    def __ge__(self, other: Any) -> NDArray[np.bool_]:
        return np.repeat(np.arange(self.count) >= other, self.each)

    __hash__ = None  # type: ignore[assignment]

    def astype(self, dtype: DTypeLike) -> NDArray[Any]:
        """Return the run of each row."""
        return np.repeat(np.arange(self.count, dtype=dtype), self.each)


def narrow(values: NDArray[np.integer]) -> NDArray[np.integer]:
    """Return whole numbers from zero on in as few bytes as the largest needs."""
    return values.astype(np.min_scalar_type(int(values.max(initial=0))), copy=False)


def map_columns(
    columns: Sequence[NumberColumn], of: Callable[..., NDArray[np.int64]]
) -> NumberColumn:
    """Return what follows from the numbers of each row, by kind where all columns are.

    Args:
        columns: Of as many rows each.
        of: Given numbers of each column, as many of one as of another: what follows, not negative.
    """
    kind = find_shared(columns)
    if kind is not None:
        tables = [each.of_kind.astype(np.int64) for each in columns if isinstance(each, KindColumn)]
        return KindColumn(kind, narrow(of(*tables)))
    found: list[NDArray[np.integer]] = [np.zeros(0, np.uint8)]
    for low in range(0, len(columns[0]), _BLOCK):
        block = [each[low : low + _BLOCK].astype(np.int64) for each in columns]
        found.append(narrow(of(*block)))
    return np.concatenate(found)


def occurring(codes: Kinds, count: int) -> NDArray[np.int64]:
    """Return which of ``count`` codes occur, ascending; nothing is sorted for it."""
    occurs = np.zeros(count, np.bool_)
    for low in range(0, len(codes), _BLOCK):
        occurs[codes[low : low + _BLOCK]] = True
        if occurs.all():
            break
    return np.flatnonzero(occurs)


def count_codes(codes: Kinds, count: int) -> NDArray[np.int64]:
    """Return how many rows have each of ``count`` codes."""
    found = np.zeros(count, np.int64)
    for low in range(0, len(codes), _BLOCK):
        found += np.bincount(codes[low : low + _BLOCK], minlength=count)
    return found


def find_shared(columns: Sequence[NumberColumn]) -> Kinds | None:
    """Return the kind of each row if the columns are of the same kinds, else None."""
    kinds = [each.kind if isinstance(each, KindColumn) else None for each in columns]
    return kinds[0] if kinds and all(kind is kinds[0] for kind in kinds) else None


def joint(
    columns: Sequence[NumberColumn], sizes: Sequence[int]
) -> tuple[NDArray[np.int64], KindColumn]:
    """Number rows by their codes in several columns.

    Args:
        columns: Of as many rows each.
        sizes: How many codes there are in each column.

    Returns:
        The codes that occur together, ascending, shape (combinations, columns); and which of these
        each row has.
    """
    if math.prod(sizes) > _MOST_KEYS and len(columns) > 2:
        first, before = joint(columns[:-1], sizes[:-1])
        pairs, kinds = joint([before, columns[-1]], [len(first), sizes[-1]])
        return np.column_stack([first[pairs[:, 0]], pairs[:, 1]]), kinds
    kind = find_shared(columns)
    if kind is not None:
        rows = [each.of_kind for each in columns if isinstance(each, KindColumn)]
        used = occurring(kind, len(rows[0]))
        key = _key([each[used] for each in rows], sizes)
        distinct, number = np.unique(key, return_inverse=True)
        of_kind = np.zeros(len(rows[0]), np.min_scalar_type(len(distinct)))
        of_kind[used] = number.reshape(-1)
        return _parts(distinct, sizes), KindColumn(kind, of_kind)
    distinct = _find_keys(columns, sizes)
    number = np.empty(len(columns[0]), np.min_scalar_type(len(distinct)))
    table = None
    if math.prod(sizes) <= _TABLE:
        table = np.zeros(math.prod(sizes), number.dtype)
        table[distinct] = np.arange(len(distinct))
    for low, key in _keys(columns, sizes):
        found = np.searchsorted(distinct, key) if table is None else table[key]
        number[low : low + _BLOCK] = found
    return _parts(distinct, sizes), KindColumn(number, np.arange(len(distinct), dtype=number.dtype))


def _find_keys(columns: Sequence[NumberColumn], sizes: Sequence[int]) -> NDArray[np.int64]:
    """Return the keys that occur, ascending; of few possible ones nothing is sorted."""
    if math.prod(sizes) <= _TABLE:
        there = np.zeros(math.prod(sizes), np.bool_)
        for _, key in _keys(columns, sizes):
            there[key] = True
        return np.flatnonzero(there)
    found = [np.unique(key) for _, key in _keys(columns, sizes)]
    return np.unique(np.concatenate([np.zeros(0, np.int64), *found]))


def _keys(
    columns: Sequence[NumberColumn], sizes: Sequence[int]
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    for low in range(0, len(columns[0]), _BLOCK):
        yield low, _key([each[low : low + _BLOCK] for each in columns], sizes)


def _key(columns: Sequence[NDArray[np.integer]], sizes: Sequence[int]) -> NDArray[np.int64]:
    key = np.zeros(len(columns[0]), np.int64)
    for column, size in zip(columns, sizes, strict=True):
        key *= size
        key += column
    return key


def _parts(key: NDArray[np.int64], sizes: Sequence[int]) -> NDArray[np.int64]:
    parts = []
    for size in reversed(sizes):
        key, part = np.divmod(key, size)
        parts.append(part)
    return np.stack(parts[::-1], axis=1)
