"""Tables of chunks are sorted by index, whatever is looked at together."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.model import chunks
from icevirt.model import indices as by_column
from icevirt.model.chunks import ChunkTable, Locations

INDICES = st.integers(1, 3).flatmap(
    lambda ndim: st.lists(
        st.tuples(*[st.sampled_from([0, 1, 2, 2**31, 2**32 - 1])] * ndim), unique=True, max_size=12
    )
)


@given(INDICES, st.integers(1, 5), st.booleans())
def test_rows_are_those_that_python_sorts(indices, together, in_order):
    indices = sorted(indices) if in_order else indices
    n = len(indices)
    table = ChunkTable.virtual(
        index=np.array(indices, np.uint32).reshape(n, -1 if n else 2),
        offset=np.arange(n),
        length=np.ones(n, np.int64),
        locations=Locations.one("file:///a"),
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(by_column, "_ROWS_AT_ONCE", together)
        patched.setattr(chunks, "_FEW", 0)
        found = table.sort()
    order = sorted(range(n), key=indices.__getitem__)
    assert list(map(tuple, found.index.tolist())) == [indices[row] for row in order]
    assert found.offset.tolist() == order


ROWS = st.integers(0, 3).flatmap(
    lambda ndim: st.lists(st.tuples(*[st.sampled_from([-1, 0, 1, 2, 2**32 - 1])] * ndim)).map(
        lambda rows: np.array(rows, np.int64).reshape(len(rows), ndim)
    )
)


@given(ROWS, st.integers(1, 5), st.data())
def test_columns_say_of_rows_what_loops_over_them_say(index, together, data):
    rows, ndim = list(map(tuple, index.tolist())), index.shape[1]
    if data.draw(st.booleans()):
        rows = sorted(rows)
    if data.draw(st.booleans()):
        rows = [row for row in rows if all(number >= 0 for number in row)]
    dtype = np.int64 if any(-1 in row for row in rows) else np.uint32
    index = np.array(rows, dtype).reshape(len(rows), ndim)
    steps = [(b > a) - (b < a) for a, b in itertools.pairwise(rows)]
    edges = st.sampled_from([0, 1, 2, 2**32, 2**40])
    high = data.draw(st.tuples(*[edges] * ndim))
    low = data.draw(st.none() | st.tuples(*[edges] * ndim))
    corner = (0,) * ndim if low is None else low
    fits = [all(a <= n < b for a, n, b in zip(corner, row, high, strict=True)) for row in rows]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(by_column, "_ROWS_AT_ONCE", together)
        assert by_column.least_step(index) == min(steps, default=1)
    assert by_column.ascends(index) == all(step > 0 for step in steps)
    assert by_column.inside(index, high, low).tolist() == fits
    if low is None:
        assert by_column.all_inside(index, high) == all(fits)
    columns = list(zip(*rows, strict=True)) if rows else [()] * ndim
    box = [(min(column), max(column) + 1) if column else (0, 0) for column in columns]
    assert list(by_column.extents(index)) == box


@given(st.lists(st.integers(0, 3), max_size=6), st.none() | st.integers(0, 3))
def test_numbers_that_count_up_begin_at_0_and_go_on_by_1(numbers, last):
    steps = {b - a for a, b in itertools.pairwise(numbers)}
    goes_up = bool(numbers) and numbers[0] == 0 and steps <= {0, 1}
    expected = goes_up and last in (None, numbers[-1])
    assert by_column.counts_up(np.array(numbers, np.uint32), last) == expected
