"""Splitting rules mean what the official client means by them."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.errors import InvalidInputError
from icevirt.ids import ObjectId12
from icevirt.model.snapshot import Boxes, ManifestRef
from icevirt.versioning.manifest_splitting import SplitGrid, grid_of

ANY = [{"condition": "Any", "num_chunks": 3}]
CASES = {
    "no rule": (None, (10, 7)),
    "any array, any axis": ([["any_array", ANY]], (3, 3)),
    "one axis": ([["any_array", [{"condition": {"Axis": 1}, "num_chunks": 2}]]], (10, 2)),
    "a name of a dimension is searched": (
        [["any_array", [{"condition": {"DimensionName": "im"}, "num_chunks": 4}]]],
        (4, 7),
    ),
    "another path": ([[{"path_matches": {"regex": "^/other$"}}, ANY]], (10, 7)),
    "the path is searched": ([[{"path_matches": {"regex": "b"}}, ANY]], (3, 3)),
    "the name is the last part": ([[{"name_matches": {"regex": "^a$"}}, ANY]], (10, 7)),
    "or": ([[{"or": [{"name_matches": {"regex": "^x"}}, "any_array"]}, ANY]], (3, 3)),
    "and": ([[{"and": [{"name_matches": {"regex": "^x"}}, "any_array"]}, ANY]], (10, 7)),
    "rules accumulate, the first one of an axis counts": (
        [
            ["any_array", [{"condition": {"Axis": 0}, "num_chunks": 5}]],
            [{"name_matches": {"regex": "b"}}, ANY],
        ],
        (5, 3),
    ),
    "the first size of a rule counts": (
        [["any_array", [{"condition": {"Axis": 0}, "num_chunks": 6}, *ANY]]],
        (6, 3),
    ),
}


@pytest.mark.parametrize(("rules", "steps"), CASES.values(), ids=CASES.keys())
def test_a_rule_sets_the_steps_of_the_axes_it_is_about(rules, steps):
    grid = grid_of(rules, path="/a/b", num_chunks=(10, 7), dimension_names=("time", None))
    assert grid.steps == steps


@pytest.mark.parametrize(
    "rule",
    [
        ["every_array", ANY],
        ["any_array", [{"condition": "All", "num_chunks": 1}]],
        [{"path_matches": {"regex": "("}}, ANY],
    ],
    ids=["array", "axis", "regex"],
)
def test_a_rule_that_is_not_understood_is_refused(rule):
    with pytest.raises(InvalidInputError, match=r"manifest\.splitting"):
        grid_of([rule], path="/a", num_chunks=(5,), dimension_names=None)


edges = st.lists(st.integers(1, 6), min_size=0, max_size=3)


@given(edges.flatmap(lambda e: st.tuples(st.just(e), st.tuples(*[st.integers(1, 4)] * len(e)))))
def test_cells_agree_with_a_loop(case):
    chunks, steps = case
    grid = SplitGrid(tuple(chunks), tuple(steps))
    spots = list(itertools.product(*map(range, chunks)))
    cells = {}
    for spot in spots:
        cells.setdefault(
            tuple(at // step for at, step in zip(spot, steps, strict=True)), []
        ).append(spot)
    number = grid.cells_of(np.array(spots, np.int64).reshape(len(spots), len(chunks)))
    for found, cell in enumerate(sorted(cells)):
        low = [min(axis) for axis in zip(*cells[cell], strict=True)]
        high = [max(axis) + 1 for axis in zip(*cells[cell], strict=True)]
        assert grid.cells_under(low, high).tolist() == [found]
    assert np.unique(number).tolist() == list(range(len(cells)))


def test_cells_under_a_box_are_cut_to_the_grid():
    grid = SplitGrid((10, 4), (3, 4))
    assert grid.cells_under((2, 0), (99, 9)).tolist() == [0, 1, 2, 3]
    assert grid.cells_under((20, 0), (30, 1)).tolist() == []


box = st.tuples(st.integers(0, 5), st.integers(1, 4), st.integers(0, 5), st.integers(1, 4))


@given(st.lists(box, max_size=6))
def test_overlap_agrees_with_a_loop(found):
    extents = [((a, a + n), (b, b + m)) for a, n, b, m in found]
    refs = [ManifestRef(object_id=ObjectId12(bytes(12)), extents=each) for each in extents]
    covers = [set(itertools.product(range(*rows), range(*columns))) for rows, columns in extents]
    meeting = [
        (i, j) for i, j in itertools.combinations(range(len(found)), 2) if covers[i] & covers[j]
    ]
    pair = Boxes.of(refs, 2).first_overlap()
    assert (pair is None) == (not meeting)
    assert pair is None or tuple(sorted(pair)) in meeting


def test_the_first_box_that_contains_an_index_counts():
    refs = [
        ManifestRef(object_id=ObjectId12(bytes(12)), extents=((0, 2), (0, 5))),
        ManifestRef(object_id=ObjectId12(bytes(12)), extents=((2, 4), (0, 5))),
    ]
    boxes = Boxes.of(refs, 2)
    index = np.array([[0, 0], [3, 4], [1, 5], [4, 0]])
    assert boxes.first_containing(index).tolist() == [0, 1, -1, -1]
    assert Boxes.of([], 2).first_containing(index).tolist() == [-1] * 4
    scalar = Boxes.of([ManifestRef(object_id=ObjectId12(bytes(12)), extents=())], 0)
    assert scalar.first_containing(np.zeros((1, 0), np.int64)).tolist() == [0]
    anything = Boxes.of([ManifestRef(object_id=ObjectId12(bytes(12)), extents=())], 2)
    assert anything.first_containing(index).tolist() == [0] * 4
