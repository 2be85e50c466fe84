"""Say what is added to the numbers of elements in files, so that they count all of a dataset."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IndexShift:
    """What an index numbers in each file, a row each, and in the dataset."""

    dimension: str  # whose elements are numbered
    first: NDArray[np.int64]  # (k,) the number of the first element of the file, in the file
    count: NDArray[np.int64]  # (k,) elements that the file numbers
    added: NDArray[np.int64]  # (k,) to the number of an element
    start: int  # the number of the first element of the dataset
    total: int  # elements of the dataset
    fill: int | float | None = None  # what "no element" becomes in the dataset; None: it stays

    def spread(self, at: NDArray[np.int64], of: NDArray[np.int64], size: int) -> IndexShift:
        """Return the rows ``of`` at the places ``at`` of columns with ``size`` rows."""

        def put(column: NDArray[np.int64]) -> NDArray[np.int64]:
            found = np.zeros(size, np.int64)
            found[at] = column[of]
            return found

        return replace(self, first=put(self.first), count=put(self.count), added=put(self.added))
