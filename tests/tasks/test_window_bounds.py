"""Blocks that lie within a window need no look at each of their rows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from icevirt.archive.blocks.packing import Block
from icevirt.model.chunks import Locations
from icevirt.tasks.shuffle import Bound, within

FILES = 3
NUMBERS = st.lists(st.integers(0, 5), min_size=FILES, max_size=FILES)


def block_of(rows, ndim):
    """Return references of files, by file and index."""
    n = len(rows)
    return Block(
        file=np.array([file for file, _ in rows], np.int32),
        index=np.array([index[:ndim] for _, index in rows], np.uint32).reshape(n, ndim),
        kind=np.full(n, 2, np.uint8),
        offset=np.zeros(n, np.uint64),
        length=np.ones(n, np.uint64),
        data=np.zeros(0, np.uint8),
        source=np.zeros(n, np.uint32),
        targets=Locations.none(),
    )


@given(
    st.lists(st.tuples(st.integers(0, FILES - 1), st.tuples(st.integers(0, 4), st.integers(0, 4)))),
    st.integers(1, 2),
    st.integers(-2, -1),
    st.none() | NUMBERS,
    st.none() | st.tuples(NUMBERS, NUMBERS),
    st.integers(0, 3),
    st.integers(0, 12),
)
def test_a_window_that_covers_a_block_wants_all_of_it(rows, ndim, axis, begin, own, low, high):
    block = block_of(rows, ndim)
    bound = Bound(
        axis=axis,
        low=low,
        high=high,
        begin=None if begin is None else np.array(begin, np.int64),
        own=None if own is None else (np.array(own[0]), np.array(own[0]) + np.array(own[1])),
    )
    wanted = within(block, np.arange(len(block)), [bound], block.file)
    if bound.covers(block):
        assert len(wanted) == len(block)
    elif len(rows) and own is None and begin is None:
        assert len(wanted) < len(block)  # it says no of no block that has one begin
