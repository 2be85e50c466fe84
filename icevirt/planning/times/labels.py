"""Convert times that a plan knows, of many files at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import Labels
from icevirt.archive.times import TimeStorage
from icevirt.planning.times.instants import CountColumns, InexactError, Times, decoded_times
from icevirt.planning.times.targets import DeclaredTimes, TimeTarget, target_of
from icevirt.planning.times.values import converted


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LabelGroup:
    """Labels of files whose numbers are held alike."""

    mine: NDArray[np.int64]  # rows of `DeclaredTimes`
    raw: NDArray[Any]  # of all these files, end to end
    starts: NDArray[np.int64]  # (files + 1,)
    storage: TimeStorage
    count: CountColumns
    times: Times

    @classmethod
    def of(
        cls,
        declared: DeclaredTimes,
        mine: NDArray[np.int64],
        raw: NDArray[Any],
        starts: NDArray[Any],
    ) -> LabelGroup:
        """Decode the labels of some files, which are of one kind.

        Raises:
            InexactError: One lies further away than microseconds can count; the row of its file.
        """
        storage = declared.kinds[int(declared.kind[mine[0]])]
        sizes = np.diff(starts)
        of_each = declared.counts.apply(lambda column: np.repeat(column[mine], sizes))
        count = CountColumns.of(of_each, storage)
        try:
            times = decoded_times(raw, count, missing=storage.missing, starts=starts[:-1])
        except InexactError as error:
            file = int(np.searchsorted(starts, error.at, side="right")) - 1
            raise InexactError(str(error), int(mine[file])) from error
        return cls(mine=mine, raw=raw, starts=starts, storage=storage, count=count, times=times)

    def converted(self, target: TimeTarget) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the labels as the dataset counts them, and which of them have no exact value."""
        return converted(
            self.raw,
            self.count,
            target.units,
            dtype=np.dtype(target.data_type),
            times=self.times,
            missing=self.storage.missing,
            fill=target.fill,
        )

    def file_at(self, label: int) -> int:
        """Return the row of `DeclaredTimes` whose label stands at a place."""
        return int(self.mine[int(np.searchsorted(self.starts, label, side="right")) - 1])


def grouped(declared: DeclaredTimes, labels: Labels, places: NDArray[np.int64]) -> list[LabelGroup]:
    """Return the labels that stand at some places, a row of `DeclaredTimes` each.

    Raises:
        InexactError: One lies further away than microseconds can count; the row of its file.
    """
    found = []
    dtypes = labels.dtype.codes[places].astype(np.int64)
    key = dtypes * len(declared.kinds) + declared.kind
    for each in np.unique(key).tolist():
        mine = np.flatnonzero(key == each)
        data, starts = labels.flat(places[mine])
        dtype = np.dtype(labels.dtype.values[each // len(declared.kinds)])
        found.append(LabelGroup.of(declared, mine, data.view(dtype), starts // dtype.itemsize))
    return found


def labels_in_one(
    declared: DeclaredTimes, held: Sequence[NDArray[Any]]
) -> tuple[NDArray[Any], TimeTarget | None]:
    """Return one label of each file as they count together; None for what has no common count.

    Raises:
        InexactError: A label has no exact value there; the row of its file.
    """
    groups = []
    for kind in range(len(declared.kinds)):
        mine = np.flatnonzero(declared.kind == kind)
        raw = np.concatenate([held[row] for row in mine.tolist()])
        groups.append(LabelGroup.of(declared, mine, raw, np.arange(len(mine) + 1)))
    target = target_of(declared, [each.times for each in groups])
    if target is None:
        return np.zeros(0), None
    out = np.zeros(len(held), target.data_type)
    for group in groups:
        out[group.mine], lost = group.converted(target)
        if lost.any():
            at = int(np.argmax(lost))
            raise InexactError(
                f"{group.raw[at]} has no exact value in {target.units.text}", int(group.mine[at])
            )
    return out, target
