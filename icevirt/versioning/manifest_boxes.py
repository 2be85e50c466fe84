"""Find the manifest of a chunk: each covers a box of the chunk grid."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from icevirt.deferred_dataclass import dataclass
from icevirt.model.snapshot import ManifestRef

_CELLS_AT_ONCE = 1 << 22


@dataclass(frozen=True, slots=True)
class Boxes:
    """The boxes of an array's manifests as columns, asked for many chunks at once."""

    low: NDArray[np.int64]  # (m, ndim)
    high: NDArray[np.int64]  # (m, ndim), excluded

    @classmethod
    def of(cls, manifests: Sequence[ManifestRef], ndim: int) -> Boxes:
        """Make the columns; empty extents cover everything."""
        anything = ((0, 1 << 32),) * ndim
        box = np.array([ref.extents or anything for ref in manifests], np.int64)
        box = box.reshape(len(manifests), ndim, 2)
        return cls(box[:, :, 0], box[:, :, 1])

    def first_containing(self, index: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return, for each index (k, ndim), the first box that contains it, or -1."""
        found = np.full(len(index), -1, np.int64)
        if not len(self.low):
            return found
        step = max(1, _CELLS_AT_ONCE // len(self.low))
        for start in range(0, len(index), step):
            wanted = index[start : start + step, None, :]
            inside = np.all((wanted >= self.low) & (wanted < self.high), axis=2)
            hit = inside.argmax(axis=1)
            found[start : start + step] = np.where(inside[np.arange(len(hit)), hit], hit, -1)
        return found

    def first_overlap(self) -> tuple[int, int] | None:
        """Return two boxes that meet, or None. Readers look into the first that fits only."""
        if not self.low.shape[1]:
            return (0, 1) if len(self.low) > 1 else None
        order = np.argsort(self.low[:, 0], kind="stable")
        low, high = self.low[order], self.high[order]
        ends = np.searchsorted(low[:, 0], high[:, 0], side="left")
        for first, end in enumerate(ends.tolist()):  # over manifests, of which there are few
            near = slice(first + 1, end)
            meets = np.all((low[near] < high[first]) & (high[near] > low[first]), axis=1)
            if meets.any():
                return int(order[first]), int(order[first + 1 + int(meets.argmax())])
        return None
