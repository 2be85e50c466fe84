"""Compute on chunk indices, shape (n, ndim), column by column.

Axes are few and rows are many: numpy takes ten times as long for a reduction along rows of three
numbers as for three columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

_ROWS_AT_ONCE = 1 << 13  # which stay in the processor's cache, with the records around them


def are_all(rows: NDArray[np.integer], count: int) -> bool:
    """Say whether rows are all of ``count`` rows, in their order."""
    return len(rows) == count and all(
        np.array_equal(
            rows[low : low + _ROWS_AT_ONCE], np.arange(low, min(low + _ROWS_AT_ONCE, count))
        )
        for low in range(0, count, _ROWS_AT_ONCE)
    )


def ascends(index: NDArray[np.integer]) -> bool:
    """Say whether rows are in strictly ascending lexicographic order."""
    return least_step(index) > 0


def least_step(index: NDArray[np.integer]) -> int:
    """Return -1 if a row precedes, in lexicographic order, the one before; 0 if one equals it."""
    least = 1
    for low in range(0, len(index) - 1, _ROWS_AT_ONCE):
        step = _least_step(index[low : low + _ROWS_AT_ONCE + 1])
        if step < 0:
            return step
        least = min(least, step)
    return least


def _least_step(index: NDArray[np.integer]) -> int:
    columns = np.ascontiguousarray(index.T)  # rows may lie far apart: each is fetched once
    if index.dtype == np.uint32 and (key := _keys(columns)) is not None:
        if bool((key[1:] > key[:-1]).all()):
            return 1
        return -1 if bool((key[1:] < key[:-1]).any()) else 0
    equal = np.ones(len(index) - 1, np.bool_)
    for column in columns:
        earlier, later = column[:-1], column[1:]
        if bool((equal & (later < earlier)).any()):
            return -1
        equal &= later == earlier
        if not equal.any():
            return 1
    return 0


def _keys(columns: NDArray[np.uint32]) -> NDArray[np.unsignedinteger] | None:
    """Return a number for each row, in the order of rows; None where rows have no such numbers."""
    sizes = [int(column.max()) + 1 for column in columns]
    most = prod(sizes)
    if not sizes or most > 1 << 63:
        return None
    key: NDArray[np.unsignedinteger] = columns[0].astype(np.uint32 if most < 1 << 32 else np.uint64)
    for size, column in zip(sizes[1:], columns[1:], strict=True):
        key *= key.dtype.type(size)
        key += column
    return key


def extents(index: NDArray[np.integer]) -> tuple[tuple[int, int], ...]:
    """Return the tight bounding box of the rows: (first, last + 1) for each axis."""
    if not len(index):
        return tuple((0, 0) for _ in index.T)
    least, most = np.minimum.reduce, np.maximum.reduce  # methods of arrays call these, later
    return tuple([(int(least(column)), int(most(column)) + 1) for column in index.T])


def inside(
    index: NDArray[np.integer], high: Sequence[int], low: Sequence[int] | None = None
) -> NDArray[np.bool_]:
    """Say which rows lie in the box from ``low`` (0 by default) up to ``high``, excluded."""
    found = np.ones(len(index), np.bool_)
    signed = index.dtype.kind == "i"
    for axis, column in enumerate(index.T):
        first = 0 if low is None else low[axis]
        if first or signed:
            found &= column >= first
        found &= column < high[axis]
    return found


def all_inside(index: NDArray[np.integer], high: Sequence[int]) -> bool:
    """Say whether all rows lie in the box from 0 up to ``high``, excluded."""
    box = zip(extents(index), high, strict=True)
    return not len(index) or all(low >= 0 and end <= edge for (low, end), edge in box)


def counts_up(numbers: NDArray[np.uint32], last: int | None = None) -> bool:
    """Say whether numbers begin at 0 and each repeats the one before it or is one more.

    ``last`` is what they have to end with, if given.
    """
    if not len(numbers) or numbers[0] or last not in (None, int(numbers[-1])):
        return False
    return int((numbers[1:] - numbers[:-1]).max(initial=0)) <= 1  # unsigned: descents are large
