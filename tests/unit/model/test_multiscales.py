"""What a group says of its levels is read as it is meant, whoever wrote it."""

import pytest

from icevirt.model.multiscales import CONVENTION, describe_level, find_finest, say

ONES = [1.0, 1.0]


def test_a_copy_of_a_copy_is_one_of_the_first_array():
    layout = [describe_level("0", "0", ONES), describe_level("1", "0", [2.0, 2.0])]
    layout.append(describe_level("2", "1", [4.0, 4.0]))
    assert dict(find_finest(say(layout))) == {"1": "0", "2": "0"}


@pytest.mark.parametrize(
    "attributes",
    [
        {"multiscales": [{"version": "0.4"}]},
        {"multiscales": {"layout": "v"}, "zarr_conventions": [CONVENTION]},
        {"multiscales": {"layout": [{"asset": "b", "derived_from": "a"}]}, "zarr_conventions": 3},
        say([3, {"asset": [1], "derived_from": {}}, {"asset": "b", "derived_from": 3}]),
    ],
    ids=["OME", "no list", "another convention", "no names"],
)
def test_what_is_not_of_the_convention_says_nothing(attributes):
    assert not dict(find_finest(attributes))


def test_copies_of_each_other_come_to_an_end():
    layout = [describe_level("a", "b", ONES), describe_level("b", "a", ONES)]
    assert dict(find_finest(say(layout))) == {"a": "b", "b": "a"}
