"""Values that two libraries read are equal by what they mean, not by their Python types."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.planning.equality import first_difference, same_values

PAIR = np.dtype([("a", "i4"), ("b", "f8")])


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (np.array([1, 2], "i2"), np.array([1.0, 2.0]), True),
        (np.array([np.nan]), np.array([np.nan], "f4"), True),
        (np.array([1]), np.array([[1]]), False),
        (np.array([b"ab\0"]), np.array(["ab"], object), True),
        (np.array(["ab"]), np.array(["ab"], np.dtypes.StringDType()), True),
        (np.array([None, "b"], object), np.array(["", "b"]), True),
        (np.array([b"\xff"]), np.array([b"\xfe"]), False),
        (np.array([1]), np.array(["1"]), None),
        (np.array(["NaT"], "M8[s]"), np.array(["NaT"], "M8[s]"), True),
        (np.array([1], "m8[s]"), np.array([1000], "m8[ms]"), None),
        (np.array([b"ab"], "V2"), np.array([b"ab"], "S2"), True),
        (np.array([b"ab"], "V2"), np.array([b"abc"], "V3"), None),
        (np.array([(1, np.nan)], PAIR), np.array([(1, np.nan)], PAIR), True),
        (np.array([(1, 2.0)], PAIR), np.array([(1, 3.0)], PAIR), False),
        (np.zeros(1, PAIR), np.zeros(1, [("x", "i4")]), False),
        (np.zeros(1, [("a", "i4")]), np.zeros(1, [("a", "U1")]), None),
    ],
)
def test_arrays_are_the_same_where_their_values_are(one, other, same):
    assert same_values(one, other) is same


numbers = st.floats(allow_infinity=True, allow_nan=True, width=32)


@settings(max_examples=20)
@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=6))
def test_the_first_difference_is_that_of_a_loop(pairs):
    one, other = (np.array([pair[at] for pair in pairs]) for at in (0, 1))
    unlike = [at for at, (a, b) in enumerate(pairs) if a != b and not (np.isnan(a) and np.isnan(b))]
    found = first_difference(one, other)
    if not unlike:
        assert found is None
        assert same_values(one, other)
        return
    at = unlike[0]
    assert found["index"] == [at]
    assert repr((found["first_value"], found["other_value"])) == repr(pairs[at])


def test_a_difference_of_texts_and_structures_is_shown_short():
    found = first_difference(np.array([["a", "b" * 99]]), np.array([["a", "c"]]))
    assert found["index"] == [0, 1]
    assert len(found["first_value"]) == 60
    found = first_difference(np.array([(1, 2.0)], PAIR), np.array([(1, 3.0)], PAIR))
    assert found == {"index": [0], "first_value": "(1, 2.0)", "other_value": "(1, 3.0)"}


@pytest.mark.parametrize(
    ("one", "other"),
    [(np.zeros(1), np.zeros(2)), (np.zeros(1, PAIR), np.zeros(1, [("x", "i4")]))],
    ids=["shapes", "fields"],
)
def test_what_cannot_be_compared_has_no_first_difference(one, other):
    assert first_difference(one, other) is None
