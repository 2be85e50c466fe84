"""Repositories that the official client wrote, through the engine and the store; and forks."""

import multiprocessing

import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr

import icevirt
from access.virtual import VALUES, make


def datasets():
    time = xr.date_range("2000-01-01", periods=3)
    floats = np.array([1.5, np.nan, 3.0], "f4")
    yield (
        "floats with a fill value",
        xr.Dataset({"a": ("x", floats, {}, {"_FillValue": np.float32(-9)})}),
    )
    yield "a NaN fill value", xr.Dataset({"a": ("x", floats, {}, {"_FillValue": np.nan})})
    yield (
        "packed",
        xr.Dataset(
            {"a": ("x", floats, {}, {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1})}
        ),
    )
    yield "times", xr.Dataset(coords={"t": time, "d": ("t", time - time[0])})
    yield "text", xr.Dataset({"s": ("x", np.array(["a", "ß", ""], object))})
    yield "fixed text", xr.Dataset({"s": ("x", np.array(["a", "ßß", ""]))})
    yield "booleans and complex", xr.Dataset({"b": ("x", [True, False]), "c": ("x", [1j, 2.0])})
    yield "a scalar", xr.Dataset({"s": 3.5}, attrs={"title": "scalar", "list": [1, 2]})
    yield "nothing in it", xr.Dataset({"e": (("x", "y"), np.zeros((0, 3)))})
    yield "unsigned", xr.Dataset({"u": ("x", np.array([1, 2**63], "u8"))})


CASES = dict(datasets())


@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
@pytest.mark.parametrize("name", CASES)
def test_the_engine_shows_what_xarray_shows_of_an_official_repository(name, tmp_path):
    repo = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "r")))
    session = repo.writable_session("main")
    CASES[name].to_zarr(session.store, consolidated=False)
    session.commit("written")
    official = repo.readonly_session("main").store
    options = {"decode_timedelta": True}
    theirs = xr.open_zarr(official, consolidated=False, chunks=None, **options).load()
    ours = xr.open_dataset(tmp_path / "r", engine="icevirt", **options).load()
    xr.testing.assert_identical(ours, theirs)
    for variable in theirs.variables:
        if theirs[variable].dtype.kind != "T":  # ours are objects, as from the netCDF engine
            assert ours[variable].dtype == theirs[variable].dtype
    store = icevirt.Repository.open(tmp_path / "r").readonly_session("main").store
    same = xr.open_zarr(store, consolidated=False, chunks=None, **options).load()
    xr.testing.assert_identical(same, theirs)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_reads(tmp_path):
    store = make(tmp_path).store()
    array = zarr.open_array(store, path="v", mode="r")
    np.testing.assert_array_equal(array[:], VALUES)
    context = multiprocessing.get_context("fork")
    with context.Pool(1) as pool:
        np.testing.assert_array_equal(pool.apply(_read, (store,)), VALUES)


def _read(store):
    return zarr.open_array(store, path="v", mode="r")[:]
