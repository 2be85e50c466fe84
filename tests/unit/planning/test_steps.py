"""How far apart labels are: no false gap in months, years and times that floats rounded."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from icevirt.planning.axes.axis_ends import spacing_of_numbers, spacing_of_times

DAY = 86_400_000_000


def counted(times):
    return times.to_numpy().astype("datetime64[us]").astype(np.int64)


@pytest.mark.parametrize(
    ("freq", "every", "option"),
    [
        ("MS", "month", ""),
        ("ME", "month", ""),
        ("QS", "3 months", ""),
        ("YS", "year", ""),
        ("YE", "year", ""),
        ("5YS", "5 years", ""),
        ("W", "7 days", "7D"),
        ("30D", "30 days", "30D"),
        ("D", "day", "1D"),
        ("36h", "1.5 days", "36h"),
        ("3h", "3 hours", "3h"),
        ("10min", "10 minutes", "10min"),
        ("250ms", "250 milliseconds", "250000us"),
    ],
)
def test_regular_times_have_a_step_and_no_gap(freq, every, option):
    times = pd.date_range("1999-01-01", periods=40, freq=freq)
    for calendar in ("standard", "proleptic_gregorian"):
        found = spacing_of_times(counted(times), calendar)
        assert (found.every, found.duration, found.missing.tolist()) == (every, option, [])


@pytest.mark.parametrize("day", [1, 15, 16, 28])
@pytest.mark.parametrize("calendar", ["noleap", "360_day", "julian", "all_leap", "standard"])
def test_months_of_all_calendars_have_no_gap(calendar, day):
    times = xr.date_range(
        "1999-01-01", periods=60, freq="MS", calendar=calendar, use_cftime=True
    ).map(lambda each: each.replace(day=day))
    held = xr.Dataset({"time": times})
    held.time.encoding = {"units": "days since 1970-01-01"}
    days = xr.conventions.encode_cf_variable(held.time.variable).to_numpy()
    found = spacing_of_times(days.astype(np.int64) * DAY, calendar)
    assert (found.every, found.missing.tolist()) == ("month", [])


def test_centers_of_months_have_no_gap():
    begins = pd.date_range("1999-01-01", periods=40, freq="MS")
    centers = begins + (begins.shift(1) - begins) / 2
    assert spacing_of_times(counted(centers), "standard").every == "month"


@given(st.integers(1, 48), st.integers(5, 40))
def test_steps_that_are_taken_away_are_the_gaps(hours, size):
    step = hours * 3_600_000_000
    whole = np.arange(4 * size, dtype=np.int64) * step
    gone = np.arange(7, 4 * size - 1, 9)
    found = spacing_of_times(np.delete(whole, gone), "standard")
    assert found.missing.tolist() == [1] * len(gone)
    assert np.delete(whole, gone)[found.after].tolist() == (whole[gone] - step).tolist()


def test_a_missing_month_is_a_gap():
    times = pd.date_range("1999-01-01", periods=40, freq="MS").delete([7, 8, 20])
    found = spacing_of_times(counted(times), "standard")
    assert (found.every, found.after.tolist(), found.missing.tolist()) == ("month", [6, 17], [2, 1])


def test_floats_that_round_times_make_no_gap():
    hours = (np.arange(200) / 24).astype("f4").astype("f8")
    found = spacing_of_times(np.rint(hours * DAY).astype(np.int64), "standard")
    assert (found.every, found.missing.tolist()) == ("hour", [])


@pytest.mark.parametrize("times", [[0, 1, 3, 4, 9, 11], [0, 3, 1, 2], [0, 1], [5]])
def test_what_has_no_step_has_none(times):
    found = spacing_of_times(np.array(times, np.int64) * DAY, "standard")
    assert (found.every, found.missing) == ("", None)


def test_times_without_a_step_say_how_far_apart_they_are():
    found = spacing_of_times(np.array([0, 1, 3, 4, 9, 11]) * DAY // 2, "standard")
    assert (found.shortest, found.longest) == ("12 hours", "2.5 days")


def test_numbers_have_a_step_in_either_direction():
    axis = np.linspace(-90, 90, 181).astype("f4")
    assert spacing_of_numbers(axis).every == spacing_of_numbers(axis[::-1]).every == "1"
    assert spacing_of_numbers(np.delete(axis, [5, 6])).missing.tolist() == [2]
    assert spacing_of_numbers(np.geomspace(1, 1000, 20)).every == ""
