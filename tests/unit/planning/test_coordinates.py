"""Labels of files are read as what they mean: decoded, as times, with their missing values."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.model.attributes import Attributes
from icevirt.planning.axes.coordinates import coordinate_of
from icevirt.planning.axes.dates import write_labels
from unit.planning.scanned_facts import File, coord, data, facts_of, step

MICRO = 86_400_000_000


def of(*coordinates, dim="time"):
    """Return the coordinate of files, each of which has one."""
    files = [File(f"f{n}", {dim: each}) for n, each in enumerate(coordinates)]
    return coordinate_of(facts_of(*files), dim, np.arange(len(files)))


@settings(max_examples=15)
@given(
    st.lists(st.lists(st.integers(-100, 100), min_size=1, max_size=4), min_size=1, max_size=5),
    st.sampled_from(["i1", "i4", "f4", "f8"]),
    st.sampled_from([{}, {"scale_factor": 0.5}, {"scale_factor": 2.0, "add_offset": 3.0}]),
)
def test_labels_decode_but_for_an_offset_that_all_files_have(labels, kind, packing):
    found = of(*(coord("time", np.array(each, kind), **packing) for each in labels))
    wanted = [value * packing.get("scale_factor", 1) for each in labels for value in each]
    assert found.values.flat.tolist() == wanted
    assert found.values.lengths.tolist() == list(map(len, labels))
    assert not found.shifted


def test_offsets_that_differ_are_added():
    found = of(*(coord("time", [1, 2], scale_factor=0.5, add_offset=by) for by in (0.0, 10.0)))
    assert found.shifted
    assert found.values.flat.tolist() == [0.5, 1.0, 10.5, 11.0]
    assert found.keys().shown(np.array([2])) == ["10.5"]


def test_labels_of_several_types_are_numbers_of_one():
    found = of(coord("time", np.array([1, 2], "i2")), coord("time", np.array([2.5], "f8")))
    assert found.values.flat.tolist() == [1.0, 2.0, 2.5]
    assert len(set(found.values.kind.tolist())) == 2  # equal numbers of both are no equal labels


@pytest.mark.parametrize(
    ("values", "attrs", "missing"),
    [
        (np.array([1.0, np.nan]), {}, [False, True]),
        (np.array([1, -9], "i4"), {"_FillValue": np.int32(-9)}, [False, True]),
        (np.array([1, 255], "u1"), {"missing_value": np.int8(-1), "_Unsigned": "false"}, [0, 1]),
        (np.array([-1, 1], "i1"), {"_FillValue": np.uint8(255), "_Unsigned": "true"}, [1, 0]),
        (np.array(["", "b"]), {"_FillValue": ""}, [False, False]),
    ],
    ids=["NaN", "fill value", "signed spelling", "unsigned spelling", "texts are never missing"],
)
def test_missing_labels_are_found(values, attrs, missing):
    assert of(coord("time", values, **attrs)).missing.tolist() == list(map(bool, missing))


@settings(max_examples=15)
@given(st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=6))
def test_times_are_compared_as_whole_microseconds(values):
    """As xarray decodes them, whatever the unit."""
    units = "hours since 1999-12-31T12:00:00"
    keys = of(coord("time", np.array(values, float) / 2, units=units)).keys()
    wanted = xr.decode_cf(
        xr.Dataset({"v": ("n", np.array(values, float) / 2, {"units": units})}),
        decode_times=xr.coders.CFDatetimeCoder(time_unit="us"),
    )["v"].values
    assert keys.runs.flat.tolist() == wanted.astype("datetime64[us]").astype(int).tolist()


@pytest.mark.parametrize(
    "values", [[0.0, 1e-9], [0.0, np.inf]], ids=["closer than microseconds", "infinite"]
)
def test_times_that_microseconds_cannot_tell_apart_stay_numbers(values):
    keys = of(coord("time", np.array(values), units="seconds since 2000-01-01")).keys()
    assert keys.runs.flat.tolist() == values


def test_equal_numbers_that_count_differently_are_no_equal_labels():
    found = of(*(coord("time", [1.0], units=f"days since {year}-01-01") for year in (2000, 2001)))
    assert not found.counts_alike
    assert found.keys().runs.numbers().tolist() == [0, 1]
    alike = of(coord("time", [1.0], units="days since 2000-01-01", calendar="gregorian"),
               coord("time", [1.0], units="days since 2000-1-1", calendar="standard"))  # fmt: skip
    assert alike.counts_alike


def test_texts_are_numbered_in_their_order():
    found = of(coord("n", ["b"]), coord("n", ["alpha"]), coord("n", np.array([b"b"])), dim="n")
    assert found.is_text
    assert found.keys().runs.numbers().tolist() == [0, 1, 0]
    assert found.keys().runs.flat.tolist() == [1, 0, 1]


def test_both_zeros_are_one_label():
    assert of(coord("n", [0.0]), coord("n", [-0.0]), dim="n").keys().runs.numbers().tolist() == [
        0,
        0,
    ]


def test_the_root_group_has_the_coordinate_before_others():
    file = File("a", {"/b/time": coord("time", [2.0]), "/time": coord("time", [1.0])})
    assert coordinate_of(facts_of(file), "time", np.array([0])).path == "/time"
    deep = File("a", {"/b/time": coord("time", [2.0]), "/a/b/time": coord("time", [1.0])})
    assert coordinate_of(facts_of(deep), "time", np.array([0])).path == "/b/time"


@pytest.mark.parametrize(
    "other",
    [File("b", {"t": data("time", [1.0])}), File("b", {"time": coord("time", ["b"])})],
    ids=["no labels", "texts beside numbers"],
)
def test_files_without_comparable_labels_have_no_coordinate(other):
    facts = facts_of(step("a", 1.0), other)
    assert coordinate_of(facts, "time", np.arange(2)) is None
    assert coordinate_of(facts, "time", np.arange(0)) is None


@pytest.mark.parametrize(
    ("values", "attrs", "texts"),
    [
        ([0.0, 0.5], {"units": "days since 2000-01-01"}, ["2000-01-01", "2000-01-01T12:00:00"]),
        (
            [1],
            {"units": "days since 2000-01-01", "calendar": "noleap"},
            ["2000-01-02"],
        ),
        ([1.5], {"units": "K", "add_offset": 1.0}, ["2.5"]),
        ([1e300], {"units": "days since 2000-01-01"}, ["1e+300 days since 2000-01-01"]),
    ],
    ids=["dates", "other calendar", "an offset", "too far away"],
)
def test_labels_are_written_as_people_write_them(values, attrs, texts):
    assert write_labels(np.array(values), Attributes.of(attrs)) == texts
