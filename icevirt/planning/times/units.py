"""Read what the numbers of a time count, and choose what times of several files count together.

CF 4.4: a time counts units since a reference date in a calendar. What is chosen for integers
follows from what files declare, so that further files of the same kind change nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.scanned import ScannedArray
from icevirt.archive.times import Recoding, TimeUnits
from icevirt.model import paths
from icevirt.model.attributes import Attributes, restore

MICROSECOND = 1_000
SECOND = 1_000_000_000
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
_OF_CALENDAR = {
    "360_day": dict.fromkeys(("month", "months"), 30 * _STEPS["day"]),
    "noleap": dict.fromkeys(("common_year", "common_years"), 365 * _STEPS["day"]),
    "365_day": dict.fromkeys(("common_year", "common_years"), 365 * _STEPS["day"]),
}
LADDER = tuple((f"{name}s", step) for name, step in reversed(_STEPS.items()))
"""The units that times may be converted to, the coarsest first, and their nanoseconds."""
DURATIONS = frozenset((*_FINE, *_COARSE, "ns"))
"""Units of plain durations, which xarray may decode."""
REFORM = -12_219_292_800_000_000
"""Microseconds from 1970-01-01 to 1582-10-15; from then on `SINCE_REFORM` calendars agree."""
SINCE_REFORM = frozenset(("standard", "proleptic_gregorian"))
_FINEST_SPAN = (
    1 << 63
) // 1000 - 1  # microseconds from 1970-01-01 that 64 bits hold in nanoseconds

_SINCE = re.compile(r"\s*(?P<unit>[A-Za-z_]+)\s+since\s+(?P<reference>\S.*?)\s*")
_ISO = re.compile(r"(\d{4})-(\d\d?)-(\d\d?)(?:[T ](\d\d?):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ORIGIN = "microseconds since 1970-01-01"
_SCALING = ("scale_factor", "add_offset", "_Unsigned")
_MISSING = ("_FillValue", "missing_value")
BOUNDS = ("bounds", "climatology")


@lru_cache(4096)
def _parsed(units: str, calendar: str) -> TimeUnits | None:
    found = _SINCE.fullmatch(units)
    if found is None:
        return None
    unit, name = found["unit"].lower(), calendar_called(calendar)
    step = (_FINE | _COARSE | _OF_CALENDAR.get(name, {})).get(unit)
    origin = None if step is None else _origin(found["reference"], name)
    if step is None or origin is None:
        return None
    return TimeUnits(
        unit=found["unit"],
        reference=found["reference"],
        calendar=name,
        step=step,
        origin=origin,
        is_fine=unit in _FINE and _is_fine(name, origin),
    )


def parse(units: object, calendar: object = None) -> TimeUnits | None:
    """Read a ``units`` attribute; None where it counts no time, or months, or cannot be read."""
    return _parsed(units, str(calendar or "standard")) if isinstance(units, str) else None


def calendar_called(calendar: str) -> str:
    """Return a calendar by one of its names."""
    name = calendar.lower()
    return "standard" if name in {"standard", "gregorian", ""} else name


def _is_fine(calendar: str, origin: int) -> bool:
    first = -_FINEST_SPAN if calendar == "proleptic_gregorian" else max(REFORM, -_FINEST_SPAN)
    return calendar in SINCE_REFORM and first <= origin <= _FINEST_SPAN


def _origin(reference: str, calendar: str) -> int | None:
    plain = _ISO.fullmatch(reference) if calendar in SINCE_REFORM else None
    if plain is not None and int(plain[1]) > 1582:
        fraction = (plain[7] or "").ljust(6, "0")
        parts = [int(each or 0) for each in plain.groups()[:6]]
        try:
            date = datetime(*parts, int(fraction), tzinfo=UTC)  # type: ignore[misc,arg-type]
        except ValueError:
            return None
        apart = date - _EPOCH
        return (apart.days * 86_400 + apart.seconds) * 1_000_000 + apart.microseconds
    import cftime

    try:
        date = cftime.num2date(0, f"days since {reference}", calendar)
        return int(cftime.date2num(date, _ORIGIN, calendar))
    except (ValueError, TypeError, OverflowError):
        return None


def units_of(attributes: Mapping[str, Any]) -> TimeUnits | None:
    """Return what an array counts; None where that is no time, or the numbers are scaled."""
    if any(name in attributes for name in _SCALING):
        return None
    return parse(attributes.get("units"), attributes.get("calendar"))


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


def counting_array(arrays: Iterable[ScannedArray], path: str) -> ScannedArray | None:
    """Return the array whose units a variable's numbers have: itself, or what it bounds."""
    known = {each.path: each for each in arrays}
    if path in known and "units" in known[path].attributes.values:
        return known[path]
    bounded = (
        each for each in known.values() if path in bounds_of(each.path, each.attributes.values)
    )
    return next(bounded, None)


# -- in common -----------------------------------------------------------------------------------


def coarsest(step: NDArray[np.int64], origin: NDArray[np.int64], first: TimeUnits) -> TimeUnits:
    """Return the coarsest unit in which whole numbers of all these units stay whole.

    Args:
        step: Nanoseconds of the units that files count in.
        origin: Their references, in microseconds from 1970-01-01.
        first: What the first file counts in, whose reference date all times get.
    """
    apart = int(np.gcd.reduce(origin - first.origin)) * MICROSECOND
    size = int(np.gcd.reduce(step))
    if not apart % first.step and not size % first.step:
        return first
    fitting = (name for name, each in LADDER if not size % each and not apart % each)
    return since(next(fitting), first)


def since(unit: str, first: TimeUnits) -> TimeUnits:
    """Return a unit that is counted from the reference of another one."""
    made = parse(f"{unit} since {first.reference}", first.calendar)
    assert made is not None
    return made


def counted(recoding: Recoding, file: int) -> TimeUnits:
    """Return the units of a file, which may spell them in another way."""
    import cftime

    storage, step, origin = (
        recoding.storage(file),
        int(recoding.step[file]),
        int(recoding.origin[file]),
    )
    date = cftime.num2date(origin, _ORIGIN, storage.calendar)
    names = (name for name, each in LADDER if each == step)
    return TimeUnits(
        unit=next(names, f"times {step // _STEPS['day']} days"),
        reference=date.isoformat(sep=" ").removesuffix(" 00:00:00"),
        calendar=storage.calendar,
        step=step,
        origin=origin,
        is_fine=storage.is_fine,
    )
