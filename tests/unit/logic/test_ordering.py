"""Files stand in the order of their coordinate, or of their names where it says nothing."""

import numpy as np
import pytest

from icevirt.errors import CombineError
from icevirt.logic.ordering import natural, order_files

NAMES = ["f10.nc", "f2.nc", "f1.nc"]


def rows(labels, names=NAMES):
    arrays = None if labels is None else [np.array(each, float) for each in labels]
    return order_files(names, arrays, dimension="time").rows.tolist()


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (None, [2, 1, 0]),
        ([[5.0], [1.0], [3.0]], [1, 2, 0]),
        ([[0.0], [0.0], [0.0]], [2, 1, 0]),
        ([[5.0, 6.0], [1.0, 2.0], [3.0, 4.0]], [1, 2, 0]),
        ([[6.0, 5.0], [2.0, 1.0], [4.0, 3.0]], [0, 2, 1]),
        ([[5.0], [], [3.0]], [2, 0, 1]),
    ],
    ids=[
        "no coordinate: by name, f2 before f10",
        "by value, against the names",
        "the same value everywhere: by name",
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


def test_numbers_in_names_count_as_numbers():
    """Leading zeros and mixed names sort as a person expects."""
    names = ["a/b10", "a/b9", "a/b010x", "a/b"]
    assert sorted(names, key=natural) == ["a/b", "a/b9", "a/b10", "a/b010x"]
