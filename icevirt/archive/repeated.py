"""Hold a column of arrays of files of which most rows are as in every other file, once.

Files of an archive have the same arrays in the same order. What is said of these is then the same
in every file, but for a few, such as the times: a file costs what those take, however many arrays
it has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from icevirt.archive.kinds import ComputedColumn, KindColumn, narrow

_LEAST = 8  # rows of a file for each that files do not repeat


class Repeated(ComputedColumn):
    """A column of numbers that files repeat; numpy takes it for an array.

    Args:
        base: (each,) The numbers of the rows of a file.
        place: (k,) Which of them are not the same in all files.
        own: (files, k) The numbers of those.
    """

    __slots__ = ("_slot", "base", "own", "place")

    def __init__(
        self, base: NDArray[np.integer], place: NDArray[np.int64], own: NDArray[np.integer]
    ) -> None:
        self.base, self.place, self.own = base, place, own
        self._slot = np.full(len(base), -1)
        self._slot[place] = np.arange(len(place))

    @property
    def dtype(self) -> np.dtype[np.integer]:
        """The type of the numbers."""
        return np.promote_types(self.base.dtype, self.own.dtype)

    def __len__(self) -> int:
        return len(self.own) * len(self.base)

    def __getitem__(self, rows: Any) -> Any:
        each = len(self.base)
        if isinstance(rows, slice):
            low, high, step = rows.indices(len(self))
            if step == 1 and low < high:  # whole files, and of these what is asked for
                first = low // each
                files = self._files(first, -(-high // each)).reshape(-1)
                return files[low - first * each : high - first * each]
            rows = np.arange(low, high, step)
        at = np.asarray(rows)
        at = np.flatnonzero(at) if at.dtype == np.bool_ else at
        file, place = np.divmod(at, each)
        slot = self._slot[place]
        found = np.asarray(self.base.astype(self.dtype)[place])
        return np.where(slot < 0, found, self.own[file, slot]) if len(self.place) else found

    def _files(self, low: int, high: int) -> NDArray[np.integer]:
        """Return (files, each) all rows of some files."""
        found = np.empty((high - low, len(self.base)), self.dtype)
        found[:] = self.base
        found[:, self.place] = self.own[low:high]
        return found

    def astype(self, dtype: DTypeLike) -> NDArray[Any]:
        """Return the number of each row."""
        return self._files(0, len(self.own)).reshape(-1).astype(dtype, copy=False)

    def by_kind(self) -> KindColumn:
        """Return the same with each number held once."""
        every = np.concatenate([self.base, self.own.reshape(-1)])
        numbers, kind = np.unique(every, return_inverse=True)
        held = narrow(kind)
        base, own = held[: len(self.base)], held[len(self.base) :].reshape(self.own.shape)
        return KindColumn(Repeated(base, self.place, own), numbers)


class GrowingRepeats:
    """A column of numbers that grows by files with as many rows each."""

    def __init__(self, first: NDArray[np.integer]) -> None:
        """Take the rows of the first file; nothing is added yet."""
        self._base = first
        self._own = dict[int, list[NDArray[np.integer]]]()  # by row of a file, in runs of files
        self._runs = list[int]()  # how many files each has

    def add(self, values: NDArray[np.integer], each: int) -> bool:
        """Append rows of files with ``each``; False where too many are files' own."""
        if each != len(self._base):
            return False
        files = values.reshape(-1, each)
        unlike = np.flatnonzero((files != self._base).any(axis=0)).tolist()
        new = [at for at in unlike if at not in self._own]
        if (len(self._own) + len(new)) * _LEAST > each:
            return False
        for at in new:
            self._own[at] = [np.full(count, self._base[at]) for count in self._runs]
        for at, runs in self._own.items():
            runs.append(files[:, at].copy())
        self._runs.append(len(files))
        return True

    def map(self, of: NDArray[np.integer]) -> GrowingRepeats:
        """Return what is said of the numbers, as a column like this one."""
        found = GrowingRepeats(of[self._base])
        found._runs = [*self._runs]
        found._own = {at: [of[run] for run in runs] for at, runs in self._own.items()}
        return found

    def take(self) -> Repeated:
        """Return the column."""
        place = np.array([*self._own], np.int64)
        columns = [np.concatenate(runs) for runs in self._own.values()]
        files = sum(self._runs)
        own = np.stack(columns, axis=1) if columns else np.zeros((files, 0), np.uint8)
        return Repeated(self._base, place, own)
