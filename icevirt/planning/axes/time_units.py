"""Convert times with different units to one unit and reference date, without loss.

CF 4.4: a time coordinate counts units since a reference date in a calendar. Archives often write
"days since" the beginning of each file. Two such coordinates become one when every value, in whole
microseconds of its calendar, stays the same; microseconds are what cftime and xarray keep.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.times import TimeUnits

_SINCE = re.compile(r"\s*(?P<unit>[A-Za-z]+)\s+since\s+(?P<reference>\S.*?)\s*")
_MICROSECONDS = {
    name: size
    for size, names in (
        (1, "microsecond microseconds microsec microsecs"),
        (1_000, "millisecond milliseconds millisec millisecs msec msecs ms"),
        (1_000_000, "second seconds sec secs s"),
        (60_000_000, "minute minutes min mins"),
        (3_600_000_000, "hour hours hr hrs h"),
        (86_400_000_000, "day days d"),
    )
    for name in names.split()
}
DURATIONS = frozenset((*_MICROSECONDS, "nanosecond", "nanoseconds", "ns"))
"""Units of plain durations, which xarray may decode."""

_STANDARD = ("standard", "gregorian", "")
_ORIGIN = "microseconds since 1970-01-01"
_LONGEST = 1 << 62  # microseconds; 146,000 years


class InexactError(ValueError):
    """A time has no exact place in the common units; the message says which."""


def parse(units: object, calendar: object = None) -> TimeUnits | None:
    """Read a ``units`` attribute; None where it counts no time, or months, or cannot be read."""
    found = _SINCE.fullmatch(units) if isinstance(units, str) else None
    if found is None or (step := _MICROSECONDS.get(found["unit"].lower())) is None:
        return None
    name = str(calendar or "standard").lower()
    name = "standard" if name in _STANDARD else name
    origin = _origin(f"{found['unit']} since {found['reference']}", name)
    if origin is None:
        return None
    return TimeUnits(
        unit=found["unit"], reference=found["reference"], calendar=name, step=step, origin=origin
    )


def _origin(units: str, calendar: str) -> int | None:
    import cftime

    try:
        date = cftime.num2date(0, units, calendar)
        return int(cftime.date2num(date, _ORIGIN, calendar))
    except (ValueError, TypeError, OverflowError):
        return None


def common(units: Sequence[TimeUnits]) -> TimeUnits | None:
    """Return the first reference in the finest unit; None where calendars differ."""
    if len({each.calendar for each in units}) != 1:
        return None
    first, finest = units[0], min(units, key=lambda each: each.step)
    if finest.step == first.step:
        return first
    return TimeUnits(
        unit=finest.unit,
        reference=first.reference,
        calendar=first.calendar,
        step=finest.step,
        origin=first.origin,
    )


def microseconds(
    values: NDArray[Any], units: TimeUnits, *, missing: Sequence[float | int] = ()
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return times since 1970-01-01 in whole microseconds, and which are there at all.

    Raises:
        InexactError: One lies further away than microseconds can count.
    """
    there = ~np.isin(values, np.array(missing, values.dtype)) if missing else np.True_
    there = np.broadcast_to(there, values.shape).copy()
    if values.dtype.kind == "f":
        there &= np.isfinite(values)
    known = np.where(there, values, 0)
    with np.errstate(over="ignore"):  # infinity is far too
        far = np.abs(known.astype(np.float64)) * units.step + abs(units.origin)
    if (far > _LONGEST).any():
        raise InexactError(f"{known[far > _LONGEST].flat[0]} {units.text} is out of range")
    if values.dtype.kind == "f":
        # whole units and the rest apart: a product of the two would lose the last digits
        whole = np.floor(known.astype(np.float64))
        rest = np.rint((known - whole).astype(np.float64) * units.step).astype(np.int64)
        counted = whole.astype(np.int64) * units.step + rest
    else:
        counted = known.astype(np.int64) * units.step
    return counted + units.origin, there


def recoded(
    values: NDArray[Any],
    source: TimeUnits,
    target: TimeUnits,
    *,
    missing: Sequence[float | int] = (),
) -> NDArray[Any]:
    """Return the same times in the units of ``target``, in the dtype they had.

    Args:
        values: Raw times in the units of ``source``, any shape.
        source: Their units.
        target: Other units of the same calendar.
        missing: Values that say "no time"; they and NaN stay as they are.

    Raises:
        InexactError: A time has no exact value there: it is between two numbers, or too large.
    """
    if source == target or (source.step, source.origin) == (target.step, target.origin):
        return values
    times, there = microseconds(values, source, missing=missing)
    counted = times - target.origin
    if values.dtype.kind == "f":
        whole, rest = np.divmod(counted, target.step)
        new = (whole + rest / target.step).astype(values.dtype)
    else:
        new = (counted // target.step).astype(values.dtype)
    new = np.where(there, new, values).astype(values.dtype)
    back, still = microseconds(new, target, missing=missing)
    wrong = there & ((back != times) | ~still)
    if wrong.any():
        raise InexactError(
            f"{values[wrong].flat[0]} {source.text} has no exact value in {target.text}"
        )
    return new
