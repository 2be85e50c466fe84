"""Files stand in the order of their coordinate, or as they were given."""

import numpy as np
import pytest

from icevirt.errors import CombineError
from icevirt.logic.ordering import Runs, order_files

NAMES = ["f10.nc", "f2.nc", "f1.nc"]


def runs(labels):
    """Each file's values, as a piece of its own."""
    pieces = [
        (np.array([at]), values, np.array([0, len(values)])) for at, values in enumerate(labels)
    ]
    return Runs.spread(pieces, len(labels))


def rows(labels, names=NAMES):
    held = None if labels is None else runs([np.array(each, float) for each in labels])
    return order_files(names, held, dimension="time").rows.tolist()


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
    same = runs([np.zeros(1)] * 3)
    assert order_files(NAMES, same, dimension="x").reason == (
        "in the order given: coordinate 'x' holds one and the same value (0.0) in every file"
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
