"""Durations that files count or mark differently become one variable with the same durations."""

import warnings

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError
from icevirt.model.attributes import restore
from icevirt.planning.times.recoding import describe_recodings, recode_times, recode_values
from icevirt.planning.times.units import duration_of, finest_mark
from unit.planning.scanned_facts import File, coord, data, facts_of, plan

UNITS = ["days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds"]
MARKS = ["timedelta64[ns]", "timedelta64[us]", "timedelta64[ms]", "timedelta64[s]"]
TYPES = ["i2", "i4", "u4", "i8", "f4", "f8"]


def durations(values, attrs):
    """Return what xarray decodes, in nanoseconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        raw = xr.Dataset(
            {"v": ("x", np.array(values), attrs)}
        )  # a copy: xarray multiplies in place
        shown = xr.decode_cf(raw, decode_timedelta=True)["v"].values
    assert shown.dtype.kind == "m"
    return shown.astype("m8[ns]").view("i8").tolist()


def attributes(unit, mark=None, **more):
    return {"units": unit, **({"dtype": mark} if mark else {}), **more}


def counting(facts):
    """Return the attributes that all files have now."""
    schemas = {facts.arrays.schema[row] for row in range(len(facts.arrays.file))}
    assert len(schemas) == 1
    found = ArraySchema.loads(schemas.pop())
    return restore(found.attributes.values, found.attributes.dtypes)


numbers = st.lists(
    st.one_of(
        st.integers(0, 30_000),
        st.sampled_from([1 / 7, 0.1, 1 / 24, 0.5, 0.25, 2.75, 1000.1, 1 / 3, 0.7]),
    ),
    min_size=1,
    max_size=4,
)


@st.composite
def archives(draw):
    """Files with one variable each: numbers and attributes."""
    files = []
    alike = draw(st.booleans())
    unit, kind = draw(st.sampled_from(UNITS)), draw(st.sampled_from(TYPES))
    for _ in range(draw(st.integers(2, 4))):
        if not alike:
            unit, kind = draw(st.sampled_from(UNITS)), draw(st.sampled_from(TYPES))
        values = np.array(draw(numbers)).astype(kind)
        attrs = attributes(unit, draw(st.sampled_from([None, *MARKS])))
        if draw(st.booleans()) and len(values) > 1:
            values[-1] = 99
            attrs["_FillValue"] = values.dtype.type(99)
        files.append((values, attrs))
    return files


@pytest.mark.parametrize("is_label", [True, False])
@settings(max_examples=60, deadline=None)
@given(found=archives())
def test_durations_decode_as_from_their_files(is_label, found):
    made = [
        {"lead": coord("lead", values, **attrs)}
        if is_label
        else {"lead": data(("time",), values, attrs=attrs, chunks=None)}
        for values, attrs in found
    ]
    files = [File(f"f{n}", each) for n, each in enumerate(made)]
    try:
        facts, done = recode_times(facts_of(*files), ["lead" if is_label else "time"])
        held = [
            facts.arrays.labels.at(row)
            if is_label
            else recode_values(values, done["/lead"], row, path="/lead", url="f")
            if done
            else values
            for row, (values, _) in enumerate(found)
        ]
    except CombineError as error:
        assert "no exact value" in str(error) or "longer than 64 bits" in str(error)  # noqa: PT017
        return
    is_rounded = any(
        values.dtype == "f4" and UNITS.index(own["units"]) > 2 for values, own in found
    )
    if is_rounded and not done:
        return
    attrs = counting(facts)
    for mine, (values, own) in zip(held, found, strict=True):
        assert durations(mine, attrs) == durations(values, own), (attrs, own)
    marks = {own.get("dtype") for _, own in found} - {None}
    assert attrs.get("dtype") == min(marks, key=MARKS.index, default=None)


@pytest.mark.parametrize(
    ("ways", "wanted"),
    [
        ([("nanoseconds", MARKS[0], 10**9), ("seconds", MARKS[3], 1)], ("nanoseconds", MARKS[0])),
        ([("seconds", MARKS[3], 3600), ("seconds", MARKS[0], 3600)], ("seconds", MARKS[0])),
        ([("days", None, 1), ("hours", None, 24)], ("hours", None)),
        ([("hours", None, 24), ("hours", MARKS[1], 24)], ("hours", MARKS[1])),
        ([("seconds", MARKS[3], 86_400), ("days", None, 1)], ("seconds", MARKS[3])),
    ],
)
def test_whole_numbers_count_the_coarsest_unit_with_the_finest_mark(ways, wanted):
    files = [
        File(f"f{n}", {"lead": coord("lead", [2 * n * per], **attributes(unit, mark))})
        for n, (unit, mark, per) in enumerate(ways)
    ]
    facts, done = recode_times(facts_of(*files), ["lead"])
    attrs = counting(facts)
    assert (attrs["units"], attrs.get("dtype")) == wanted
    lines = [*describe_recodings(done)]
    assert len(lines) == (len({unit for unit, _, _ in ways}) > 1)
    assert all(f"converted to '{wanted[0]}' (int64), every value exactly" in line for line in lines)


@pytest.mark.parametrize("kinds", [["i4", "f8"], ["f4", "f8"]])
def test_one_unit_in_several_types_stays_that_unit(kinds):
    files = [
        File(f"f{n}", {"lead": data(("time",), np.array([1], kind), attrs=attributes("hours"), chunks=None)})
        for n, kind in enumerate(kinds)
    ]  # fmt: skip
    facts, done = recode_times(facts_of(*files), ["time"])
    assert (done["/lead"].data_type, counting(facts)["units"]) == ("float64", "hours")


@pytest.mark.parametrize(
    "other",
    [
        {"units": "days since 2000-01-01"},
        {"units": "K"},
        {"units": "weeks"},
        {"units": "hour"},  # which xarray does not decode
        {"units": "hours", "dtype": "timedelta64[generic]"},
        {"units": "hours", "scale_factor": 2.0},
        {},
    ],
)
def test_what_is_no_duration_for_xarray_is_refused_beside_one(other):
    files = [
        File(f"f{n}", {"lead": coord("lead", [1.0 + n], **attrs)})
        for n, attrs in enumerate([{"units": "days"}, other])
    ]
    _, done = recode_times(facts_of(*files), ["lead"])
    assert done == {}
    with pytest.raises(CombineError, match="lead"):
        plan(files, "lead")


def test_the_finest_mark_is_that_of_what_xarray_concatenates():
    assert finest_mark(["", "timedelta64[s]", "timedelta64[us]", "timedelta64[D]"]) == MARKS[1]
    assert finest_mark([""]) == ""
    assert duration_of({"units": "hours", "dtype": 3}) is None


def test_durations_that_nanoseconds_do_not_hold_are_refused_with_their_file():
    files = [
        File(f"f{n}", {"lead": coord("lead", np.array([value]), **attributes(unit))})
        for n, (value, unit) in enumerate([(1, "hours"), (400 * 366, "days")])
    ]
    with pytest.raises(CombineError, match="longer than 64 bits of nanoseconds") as no:
        recode_times(facts_of(*files), ["lead"])
    assert no.value.facts["file"].endswith("f1")
