"""Turn counted times into the years, months and days of their calendar, a column at a time.

The calendars are those of CF 4.4.1. Only two of them are numpy's, and only from 1582 on; the others
have a 30th of February, or no 29th.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.planning.times.references import REFORM

_DAY = 86_400_000_000  # microseconds
_LEAP = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_COMMON = (31, 28, *_LEAP[2:])
_EVERY_YEAR = {  # the days of the months, where all years have the same
    "noleap": _COMMON,
    "365_day": _COMMON,
    "all_leap": _LEAP,
    "366_day": _LEAP,
    "360_day": (30,) * 12,
}
_OLYMPIAD = 1461  # days of four years of the Julian calendar
_SINCE_LEAP_YEAR = 731  # days from 1968-01-01 to 1970-01-01
_BEHIND = 13  # days: 1970-01-01 was 1969-12-19 in the Julian calendar

NAMES = frozenset((*_EVERY_YEAR, "standard", "proleptic_gregorian", "julian"))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CalendarDates:
    """Dates in a calendar, one for each time."""

    year: NDArray[np.int64]
    month: NDArray[np.int64]  # from 1
    day: NDArray[np.int64]  # from 1
    rest: NDArray[np.int64]  # microseconds of the day

    @property
    def months(self) -> NDArray[np.int64]:
        """Months since the year 0."""
        return self.year * 12 + self.month - 1

    def texts(self) -> list[str]:
        """Return each as ISO 8601 writes it, the time of day where it is not midnight."""
        columns = (each.tolist() for each in (self.year, self.month, self.day, self.rest))
        return [
            f"{year:04}-{month:02}-{day:02}{_clock(rest)}"
            for year, month, day, rest in zip(*columns, strict=True)
        ]


def dates_of(times: NDArray[np.int64], calendar: str) -> CalendarDates | None:
    """Return the dates of times; None where the calendar is unknown.

    Args:
        times: Microseconds since 1970-01-01 of the calendar, any number of them.
        calendar: As `TimeUnits` calls it.
    """
    if calendar not in NAMES:
        return None
    days, rest = np.divmod(times, _DAY)
    if (months := _EVERY_YEAR.get(calendar)) is not None:
        year, within = np.divmod(days, sum(months))
        month, day = _in_year(within, months)
        return CalendarDates(year=1970 + year, month=month, day=day, rest=rest)
    if calendar == "julian":
        return CalendarDates(**_julian(days), rest=rest)
    found = _gregorian(days)
    early = times < REFORM
    if calendar == "standard" and early.any():
        old = _julian(days - _BEHIND)
        found = {name: np.where(early, old[name], held) for name, held in found.items()}
    return CalendarDates(**found, rest=rest)


def _gregorian(days: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    dates = days.astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    return {
        "year": months.astype("datetime64[Y]").astype(np.int64) + 1970,
        "month": months.astype(np.int64) % 12 + 1,
        "day": (dates - months.astype("datetime64[D]")).astype(np.int64) + 1,
    }


def _julian(days: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """Return the fields of dates, given the days since 1970-01-01 of the Julian calendar."""
    olympiad, within = np.divmod(days + _SINCE_LEAP_YEAR, _OLYMPIAD)
    year = np.maximum(within - 1, 0) // 365  # the first of the four has a day more
    within -= np.where(year > 0, 365 * year + 1, 0)
    leap, common = _in_year(within, _LEAP), _in_year(np.minimum(within, 364), _COMMON)
    month, day = (np.where(year > 0, c, le) for le, c in zip(leap, common, strict=True))
    return {"year": 1968 + 4 * olympiad + year, "month": month, "day": day}


def _in_year(days: NDArray[np.int64], months: tuple[int, ...]) -> tuple[NDArray[np.int64], ...]:
    """Return month and day of days of a year that count from 0."""
    ends = np.cumsum(months)
    month = np.searchsorted(ends, days, side="right")
    begins = np.concatenate([[0], ends])[month]
    return month + 1, days - begins + 1


def _clock(rest: int) -> str:
    if not rest:
        return ""
    seconds, fraction = divmod(rest, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"T{hour:02}:{minute:02}:{second:02}{f'.{fraction:06}' if fraction else ''}"


def iso_dates(times: NDArray[np.int64], calendar: str) -> NDArray[Any] | None:
    """Return times as `numpy.datetime64`, or as texts where the calendar is not numpy's.

    They have the precision that all of them need: days, hours, minutes, seconds or microseconds.
    None where the calendar is unknown.
    """
    is_numpy = calendar in {"proleptic_gregorian", "standard"}
    if is_numpy and (calendar != "standard" or not (times < REFORM).any()):
        dates = times.astype("datetime64[us]")
        shorter = (dates.astype(f"datetime64[{unit}]") for unit in ("D", "h", "m", "s"))
        return next((short for short in shorter if (short == dates).all()), dates)
    found = dates_of(times, calendar)
    return None if found is None else np.array(found.texts(), np.str_)
