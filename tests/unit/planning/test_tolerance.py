"""Values that must be equal in all files may differ within a tolerance, and a note says so."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.errors import CombineError, InvalidInputError
from icevirt.planning.combine.hints import find_limits
from icevirt.planning.combine.options import tolerance_of
from icevirt.planning.combine.tolerance import difference_of
from unit.planning.scanned_facts import coord, data, plan, shown, step

numbers = st.floats(-1e6, 1e6) | st.just(math.nan) | st.just(math.inf)


@settings(max_examples=20)
@given(st.lists(st.tuples(numbers, numbers), max_size=6))
def test_the_largest_difference_is_that_of_a_loop(pairs):
    """NaN where one is missing and the other is not."""
    wanted = 0.0
    for a, b in pairs:
        if not (a == b or (math.isnan(a) and math.isnan(b))):
            wanted = max(wanted, abs(a - b)) if not math.isnan(abs(a - b)) else math.nan
        if math.isnan(wanted):
            break
    one, other = (np.array([pair[at] for pair in pairs], float) for at in (0, 1))
    found = difference_of(one, other)
    assert found == wanted or (math.isnan(found) and math.isnan(wanted))


@settings(max_examples=20)
@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**63 - 1))
def test_differences_of_whole_numbers_do_not_wrap(one, by):
    other = min(one + by, 2**63 - 1)
    found = difference_of(np.array([one]), np.array([other]))
    assert found == pytest.approx(float(other - one), rel=1e-9)


def files(*lats, **attrs):
    return [step(f"f{n}", n, lat=coord("lat", each, **attrs)) for n, each in enumerate(lats)]


def test_values_of_the_first_file_are_stored_and_a_note_says_so():
    held = files([10.0, 20.0], [10.0, 20.5])
    made = plan(held[::-1], tolerance={"*": 1.0})
    assert shown(made, held)["lat"].values.tolist() == [10.0, 20.0]
    (note,) = (each for each in made.notes if "tolerance" in each)
    assert note == (
        "/lat differs between files by up to 0.5, within the tolerance 1; "
        "the values of file:///data/f0 are used"
    )


@pytest.mark.parametrize(
    ("lats", "why"),
    [
        (([1.0, 2.0], [1.0, 3.5]), "by up to 1.5, more than the tolerance 1"),
        (([1.0, 2.0], [1.0, math.nan]), "one is missing"),
        (([1.0, 2.0], np.array([1.0, 3.5], "f4")), "by up to 1.5, more than the tolerance 1"),
    ],
)
def test_more_than_the_tolerance_is_refused(lats, why):
    with pytest.raises(CombineError, match=why) as caught:
        plan(files(*lats), tolerance={"lat": 1.0})
    assert caught.value.facts["other"].endswith("f1")


@pytest.mark.parametrize("kinds", [("f4", "f8"), ("f8", "f4"), ("i2", "f8")])
def test_values_of_other_types_are_compared_and_those_of_the_first_file_are_stored(kinds):
    held = files(*(np.array([1, 2], kind) + 0 for kind in kinds))
    made = plan(held, tolerance={"lat": 0.1})
    assert shown(made, held)["lat"].dtype == kinds[0]
    with pytest.raises(CombineError, match="encoded differently"):
        plan(held)


def test_packed_values_are_compared_as_what_they_mean():
    held = files([100, 200], [100, 201], scale_factor=0.01)
    assert any("by up to 0.01" in note for note in plan(held, tolerance={"lat": 0.02}).notes)
    with pytest.raises(CombineError, match="more than the tolerance"):
        plan(held, tolerance={"lat": 0.001})


def test_values_that_were_not_kept_cannot_be_compared():
    held = [step(f"f{n}", n, mask=data("x", [n, 1, 2])) for n in range(2)]
    with pytest.raises(CombineError, match="not numbers, or too many to compare"):
        plan(held, tolerance={"mask": 1.0})


def test_without_a_tolerance_nothing_may_differ():
    with pytest.raises(CombineError, match="its values differ between files"):
        plan(files([1.0], [1.1]))


BOUNDED = [
    ("/lat", ("lat",), {"bounds": "lat_bnds"}),
    ("/lat_bnds", ("lat", "two"), {}),
    ("/mask", ("lat",), {"coordinates": "lon2d"}),
    ("/lon2d", ("y", "x"), {}),
    ("/g/lat", ("lat",), {}),
]


@pytest.mark.parametrize(
    ("tolerance", "path", "limit"),
    [
        ({"*": 1.0}, "/lat", 1.0),
        ({"*": 1.0}, "/lat_bnds", 1.0),
        ({"*": 1.0}, "/lon2d", 1.0),
        ({"*": 1.0}, "/mask", None),
        ({"*": 1.0, "lat": 2.0}, "/g/lat", 2.0),
        ({"*": 1.0, "lat": 2.0}, "/lat_bnds", 2.0),
        ({"lat": 2.0, "lat_bnds": 3.0}, "/lat_bnds", 3.0),
        ({"lat": 2.0, "/g/lat": 3.0}, "/g/lat", 3.0),
        ({}, "/lat", None),
    ],
)
def test_a_path_counts_before_a_name_and_that_before_all_coordinates(tolerance, path, limit):
    assert find_limits(tolerance, BOUNDED).get(path) == limit


def test_bounds_may_differ_as_far_as_their_coordinate():
    lats = [np.array([10.0, 20.0]), np.array([10.0, 20.5])]
    held = [
        step(
            f"f{n}", n,
            lat=coord("lat", lat, bounds="lat_bnds"),
            lat_bnds=replace(coord("lat", np.stack([lat, lat + 1], 1)), dims=("lat", "two")),
        )
        for n, lat in enumerate(lats)
    ]  # fmt: skip
    made = plan(held, tolerance={"lat": 1.0})
    assert sum("differs between files by up to 0.5" in note for note in made.notes) == 2


@pytest.mark.parametrize("given", [-1, math.nan, math.inf, "1", {"lat": True}, {"lat": None}])
def test_a_tolerance_is_a_number_of_0_or_more(given):
    with pytest.raises(InvalidInputError, match="a tolerance must be"):
        tolerance_of(given)


def test_one_tolerance_is_of_all_coordinates():
    assert tolerance_of(0.5) == {"*": 0.5}
    assert tolerance_of({"lat": 1}) == {"lat": 1.0}
    assert tolerance_of(None) == {}


def test_scalars_have_a_difference():
    assert difference_of(np.array(12.0), np.array(2.0)) == 10
    assert difference_of(np.array(np.nan), np.array(np.nan)) == 0
