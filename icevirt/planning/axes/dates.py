"""Read and write labels that are dates, in whatever calendar: texts, dates of Python or cftime.

A format of strptime becomes a regular expression of RE2, which takes time linear in the text
whatever stands in it. Dates are whole numbers: days, hours, minutes, seconds or microseconds since
1970, as the format (never a value) decides, so that the files of tomorrow get labels of the same
type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.schema import TimeUnits
from icevirt.errors import InvalidInputError
from icevirt.model.attributes import Attributes
from icevirt.model.strings import Strings
from icevirt.planning.times.calendars import dates_of, datetimes_of
from icevirt.planning.times.instants import InexactError, microseconds, recode
from icevirt.planning.times.units import parse, units_of

_MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_SHORT = {name[:3]: at for at, name in enumerate(_MONTHS, 1)}
DIRECTIVES: Mapping[str, tuple[str, str]] = {
    # what it means, and how it is spelled at its full width
    "Y": ("year", "[0-9]{4}"),
    "y": ("year", "[0-9]{2}"),
    "m": ("month", "0[1-9]|1[0-2]"),
    "b": ("month", "(?i:" + "|".join(_SHORT) + ")"),
    "B": ("month", "(?i:" + "|".join(_MONTHS) + ")"),
    "d": ("day", "0[1-9]|[12][0-9]|3[01]"),
    "j": ("day of year", "00[1-9]|0[1-9][0-9]|[12][0-9]{2}|3[0-5][0-9]|36[0-6]"),
    "H": ("hour", "[01][0-9]|2[0-3]"),
    "M": ("minute", "[0-5][0-9]"),
    "S": ("second", "[0-5][0-9]"),
    "f": ("fraction of a second", "[0-9]{1,6}"),
}
_SHORTER = {"m": "1[0-2]|0?[1-9]", "d": "[12][0-9]|3[01]|0?[1-9]", "H": "1[0-9]|2[0-3]|0?[0-9]"}
_NEEDS = {
    "month": "year", "day": "month", "day of year": "year", "hour": "day", "minute": "hour",
    "second": "minute", "fraction of a second": "second",
}  # fmt: skip
_UNITS = (
    ("fraction of a second", "us", "microseconds"),
    ("second", "s", "seconds"),
    ("minute", "m", "minutes"),
    ("hour", "h", "hours"),
    ("year", "D", "days"),
)
_STEP = {"D": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "us": 1}
_ISO = (
    r"^\s*(?P<Y>[0-9]{4})-(?P<m>[0-9]{2})-(?P<d>[0-9]{2})"
    r"(?:[T ](?P<H>[0-9]{2}):(?P<M>[0-9]{2})(?::(?P<S>[0-9]{2})(?:[.,](?P<f>[0-9]{1,12}))?)?)?"
    r"\s*(?P<zone>Z|UTC|[+-][0-9]{2}(?::?[0-9]{2})?)?\s*$"
)
ORIGIN = "1970-01-01"
PROLEPTIC = "proleptic_gregorian"

type Column = Any
"""Texts as an array of pyarrow, which builds have and readers need not have."""


def computing() -> Any:
    """Return the functions of pyarrow on columns."""
    import pyarrow.compute

    return pyarrow.compute


@dataclass(frozen=True, slots=True, eq=False)
class Dates:
    """Dates as whole numbers of a unit, and what the attributes say of them."""

    values: NDArray[np.int64]  # 0 where there is none
    there: NDArray[np.bool_]
    unit: str = "us"  # of numpy
    calendar: str = PROLEPTIC

    @property
    def attributes(self) -> Attributes:
        """Units and calendar, as CF spells them."""
        name = next(name for _, unit, name in _UNITS if unit == self.unit)
        return Attributes(values={"units": f"{name} since {ORIGIN}", "calendar": self.calendar})


@dataclass(frozen=True, slots=True)
class DateFormat:
    """A format of strptime: literal text and directives, one after the other."""

    parts: tuple[tuple[str, str], ...]  # ("", literal) or (directive, "")

    @classmethod
    def of(cls, text: str) -> DateFormat:
        """Read a format; whether it tells a whole date is seen when all its parts are known.

        Raises:
            InvalidInputError: A directive is unknown.
        """
        parts: list[tuple[str, str]] = []
        for found in re.finditer(r"%(.?)|[^%]+", text, re.DOTALL):
            if not found[0].startswith("%") or found[1] == "%":
                parts.append(("", found[1] or found[0]))
            elif found[1] in DIRECTIVES:
                parts.append((found[1], ""))
            else:
                known = ", ".join("%" + each for each in DIRECTIVES)
                raise InvalidInputError(
                    f"a date format has no directive %{found[1]}",
                    do=f"Use {known}, and %% for a percent sign.",
                    format=text,
                )
        return cls(tuple(parts))


def expression_of(directive: str, *, apart: bool) -> str:
    """Return the regular expression of a directive.

    Numbers may have one digit of two where they stand ``apart`` from other digits.
    """
    found = _SHORTER.get(directive) if apart else None
    return f"(?:{found or DIRECTIVES[directive][1]})"


def refuse_incomplete(directives: Iterable[str], text: str) -> None:
    """Refuse formats that leave open which date is meant.

    Raises:
        InvalidInputError: There is no year, or hours without a day.
    """
    used = set(directives)
    meant = {DIRECTIVES[each][0] for each in used}
    if len(meant) < len(used):
        raise InvalidInputError(
            "a date format says the same in two ways, like %y and %Y", do="Use one.", format=text
        )
    if "year" not in meant:
        raise InvalidInputError("a date format needs a year (%Y or %y)", do="Add it.", format=text)
    for each in meant:
        needs = _NEEDS.get(each)
        if needs not in {None, *meant} and not (needs == "day" and "day of year" in meant):
            what = f"a date format has {'an' if each == 'hour' else 'a'} {each} but no {needs}"
            raise InvalidInputError(what, do="Add it.", format=text)
    if "day of year" in meant and meant & {"month", "day"}:
        raise InvalidInputError(
            "a date format has a day of the year (%j) beside a month or day",
            do="Use one of them.",
            format=text,
        )


def read_dates(found: Mapping[str, Column], rows: int, *, calendar: str = PROLEPTIC) -> Dates:
    """Return the dates of columns of texts, by directive; null texts and impossible dates are none.

    Args:
        found: Texts of each directive.
        rows: How many there are.
        calendar: As CF names it.
    """
    there = np.ones(rows, np.bool_)
    parts: dict[str, NDArray[np.int64]] = {}
    for directive, texts in found.items():
        name, _ = DIRECTIVES[directive]
        parts[name] = _number(directive, texts)
        there &= np.asarray(texts.is_valid())
    there &= parts["year"] > 0
    parts["year"] = np.maximum(parts["year"], 1)
    days, known = _days(parts, calendar)
    there &= known
    unit = next(unit for name, unit, _ in _UNITS if name in parts)
    count = days * _STEP["D"]
    for name, size in (("hour", "h"), ("minute", "m"), ("second", "s")):
        if name in parts:
            count = count + parts[name] * _STEP[size]
    count = count + parts.get("fraction of a second", 0)
    return Dates(np.where(there, count // _STEP[unit], 0), there, unit, calendar)


def _number(directive: str, texts: Column) -> NDArray[np.int64]:
    import pyarrow as pa

    pc = computing()

    if directive in "bB":
        short = pc.utf8_lower(pc.utf8_slice_codeunits(texts, 0, 3))
        at = pc.index_in(short, value_set=pa.array(list(_SHORT), short.type))
        return np.asarray(pc.fill_null(at, 0)).astype(np.int64) + 1
    if directive == "f":
        texts = pc.utf8_rpad(texts, 6, "0")
    numbers: NDArray[np.int64] = np.asarray(pc.fill_null(pc.cast(texts, pa.int64()), 0))
    if directive == "y":  # as POSIX reads them
        return np.where(numbers < 69, numbers + 2000, numbers + 1900)
    return numbers


def _days(
    parts: Mapping[str, NDArray[np.int64]], calendar: str
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return days since 1970-01-01, and which of them there are in the calendar."""
    year = parts["year"]
    one = np.ones_like(year)
    month, day = parts.get("month", one), parts.get("day", one)
    of_year = parts.get("day of year")
    if calendar not in (PROLEPTIC, "standard", "gregorian") or (year < 1583).any():
        return _days_of_calendar(year, month, day, of_year, calendar)
    if of_year is not None:
        first = (year - 1970).astype("datetime64[Y]")
        found = first.astype("datetime64[D]") + (of_year - 1)
        return found.astype(np.int64), found.astype("datetime64[Y]") == first
    begin = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    found = begin.astype("datetime64[D]") + (day - 1)
    return found.astype(np.int64), found.astype("datetime64[M]") == begin


