"""Times recoded to other units are the same times, by cftime's own decoding, or refused."""

import cftime
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.planning.axes.time_recoding import InexactError, common, microseconds, parse, recoded

CALENDARS = ["standard", "proleptic_gregorian", "noleap", "360_day", "julian", "all_leap"]
UNITS = ["days", "hours", "minutes", "seconds", "milliseconds"]
references = st.builds(
    "{:04d}-{:02d}-{:02d} {:02d}:00:00".format,
    st.integers(1500, 2200),
    st.integers(1, 12),
    st.integers(1, 28),
    st.integers(0, 23),
)


def dates(values, units, calendar):
    return cftime.num2date(values, units, calendar).tolist()


@given(
    unit=st.tuples(st.sampled_from(UNITS), st.sampled_from(UNITS)),
    reference=st.tuples(references, references),
    calendar=st.sampled_from(CALENDARS),
    values=st.lists(st.integers(-50_000, 50_000), min_size=1, max_size=5),
    dtype=st.sampled_from(["i4", "i8", "f8"]),
)
def test_what_is_recoded_decodes_to_the_same_dates(unit, reference, calendar, values, dtype):
    texts = [f"{u} since {r}" for u, r in zip(unit, reference, strict=True)]
    source, target = (parse(text, calendar) for text in texts)
    raw = np.array(values, dtype)
    try:
        new = recoded(raw, source, target)
    except InexactError:
        assert dtype != "f8" or source.step < target.step or abs(source.origin) > 1e15
        return
    assert new.dtype == raw.dtype
    assert dates(new, texts[1], calendar) == dates(raw, texts[0], calendar)


@pytest.mark.parametrize(
    ("text", "calendar"),
    [
        ("K", None),
        ("since 2000-01-01", None),
        ("months since 2000-01-01", "360_day"),
        ("days since yesterday", None),
        ("days since 2000-13-01", None),
        ("days since 2000-02-30", "noleap"),
        (3, None),
    ],
)
def test_what_counts_no_time_is_none(text, calendar):
    assert parse(text, calendar) is None


def test_the_common_unit_is_the_finest_since_the_first_reference():
    units = [parse("days since 2001-01-01"), parse("hours since 2001-02-01")]
    assert common(units).text == "hours since 2001-01-01"
    assert common(units[:1]) == units[0]
    assert common([units[0], parse("days since 2001-01-01", "noleap")]) is None
    assert common([units[0], parse("days since 2001-01-01", "gregorian")]) == units[0]


def test_missing_times_stay_as_they_are():
    source, target = parse("days since 2001-01-01"), parse("days since 2000-01-01")
    assert recoded(np.array([0, -999], "i4"), source, target, missing=[-999]).tolist() == [
        366,
        -999,
    ]
    new = recoded(np.array([0.0, np.nan]), source, target)
    assert new[0] == 366
    assert np.isnan(new[1])


def test_a_time_that_would_become_a_missing_one_is_refused():
    source, target = parse("days since 2001-01-01"), parse("days since 2000-01-01")
    with pytest.raises(InexactError):
        recoded(np.array([1], "i4"), source, target, missing=[367])


@pytest.mark.parametrize(
    ("values", "source", "target"),
    [
        (np.array([1], "i4"), "hours since 2001-01-01", "days since 2001-01-01"),
        (np.array([100], "i1"), "days since 2001-01-01", "days since 2000-01-01"),
        (np.array([1.0], "f4"), "seconds since 2001-01-01", "days since 1900-01-01"),
        (np.array([2**62], "i8"), "days since 2001-01-01", "days since 2000-01-01"),
    ],
)
def test_a_time_without_an_exact_value_is_refused(values, source, target):
    with pytest.raises(InexactError, match="since"):
        recoded(values, parse(source), parse(target))


def test_microseconds_are_those_of_cftime():
    units = parse("days since 1850-01-01", "noleap")
    raw = np.array([0.125, 36500.25])
    times, there = microseconds(raw, units)
    assert there.all()
    told = cftime.date2num(
        cftime.num2date(raw, units.text, "noleap"), "microseconds since 1970-01-01", "noleap"
    )
    assert times.tolist() == told.tolist()
