"""Dates of all calendars of CF are those of cftime."""

import cftime
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.planning.times.calendars import NAMES, dates_of, datetimes_of

ORIGIN = "microseconds since 1970-01-01"
DAY = 86_400_000_000
YEAR = 366 * DAY


@pytest.mark.parametrize("calendar", sorted(NAMES))
@given(st.lists(st.integers(-1900 * YEAR, 1000 * YEAR), min_size=1, max_size=20))
def test_dates_are_those_of_cftime(calendar, times):
    found = dates_of(np.array(times, np.int64), calendar)
    theirs = [cftime.num2date(each, ORIGIN, calendar) for each in times]
    known = [(each.year, each.month, each.day) for each in theirs if each.year > 0]
    fields = zip(found.year.tolist(), found.month.tolist(), found.day.tolist(), strict=True)
    assert [each for each in fields if each[0] > 0] == known
    assert found.rest.tolist() == [each % DAY for each in times]


@pytest.mark.parametrize("calendar", sorted(NAMES))
def test_every_day_of_some_years_is_that_of_cftime(calendar):
    """Leap days, ends of years, and the days around the reform of the calendar."""
    days = np.arange(-150_000, 12_000, 1)
    days = days[(days > -3_000) | (np.abs(days + 141_427) < 800) | (days % 997 == 0)]
    theirs = cftime.num2date(days, "days since 1970-01-01", calendar)
    found = dates_of(days * DAY, calendar)
    assert found.texts() == [each.strftime("%Y-%m-%d") for each in theirs]


def test_texts_have_the_time_of_day_where_it_is_not_midnight():
    found = dates_of(np.array([0, DAY // 2, 59 * DAY + 1]), "360_day")
    assert found.texts() == ["1970-01-01", "1970-01-01T12:00:00", "1970-02-30T00:00:00.000001"]


def test_dates_that_numpy_has_are_its_dates():
    assert datetimes_of(np.array([0, DAY]), "standard").dtype == "datetime64[D]"
    assert datetimes_of(np.array([0, DAY // 24]), "standard").dtype == "datetime64[h]"
    assert datetimes_of(np.array([59 * DAY]), "360_day").tolist() == ["1970-02-30"]
    assert datetimes_of(np.array([-500 * YEAR]), "standard").dtype.kind == "U"
    assert datetimes_of(np.array([0]), "mayan") is None
