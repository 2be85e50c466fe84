"""Read reference dates of times, and turn counted times into dates of their calendar.

xarray asks pandas where a unit has its whole name, the calendar is one of numpy's and nanoseconds
reach the date. It asks cftime for all else, and for a file with one time that nanoseconds do not
reach. The two read zones, clocks and the order of day and month in different ways, and so do
versions of pandas: what depends on more than the file is read by nobody here.

The calendars are those of CF 4.4.1. Only two of them are numpy's, and only from 1582 on; the others
have a 30th of February, or no 29th.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

ORIGIN = "microseconds since 1970-01-01"
REFORM = -12_219_292_800_000_000
"""Microseconds from 1970-01-01 to 1582-10-15; from then on `SINCE_REFORM` calendars agree."""
SINCE_REFORM = frozenset(("standard", "proleptic_gregorian"))
_REACH = 1 << 63  # nanoseconds from 1970-01-01, of 64 bits
_MONTHS = 12
MICROSECOND, SECOND = 1_000, 1_000_000_000  # nanoseconds
_FINEST = ("nanosecond", "nanoseconds")  # which cftime does not know
_LONGEST = 64  # characters; no date needs more
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_PLAIN = re.compile(  # which pandas and cftime read alike, to microseconds
    r"(\d{4})-(\d\d?)-(\d\d?)(?:[T ](\d\d?):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?", re.ASCII
)
_UTC = re.compile(r"(.*[T ]\d\d:\d\d(?::\d\d)?) ?(?:Z|UTC|GMT)", re.ASCII)  # the same, but longer
_YEAR_LAST = re.compile(r"(\d\d?)([-/. ])(\d\d?)\2\d{4}(?!\d)")
_FRACTION = re.compile(r"(?::\d\d?|\d{6})\.(\d+)")
_COMMA = re.compile(r"(?::\d\d?|\d{6}),\d")
_CAPITALS = re.compile(r"(?<![A-Za-z])[A-Z]{1,5}(?![A-Za-z])")
_WORDS = frozenset(  # that no machine takes for its own zone
    (
        *("T", "Z", "UTC", "GMT", "AM", "PM", "MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"),
        *("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
        *("MARCH", "APRIL", "JUNE", "JULY", "SEPT"),
    )
)


class UnreadError(ValueError):
    """A reference date has no one reading; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The date from which times count."""

    origin: int  # microseconds from 1970-01-01, in its calendar
    nanosecond: int = 0  # after these
    is_fine: bool  # whether xarray asks pandas
    is_one: bool = True  # whether cftime reads the same


def read_reference(unit: str, text: str, calendar: str, *, is_fine: bool) -> Reference:
    """Return the date that a text means to xarray.

    Args:
        unit: As cftime knows it.
        text: What stands behind "since".
        calendar: As `TimeUnits` calls it.
        is_fine: Whether xarray would ask pandas for this unit, written in this way.

    Raises:
        UnreadError: It means no date, or different ones.
    """
    is_fine &= calendar in SINCE_REFORM
    in_utc = _UTC.fullmatch(text)
    written = text if in_utc is None else in_utc[1]
    plain = _PLAIN.fullmatch(written) if calendar in SINCE_REFORM else None
    known = None if plain is None else _of_plain(plain)
    if known is not None and (is_fine or unit not in _FINEST):
        return known if is_fine else Reference(origin=known.origin, is_fine=False)
    _refuse_unclear(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of orders that were refused, and of the year 0
        soon = _by_pandas(text) if is_fine else None
        late = _by_cftime(unit, text, calendar)
    if soon is None:
        if late is None or _YEAR_LAST.match(text):
            raise UnreadError(f"xarray reads no date from {text!r}")
        return Reference(origin=late, is_fine=False)
    origin, nanosecond = soon
    is_one = late == origin and not _fraction(text)
    return Reference(origin=origin, nanosecond=nanosecond, is_fine=True, is_one=is_one)


def _of_plain(found: re.Match[str]) -> Reference | None:
    """Return what digits in the order of ISO 8601 say; None where calendars or years differ."""
    fraction = (found[7] or "").ljust(9, "0")
    try:
        parts = [int(each or 0) for each in found.groups()[:6]]
        date = datetime(*parts, int(fraction[:6]), tzinfo=UTC)  # type: ignore[misc,arg-type]
    except ValueError:
        return None
    apart = date - _EPOCH
    origin = (apart.days * 86_400 + apart.seconds) * 1_000_000 + apart.microseconds
    nanosecond = int(fraction[6:])
    if not (abs(origin * 1000 + nanosecond) < _REACH):
        return None
    return Reference(origin=origin, nanosecond=nanosecond, is_fine=True, is_one=not nanosecond)


def _refuse_unclear(text: str) -> None:
    """Refuse what versions of pandas, machines or people read in several ways.

    Raises:
        UnreadError: It is such a text.
    """
    if len(text) > _LONGEST or not (text.isascii() and text.isprintable()):
        raise UnreadError(f"xarray reads no date from {text[:_LONGEST]!r}")
    order = _YEAR_LAST.match(text)
    parts = set() if order is None else {int(order[1]), int(order[3])}
    if len(parts) > 1 and max(parts) <= _MONTHS:
        raise UnreadError(f"in {text!r} the day or the month may come first")
    zones = [each for each in _CAPITALS.findall(text) if each not in _WORDS]
    if zones:
        raise UnreadError(f"in {text!r} {zones[0]} may be any zone: machines read it differently")
    if _COMMA.search(text):
        raise UnreadError(f"in {text!r} versions of pandas read the comma differently")


def _fraction(text: str) -> int:
    found = _FRACTION.search(text)
    return 0 if found is None else int(found[1].ljust(9, "0")[:9])


def _by_pandas(text: str) -> tuple[int, int] | None:
    """Return microseconds since 1970-01-01 and nanoseconds; None where xarray asks cftime.

    Raises:
        UnreadError: Versions of pandas read it differently.
    """
    import pandas as pd  # type: ignore[import-untyped]

    try:
        date = pd.Timestamp(_with_padded_year(text)).as_unit("ns")
        if date.tz is not None:
            date = date.tz_convert("UTC")
        nanoseconds = int(date.value)
    except (ValueError, OverflowError):
        return None
    if nanoseconds % SECOND != _fraction(text):
        raise UnreadError(f"in {text!r} versions of pandas read the fraction differently")
    return divmod(nanoseconds, 1000)


def _with_padded_year(text: str) -> str:
    """Return a date as xarray hands it to pandas: the first number is the year, unless one is."""
    if re.search(r"\d{4}", text):
        return text
    year = re.match(r"\d+", text)
    if year is None:
        raise ValueError(text)
    return f"{int(year[0]):04}{text[year.end() :]}"


def _by_cftime(unit: str, text: str, calendar: str) -> int | None:
    import cftime

    try:
        date = cftime.num2date(0, f"{unit} since {text}", calendar)
        return int(cftime.date2num(date, ORIGIN, calendar))
    except (ValueError, TypeError, OverflowError, KeyError):
        return None


def plain_text(origin: int, nanosecond: int, calendar: str) -> str:
    """Return a reference date as everybody reads it alike.

    Args:
        origin: Microseconds from 1970-01-01.
        nanosecond: After these.
        calendar: As `TimeUnits` calls it.
    """
    import cftime

    text = cftime.num2date(origin, ORIGIN, calendar).isoformat(" ", "microseconds")
    if nanosecond:
        text += f"{nanosecond:03}"
    return str(text).removesuffix(".000000").removesuffix(" 00:00:00")


_DAY = 86_400_000_000  # microseconds
_LEAP = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_COMMON = (31, 28, *_LEAP[2:])
_EVERY_YEAR = {  # the days of the months, where all years have the same
    "noleap": _COMMON,
    "all_leap": _LEAP,
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
    minutes, second = divmod(rest // 1_000_000, 60)
    fraction = f".{rest % 1_000_000:06}" if rest % 1_000_000 else ""
    return f"T{minutes // 60:02}:{minutes % 60:02}:{second:02}{fraction}"


def datetimes_of(times: NDArray[np.int64], calendar: str) -> NDArray[Any] | None:
    """Return times as `numpy.datetime64`, or as texts where the calendar is not numpy's.

    They have the precision that all of them need: days, hours, minutes, seconds or microseconds.
    None where the calendar is unknown.
    """
    if calendar == "proleptic_gregorian" or (calendar == "standard" and (times >= REFORM).all()):
        dates = times.astype("datetime64[us]")
        shorter = (dates.astype(f"datetime64[{unit}]") for unit in ("D", "h", "m", "s"))
        return next((short for short in shorter if (short == dates).all()), dates)
    found = dates_of(times, calendar)
    return None if found is None else np.array(found.texts(), np.str_)
