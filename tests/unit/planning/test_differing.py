"""Dimensions are inferred where files lie beside each other, not where numbers merely differ."""

import numpy as np
import pytest

from icevirt.model.attributes import Attributes
from icevirt.planning.axes.differing import comparable, differing, of_many
from icevirt.planning.combine.rounding import _rounded_up

DAYS = {"units": "days since 2000-01-01"}


def labels(values, **attrs):
    held = np.asarray(values)
    return comparable(held.tobytes(), held.dtype.str, Attributes.of(attrs))


CASES = {
    "tiles": ([0.0, 1.0], [2.0, 3.0], {}, True),
    "tiles that fall": ([3.0, 2.0], [1.0, 0.0], {}, True),
    "tiles with a row in both": ([0.0, 1.0, 2.0], [2.0, 3.0, 4.0], {}, True),
    "one row each": ([10.0], [10.5], {}, True),
    "texts": (np.array([b"a"]), np.array([b"b"]), {}, True),
    "times": ([0.0, 1.0, 2.0], [0.5, 1.5, 2.5], DAYS, True),
    "times a microsecond apart": ([0.0], [1e-11], DAYS, True),
    "rounding": ([0.1, 0.2], [0.1 + 1e-15, 0.2], {}, False),
    "rounding of one": ([10.1], [float(np.float32(10.1))], {}, False),
    "a part of another grid": ([0.0, 1.0, 2.0], [0.0, 1.0, 2.0, 3.0], {}, False),
    "cells half a cell apart": ([10.0, 20.0, 30.0], [15.0, 25.0, 35.0], {}, False),
    "5 beside 6": ((np.arange(5) + 0.5) / 5, (np.arange(6) + 0.5) / 6, {}, False),
    "one that is missing": ([0.0, 1.0], [0.0, np.nan], {}, True),
}


@pytest.mark.parametrize(("one", "other", "attrs", "wanted"), CASES.values(), ids=CASES)
def test_a_dimension_is_inferred_where_files_lie_beside_each_other(one, other, attrs, wanted):
    both = {"x": labels(one, **attrs)}, {"x": labels(other, **attrs)}
    assert differing(*both, {}) == differing(*both[::-1], {}) == (("x",) if wanted else ())


def test_a_tolerance_says_what_is_the_same():
    one, other = {"x": labels([0.0, 1.0])}, {"x": labels([0.1, 1.1])}
    assert differing(one, {"x": labels([2.0, 3.0])}, {"*": 0.5}) == ("x",)
    for tolerance in ({"x": 0.2}, {"*": 0.2}):
        assert differing(one, other, tolerance) == ()


def test_of_many_files_each_may_lie_beside_the_first():
    found = [
        {"y": labels([at]), "x": labels([0.0, 1.0]), "t": labels([t], **DAYS)}
        for at, t in ((0.0, 0.0), (0.0, 1.0), (5.0, 0.0))
    ]
    assert set(of_many(found, {})) == {"y", "t"}
    assert of_many([], {}) == ()


@pytest.mark.parametrize("value", [1e-14, 2.8e-14, 9.99e-7, 0.5, 1.0, 3e5])
def test_a_limit_has_one_digit_and_holds(value):
    limit = _rounded_up(value)
    assert value < limit <= 2.1 * value
    assert len(f"{limit:e}".split("e")[0].rstrip("0")) <= 2
