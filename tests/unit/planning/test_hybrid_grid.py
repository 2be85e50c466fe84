"""The chunks that are stored are those, and only those, that are not one file's own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.archive.plan import AxisGrid
from icevirt.planning.partial import chunk_alignment
from icevirt.planning.partial.chunk_alignment import (
    SLAB_BYTES,
    TooManyError,
    any_native,
    lines_up,
    native_chunks,
    slabs,
    values_in,
)


def by_hand(edge, lengths, plain):
    """Look at every chunk of one axis: stored unless one plain file holds all of it."""
    owner = np.repeat(np.arange(len(lengths)), lengths)
    starts = np.cumsum(lengths) - lengths
    found = []
    for chunk in range(-(-len(owner) // edge)):
        inside = np.unique(owner[chunk * edge : (chunk + 1) * edge])
        whole = len(inside) == 1 and plain[inside[0]] and starts[inside[0]] % edge == 0
        if not whole:
            found.append(chunk)
    return found


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=8),
       st.integers(1, 5))  # fmt: skip
def test_one_axis_agrees_with_looking_at_every_chunk(files, edge):
    """Whatever the lengths of files, and whichever of them deviate."""
    lengths = np.array([length for length, _ in files])
    usual = np.array([plain for _, plain in files])
    starts = (np.cumsum(lengths) - lengths)[:, None]
    grids = [AxisGrid(total=int(lengths.sum()), edge=edge)]
    plain = usual & lines_up(grids, starts, lengths[:, None])
    found = native_chunks(grids, starts, lengths[:, None], plain)
    assert found[:, 0].tolist() == by_hand(edge, lengths, usual)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(chunk_alignment, "_ROWS", 2)
        assert (lines_up(grids, starts, lengths[:, None]) & usual).tolist() == plain.tolist()
        rows = np.arange(len(plain))
        assert any_native(grids, starts, lengths[:, None], plain, rows) == bool(len(found))


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.data(),
)
def test_two_axes_agree_with_looking_at_every_chunk(rows, columns, edges, data):
    """Files are boxes, of which some are not there; what no file touches is not stored."""
    boxes = [(r, c) for r in range(len(rows)) for c in range(len(columns))]
    there = data.draw(st.lists(st.sampled_from(boxes), min_size=1, unique=True))
    usual = np.array([data.draw(st.booleans()) for _ in there])
    low = np.array([[sum(rows[:r]), sum(columns[:c])] for r, c in there])
    size = np.array([[rows[r], columns[c]] for r, c in there])
    grids = [
        AxisGrid(total=sum(each), edge=edge)
        for each, edge in zip((rows, columns), edges, strict=True)
    ]
    plain = usual & lines_up(grids, low, size)
    owner = np.full((sum(rows), sum(columns)), -1)
    for number, (begin, shape) in enumerate(zip(low, size, strict=True)):
        owner[begin[0] : begin[0] + shape[0], begin[1] : begin[1] + shape[1]] = number
    expected = []
    for cell in np.ndindex(len(grids[0]), len(grids[1])):
        part = owner[tuple(slice(n * e, n * e + e) for n, e in zip(cell, edges, strict=True))]
        files = set(np.unique(part).tolist())
        if files != {-1} and not (len(files) == 1 and plain[files.pop()]):
            expected.append(list(cell))
    assert native_chunks(grids, low, size, plain).tolist() == expected


def test_chunks_that_follow_the_files_are_stored_only_where_a_file_ends_within_one():
    """Years of 365 and 366 days in chunks of 30: the last chunk of each."""
    lengths = np.array([365, 366, 365])
    starts = np.cumsum(lengths) - lengths
    bounds = np.concatenate([np.arange(s, s + n, 30) for s, n in zip(starts, lengths, strict=True)])
    grid = AxisGrid(total=1096, edge=30, bounds=np.append(bounds, 1096))
    plain = lines_up([grid], starts[:, None], lengths[:, None])
    assert plain.all()
    found = native_chunks(
        [grid], starts[:, None], lengths[:, None], plain, own_edges=np.full(3, 30)
    )
    assert found[:, 0].tolist() == [12, 25, 38]
    assert values_in([grid], found, [4]) == (5 + 6 + 5) * 4
    assert [grid.edge_of(n) for n in (11, 12, 25)] == [30, 5, 6]


def test_a_box_of_the_grid_has_its_share():
    """As windows look at theirs."""
    lengths, starts = np.array([[5], [7]]), np.array([[0], [5]])
    grids = [AxisGrid(total=12, edge=2)]
    plain = lines_up(grids, starts, lengths)
    everything = native_chunks(grids, starts, lengths, plain)[:, 0].tolist()
    parts = [
        native_chunks(grids, starts, lengths, plain, box=[(low, low + 2)])[:, 0]
        for low in (0, 2, 4)
    ]
    assert np.concatenate(parts).tolist() == everything == [2, 3, 4, 5]


def test_more_chunks_than_anybody_stores_are_not_even_counted():
    with pytest.raises(TooManyError):
        native_chunks(
            [AxisGrid(total=10**12, edge=1)],
            np.array([[0]]),
            np.array([[10**12]]),
            np.array([False]),
        )


@given(st.lists(st.integers(0, 40), min_size=1, unique=True).map(sorted), st.integers(1, 4))
def test_slabs_cover_the_chunks_once_and_stay_small(chunks, beside):
    """Each is a box; only one chunk may be larger than a slab."""
    edge = 1 << 20
    grids = [AxisGrid(total=41 * edge, edge=edge), AxisGrid(total=beside * 8, edge=8)]
    window = ((0, 41), (0, beside))
    seen = []
    for box in slabs(np.array(chunks)[:, None], [0], window, grids, 4):
        cells = [(i, j) for i in range(*box[0]) for j in range(*box[1])]
        assert len(cells) == 1 or len(cells) * edge * 8 * 4 <= SLAB_BYTES
        seen += cells
    assert sorted(seen) == [(i, j) for i in chunks for j in range(beside)]
