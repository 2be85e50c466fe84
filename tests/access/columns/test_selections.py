"""Selections touch the chunks that they say and place their values as numpy selects them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.access.columns.grid import GridAxis, shapes_of
from icevirt.access.columns.selections import OrthogonalSelection, PointSelection

UNTOUCHED = -1


@st.composite
def grid_axes(draw, length):
    if length and draw(st.booleans()):
        cuts = draw(st.sets(st.integers(1, length), max_size=4))
        return GridAxis(length=length, size=0, edges=np.array(sorted({0, length, *cuts})))
    return GridAxis(length=length, size=draw(st.integers(1, length + 2)))


@st.composite
def grids(draw, *, least=0):
    shape = draw(st.lists(st.integers(least, 9), min_size=least, max_size=3))
    return [draw(grid_axes(length)) for length in shape]


def arrays_of_indices(length, shape):
    """Return a strategy of arrays of indices: unsorted, repeated, negative."""
    count = int(np.prod(shape, dtype=int))
    index = st.integers(-length, length - 1) if length else st.nothing()
    return st.lists(index, min_size=count, max_size=count).map(
        lambda found: np.array(found, np.int64).reshape(shape)
    )


@st.composite
def indices(draw, length):
    kind = draw(st.sampled_from(["number", "slice", "array"]))
    if kind == "number" and length:
        return draw(st.integers(-length, length - 1))
    if kind == "array":
        count = draw(st.integers(0, 7)) if length else 0
        return draw(arrays_of_indices(length, (count,)))
    start, stop = (draw(st.integers(-length - 2, length + 2)) for _ in range(2))
    return slice(start, stop, draw(st.integers(1, 4)))


def number(grid):
    shape = [axis.length for axis in grid]
    return np.arange(np.prod(shape, dtype=int)).reshape(shape)


def chunk_of(array, grid, chunk, shape):
    """Return a chunk as it is stored: whole, also where it ends beyond the array."""
    begin = [int(axis.begin_of(np.array([at]))[0]) for axis, at in zip(grid, chunk, strict=True)]
    part = array[tuple(slice(low, low + size) for low, size in zip(begin, shape, strict=True))]
    stored = np.full(shape, -2)
    stored[tuple(map(slice, part.shape))] = part
    return stored


def place_all(selection, array, grid, cuts):
    """Place the chunks of windows that end at the cuts, in runs where chunks are of one shape."""
    canvas = np.full(selection.canvas_shape, UNTOUCHED)
    seen = []
    ends = sorted({*(cut % (selection.count + 1) for cut in cuts), selection.count} - {0})
    for begin, end in zip([0, *ends], ends, strict=False):
        window = selection.window(begin, end)
        seen += map(tuple, window.chunks.tolist())
        shapes = shapes_of(grid, window.chunks)
        chunks = [chunk_of(array, grid, *each) for each in zip(window.chunks, shapes, strict=True)]
        first = len(chunks) // 3
        for row in range(first):
            window.place(canvas, row, chunks[row])
        if len({*shapes[first:]}) == 1:
            window.place_run(canvas, first, np.stack(chunks[first:]))
        else:
            for row in range(first, len(chunks)):
                window.place(canvas, row, chunks[row])
    assert len({*seen}) == len(seen) == selection.count  # no chunk is read twice
    return selection.result_of(canvas)


def select_along_axes(array, key):
    for axis in reversed(range(array.ndim)):
        array = array[(slice(None),) * axis + (key[axis],)]
    return np.asarray(array)


@settings(max_examples=300)
@given(st.data(), grids(), st.lists(st.integers(0, 1000), max_size=4))
def test_indices_along_each_axis_select_as_numpy(data, grid, cuts):
    array = number(grid)
    key = [data.draw(indices(axis.length)) for axis in grid]
    expected = select_along_axes(array, key)
    selection = OrthogonalSelection(grid, key)
    if expected.size:  # nothing is read for nothing
        np.testing.assert_array_equal(place_all(selection, array, grid, cuts), expected)
    assert selection.shape == expected.shape


@settings(max_examples=300)
@given(st.data(), grids(least=1), st.lists(st.integers(0, 1000), max_size=4))
def test_points_are_selected_as_numpy_selects_them(data, grid, cuts):
    array = number(grid)
    shape = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=2).map(tuple))
    key = [data.draw(arrays_of_indices(axis.length, shape)) for axis in grid]
    found = place_all(PointSelection(grid, key), array, grid, cuts)
    np.testing.assert_array_equal(found, array[tuple(key)])


@settings(max_examples=100)
@given(st.data(), grids(least=1), st.lists(st.integers(0, 1000), max_size=2))
def test_slices_beside_points_become_axes_behind_those_of_the_points(data, grid, cuts):
    array = number(grid)
    axes = range(len(grid))
    pointed = data.draw(st.sets(st.sampled_from(axes), min_size=1))
    key = [slice(None, None, data.draw(st.sampled_from([-2, -1, 1, 3]))) for _ in grid]
    whole = array[tuple(slice(None) if at in pointed else key[at] for at in axes)]
    for at in pointed:
        key[at] = data.draw(arrays_of_indices(grid[at].length, (3,)))
    first = np.moveaxis(whole, sorted(pointed), range(len(pointed)))
    expected = first[tuple(key[at] for at in sorted(pointed))]
    np.testing.assert_array_equal(place_all(PointSelection(grid, key), array, grid, cuts), expected)


@settings(max_examples=300)
@given(st.data(), grids(least=1), st.lists(st.integers(0, 1000), max_size=2))
def test_arrays_that_count_along_an_axis_of_their_own_are_read_as_slices(data, grid, cuts):
    """As xarray gives slices beside points, and axes in any order."""
    array = number(grid)
    pointed = data.draw(st.sets(st.integers(0, len(grid) - 1)))
    lines = []
    for axis in grid:
        step = data.draw(st.sampled_from([-3, -1, 1, 2]))
        begin = data.draw(st.integers(-axis.length, axis.length - 1))
        lines.append(np.arange(*slice(begin, None, step).indices(axis.length)))
    shape = data.draw(st.lists(st.integers(1, 3), max_size=2).map(tuple)) if pointed else ()
    others = [at for at in range(len(grid)) if at not in pointed]
    key = []
    for at, axis in enumerate(grid):
        if at in pointed:
            index = data.draw(arrays_of_indices(axis.length, shape))
            key.append(index.reshape((*shape, *(1 for _ in others))))
        else:
            key.append(lines[at].reshape([-1 if each == at else 1 for each in others]))
            key[-1] = key[-1].reshape((*(1 for _ in shape), *key[-1].shape))
    full = np.broadcast_arrays(*key)
    order = data.draw(st.permutations(range(full[0].ndim)))
    full = [np.ascontiguousarray(each.transpose(order)) for each in full]
    if full[0].size:
        found = place_all(PointSelection(grid, full), array, grid, cuts)
        np.testing.assert_array_equal(found, array[tuple(full)])


def test_points_are_broadcast():
    grid = [GridAxis(length=6, size=4), GridAxis(length=5, size=2)]
    array = number(grid)
    rows, columns = np.array([[5], [0], [-1]]), np.array([4, 0, 4, 1])
    found = place_all(PointSelection(grid, [rows, columns]), array, grid, [2])
    np.testing.assert_array_equal(found, array[rows, columns])
    found = place_all(PointSelection(grid, [3, columns]), array, grid, [])
    np.testing.assert_array_equal(found, array[3, columns])


@settings(max_examples=50)
@given(st.data(), grids(least=1))
def test_a_scalar_fills_what_is_selected_of_each_chunk_and_nothing_else(data, grid):
    array = number(grid)
    key = [data.draw(indices(axis.length)) for axis in grid]
    selection = OrthogonalSelection(grid, key)
    canvas = np.full(selection.canvas_shape, UNTOUCHED)
    window = selection.window(0, selection.count)
    filled = np.array(range(0, selection.count, 2), int)
    for row in filled:
        window.place(canvas, row, 7)
    chunks = np.zeros(array.shape, int)
    for at, axis in enumerate(grid):
        ids = axis.chunk_of(np.arange(axis.length))
        shape = [1] * len(grid)
        shape[at] = -1
        chunks = chunks * 100 + ids.reshape(shape)
    wanted = window.chunks[filled] @ (100 ** np.arange(len(grid))[::-1])
    expected = np.where(np.isin(select_along_axes(chunks, key), wanted), 7, UNTOUCHED)
    np.testing.assert_array_equal(canvas.reshape(selection.shape), expected)


@pytest.mark.parametrize("index", [5, -6, np.array([0, 5]), np.array([-6, 1]), np.int64(5)])
@pytest.mark.parametrize("edges", [None, np.array([0, 1, 5])])
@pytest.mark.parametrize("selection", [OrthogonalSelection, PointSelection])
def test_an_index_out_of_bounds_is_named(index, edges, selection):
    grid = [GridAxis(length=5, size=2, edges=edges)] * 2
    with pytest.raises(IndexError, match=r"index (5|-6) is out of bounds .* length 5"):
        selection(grid, [0, index])


@pytest.mark.parametrize("selection", [OrthogonalSelection, PointSelection])
def test_an_axis_without_elements_has_no_index(selection):
    with pytest.raises(IndexError):
        selection([GridAxis(length=0, size=1)], [np.array([0])])


def test_the_arrays_of_a_caller_stay_as_they_are():
    index = np.array([-1, 3, -2])
    grid = [GridAxis(length=5, size=2)]
    OrthogonalSelection(grid, [index])
    PointSelection(grid, [index])
    np.testing.assert_array_equal(index, [-1, 3, -2])


def test_a_plan_is_as_long_as_the_edges_of_the_grid():
    axis = GridAxis(length=1_000_000, size=1)
    selection = OrthogonalSelection([axis] * 3, [slice(None)] * 3)
    assert selection.count == 10**18
    middle = selection.window(5 * 10**17, 5 * 10**17 + 3)
    np.testing.assert_array_equal(middle.chunks, [[500_000, 0, at] for at in range(3)])
