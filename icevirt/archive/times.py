"""Describe the units of time coordinates, and how to convert many files to one unit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeUnits:
    """What the numbers of a time coordinate count (CF 4.4)."""

    unit: str
    reference: str
    calendar: str  # "standard" where none is named
    step: int  # microseconds of a unit
    origin: int  # microseconds from 1970-01-01 to the reference, in the calendar

    @property
    def text(self) -> str:
        """The ``units`` attribute."""
        return f"{self.unit} since {self.reference}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recoding:
    """An array whose files count time differently, and what it counts in the dataset."""

    target: TimeUnits
    sources: tuple[TimeUnits, ...]  # that occur
    source: NDArray[np.int32]  # (files,) which of them a file counts in
    missing: tuple[float, ...]  # values that mean "no time"

    def take(self, rows: NDArray[np.integer] | slice) -> Recoding:
        """Return the recoding of some files, in their order."""
        return replace(self, source=self.source[rows])

    def of(self, file: int) -> TimeUnits:
        """Return what a file counts in."""
        return self.sources[int(self.source[file])]
