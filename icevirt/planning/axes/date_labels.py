"""Make times of labels that are dates: of Python, pandas, numpy and cftime, in their calendar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import InvalidInputError
from icevirt.model.attributes import Attributes
from icevirt.planning.axes.date_formats import ORIGIN, PROLEPTIC, Dates
from icevirt.planning.axes.dates import counted_times
from icevirt.planning.times.calendars import iso_dates
from icevirt.planning.times.instants import InexactError
from icevirt.planning.times.units import parse
from icevirt.planning.times.values import recoded


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


def listed_dates(values: Sequence[Any]) -> Dates:
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
    there = np.ones(len(values), np.bool_)
    if all(isinstance(value, datetime) for value in values):
        counted = np.array(values, "datetime64[us]").astype(np.int64)
        return Dates(counted, there, "us", calendar)
    import cftime

    made = cftime.date2num(list(values), f"microseconds since {ORIGIN}", calendar)
    return Dates(np.asarray(made, np.int64), there, "us", calendar)


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


def counted_labels(
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
        values = recoded(labels.values, own, target)
    except InexactError as error:
        raise InvalidInputError(
            f"a label cannot be counted in the units that attrs sets: {error}",
            do="Set finer units, or an earlier reference date.",
            units=wanted,
        ) from error
    return values, attributes | Attributes(values={"units": target.text})


def shown_labels(values: NDArray[Any], attributes: Attributes) -> NDArray[Any]:
    """Return labels as people read them: times as dates, as texts where numpy has no such date."""
    units = parse(attributes.values.get("units"), attributes.values.get("calendar"))
    times = None if units is None else counted_times(values, units)
    if units is None or times is None:
        return values
    dates = iso_dates(times, units.calendar)
    return values if dates is None else dates
