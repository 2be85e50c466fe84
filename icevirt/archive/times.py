"""Describe times that files count in several units, from several dates or in several types."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.schema import ArraySchema
from icevirt.deferred_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeUnits:
    """What the numbers of a time coordinate count (CF 4.4)."""

    unit: str
    reference: str
    calendar: str  # "standard" where none is named
    step: int  # nanoseconds of a unit
    origin: int  # microseconds from 1970-01-01 to the reference, in the calendar
    is_fine: bool  # whether xarray decodes to nanoseconds; it decodes other times to microseconds

    @property
    def text(self) -> str:
        """The ``units`` attribute."""
        return f"{self.unit} since {self.reference}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeStorage:
    """How files hold the numbers of a time."""

    schema: ArraySchema  # their data type and codecs, and nothing else
    missing: tuple[float, ...]  # numbers that mean "no time"
    calendar: str
    is_fine: bool  # see `TimeUnits`


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recoding:
    """An array whose files count time differently, and what it counts in the dataset."""

    target: TimeUnits
    data_type: str
    fill: int | float | None  # the number that means "no time"; None where no file has one
    step: NDArray[np.int64]  # (files,) nanoseconds of a unit
    origin: NDArray[np.int64]  # (files,) microseconds from 1970-01-01 to the reference
    kind: NDArray[np.int32]  # (files,) which of ``kinds`` they are
    kinds: tuple[TimeStorage, ...]

    def take(self, rows: NDArray[np.integer] | slice) -> Recoding:
        """Return the recoding of some files, in their order."""
        return replace(self, step=self.step[rows], origin=self.origin[rows], kind=self.kind[rows])

    def spread(self, place: NDArray[np.int64], size: int) -> Recoding:
        """Return the recoding of ``size`` files, among which these have places."""

        def column[T: np.generic](held: NDArray[T]) -> NDArray[T]:
            wide = np.zeros(size, held.dtype)
            wide[place] = held
            return wide

        return replace(
            self, step=column(self.step), origin=column(self.origin), kind=column(self.kind)
        )

    def storage(self, file: int) -> TimeStorage:
        """Return how a file holds its numbers."""
        return self.kinds[int(self.kind[file])]
