"""Copy many byte ranges at once, and check the order of coordinates."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view
from numpy.typing import NDArray

type Bytes = NDArray[np.uint8]
type Places = NDArray[np.int64]


def copy_ranges(source: Bytes, start: Places, into: Bytes, at: Places, length: Places) -> None:
    """Copy ``source[start:start + length]`` to ``into[at:at + length]`` for every row.

    All ranges must lie inside. Rows of one length are copied together: as many steps as there are
    lengths, never as many as there are rows, and no index for each byte.
    """
    if not len(length):
        return
    if (length == length[0]).all():
        _copy_equal(source, start, into, at, int(length[0]))
        return
    order = np.argsort(length, kind="stable")
    lengths, first = np.unique(length[order], return_index=True)
    bounds = [*first.tolist(), len(order)]
    for size, low, high in zip(lengths.tolist(), bounds, bounds[1:], strict=False):
        rows = order[low:high]
        _copy_equal(source, start[rows], into, at[rows], size)


def gather(source: Bytes, start: Places, length: Places) -> tuple[Bytes, Places]:
    """Return the ranges end to end, and where each begins (one entry more than there are rows)."""
    starts = np.zeros(len(start) + 1, np.int64)
    np.cumsum(length, out=starts[1:])
    data = np.empty(int(starts[-1]), np.uint8)
    copy_ranges(source, start, data, starts[:-1], length)
    return data, starts


def ascends(index: NDArray[np.uint32]) -> bool:
    """Say whether rows are in strictly ascending lexicographic order."""
    earlier, later = index[:-1], index[1:]
    equal = np.ones(len(later), np.bool_)
    for axis in range(index.shape[1]):
        if bool(np.any(equal & (later[:, axis] < earlier[:, axis]))):
            return False
        equal &= later[:, axis] == earlier[:, axis]
    return not equal.any()


def _copy_equal(source: Bytes, start: Places, into: Bytes, at: Places, size: int) -> None:
    if not size:
        return
    here, there = _step(start), _step(at)
    if here is not None and there is not None:  # evenly spaced on both sides: no index at all
        shape = (len(start), size)
        rows = as_strided(source[int(start[0]) :], shape, (here, 1), writeable=False)
        as_strided(into[int(at[0]) :], shape, (there, 1))[:] = rows
        return
    windows = sliding_window_view(into, size, writeable=True)
    windows[at] = sliding_window_view(source, size)[start]


def _step(places: Places) -> int | None:
    """Return the one distance between neighbours, or None; backward ones count as none."""
    if len(places) < 2:
        return 0
    step = int(places[1] - places[0])
    # the last one tells most other cases apart without looking at every place
    if step < 0 or int(places[-1] - places[0]) != step * (len(places) - 1):
        return None
    return step if bool((np.diff(places) == step).all()) else None
