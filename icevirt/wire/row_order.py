"""Check that rows of coordinates ascend, and copy byte ranges."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from icevirt.model.strings import Bytes, Places, copy_ranges, gather

__all__ = ["Bytes", "Places", "ascends", "copy_ranges", "gather"]


def ascends(index: NDArray[np.uint32]) -> bool:
    """Say whether rows are in strictly ascending lexicographic order."""
    earlier, later = index[:-1], index[1:]
    equal = np.ones(len(later), np.bool_)
    for axis in range(index.shape[1]):
        if bool(np.any(equal & (later[:, axis] < earlier[:, axis]))):
            return False
        equal &= later[:, axis] == earlier[:, axis]
    return not equal.any()
