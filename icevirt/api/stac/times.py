"""Give the times of a dataset as STAC has them: moments of the Gregorian calendar, in UTC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from xarray import DataArray, Dataset

_USUAL = ("standard", "gregorian", "proleptic_gregorian")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """The time of each step along a dimension."""

    dimension: str
    values: NDArray[np.datetime64]  # microseconds; NaT where there is none in STAC
    note: str = ""

    @property
    def ends(self) -> tuple[str | None, str | None]:
        """The first and the last moment, None where there is none."""
        good = self.values[~np.isnat(self.values)]
        return (spell(good.min()), spell(good.max())) if good.size else (None, None)

    def ranges(
        self, low: NDArray[np.int64], high: NDArray[np.int64]
    ) -> tuple[NDArray[np.datetime64], NDArray[np.datetime64]]:
        """Return the first and last moment of steps from ``low`` up to ``high``; NaT for none."""
        none = np.iinfo(np.int64)
        numbers = self.values.astype(np.int64)
        missing = np.isnat(self.values)
        found = []
        for reduce, instead in ((np.minimum, none.max), (np.maximum, none.min)):
            padded = np.append(np.where(missing, instead, numbers), instead)
            places = np.column_stack([low, high]).ravel()
            best = reduce.reduceat(padded, places)[::2] if len(low) else np.zeros(0, np.int64)
            known = (low < high) & (best != instead)
            moments = np.where(known, best, 0).astype("M8[us]")
            moments[~known] = np.datetime64("NaT", "us")
            found.append(moments)
        return found[0], found[1]


def times_of(dataset: Dataset) -> StepTimes | None:
    """Return the times of the steps of a dataset, as xarray decodes them; None: it has none."""
    for name in dataset.dims:
        if name in dataset.variables:
            values = dataset[name]
            if values.dtype.kind == "M":
                return StepTimes(dimension=str(name), values=values.values.astype("M8[us]"))
            if (
                values.dtype == object
                and values.size
                and hasattr(values.values.flat[0], "calendar")
            ):
                return _of_calendar(values, str(name))
    return None


def _of_calendar(values: DataArray, name: str) -> StepTimes:
    """Take dates of another calendar as they read, where the Gregorian one has them, too."""
    calendar = str(values.values.flat[0].calendar)
    found = np.array([_moment(each) for each in values.values.tolist()], "M8[us]")
    lost = int(np.isnat(found).sum())
    note = ""
    if calendar not in _USUAL:
        note = f"times are dates of the calendar {calendar}, and stand as they read"
    if lost:
        note += f"; {lost} of {len(found)} are no dates elsewhere, and left out"
    return StepTimes(dimension=name, values=found, note=note)


def _moment(date: Any) -> np.datetime64:
    try:
        return np.datetime64(date.isoformat(), "us")
    except ValueError:
        return np.datetime64("NaT", "us")


def spell(moment: np.datetime64) -> str:
    """Spell a moment as RFC 3339 does."""
    whole, _, part = str(np.datetime_as_string(moment, "us")).partition(".")
    return f"{whole}.{part.rstrip('0')}Z" if part.strip("0") else f"{whole}Z"
