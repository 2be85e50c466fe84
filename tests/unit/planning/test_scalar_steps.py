"""A file with one value of a coordinate is a file of one step, among files that have steps."""

import json

import numpy as np
import pytest

from icevirt.archive.schema import ArraySchema
from icevirt.planning.combine.scalar_steps import with_scalars_as_steps
from unit.planning.scanned_facts import File, coord, data, facts_of, label

FIELD = np.arange(6, dtype="f4").reshape(2, 3)


def with_dimension(name, begin, **more):
    """Return a file of two steps."""
    held = np.arange(12, dtype="f4").reshape(2, 2, 3) + begin
    return File(
        name,
        {"time": coord("time", [begin, begin + 1.0]),
         "p": data(("time", "y", "x"), held, chunks=(1, 2, 3)),
         "level": coord("level", [1.0, 2.0])} | more,
    )  # fmt: skip


def single(name, value, **more):
    """Return a file of one step, without the dimension."""
    held = {"time": label(value), "p": data(("y", "x"), FIELD), "level": coord("level", [1.0, 2.0])}
    return File(name, held | more)


def arrays(*files, dimensions=("time",)):
    """Return dimensions, shape, chunks, and what is lacking of each array, by file and path."""
    found = with_scalars_as_steps(facts_of(*files), dimensions).arrays
    rows = {}
    for row, file in enumerate(found.file.tolist()):
        schema = ArraySchema.loads(found.schema[row])
        shape = tuple(json.loads(found.shape[row]))
        told = schema.dimension_names, shape, schema.chunk_shape, schema.lacks
        rows[files[file].name, found.path[row]] = told
    return rows


def test_a_single_step_gets_the_dimension_that_others_have():
    found = arrays(with_dimension("a", 0.0), single("b", 2.0), with_dimension("c", 3.0))
    assert found["b", "/time"] == (("time",), (1,), None, (0,))
    assert found["b", "/p"] == (("time", "y", "x"), (1, 2, 3), (1, 2, 3), (0,))
    assert found["a", "/p"] == (("time", "y", "x"), (2, 2, 3), (1, 2, 3), ())
    assert found["b", "/level"] == found["a", "/level"] == (("level",), (2,), None, ())


@pytest.mark.parametrize("axis", [1, 2])
def test_the_dimension_may_be_any_axis_of_a_variable(axis):
    names = [("y", "time", "x"), ("y", "x", "time")][axis - 1]
    whole = data(names, np.zeros((2, 2, 2), "f4"), chunks=(1, 1, 1))
    single_step = data(("y", "x"), FIELD[:, :2], chunks=(1, 1))
    found = arrays(with_dimension("a", 0.0, p=whole), single("b", 2.0, p=single_step))
    shape = (2, 1, 2) if axis == 1 else (2, 2, 1)
    assert found["b", "/p"] == (names, shape, (1, 1, 1), (axis,))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_order_of_files_does_not_matter(order):
    files = with_dimension("a", 0.0), single("b", 2.0)
    assert arrays(*(files[at] for at in order))["b", "/p"][0] == ("time", "y", "x")


OTHERWISE = {
    "all files are single steps": (single("a", 0.0), single("b", 1.0)),
    "no file is a single step": (with_dimension("a", 0.0), with_dimension("b", 2.0)),
    "other dimensions": (with_dimension("a", 0.0), single("b", 2.0, p=data(("x", "y"), FIELD.T))),
    "files with steps do not agree": (
        with_dimension("a", 0.0), with_dimension("c", 2.0, p=data(("y", "x"), FIELD)), single("b", 4.0),
    ),
    "only single steps hold it": (
        with_dimension("a", 0.0, p=None), single("b", 2.0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OTHERWISE)
def test_what_is_no_step_of_others_stays_as_it_is(case):
    files = [
        File(each.name, {name: held for name, held in each.variables.items() if held is not None})
        for each in OTHERWISE[case]
    ]
    before = arrays(*files, dimensions=())
    after = arrays(*files)
    assert {key: told for key, told in after.items() if key[1] == "/p"} == {
        key: told for key, told in before.items() if key[1] == "/p"
    }


def test_a_dimension_that_files_do_not_follow_each_other_along_stays_away():
    found = arrays(with_dimension("a", 0.0), single("b", 2.0), dimensions=("level",))
    assert found["b", "/p"] == (("y", "x"), (2, 3), (2, 3), ())


def test_groups_that_do_not_hold_the_coordinate_are_not_touched():
    def grouped(file):
        return File(file.name, {f"/g/{name}": each for name, each in file.variables.items()} | {
            "/h/p": data(("y", "x"), FIELD)})  # fmt: skip

    found = arrays(grouped(with_dimension("a", 0.0)), grouped(single("b", 2.0)))
    assert found["b", "/g/p"][0] == ("time", "y", "x")
    assert found["b", "/h/p"] == (("y", "x"), (2, 3), (2, 3), ())


def test_the_schema_says_what_is_lacking():
    text = ArraySchema.loads(facts_of(single("b", 2.0)).arrays.schema.values[0]).dumps()
    assert "lacks" not in text
    schema = ArraySchema(
        dimension_names=("time", "x", "y"), chunk_shape=None, data_type="int8", codecs=(), fill_value=0,
        lacks=(2, 0),
    )  # fmt: skip
    assert ArraySchema.loads(schema.dumps()) == schema