def _days_of_calendar(
    year: NDArray[np.int64],
    month: NDArray[np.int64],
    day: NDArray[np.int64],
    of_year: NDArray[np.int64] | None,
    calendar: str,
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    import cftime

    later = np.zeros_like(year) if of_year is None else of_year - 1
    columns = np.stack([year, month, day, later], axis=1)
    distinct, which = np.unique(columns, axis=0, return_inverse=True)
    days, known = np.zeros(len(distinct), np.int64), np.zeros(len(distinct), np.bool_)
    for at, (y, m, d, more) in enumerate(distinct.tolist()):
        try:
            found = cftime.datetime(y, m, d, calendar=calendar) + timedelta(days=more)
            known[at] = found.year == y
            days[at] = cftime.date2num(found, f"days since {ORIGIN}", calendar)
        except ValueError:
            continue
    return days[which.reshape(-1)], known[which.reshape(-1)]


# -- ISO 8601 ------------------------------------------------------------------------------------


def iso_dates(texts: Sequence[str] | Strings, *, calendar: str = PROLEPTIC) -> Dates:
    """Return dates that are written like ``2024-01-01`` or ``2024-01-01T12:00:20.6Z``, in UTC.

    Raises:
        InvalidInputError: One has a fraction of a second beyond microseconds.
    """
    pc = computing()

    found = capture(texts, _ISO)
    there = np.asarray(found["Y"].is_valid())
    for name, most in (("m", 12), ("d", 31), ("H", 23), ("M", 59), ("S", 59)):
        number = _number(name, _zero(found[name], "1" if name in "md" else "0"))
        there &= (number <= most) & ((number > 0) | (name not in "md"))
    fraction = _zero(found["f"], "0")
    beyond = np.asarray(pc.match_substring_regex(fraction, "^[0-9]{6}.*[1-9]"))
    if (beyond & there).any():
        raise InvalidInputError(
            "a date has a fraction of a second beyond microseconds",
            do="Pass a list of labels.",
            date=texts[int(np.argmax(beyond & there))],
        )
    columns = {name: found[name] for name in "Ymd"}
    columns |= {name: _zero(found[name], "0") for name in "HMS"}
    columns["f"] = pc.utf8_slice_codeunits(fraction, 0, 6)
    made = read_dates(columns, len(texts), calendar=calendar)
    shift = _zone_minutes(_zero(found["zone"], "Z"))
    values = made.values - shift * _STEP["m"]
    return Dates(np.where(there, values, 0), made.there & there, "us", calendar)


def _zero(texts: Column, text: str) -> Column:
    """Return texts with another one where they are missing or empty."""
    pc = computing()

    return pc.if_else(pc.fill_null(pc.equal(texts, ""), True), text, texts)


def _zone_minutes(zones: Column) -> NDArray[np.int64]:
    codes = zones.dictionary_encode()
    minutes = []
    for zone in codes.dictionary.to_pylist():
        digits = zone[1:].replace(":", "")
        offset = 0 if zone in ("Z", "UTC") else int(digits[:2]) * 60 + int(digits[2:] or 0)
        minutes.append(-offset if zone.startswith("-") else offset)
    return np.array(minutes, np.int64)[np.asarray(codes.indices)]


def capture(texts: Sequence[str] | Strings, pattern: str) -> dict[str, Column]:
    """Return what the named groups of a pattern of RE2 match in each text, null where it does not.

    Raises:
        InvalidInputError: The pattern is not valid.
    """
    import pyarrow as pa

    pc = computing()

    column = texts if isinstance(texts, Strings) else Strings.of(texts)
    held = pa.LargeStringArray.from_buffers(
        len(column), pa.py_buffer(column.starts), pa.py_buffer(column.data)
    )
    try:
        found = pc.extract_regex(held, pattern=pattern)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(
            "not a regular expression", do="Correct it.", pattern=pattern, cause=str(error)
        ) from error
    flat = found.flatten()
    return {found.type.field(at).name: each for at, each in enumerate(flat)}


def same_texts(one: Column, other: Column) -> NDArray[np.bool_]:
    """Say where two columns of texts have equal ones, or neither has one."""
    pc = computing()

    neither = pc.and_(pc.is_null(one), pc.is_null(other))
    return np.asarray(pc.or_(neither, pc.fill_null(pc.equal(one, other), False)))


def write_labels(values: NDArray[Any], attributes: Attributes) -> list[str]:
    """Return labels as people write them: times as dates of their calendar."""
    attrs = attributes.values
    units, offset = units_of(attrs), attrs.get("add_offset")
    if isinstance(offset, int | float) and values.dtype.kind in "iuf":
        values = values + offset
    if units is None:
        return [str(value) for value in values.tolist()]
    times = count_times(values, units)
    dates = None if times is None else dates_of(times, units.calendar)
    plain = [f"{value} {units.text}" for value in values.tolist()]
    if dates is None:
        return plain
    there = np.isfinite(values).tolist()
    return [
        date if known else text
        for date, text, known in zip(dates.texts(), plain, there, strict=True)
    ]


def count_times(values: NDArray[Any], units: TimeUnits) -> NDArray[np.int64] | None:
    """Return microseconds since 1970-01-01; None where one lies further away than they count."""
    with suppress(InexactError):
        return microseconds(values, units)[0]
    return None


def is_date(value: object) -> bool:
    """Say whether a label is a date: of Python, pandas, numpy or cftime."""
    return isinstance(value, date | np.datetime64) or (
        hasattr(value, "calendar") and hasattr(value, "timetuple")
    )


def plain_date(value: Any) -> Any:
    """Return a date as Python's ``datetime`` in UTC without a zone, or as cftime's with a calendar.

    Raises:
        InvalidInputError: It is no time, or no whole microsecond.
    """
    if isinstance(value, np.datetime64):
        known = None if np.isnat(value) else value.astype("datetime64[us]")
        exact = known is not None and known == value
        value = None if known is None else known.astype(object)
        if not exact or not isinstance(value, datetime):
            raise InvalidInputError(
                "a label is not a date in whole microseconds of the years 1 to 9999",
                do="Correct it.",
            )
        return value
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)  # noqa: DTZ001 - UTC, as CF has it
    if not isinstance(value, datetime):
        return value
    given: Any = value
    if given != given or getattr(given, "nanosecond", 0):  # noqa: PLR0124 - NaT
        raise InvalidInputError("a label is not a date in whole microseconds", do="Correct it.")
    aware = value if value.tzinfo is None else value.astimezone(UTC)
    return datetime(  # noqa: DTZ001 - of pandas' too
        aware.year, aware.month, aware.day, aware.hour, aware.minute, aware.second,
        aware.microsecond,
    )  # fmt: skip


