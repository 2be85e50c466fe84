"""Write labels as people read them: times as dates, in whatever calendar."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.model.attributes import Attributes
from icevirt.planning.times.units import units_of
from icevirt.planning.times.values import InexactError, microseconds

_DAY = 86_400_000_000  # microseconds
_LEAP = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DAYS = {  # of the months, where all years are alike
    "noleap": (31, 28, *_LEAP[2:]),
    "365_day": (31, 28, *_LEAP[2:]),
    "all_leap": _LEAP,
    "366_day": _LEAP,
    "360_day": (30,) * 12,
}


def written(values: NDArray[Any], attributes: Attributes) -> list[str]:
    """Return labels as people write them: times as dates, where the calendar is the usual one."""
    attrs = attributes.values
    units = units_of(attrs)
    offset = attrs.get("add_offset")
    if isinstance(offset, int | float) and values.dtype.kind in "iuf":
        values = values + offset
    if units is None:
        return [str(value) for value in values.tolist()]
    try:
        times, _ = microseconds(values, units)
    except InexactError:
        times = None
    days = _DAYS.get(units.calendar)
    if times is None or not (days or units.calendar in ("standard", "proleptic_gregorian")):
        return [f"{value} {units.text}" for value in values.tolist()]
    dates = (
        [_date(each, days) for each in times.tolist()]
        if days
        else map(str, times.astype("datetime64[us]"))
    )
    return [date.removesuffix(".000000").removesuffix("T00:00:00") for date in dates]


def _date(microseconds_: int, days: tuple[int, ...]) -> str:
    """Return the date of a time since 1970 in a calendar whose years are alike."""
    day, rest = divmod(microseconds_, _DAY)
    year, day = divmod(day, sum(days))
    ends = np.cumsum(days)
    month = int(np.searchsorted(ends, day, side="right"))
    seconds, fraction = divmod(rest, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    date = f"{1970 + year:04}-{month + 1:02}-{day - int(ends[month]) + days[month] + 1:02}"
    return f"{date}T{hour:02}:{minute:02}:{second:02}.{fraction:06}"
