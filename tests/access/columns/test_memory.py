"""A read holds its result, and little beside it, whatever is selected."""

import tracemalloc

import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.codecs import numcodecs

from access.columns.stored import Stored, store
from icevirt.access.columns.stored_array import open_array

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


def peak_of(read) -> tuple[np.ndarray, int]:
    """Return what was read, and the bytes that were held at most beside it."""
    tracemalloc.start()
    try:
        found = read()
        return found, tracemalloc.get_traced_memory()[1] - found.nbytes
    finally:
        tracemalloc.stop()


SELECTIONS = {
    "all": {},
    "every other step": {"d0": slice(None, None, 2)},
    "backwards": {"d0": slice(None, None, -1)},
    "an index along each axis": {
        "d0": np.arange(599, -1, -1), "d1": np.arange(0, 120), "d2": np.arange(160),
    },
    "an index of one axis": {"d0": xr.Variable("p", np.arange(599, -1, -1))},
}  # fmt: skip


@pytest.mark.ci
@pytest.mark.parametrize("key", SELECTIONS.values(), ids=SELECTIONS)
def test_a_read_holds_its_result_and_little_beside_it(stored, key):
    found, beside = peak_of(stored.variable().isel(key).to_numpy)
    np.testing.assert_array_equal(found, xr.Variable(["d0", "d1", "d2"], stored.values).isel(key))
    assert beside < BESIDE


def test_points_beside_slices_hold_their_result_and_little_beside_it(stored):
    """xarray makes an array of indices for each axis, as large as the result."""
    rows = np.arange(600).reshape(20, 30)[:, :, None, None]
    key = np.broadcast_arrays(rows, np.arange(120)[:, None], np.arange(160))
    key = tuple(np.ascontiguousarray(each) for each in key)
    array = open_array(stored.session, "/v")
    found, beside = peak_of(lambda: array.vindex(key))
    np.testing.assert_array_equal(found, stored.values[key])
    assert beside < BESIDE


def test_a_million_points_hold_little_beside_their_result(stored):
    dice = np.random.default_rng(0)
    key = tuple(dice.integers(0, length, 1_000_000) for length in SHAPE)
    array = open_array(stored.session, "/v")
    found, beside = peak_of(lambda: array.vindex(key))
    np.testing.assert_array_equal(found, stored.values[key])
    assert beside < BESIDE


@pytest.mark.ci
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
