"""Read what the numbers of a time count, and choose what times of several files count together.

CF 4.4: a time counts units since a reference date in a calendar. What is chosen for integers
follows from what files declare, so that further files of the same kind change nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from icevirt.archive.schema import DURATION, MEASURES, Recoding, TimeUnits, UnitColumns
from icevirt.model import paths
from icevirt.model.attributes import Attributes, restore
from icevirt.planning.measures import count_finest
from icevirt.planning.times.calendars import (
    MICROSECOND,
    NAMES,
    SECOND,
    UnreadError,
    plain_text,
    read_reference,
)

_STEPS = {  # nanoseconds, and the names that xarray knows
    "nanosecond": 1,
    "microsecond": MICROSECOND,
    "millisecond": 1_000_000,
    "second": SECOND,
    "minute": 60 * SECOND,
    "hour": 3_600 * SECOND,
    "day": 86_400 * SECOND,
}
_ABBREVIATED = {  # the names that cftime alone knows
    "microsecond": "microsec microsecs",
    "millisecond": "millisec millisecs msec msecs ms",
    "second": "sec secs s",
    "minute": "min mins",
    "hour": "hr hrs h",
    "day": "d",
}
_FINE = {spelt: step for name, step in _STEPS.items() for spelt in (name, f"{name}s")}
_COARSE = {each: _STEPS[name] for name, text in _ABBREVIATED.items() for each in text.split()}
_OF_EVERY_CALENDAR = _FINE | _COARSE
_OF_CALENDAR = {
    "360_day": dict.fromkeys(("month", "months"), 30 * _STEPS["day"]),
    "noleap": dict.fromkeys(("common_year", "common_years"), 365 * _STEPS["day"]),
}
_CALENDARS = {"gregorian": "standard", "365_day": "noleap", "366_day": "all_leap"}
LADDER = tuple((f"{name}s", step) for name, step in reversed(_STEPS.items()))
"""The units that times may be converted to, the coarsest first, and their nanoseconds."""
DECODED_DURATIONS = frozenset(f"{name}s" for name in _STEPS)
"""Units of durations that xarray decodes, written in no other way."""
DURATIONS = frozenset((*_FINE, *_COARSE, "ns"))
"""Units of plain durations, which xarray may decode."""
_SINCE = re.compile(r"\s*(?P<unit>[A-Za-z_]+)\s+(?i:since)\s+(?P<reference>\S.*?)\s*")
_MARKS = tuple(f"timedelta64[{unit}]" for unit in ("ns", "us", "ms", "s", "m", "h", "D"))
_SCALING = ("scale_factor", "add_offset", "_Unsigned")
_MISSING = ("_FillValue", "missing_value")
BOUNDS = ("bounds", "climatology")


@lru_cache(4096)
def _read(units: str, calendar: str) -> TimeUnits | str:
    """Return what numbers count, or why xarray reads no times or several from them."""
    found = _SINCE.fullmatch(units)
    if found is None:
        return f"xarray reads no times from {units!r}"
    unit, name = found["unit"].lower(), calendar_called(calendar)
    if name not in NAMES:
        return f"xarray knows no calendar {calendar!r}"
    step = _OF_EVERY_CALENDAR.get(unit) or _OF_CALENDAR.get(name, {}).get(unit)
    if step is None:
        return f"xarray reads no unit {found['unit']!r} in the calendar {name!r}"
    is_fine = unit in _FINE and " since " in units.lower()  # else xarray asks cftime
    try:
        reference = read_reference(unit, found["reference"], name, is_fine=is_fine)
    except UnreadError as error:
        return str(error)
    return TimeUnits(
        unit=found["unit"],
        reference=found["reference"],
        calendar=name,
        step=step,
        origin=reference.origin,
        nanosecond=reference.nanosecond,
        is_fine=reference.is_fine,
        is_one=reference.is_one,
    )


def parse(units: object, calendar: object = None) -> TimeUnits | None:
    """Read a ``units`` attribute; None where it counts no time, or months, or cannot be read."""
    found = _read_attributes(units, calendar)
    return found if isinstance(found, TimeUnits) else None


def why_unread(attributes: Mapping[str, Any]) -> str | None:
    """Say why what looks like times has no one reading; None of all else."""
    units = attributes.get("units")
    found = _read_attributes(units, attributes.get("calendar"))
    return found if says_since(units) and isinstance(found, str) else None


def says_since(units: object) -> bool:
    """Say whether units look as if numbers count from a date, read or not."""
    return isinstance(units, str) and re.search(r"\ssince\s", units, re.IGNORECASE) is not None


def _read_attributes(units: object, calendar: object) -> TimeUnits | str | None:
    name = "standard" if calendar is None else calendar
    return _read(units, name) if isinstance(units, str) and isinstance(name, str) else None


def calendar_called(calendar: str) -> str:
    """Return a calendar by one of its names, which tools exchange."""
    name = calendar.lower()
    return _CALENDARS.get(name, name)


def units_of(attributes: Mapping[str, Any]) -> TimeUnits | None:
    """Return what an array counts; None where that is no time, or the numbers are scaled."""
    if any(name in attributes for name in _SCALING):
        return None
    return parse(attributes.get("units"), attributes.get("calendar"))


def duration_of(attributes: Mapping[str, Any]) -> TimeUnits | None:
    """Return what an array of durations counts, as xarray decodes it; None of all else."""
    unit, mark = attributes.get("units"), attributes.get("dtype", "")
    if any(name in attributes for name in _SCALING) or unit not in DECODED_DURATIONS:
        return None
    if mark not in {"", *_MARKS}:
        return None
    return TimeUnits(
        unit=unit,
        reference="",
        calendar=DURATION,
        step=_FINE[unit],
        origin=0,
        is_fine=True,
        mark=mark,
    )


def measure_of(attributes: Mapping[str, Any]) -> TimeUnits | None:
    """Return what an array of lengths, pressures ... counts; None of all else."""
    unit = attributes.get("units")
    known = None if any(name in attributes for name in _SCALING) else count_finest(unit)
    if known is None:
        return None
    return TimeUnits(
        unit=str(unit),
        reference="",
        calendar=MEASURES + known[0],
        step=known[1],
        origin=0,
        is_fine=True,
    )


def finest_mark(marks: Iterable[str]) -> str:
    """Return the mark of the finest durations, which the others become in one array."""
    return min(filter(None, marks), key=_MARKS.index, default="")


def units_to_count(attributes: Mapping[str, Any]) -> TimeUnits | None:
    """Return what numbers count that can be converted: times, or durations."""
    return units_of(attributes) or duration_of(attributes)


def missing_of(attributes: Attributes) -> tuple[float, ...]:
    """Return the numbers that mean "no time"."""
    attrs = restore(attributes.values, attributes.dtypes)
    found = [np.asarray(attrs[name]).reshape(-1) for name in _MISSING if name in attrs]
    return tuple(n for each in found if each.dtype.kind in "iuf" for n in each.tolist())


def bounds_of(path: str, attributes: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paths of the variables that hold the bounds of a coordinate."""
    for name in BOUNDS:
        if isinstance(target := attributes.get(name), str) and target:
            yield target if target.startswith("/") else paths.join(paths.parent(path), target)