def dates_of_list(values: Sequence[Any]) -> Dates:
    """Return dates of a list, in microseconds.

    Raises:
        InvalidInputError: They are of several calendars.
    """
    calendars = {getattr(value, "calendar", PROLEPTIC) for value in values}
    if len(calendars) > 1:
        raise InvalidInputError(
            "the dates of labels are of several calendars",
            do="Pass dates of one calendar.",
            calendars=sorted(calendars),
        )
    (calendar,) = calendars
    if all(isinstance(value, datetime) for value in values):
        counted = np.array(values, "datetime64[us]").astype(np.int64)
    else:
        import cftime

        unit = f"microseconds since {ORIGIN}"
        counted = np.asarray(cftime.date2num(list(values), unit, calendar), np.int64)
    return Dates(counted, np.ones(len(values), np.bool_), "us", calendar)


# -- as CF counts them ---------------------------------------------------------------------------


def calendar_of(said: Mapping[str, Any]) -> str:
    """Return the calendar of dates in texts, where attributes that a user sets name one.

    Raises:
        InvalidInputError: There is no such calendar.
    """
    name = str(said.get("calendar") or PROLEPTIC).lower()
    if parse(f"days since {ORIGIN}", name) is None:
        raise InvalidInputError(
            "not a calendar of CF", do="Correct the attribute of the labels.", calendar=name
        )
    return name


