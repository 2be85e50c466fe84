"""Choose the unit and the data type in which times of several files become one variable.

The first file's reference date counts. Whole numbers become 64-bit integers, in the coarsest unit
that divides all units and all distances of reference dates; further files of the same kind change
neither. Floats become 64-bit floats in the coarsest unit in which every value is an exact float:
halves and quarters are, thirds and tenths are not. Where seconds do not suffice, they become
integers too, and so do floats whose values a plan does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.times import DURATION, Recoding, TimeStorage, TimeUnits, UnitColumns
from icevirt.planning.times.instants import NO_TIME, Times
from icevirt.planning.times.references import REFORM, SINCE_REFORM
from icevirt.planning.times.units import LADDER, MICROSECOND, SECOND, coarsest, since
from icevirt.planning.times.values import encoded_times, is_lost

INTEGER, FLOAT = "int64", "float64"
_CENTURIES = 170 * 366 * 86_400_000_000  # microseconds; 64 bits count nanoseconds of 292 years


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeclaredTimes:
    """What files say of the numbers of a time: a row each."""

    first: TimeUnits  # of the first file
    files: NDArray[np.integer]  # (k,)
    counts: UnitColumns  # (k,)
    kind: NDArray[np.int32]  # (k,)
    kinds: tuple[TimeStorage, ...]  # that occur

    @property
    def data_types(self) -> set[str]:
        """The data types that occur."""
        return {str(each.schema.data_type) for each in self.kinds}

    @property
    def is_whole(self) -> bool:
        """Whether all numbers are integers."""
        return all("int" in each for each in self.data_types)

    @property
    def counts_alike(self) -> bool:
        """Whether all files count one unit from one date."""
        return bool(self.counts.equal(self.first).all())

    @property
    def is_alike(self) -> bool:
        """Whether numbers that are equal mean the same in all files, and are of one type."""
        held = {(each.schema.data_type, repr(each.missing)) for each in self.kinds}
        return self.counts_alike and len(held) == 1

    @property
    def widens(self) -> bool:
        """Whether floats of 64 bits mean what all of these numbers do."""
        return self.first.calendar == DURATION or self.data_types <= {"float32", FLOAT}

    @property
    def is_rounded(self) -> bool:
        """Whether xarray decodes durations in 32 bits: each as exactly as others of its array."""
        is_short = [each.schema.data_type == "float32" for each in self.kinds]
        rounded = np.array(is_short)[self.kind] & (self.counts.step <= SECOND)
        return self.first.calendar == DURATION and bool(rounded.any())

    @property
    def has_missing(self) -> bool:
        """Whether a file says which number means "no time"."""
        return any(each.missing for each in self.kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeTarget:
    """What times count in the dataset."""

    units: TimeUnits
    data_type: str
    fill: int | float | None = None


def target_of(declared: DeclaredTimes, labels: Sequence[Times] | None) -> TimeTarget | None:
    """Return what the times of several files count together; None where nothing is the same to all.

    Args:
        declared: By files.
        labels: The times of all files, in any order; None where a plan does not know them.
    """
    calendars = {each.calendar for each in declared.kinds}
    if len(calendars) > 1:
        early = (each.there & (each.microseconds < REFORM) for each in labels or ())
        if not calendars <= SINCE_REFORM or any(each.any() for each in early):
            return None
    first = declared.first
    if declared.is_alike:
        return TimeTarget(units=first, data_type=next(iter(declared.data_types)))
    if declared.is_rounded:
        return None
    return _converted(declared, labels)


def _converted(declared: DeclaredTimes, labels: Sequence[Times] | None) -> TimeTarget:
    first = declared.first
    base = coarsest(declared.counts, first)
    if declared.is_whole:
        return integers(base, declared)
    if declared.counts_alike and declared.widens:
        return _floats(first, declared)
    if labels is None:
        return integers(_finest(first, declared.kinds), declared)
    return _of_labels(declared, labels, base)


def _of_labels(declared: DeclaredTimes, labels: Sequence[Times], base: TimeUnits) -> TimeTarget:
    """Return the coarsest unit in which all labels are exact floats, else integers."""
    first = declared.first
    for name, step in LADDER:
        if not SECOND <= step <= base.step:
            continue
        unit = base if step == base.step else since(name, first)
        if all(_holds(unit, each) for each in labels):
            return _floats(unit, declared)
    if any(each.rest.any() for each in labels):
        return integers(_finest(first, declared.kinds), declared)
    return integers(since("microseconds", first), declared)


def integers(units: TimeUnits, declared: DeclaredTimes) -> TimeTarget:
    """Return a target of whole numbers, which are floats where cftime must decode missing ones."""
    has_fill = declared.has_missing or not declared.is_whole
    if has_fill and not units.is_fine:
        return TimeTarget(units=units, data_type=FLOAT, fill=np.nan)
    return TimeTarget(units=units, data_type=INTEGER, fill=NO_TIME if has_fill else None)


def _floats(units: TimeUnits, declared: DeclaredTimes) -> TimeTarget:
    return TimeTarget(units=units, data_type=FLOAT, fill=np.nan if declared.has_missing else None)


def bounds_target(coordinate: Recoding, declared: DeclaredTimes) -> TimeTarget:
    """Return what bounds count, which have the units of their coordinate."""
    units = coordinate.target
    if declared.counts.equal(units).all() and declared.is_alike:
        return TimeTarget(units=units, data_type=next(iter(declared.data_types)))
    if declared.is_whole or (coordinate.data_type == INTEGER and units.step < SECOND):
        return integers(units, declared)
    return _floats(units, declared)


def _finest(first: TimeUnits, kinds: Sequence[TimeStorage]) -> TimeUnits:
    """Return the finest unit to which xarray decodes times since the first reference date."""
    if not first.is_fine or not all(each.is_fine for each in kinds):
        return since("microseconds", first)
    if abs(first.origin) < _CENTURIES:
        return since("nanoseconds", first)
    return since("nanoseconds", replace(first, reference="1970-01-01"))


def _holds(unit: TimeUnits, times: Times) -> bool:
    """Say whether every time is a float of a unit, and not only close to one."""
    if (times.rest != unit.nanosecond).any():
        return False
    per = unit.step // MICROSECOND
    rest = (times.microseconds - unit.origin) % per
    part = per // np.gcd(rest, per)
    if (times.there & ((part & (part - 1)) != 0)).any():
        return False
    new = encoded_times(times, unit, np.dtype(FLOAT), np.nan)
    return not is_lost(new, times, unit, np.nan).any()
