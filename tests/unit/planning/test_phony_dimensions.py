"""Dimensions that files do not name are the same where they stand in the same places."""

import numpy as np
import pytest

from icevirt.archive.schema import ArraySchema
from icevirt.planning.axes.phony_dimensions import with_phony_alike
from unit.planning.scanned_facts import File, data, facts_of, plan, step


def file(name, **held):
    """Return a file of variables, each with the names of its dimensions and its lengths."""
    return File(name, {each: data(dims, np.zeros(shape)) for each, (dims, shape) in held.items()})


def names(*files):
    """Return the names that each variable has in all files."""
    arrays = with_phony_alike(facts_of(*files)).arrays
    found = {}
    for row in range(len(arrays.path)):
        own = ArraySchema.loads(arrays.schema[row]).dimension_names
        found.setdefault(arrays.path[row].lstrip("/"), set()).add(own)
    assert all(len(each) == 1 for each in found.values()), found
    return {path: each.pop() for path, each in found.items()}


A, B, C = "phony_dim_0", "phony_dim_1", "phony_dim_2"


def test_a_dataset_more_shifts_no_number():
    more = file("a", extra=((A,), (3,)), v=((B, C), (4, 5)))
    less = file("b", v=((A, B), (4, 5)))
    assert names(more, less) == {"extra": (A,), "v": (B, C)}
    assert names(less, more)["v"] == (A, B)


def test_lengths_that_are_equal_in_one_file_are_no_one_dimension():
    one = file("a", v=((A,), (5,)), w=((A,), (5,)))
    two = file("b", v=((A,), (6,)), w=((B,), (7,)))
    for files in ((one, two), (two, one)):
        found = names(*files)
        assert found["v"] != found["w"]


def test_places_that_are_one_in_all_files_stay_one():
    one = file("a", v=((A,), (5,)), w=((A,), (5,)), u=((B,), (2,)))
    two = file("b", v=((B,), (6,)), w=((B,), (6,)), u=((A,), (2,)))
    found = names(one, two)
    assert found["v"] == found["w"] != found["u"]


def test_names_of_files_stay_as_they_are():
    one = file("a", v=(("x",), (5,)), w=((A,), (2,)))
    two = file("b", v=(("y",), (5,)), w=((B,), (2,)))
    found = with_phony_alike(facts_of(one, two)).arrays
    assert {ArraySchema.loads(each).dimension_names for each in found.schema.values} == {
        ("x",), ("y",), (A,),
    }  # fmt: skip


@pytest.mark.parametrize("number", [A, C])
def test_files_that_number_alike_are_not_touched(number):
    facts = facts_of(file("a", v=((number,), (5,))), file("b", v=((number,), (6,))))
    assert with_phony_alike(facts) is facts


def test_files_with_other_numbers_combine():
    held = data((A,), np.arange(3.0), chunks=None)
    other = data((B,), np.arange(3.0), chunks=None)
    made = plan([step("a", 1.0, u=held), step("b", 2.0, u=other)])
    (u,) = (each for each in made.arrays if each.path == "/u")
    assert u.schema.dimension_names == (A,)