def count_labels(
    labels: NDArray[Any] | Dates, said: Mapping[str, Any]
) -> tuple[NDArray[Any], Attributes]:
    """Return labels as they are stored, and the attributes that say what they count.

    Dates are counted in the units that a user sets.

    Raises:
        InvalidInputError: These are no units of time, or a date has no exact value in them.
    """
    if not isinstance(labels, Dates):
        return labels, Attributes()
    attributes = labels.attributes
    own = parse(attributes.values["units"], labels.calendar)
    wanted = said.get("units")
    if wanted is None or own is None or wanted == own.text:
        return labels.values, attributes
    target = parse(wanted, labels.calendar)
    if target is None:
        raise InvalidInputError(
            "labels that are dates need units like 'hours since 2000-01-01'",
            do="Correct the attribute units of the labels.",
            units=wanted,
        )
    try:
        values = recode(labels.values, own, target)
    except InexactError as error:
        raise InvalidInputError(
            f"a label cannot be counted in the units that attrs sets: {error}",
            do="Set finer units, or an earlier reference date.",
            units=wanted,
        ) from error
    return values, attributes | Attributes(values={"units": target.text})


def show_labels(values: NDArray[Any], attributes: Attributes) -> NDArray[Any]:
    """Return labels as people read them: times as dates, as texts where numpy has no such date."""
    units = parse(attributes.values.get("units"), attributes.values.get("calendar"))
    times = None if units is None else count_times(values, units)
    if units is None or times is None:
        return values
    dates = datetimes_of(times, units.calendar)
    return values if dates is None else dates
