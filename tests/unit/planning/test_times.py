"""Times of several files become one variable that xarray decodes to the same instants, or are refused."""

import warnings

import cftime
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.archive.schema import ArraySchema, UnitColumns
from icevirt.model.attributes import restore
from icevirt.planning.times.instants import InexactError, decode_times, microseconds, recode
from icevirt.planning.times.recoding import recode_times, recode_values
from icevirt.planning.times.units import coarsest, parse
from unit.planning.scanned_facts import File, coord, data, facts_of

TYPES = ["i2", "i4", "u4", "i8", "f4", "f8"]
UNITS = ["days", "hours", "minutes", "seconds", "milliseconds", "microseconds"]
CALENDARS = ["standard", "proleptic_gregorian", "noleap", "360_day", "julian"]
SINCE_REFORM = ["standard", "gregorian", "proleptic_gregorian", None]


def instants(values, attrs, time_unit="ns"):
    """Return what xarray decodes: whole nanoseconds, or dates of cftime."""
    coder = xr.coders.CFDatetimeCoder(time_unit=time_unit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        raw = xr.Dataset({"v": ("x", values, attrs)})
        shown = xr.decode_cf(raw, decode_times=coder)["v"].values
    if shown.dtype.kind == "M":
        return shown.astype("datetime64[ns]").tolist()
    return [str(each) for each in shown]


references = st.builds(
    "{:04d}-{:02d}-{:02d} {:02d}:{:02d}:00".format,
    st.integers(1880, 2080),
    st.integers(1, 12),
    st.integers(1, 28),
    st.integers(0, 23),
    st.sampled_from([0, 0, 0, 30, 37]),
)
values = st.lists(
    st.one_of(
        st.integers(0, 20_000),
        st.sampled_from([1 / 7, 0.1, 1 / 24, 0.5, 0.25, 2.75, 1000.1, 1 / 3, 7 / 1440]),
    ),
    min_size=1,
    max_size=4,
)


@st.composite
def archives(draw, calendars):
    """Files with one time each: numbers and attributes."""
    calendar = draw(st.sampled_from(calendars))
    alike = draw(st.booleans())
    unit, kind = draw(st.sampled_from(UNITS)), draw(st.sampled_from(TYPES))
    files = []
    for _ in range(draw(st.integers(2, 4))):
        if not alike:
            unit, kind = draw(st.sampled_from(UNITS)), draw(st.sampled_from(TYPES))
        attrs = {"units": f"{unit} since {draw(references)}"}
        if calendars is SINCE_REFORM:
            calendar = draw(st.sampled_from(calendars))
        if calendar is not None:
            attrs["calendar"] = calendar
        numbers = np.array(draw(values)).astype(kind)
        # integers with a fill value are beyond xarray where cftime decodes
        if calendars is SINCE_REFORM and draw(st.booleans()) and len(numbers) > 1:
            numbers[-1] = 99
            attrs["_FillValue"] = numbers.dtype.type(99)
        files.append((numbers, attrs))
    return files


def kept(attributes):
    """Return the attributes of a schema as a reader gets them."""
    return restore(attributes.values, attributes.dtypes)


@pytest.mark.parametrize("calendars", [SINCE_REFORM, CALENDARS], ids=["mixed", "one"])
@settings(max_examples=25, deadline=None)
@given(chosen=st.data())
def test_times_decode_as_from_their_files(chosen, calendars):
    """A coordinate, whose values the plan knows."""
    found = chosen.draw(archives(calendars))
    files = [
        File(f"f{n}", {"time": coord("time", numbers, **attrs)})
        for n, (numbers, attrs) in enumerate(found)
    ]
    facts, done = recode_times(facts_of(*files), ["time"])
    schemas = {facts.arrays.schema[row] for row in range(len(files))}
    assert len(schemas) == 1
    attrs = kept(ArraySchema.loads(schemas.pop()).attributes)
    if done:
        assert (
            done["/time"].data_type in ("int64", "float64") or len({f[0].dtype for f in found}) < 2
        )
    for row, (numbers, own) in enumerate(found):
        held = facts.arrays.labels.at(row)
        theirs = instants(numbers, own)
        assert instants(held, attrs) == theirs, (attrs, own, held, numbers)
        if instants(numbers, own, "us") == theirs:  # xarray rounds fractions in two ways
            assert instants(held, attrs, "us") == theirs, (attrs, own, held, numbers)


@settings(max_examples=20, deadline=None)
@given(found=archives(SINCE_REFORM))
def test_times_that_order_no_files_decode_as_from_their_files(found):
    """A variable beside the coordinate, whose values only the tasks know."""
    files = [
        File(f"f{n}", {"obs": data(("time",), numbers, attrs=attrs, chunks=None)})
        for n, (numbers, attrs) in enumerate(found)
    ]
    facts, done = recode_times(facts_of(*files), ["time"])
    schema = ArraySchema.loads(facts.arrays.schema[0])
    for row, (numbers, own) in enumerate(found):
        held = numbers
        if done:
            held = recode_values(numbers, done["/obs"], row, path="/obs", url="f")
        assert instants(held, kept(schema.attributes)) == instants(numbers, own)


# -- the parts of it -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "calendar"),
    [
        ("K", None),
        ("since 2000-01-01", None),
        ("months since 2000-01-01", "standard"),
        ("common_years since 2000-01-01", "360_day"),
        ("days since yesterday", None),
        ("days since 2000-13-01", None),
        ("days since 2000-02-30", "noleap"),
        (3, None),
    ],
)
def test_what_counts_no_time_is_none(text, calendar):
    assert parse(text, calendar) is None


