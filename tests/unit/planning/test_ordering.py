"""Files stand in the order of their coordinate, or as they were given."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from icevirt.errors import CombineError
from icevirt.planning.axes.coordinates import Keys, Runs, order_files

NAMES = ["f10.nc", "f2.nc", "f1.nc"]


def runs(labels):
    """Each file's values, as a piece of its own."""
    pieces = [
        (np.array([at]), values, np.array([0, len(values)])) for at, values in enumerate(labels)
    ]
    return Runs.spread(pieces, len(labels))


def rows(labels, names=NAMES, **how):
    held = None if labels is None else keys([np.array(each, float) for each in labels])
    return order_files(names, held, dimension="time", **how).rows.tolist()


def keys(labels):
    held = runs(labels)
    return Keys(
        runs=held,
        missing=np.isnan(held.flat),
        shown=lambda at: [str(value) for value in held.flat[at].tolist()],
    )


def test_single_steps_fall_where_those_of_other_eras_do():
    assert rows([[1.0], [2.0], [3.0]], falling=True) == [2, 1, 0]
    assert rows([[1.0], [], [3.0]], falling=True) == [2, 0, 1]
    assert rows([[1.0, 2.0], [3.0], [4.0]], falling=True) == [0, 1, 2]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (None, [0, 1, 2]),
        ([[5.0], [1.0], [3.0]], [1, 2, 0]),
        ([[], [], [0.0]], [2, 0, 1]),
        ([[9.0], [3.0, 1.0, 2.0][:0], []], [0, 1, 2]),
        ([[5.0, 5.0], [1.0, 2.0, 2.0], [3.0]], [1, 2, 0]),
        ([[6.0, 6.0, 5.0], [2.0], [4.0, 3.0]], [0, 2, 1]),
        ([[5.0, 6.0], [1.0, 2.0], [3.0, 4.0]], [1, 2, 0]),
        ([[6.0, 5.0], [2.0, 1.0], [4.0, 3.0]], [0, 2, 1]),
        ([[5.0], [], [3.0]], [2, 0, 1]),
    ],
    ids=[
        "no coordinate: as given",
        "by value, against the names",
        "one file with steps goes first",
        "nothing to compare",
        "a step twice inside a file stays",
        "a step twice inside a file that counts down stays",
        "several steps a file",
        "files that count down stay counting down",
        "a file without steps goes last",
    ],
)
def test_files_are_ordered(labels, expected):
    """Each row of the table."""
    assert rows(labels) == expected


@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3), min_size=2, max_size=4))
def test_files_follow_one_another_as_in_xarray_or_are_refused(labels):
    """Nothing is accepted that xarray refuses, or puts elsewhere."""
    assume(len({tuple(each) for each in labels}) == len(labels))
    names = [f"{at}.nc" for at in range(len(labels))]
    try:
        order = rows(labels, names)
    except CombineError:
        return
    held = [xr.Dataset({"v": ("time", [n] * len(t))}, {"time": t}) for n, t in enumerate(labels)]
    joined = xr.combine_by_coords(held, data_vars="minimal", coords="minimal", compat="override")
    assert [n for n in order for _ in labels[n]] == joined["v"].values.tolist()


@pytest.mark.parametrize(
    "labels",
    [[[1.0, 3.0], [2.0, 4.0], [9.0]], [[1.0], [1.0], [2.0]], [[1.0, 2.0], [2.0, 3.0], [9.0]]],
    ids=["interleaved", "one step twice", "ends touch"],
)
def test_overlapping_files_are_refused_by_name(labels):
    """The error names both files and their ranges."""
    with pytest.raises(CombineError, match=r"overlap.*first='f.*second='f"):
        rows(labels)


def test_a_coordinate_with_nan_orders_nothing():
    """NaN has no place in an order, so the file is named."""
    with pytest.raises(CombineError, match=r"NaN.*f2\.nc"):
        rows([[1.0], [np.nan], [2.0]])


@pytest.mark.parametrize(
    ("labels", "name"),
    [
        ([[1.0, 2.0], [4.0, 3.0], [5.0, 6.0]], r"f2\.nc"),
        ([[6.0, 5.0], [3.0, 4.0], [2.0, 1.0]], r"f2\.nc"),
        ([[1.0, 3.0, 2.0], [4.0], [5.0]], r"f10\.nc"),
    ],
    ids=["falls where others rise", "rises where others fall", "up and down"],
)
def test_a_file_whose_steps_are_not_sorted_is_refused_by_name(labels, name):
    """With the two steps that are in the wrong order."""
    with pytest.raises(CombineError, match=rf"not sorted.*{name}.*\"combine\": \"nested\""):
        rows(labels)


def test_the_reason_for_the_order_given_is_reported():
    """With the dimension."""
    assert order_files(NAMES, None, dimension="x").reason == (
        "in the given order: no coordinate 'x'"
    )


ODD = {
    "one each": [[3.0], [1.0], [3.0], [-0.0], [0.0]],
    "one each, and none": [[3.0], [], [3.0], []],
    "several": [[1.0, 2.0], [1.0], [1.0, 2.0], [2.0, 1.0]],
    "NaN": [[np.nan], [np.nan], [1.0]],
}


@pytest.mark.parametrize("labels", ODD.values(), ids=ODD.keys())
@pytest.mark.parametrize("kinds", [("f8",), ("f4", "f8")], ids=["one type", "two types"])
def test_runs_that_are_equal_have_one_number(labels, kinds):
    """As a loop over bytes says; values of two types are never equal, an empty run is alone."""
    arrays = [np.array(each, kinds[at % len(kinds)]) for at, each in enumerate(labels)]
    known = {}
    keys = [(v.dtype.str, v.tobytes()) if len(v) else at for at, v in enumerate(arrays)]
    wanted = [known.setdefault(key, len(known)) for key in keys]
    assert runs(arrays).numbers().tolist() == wanted
    order = np.arange(len(arrays))[::-1]
    turned = runs(arrays).take(order)
    assert turned.flat.tobytes() == runs(arrays[::-1]).flat.astype(turned.flat.dtype).tobytes()
    assert turned.lengths.tolist() == [len(each) for each in arrays[::-1]]


@pytest.mark.parametrize("labels", [[[1], [np.nan], [3]], [[1, 3, 2], [4], [5]]])
def test_files_along_one_dimension_may_stay_as_they_are_given(labels):
    for alone in (True, False):
        with pytest.raises(CombineError) as caught:
            order_files(NAMES, keys([np.array(each, float) for each in labels]),
                        dimension="time", alone=alone)  # fmt: skip
        found = [each.arguments for each in caught.value.fixes]
        wanted = {"concat_dim": ["time"], "combine_options": {"combine": "nested"}}
        assert found == [wanted] * alone
