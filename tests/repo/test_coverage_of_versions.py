"""What the chunks of a version cover, however many are counted together."""

import itertools

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import icevirt
from icevirt.ids import ObjectId12
from icevirt.repo import summary
from icevirt.storage.memory import MemoryStorage

RUNS = st.lists(
    st.integers(1, 9) | st.tuples(st.integers(1, 9), st.integers(1, 4)).map(list), max_size=6
)


@given(RUNS)
def test_chunks_of_listed_lengths_begin_where_those_before_them_end(edges):
    runs = (each if isinstance(each, list) else [each, 1] for each in edges)
    lengths = [size for size, times in runs for _ in range(times)]
    begins = [0, *itertools.accumulate(lengths)]
    found = summary._of_runs(edges, np.arange(len(begins)))
    assert found.tolist() == begins


@pytest.mark.parametrize("groups", [1, 3, 7, 40])
def test_chunks_that_are_counted_together_cover_as_much(groups, monkeypatch):
    repo = icevirt.Repository.create(MemoryStorage())
    session = repo.writable_session("main")
    array = zarr.create_array(
        session.store,
        name="v",
        shape=(39, 4),
        chunks=(1, 2),
        dtype="f4",
        dimension_names=("time", "x"),
    )
    array[:11] = 1
    array[20:30, :2] = 1
    made = session.commit("some chunks")
    snapshot_id = ObjectId12.parse(made)
    (whole,) = summary.coverage_of(repo.assets, snapshot_id).groups[0].arrays
    monkeypatch.setattr(summary, "_GROUPS", groups)
    (grouped,) = summary.coverage_of(repo.assets, snapshot_id).groups[0].arrays
    assert whole.shares.keys() == grouped.shares.keys() == {"inline"}
    for found in (whole, grouped):
        assert found.shares["inline"].sum() == pytest.approx(16)
    if groups == 40:
        assert grouped.shares["inline"].tolist() == whole.shares["inline"].tolist()
