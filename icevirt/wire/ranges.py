"""Copies many byte ranges at once, and says whether rows of coordinates ascend."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

type Bytes = NDArray[np.uint8]
type Places = NDArray[np.int64]


def copy_ranges(source: Bytes, start: Places, into: Bytes, at: Places, length: Places) -> None:
    """Copy ``source[start:start + length]`` to ``into[at:at + length]`` for every row.

    Rows of one length are copied together: as many steps as there are lengths, never as many as
    there are rows, and no index for each byte.
    """
    order = np.argsort(length, kind="stable")
    lengths, first = np.unique(length[order], return_index=True)
    bounds = [*first.tolist(), len(order)]
    for size, low, high in zip(lengths.tolist(), bounds, bounds[1:], strict=False):
        if size:
            rows = order[low:high]
            windows = sliding_window_view(into, size, writeable=True)
            windows[at[rows]] = sliding_window_view(source, size)[start[rows]]


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
