"""Dimensions are inferred where files lie beside each other, not where numbers merely differ."""

import numpy as np
import pytest

from icevirt.model.attributes import Attributes
from icevirt.planning.axes.differing import comparable, differing, of_many
from icevirt.planning.combine.tolerance import _round_up

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
    "rounding of one in its own type": ([10.1], np.array([10.1], "f4"), {}, False),
    "rounding of one that is packed": ([0.1], np.array([0.1], "f4"), {"scale_factor": 2.0}, False),
    "one that is near": ([10.1], [10.1 + 1e-6], {}, True),
    "days as numbers": ([20000101], [20000102], {}, True),
    "days as numbers with fractions": ([20000101.5], [20000102.5], {}, True),
    "halves of such days": ([20000102.0], [20000101.5], {}, True),
    "such days in 32 bits": (*(np.array([n], "f4") for n in (20000102, 20000104)), {}, True),
    "such days in 32 bits and 64": (np.array([20000104], "f4"), [20000103.5], {}, True),
    "such days as integers and floats": ([20000101], [20000102.0], {}, True),
    "seconds since the epoch": ([946684800], [946684860], {}, True),
    "such seconds as floats": ([946684800.0], [946684860.0], {}, True),
    "Julian days": ([2451545.0], [2451545.0 + 1 / 24], {}, True),
    "nanoseconds": ([946684800 * 10**9], [946684800 * 10**9 + 1], {}, True),
    "steps that are numbered": ([1_000_000], [1_000_001], {"_Unsigned": "true"}, True),
    "a part of another grid": ([0.0, 1.0, 2.0], [0.0, 1.0, 2.0, 3.0], {}, False),
    "cells half a cell apart": ([10.0, 20.0, 30.0], [15.0, 25.0, 35.0], {}, False),
    "5 beside 6": ((np.arange(5) + 0.5) / 5, (np.arange(6) + 0.5) / 6, {}, False),
    "one that is missing": ([0.0, 1.0], [0.0, np.nan], {}, True),
}


@pytest.mark.parametrize(("one", "other", "attrs", "wanted"), CASES.values(), ids=CASES)
def test_a_dimension_is_inferred_where_files_lie_beside_each_other(one, other, attrs, wanted):
    both = {"/x": labels(one, **attrs)}, {"/x": labels(other, **attrs)}
    assert differing(*both, {}) == differing(*both[::-1], {}) == (("x",) if wanted else ())


def test_a_tolerance_says_what_is_the_same():
    one, other = {"/x": labels([0.0, 1.0])}, {"/x": labels([0.1, 1.1])}
    assert differing(one, {"/x": labels([2.0, 3.0])}, {"*": 0.5}) == ("x",)
    for tolerance in ({"x": 0.2}, {"*": 0.2}):
        assert differing(one, other, tolerance) == ()


def test_of_many_files_each_may_lie_beside_the_first():
    found = [
        {"/y": labels([at]), "/x": labels([0.0, 1.0]), "/t": labels([t], **DAYS)}
        for at, t in ((0.0, 0.0), (0.0, 1.0), (5.0, 0.0))
    ]
    assert set(of_many(found, {})) == {"y", "t"}
    assert of_many([], {}) == ()


def test_groups_have_dimensions_of_one_name():
    one, other = ({"/a/y": labels([at]), "/b/y": labels([0.0])} for at in (0.0, 5.0))
    assert differing(one, other, {}) == of_many([one, other], {}) == ("y",)


def test_a_tolerance_holds_for_integers_too():
    one, other = {"/x": labels([20000101])}, {"/x": labels([20000102])}
    assert differing(one, other, {"x": 1.0}) == ()
    assert differing(one, other, {"x": 0.5}) == ("x",)


@pytest.mark.parametrize("value", [1e-14, 2.8e-14, 9.99e-7, 0.5, 1.0, 3e5])
def test_a_limit_has_one_digit_and_holds(value):
    limit = _round_up(value)
    assert value < limit <= 2.1 * value
    assert len(f"{limit:e}".split("e")[0].rstrip("0")) <= 2
