"""Files get cells along each dimension by their labels, and an order that follows from these."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.errors import CombineError
from icevirt.planning.axes.axis import NOWHERE, AxisPlacement, Placement
from icevirt.planning.axes.placement import (
    as_given,
    data_along,
    files_along,
    number_rows,
    place_by_order,
    place_files,
)
from unit.planning.scanned_facts import File, coord, data, facts_of, step


def cells(files, *dims, known=None, regular=None):
    return place_files(facts_of(*files), dims, known or {}, regular or {})


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_files_of_equal_labels_share_a_cell_and_cells_ascend(labels):
    files = [step(f"f{n}", each) for n, each in enumerate(labels)]
    found = cells(files, "time")
    (axis,) = found.axes
    known = sorted(set(labels))
    if len(files) > 1:
        assert axis.cell.tolist() == [known.index(each) for each in labels]
        assert [axis.name(at) for at in range(axis.count)] == known
    order = sorted(range(len(labels)), key=lambda at: labels[at])
    assert found.rows.tolist() == order
    assert found.place[found.rows].tolist() == list(range(len(files)))


@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 3)), min_size=1, max_size=10))
def test_the_first_dimension_counts_most_and_files_of_no_cell_come_last(boxes):
    axes = [
        AxisPlacement(dimension=name, cell=np.array(column, np.int64), count=4)
        for name, column in zip("ab", zip(*boxes, strict=True), strict=True)
    ]
    wanted = sorted(
        range(len(boxes)), key=lambda at: [4 if cell == NOWHERE else cell for cell in boxes[at]]
    )
    assert Placement.of(axes, len(boxes)).rows.tolist() == wanted


@given(st.lists(st.tuples(st.integers(-1, 2**40), st.integers(-1, 5), st.integers(0, 2**40))))
def test_rows_of_columns_have_one_number_where_they_are_equal(rows):
    """Also where the product of all spans does not fit into 64 bits."""
    columns = [np.array(each, np.int64) for each in zip(*rows, strict=True)]
    found = number_rows(columns, len(rows)).tolist()
    assert len(set(found)) == len(set(rows))
    assert len(set(zip(found, rows, strict=True))) == len(set(rows))


def test_files_without_the_dimension_lie_nowhere():
    files = [step("a", 2.0), File("grid", {"area": data("x", [1, 2, 3])}), step("b", 1.0)]
    found = cells(files, "time")
    assert found.axes[0].cell.tolist() == [1, NOWHERE, 0]
    assert found.rows.tolist() == [2, 0, 1]
    assert files_along(facts_of(*files), "time").tolist() == [0, 2]


def test_without_a_coordinate_files_stay_in_the_order_given():
    files = [File(name, {"v": data("n", [1, 2])}) for name in "ba"]
    found = cells(files, "n")
    assert found.axes[0].cell.tolist() == [0, 1]
    assert found.axes[0].name(1) == "number 1"
    assert "no coordinate 'n'" in found.axes[0].reason


def test_several_dimensions_need_the_coordinate_of_each():
    files = [step(name, at, v=data(("n", "time"), [[at]])) for at, name in enumerate("ab")]
    with pytest.raises(CombineError, match="positions of files along 'n' are unknown"):
        cells(files, "time", "n")


def test_cells_that_are_known_are_taken_as_they_are():
    known = AxisPlacement(dimension="run", cell=np.array([1, 0]), count=2, is_new=True)
    found = cells([step("a", 1.0), step("b", 1.0)], "run", "time", known={"run": known})
    assert found.axes[0] is known
    assert [axis.dimension for axis in found.axes] == ["run", "time"]
    assert found.rows.tolist() == [1, 0]


def test_places_that_a_user_gave_are_cells_whatever_the_labels():
    facts = facts_of(step("a", 1.0), step("b", 2.0), step("c", 0.0))
    axis = place_by_order(facts, "time", np.array([7, 3, 7]))
    assert (axis.cell.tolist(), axis.count) == ([1, 0, 1], 2)


def test_cells_are_alike_whatever_they_are_called():
    facts = facts_of(step("a", 1.0), step("b", 2.0))
    one, other = as_given(facts, ["time"]), place_files(facts, ["time"], {}, {})
    assert one.alike(other)
    assert not one.alike(as_given(facts_of(step("a", 1.0)), ["time"]))
    turned = place_files(facts_of(step("a", 2.0), step("b", 1.0)), ["time"], {}, {})
    assert not one.alike(turned)


def test_a_coordinate_and_its_bounds_hold_no_data():
    """They are repeated in every file that has data for the steps."""
    bounds = data(("time", "nv"), [[0.0, 1.0]])
    file = step("a", 1.0, time=coord("time", [1.0], bounds="edges"), edges=bounds)
    facts = facts_of(file)
    held = dict(zip(facts.arrays.path.values, data_along(facts, "time").tolist(), strict=True))
    assert held == {"/t": True, "/time": False, "/edges": False}
