"""Tables of chunks are sorted by index, whatever is looked at together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.model import chunks
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
        patched.setattr(chunks, "_ROWS_AT_ONCE", together)
        patched.setattr(chunks, "_FEW", 0)
        found = table.sorted()
    order = sorted(range(n), key=indices.__getitem__)
    assert list(map(tuple, found.index.tolist())) == [indices[row] for row in order]
    assert found.offset.tolist() == order
