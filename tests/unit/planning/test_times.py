"""Times of several files become one variable that xarray decodes to the same instants, or are refused."""

import warnings

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.archive.schema import ArraySchema
from icevirt.model.attributes import restore
from icevirt.planning.times.recoding import recode_times
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
    st.integers(1850, 2100),
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
@settings(max_examples=50, deadline=None)
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


@settings(max_examples=40, deadline=None)
@given(found=archives(SINCE_REFORM))
def test_times_that_order_no_files_decode_as_from_their_files(found):
    """A variable beside the coordinate, whose values only the tasks know."""
    files = [
        File(f"f{n}", {"obs": data(("time",), numbers, attrs=attrs, chunks=None)})
        for n, (numbers, attrs) in enumerate(found)
    ]
    facts, done = recode_times(facts_of(*files), ["time"])
    schema = ArraySchema.loads(facts.arrays.schema[0])
    from icevirt.planning.times.recoding import recoded_values

    for row, (numbers, own) in enumerate(found):
        held = numbers
        if done:
            held = recoded_values(numbers, done["/obs"], row, path="/obs", url="f")
        assert instants(held, kept(schema.attributes)) == instants(numbers, own)
