"""How much of each part of a dimension boxes cover: compared with counting steps."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from icevirt.planning.coverage import BINS, ArrayCoverage, by_group, main_dimension, shares


@given(st.data(), st.integers(1, 2 * BINS))
def test_shares_are_those_of_counted_steps(data, steps):
    boxes = data.draw(
        st.lists(st.tuples(st.integers(0, steps - 1), st.integers(0, 20)), max_size=9)
    )
    starts = np.array([at for at, _ in boxes], np.int64)
    lengths = np.array([min(long, steps - at) for at, long in boxes], np.int64)
    counted = np.zeros(steps)
    for at, long in zip(starts, lengths, strict=True):
        counted[at : at + long] = 1
    bins = min(steps, BINS)
    at = np.linspace(0, steps, bins + 1)
    whole = np.concatenate(([0.0], np.cumsum(counted)))
    before = np.interp(at, np.arange(steps + 1), whole)
    np.testing.assert_allclose(
        shares(starts, lengths, np.ones(len(starts)), steps),
        np.diff(before) / np.diff(at),
        atol=1e-9,
    )


def test_boxes_of_a_part_of_the_other_dimensions_count_by_it():
    found = shares(np.array([0, 2]), np.array([2, 2]), np.array([1.0, 0.25]), 4)
    assert found.tolist() == [1.0, 1.0, 0.25, 0.25]


def test_the_main_dimension_is_the_one_that_most_arrays_are_cut_along():
    assert main_dimension([{"time": 9, "lat": 1}, {"time": 2, "lat": 3}, {"lat": 1}]) == "time"
    assert main_dimension([{"x": 2}, {"y": 5}]) == "y"
    assert main_dimension([]) == ""


def test_arrays_share_steps_with_the_nearest_coordinate_of_their_length():
    arrays = [
        ArrayCoverage(path=path, steps=steps, shares={})
        for path, steps in [
            ("/time", 9),
            ("/t", 9),
            ("/a/b/t", 9),  # inherits the coordinate of the root
            ("/c/time", 4),
            ("/c/d/t", 4),
            ("/c/d/other", 9),  # of another length than the nearest one
            ("/e/t", 5),
            ("/f/t", 5),  # nothing says that these are the same steps
        ]
    ]
    found = by_group("time", arrays).groups
    assert [(each.group, each.steps, [one.path for one in each.arrays]) for each in found] == [
        ("/", 9, ["/time", "/t", "/a/b/t", "/c/d/other"]),
        ("/c", 4, ["/c/time", "/c/d/t"]),
        ("/e", 5, ["/e/t"]),
        ("/f", 5, ["/f/t"]),
    ]
    assert found[0].marked == (0, 2, 4, 6, 8)
