"""A chunk looked up alone is found where it is found among many."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from access.virtual import make
from icevirt.access.store.reading import SessionReader, row_of
from icevirt.model.chunks import ChunkTable, Locations
from icevirt.versioning.chunk_tables import RowFinder

CORNER = 2**32 - 1


@st.composite
def tables(draw):
    ndim = draw(st.integers(0, 4))
    number = st.integers(0, 4) | st.sampled_from([CORNER, CORNER - 1])
    rows = draw(st.sets(st.tuples(*[number] * ndim), max_size=1 if ndim == 0 else 12))
    index = np.array(sorted(rows), np.int64).reshape(len(rows), ndim)
    wanted = draw(st.lists(st.tuples(*[number] * ndim), max_size=6)) + sorted(rows)
    return index, wanted


@given(tables())
@settings(max_examples=75)
def test_one_row_is_found_as_many_are(drawn):
    index, wanted = drawn
    n = len(index)
    table = ChunkTable.virtual(
        index=index, offset=np.zeros(n, int), length=np.ones(n, int), locations=Locations.one("x")
    )
    rows = RowFinder.of(table)
    together = rows.find(np.array(wanted, np.int64).reshape(len(wanted), index.shape[1]))
    assert [row_of(rows, one) for one in wanted] == together.tolist()


@pytest.fixture
def session(tmp_path):
    """Arrays of three kinds, and one of several manifests."""
    virtual = make(tmp_path, skip=[1])
    return virtual.open().readonly_session("main")


KEYS = [
    *(f"{path}/c/{n}/0" for path in ("v", "inline", "native", "nowhere") for n in range(5)),
    "v/c/0",
    "v/c/0/0/0",
    "v/c/4294967295/0",
    "c",
    "zarr.json",
]


def test_few_requests_are_answered_as_many_are(session):
    reader = SessionReader(session)
    together = reader.read_all([(key, None) for key in KEYS] * 4)
    alone = [reader.read_all([(key, None)])[0] for key in KEYS] * 4
    assert [body and bytes(body) for body in together] == [body and bytes(body) for body in alone]
    assert sum(body is not None for body in alone[: len(KEYS)]) == 3 + 1 + 1 + 1
