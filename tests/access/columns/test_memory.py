"""A read holds its result, and little beside it, whatever is selected."""

import tracemalloc

import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.codecs import numcodecs

from access.columns.stored import Stored, store

BESIDE = 64 << 20  # bytes that a read may hold beside its result
SHAPE, CHUNKS = (600, 120, 160), (1, 60, 160)  # 46 MB in 1,200 chunks of 38 kB


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Stored:
    values = np.broadcast_to(np.arange(SHAPE[0], dtype="<f4")[:, None, None], SHAPE)
    return store(
        tmp_path_factory.mktemp("repo"),
        values,
        chunks=CHUNKS,
        compressors=[numcodecs.Shuffle(elementsize=4), numcodecs.Zlib(level=1)],
    )


SELECTIONS = {
    "all": {},
    "every other step": {"d0": slice(None, None, 2)},
    "backwards": {"d0": slice(None, None, -1)},
    "an index along each axis": {
        "d0": np.arange(599, -1, -1), "d1": np.arange(0, 120), "d2": np.arange(160),
    },
    "points beside long slices": {"d0": xr.Variable("p", np.arange(599, -1, -1))},
    "points of two axes beside a slice": {
        "d1": xr.Variable("p", np.arange(120)), "d2": xr.Variable("p", np.arange(120)),
    },
}  # fmt: skip


@pytest.mark.parametrize("key", SELECTIONS.values(), ids=SELECTIONS)
def test_a_read_holds_its_result_and_little_beside_it(stored, key):
    shown = stored.variable().isel(key)
    tracemalloc.start()
    try:
        found = shown.to_numpy()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(found, xr.Variable(["d0", "d1", "d2"], stored.values).isel(key))
    assert peak - found.nbytes < BESIDE, f"{peak / 2**20:.0f} MiB for {found.nbytes / 2**20:.0f}"


def test_a_read_holds_no_more_than_through_the_pipeline_of_zarr(stored):
    array = zarr.open_group(stored.session.store, mode="r")["v"]
    peaks = []
    for read in (lambda: stored.variable().to_numpy(), lambda: array.oindex[np.arange(600)]):
        tracemalloc.start()
        read()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[0] < 1.3 * stored.values.nbytes
    assert peaks[0] <= peaks[1]