@pytest.mark.parametrize("calendar", ["standard", "proleptic_gregorian"])
@given(
    found=st.tuples(
        st.integers(1583, 2400), st.integers(1, 12), st.integers(1, 28), st.integers(0, 86_399)
    )
)
def test_a_reference_date_is_that_of_cftime(found, calendar):
    year, month, day, second = found
    text = f"{year}-{month}-{day:02} {second // 3600:02}:{second // 60 % 60}0:{second % 60:02}.5"
    text = text.replace(f":{second // 60 % 60}0:", f":{second // 60 % 60:02}:")
    date = cftime.num2date(0, f"days since {text}", calendar)
    epoch = "microseconds since 1970-01-01"
    assert parse(f"hours since {text}", calendar).origin == cftime.date2num(date, epoch, calendar)


@pytest.mark.parametrize(
    ("texts", "common"),
    [
        (["days since 2001-01-01", "hours since 2001-02-01"], "hours since 2001-01-01"),
        (["days since 2001-01-01", "days since 2001-01-02 06:00"], "hours since 2001-01-01"),
        (["hours since 2001-01-01", "hours since 2001-01-01 00:00:30"], "seconds since 2001-01-01"),
        (["hrs since 2001-01-01", "d since 2000-01-01"], "hrs since 2001-01-01"),
        (["days since 2001-01-01", "nanoseconds since 1999-01-01"], "nanoseconds since 2001-01-01"),
        (["days since 1601-01-01", "nanoseconds since 2001-01-01"], "nanoseconds since 1970-01-01"),
        (
            ["seconds since 2001-01-01 00:00:37.123456789", "seconds since 2001-01-01 00:00:37"],
            "nanoseconds since 2001-01-01 00:00:37.123456789",
        ),
        (
            [
                "hours since 2001-01-01 00:00:00.00000005",
                "hours since 2001-01-01 00:00:00.00000025",
            ],
            "nanoseconds since 2001-01-01 00:00:00.000000050",
        ),
        (
            ["days since 2001-01-01 00:00 -6:00", "days since 2001-02-01"],
            "hours since 2001-01-01 06:00:00",
        ),
        (["days SINCE 31-12-2000", "hours since 2001-01-01"], "hours since 2000-12-31"),
    ],
)
def test_whole_numbers_count_the_coarsest_unit_that_divides_all(texts, common):
    units = [parse(text) for text in texts]
    assert coarsest(UnitColumns.of(units), units[0]).text == common


def test_a_time_that_would_become_a_missing_one_is_refused():
    source, target = parse("days since 2001-01-01"), parse("days since 2000-01-01")
    with pytest.raises(InexactError):
        recode(np.array([1], "i4"), source, target, fill=367)


def test_dates_before_the_reform_are_not_those_of_another_calendar():
    source, target = (
        parse("days since 1500-01-01"),
        parse("days since 1500-01-01", "proleptic_gregorian"),
    )
    with pytest.raises(InexactError, match="before 1582-10-15"):
        recode(np.array([1]), source, target)
    assert recode(np.array([40_000]), source, target).tolist() == [
        40_009
    ]  # Julian January 1st is the 10th


@pytest.mark.parametrize(
    ("values", "source", "target"),
    [
        (np.array([1], "i4"), "hours since 2001-01-01", "days since 2001-01-01"),
        (np.array([100], "i1"), "days since 2001-01-01", "days since 2000-01-01"),
        (np.array([1.0], "f4"), "seconds since 2001-01-01", "days since 1900-01-01"),
        (np.array([2**62], "i8"), "days since 2001-01-01", "days since 2000-01-01"),
        (np.array([200_000], "i4"), "days since 2001-01-01", "nanoseconds since 2001-01-01"),
    ],
)
def test_a_time_without_an_exact_value_is_refused(values, source, target):
    with pytest.raises(InexactError):
        recode(values, parse(source), parse(target))


def test_microseconds_are_those_of_cftime():
    units = parse("days since 1850-01-01", "noleap")
    raw = np.array([0.125, 36500.25, 20.0000006 / 86_400, 19.9999994 / 86_400])
    times, there = microseconds(raw, units)
    assert there.all()
    output = cftime.date2num(
        cftime.num2date(raw, units.text, "noleap"), "microseconds since 1970-01-01", "noleap"
    )
    assert times.tolist() == output.tolist()


def test_one_date_out_of_range_makes_all_of_its_file_microseconds():
    """As xarray does; other files keep their nanoseconds."""
    units = parse("seconds since 2000-01-01")
    values = np.array([1 / 3, 1e10, 1 / 3])
    found = decode_times(values, units, starts=np.array([0, 2]))
    assert found.rest.tolist() == [0, 0, 333]