# -- in common -----------------------------------------------------------------------------------


def coarsest(counts: UnitColumns, first: TimeUnits) -> TimeUnits:
    """Return the coarsest unit in which whole numbers of all these units stay whole.

    Args:
        counts: What files count.
        first: What the first file counts in, whose reference date all times get.
    """
    pairs = np.stack([counts.origin - first.origin, counts.nanosecond - first.nanosecond])
    distinct = np.unique(pairs, axis=1).T.tolist()  # in nanoseconds 64 bits need not hold them
    apart = math.gcd(*(micro * MICROSECOND + nano for micro, nano in distinct))
    size = int(np.gcd.reduce(counts.step))
    if not apart % first.step and not size % first.step:
        return since(first.unit, first)
    fitting = (name for name, each in LADDER if not size % each and not apart % each)
    return since(next(fitting), first)


def since(unit: str, first: TimeUnits) -> TimeUnits:
    """Return a unit that is counted from the reference of another one, if it has one.

    Nanoseconds that do not reach it are counted from 1970-01-01.
    """
    if first.calendar == DURATION:
        return replace(first, unit=unit, step=_FINE[unit])
    reference = first.reference
    if not first.is_one:
        reference = plain_text(first.origin, first.nanosecond, first.calendar)
    made = parse(f"{unit} since {reference}", first.calendar)
    made = made or parse(f"{unit} since 1970-01-01", first.calendar)
    assert made is not None
    return made


def units_of_file(recoding: Recoding, file: int) -> TimeUnits:
    """Return the units of a file, which may spell them in another way."""
    storage, counts = recoding.storage(file), recoding.counts
    columns = counts.step, counts.origin, counts.nanosecond
    step, origin, nanosecond = (int(each[file]) for each in columns)
    names = (name for name, each in LADDER if each == step)
    is_date = storage.calendar != DURATION and not storage.calendar.startswith(MEASURES)
    return TimeUnits(
        unit=next(names, f"times {step // _STEPS['day']} days"),
        reference=plain_text(origin, nanosecond, storage.calendar) if is_date else "",
        calendar=storage.calendar,
        step=step,
        origin=origin,
        nanosecond=nanosecond,
        is_fine=storage.is_fine,
        is_one=storage.is_one,
    )
