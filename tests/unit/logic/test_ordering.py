"""Files stand in the order of their coordinate, or as they were given."""

import numpy as np
import pytest

from icevirt.errors import CombineError
from icevirt.logic.ordering import order_files

NAMES = ["f10.nc", "f2.nc", "f1.nc"]


def rows(labels, names=NAMES):
    arrays = None if labels is None else [np.array(each, float) for each in labels]
    return order_files(names, arrays, dimension="time").rows.tolist()


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (None, [0, 1, 2]),
        ([[5.0], [1.0], [3.0]], [1, 2, 0]),
        ([[0.0], [0.0], [0.0]], [0, 1, 2]),
        ([[5.0, 6.0], [1.0, 2.0], [3.0, 4.0]], [1, 2, 0]),
        ([[6.0, 5.0], [2.0, 1.0], [4.0, 3.0]], [0, 2, 1]),
        ([[5.0], [], [3.0]], [2, 0, 1]),
    ],
    ids=[
        "no coordinate: as given",
        "by value, against the names",
        "the same value everywhere: as given",
        "several steps a file",
        "files that count down stay counting down",
        "a file without steps goes last",
    ],
)
def test_files_are_ordered(labels, expected):
    """Each row of the table."""
    assert rows(labels) == expected


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


def test_the_reason_for_the_order_given_is_told():
    """With the dimension, and the value where it is one and the same."""
    assert order_files(NAMES, None, dimension="x").reason == (
        "in the order given: no numeric coordinate 'x'"
    )
    same = [np.zeros(1)] * 3
    assert order_files(NAMES, same, dimension="x").reason == (
        "in the order given: coordinate 'x' holds one and the same value (0.0) in every file"
    )
