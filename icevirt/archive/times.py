"""Describe times and durations that files count in several units, from several dates or types."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.schema import ArraySchema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


DURATION = "duration"
"""In the place of a calendar: the numbers count from nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeUnits:
    """What the numbers of a time coordinate count (CF 4.4), or of a duration."""

    unit: str
    reference: str  # "" of durations
    calendar: str  # "standard" where none is named
    step: int  # nanoseconds of a unit
    origin: int  # microseconds from 1970-01-01 to the reference, in the calendar
    nanosecond: int = 0  # of the reference, after its microseconds
    is_fine: bool  # whether xarray decodes to nanoseconds; it decodes other times to microseconds
    is_one: bool = True  # whether xarray reads one reference date, however far the times are

    mark: str = ""  # the attribute by which xarray knows durations, like "timedelta64[ns]"

    @property
    def text(self) -> str:
        """The ``units`` attribute."""
        return f"{self.unit} since {self.reference}" if self.reference else self.unit

    @property
    def attributes(self) -> dict[str, str]:
        """The attributes that say it, but for the calendar."""
        return {"units": self.text, **({"dtype": self.mark} if self.mark else {})}

    @property
    def meaning(self) -> tuple[int, int, int, str]:
        """What is equal for units that differ in their spelling only."""
        return self.step, self.origin, self.nanosecond, self.calendar


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnitColumns:
    """What numbers count: the unit and the reference of each file, or of each number."""

    step: NDArray[np.int64]  # nanoseconds of a unit
    origin: NDArray[np.int64]  # microseconds from 1970-01-01 to the reference
    nanosecond: NDArray[np.int64]  # of the reference, after its microseconds

    @classmethod
    def of(cls, units: Sequence[TimeUnits]) -> UnitColumns:
        """Return the columns of some units."""
        step, origin, nanosecond = np.array(
            [(each.step, each.origin, each.nanosecond) for each in units], np.int64
        ).T
        return cls(step=step, origin=origin, nanosecond=nanosecond)

    def apply(self, change: Callable[[NDArray[np.int64]], NDArray[np.int64]]) -> UnitColumns:
        """Return the columns after one change of each."""
        columns = (change(each) for each in (self.step, self.origin, self.nanosecond))
        return UnitColumns(**dict(zip(("step", "origin", "nanosecond"), columns, strict=True)))

    def equal(self, other: UnitColumns | TimeUnits) -> NDArray[np.bool_]:
        """Say where numbers count the same."""
        same: NDArray[np.bool_] = (
            (self.step == other.step)
            & (self.origin == other.origin)
            & (self.nanosecond == other.nanosecond)
        )
        return same


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeStorage:
    """How files hold the numbers of a time."""

    schema: ArraySchema  # their data type and codecs, and nothing else
    missing: tuple[float, ...]  # numbers that mean "no time"
    calendar: str
    is_fine: bool  # see `TimeUnits`, as the next
    is_one: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recoding:
    """An array whose files count time differently, and what it counts in the dataset."""

    target: TimeUnits
    data_type: str
    fill: int | float | None  # the number that means "no time"; None where no file has one
    counts: UnitColumns  # (files,)
    kind: NDArray[np.int32]  # (files,) which of ``kinds`` they are
    kinds: tuple[TimeStorage, ...]

    def take(self, rows: NDArray[np.integer] | slice) -> Recoding:
        """Return the recoding of some files, in their order."""
        counts = self.counts.apply(lambda column: column[rows])
        return replace(self, counts=counts, kind=self.kind[rows])

    def spread(self, place: NDArray[np.int64], size: int) -> Recoding:
        """Return the recoding of ``size`` files, among which these have places."""

        def column[T: np.generic](held: NDArray[T]) -> NDArray[T]:
            wide = np.zeros(size, held.dtype)
            wide[place] = held
            return wide

        return replace(self, counts=self.counts.apply(column), kind=column(self.kind))

    def storage(self, file: int) -> TimeStorage:
        """Return how a file holds its numbers."""
        return self.kinds[int(self.kind[file])]
