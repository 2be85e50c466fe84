"""`to_icechunk`: what is written is what the engine shows, also by dask and piece by piece."""

import dask
import icechunk
import numpy as np
import pytest
import xarray as xr
from icechunk.xarray import to_icechunk as officially

from access.xarray.compare import same_attributes
from icevirt.access.xarray.writing import to_icechunk
from icevirt.errors import InvalidInputError, ReadOnlyError
from icevirt.repo.repository import Repository


def dataset(start=0, size=6):
    times = xr.date_range("2000-01-01", periods=start + size)[start:]
    values = np.arange(start * 4.0, (start + size) * 4).reshape(size, 4)
    values[0, 0] = np.nan
    return xr.Dataset(
        {"a": (("t", "x"), values), "b": ("x", np.arange(4, dtype="i2"))},
        coords={"t": times, "x": [1.5, 2.5, 3.5, 4.5]},
        attrs={"title": "whole"},
    )


@pytest.fixture
def repo(tmp_path):
    return Repository.create(tmp_path / "repo")


@pytest.fixture
def session(repo):
    return repo.writable_session("main")


def shown(repo, session, **options):
    session.commit("written")
    return xr.open_dataset(repo.storage, engine="icevirt", **options).load()


def test_what_was_written_is_shown(repo, session):
    to_icechunk(dataset(), session)
    xr.testing.assert_identical(shown(repo, session), dataset())


def test_both_clients_write_the_same(repo, session, tmp_path):
    storage = icechunk.local_filesystem_storage(str(tmp_path / "official"))
    theirs = icechunk.Repository.create(storage).writable_session("main")
    options = {"group": "g", "encoding": {"a": {"chunks": (2, 4), "dtype": "f4"}}}
    officially(dataset(), theirs, **options)
    theirs.commit("official")
    to_icechunk(dataset(), session, **options)
    ours = shown(repo, session, group="g")
    other = xr.open_dataset(tmp_path / "official", engine="icevirt", group="g").load()
    xr.testing.assert_identical(ours, other)
    assert ours["a"].encoding["chunks"] == other["a"].encoding["chunks"]


def test_an_array_is_written_under_its_name(repo, session):
    to_icechunk(dataset()["a"], session, group="one")
    xr.testing.assert_identical(shown(repo, session, group="one")["a"], dataset()["a"])


ODD = {
    "nan": np.float64("nan"),
    "infinite": np.float32("-inf"),
    "python": float("inf"),
    "range": np.array([-1, np.inf], "f4"),
    "short": np.int16(3),
    "text": "NaN",
}


def test_attributes_keep_their_dtypes_nan_and_infinity(repo, session):
    ds = dataset().assign_attrs(ODD)
    ds["a"].attrs = dict(ODD)
    ds["x"].attrs = {"units": "m", "step": np.float32(0.1)}
    to_icechunk(ds, session)
    found = shown(repo, session)
    expected = ODD | {"python": np.float64("inf")}  # as from netCDF: JSON has no such number
    same_attributes(found["a"].attrs, expected)
    same_attributes(found.attrs, {"title": "whole"} | expected)
    same_attributes(found["x"].attrs, ds["x"].attrs)


def test_the_official_client_shows_nan_and_infinities_as_zarr_spells_them(repo, session, tmp_path):
    to_icechunk(dataset().assign_attrs(ODD), session)
    session.commit("written")
    storage = icechunk.local_filesystem_storage(str(tmp_path / "repo"))
    theirs = icechunk.Repository.open(storage).readonly_session("main").store
    found = xr.open_zarr(theirs, consolidated=False, chunks=None)
    spelt = {"nan": "NaN", "infinite": "-Infinity", "python": "Infinity", "range": [-1, "Infinity"]}
    assert found.attrs == {"title": "whole"} | spelt | {"short": 3, "text": "NaN"}


def test_packed_values_decode_to_the_dtype_of_their_scale(repo, session):
    packing = {"dtype": "i2", "scale_factor": np.float32(0.5), "_FillValue": np.int16(-1)}
    to_icechunk(dataset(), session, encoding={"a": packing})
    found = shown(repo, session)["a"]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, dataset()["a"].astype("f4"))


# -- piece by piece --------------------------------------------------------------------------


def test_appending_makes_one_longer_dataset(repo, session):
    to_icechunk(dataset(0, 4), session)
    to_icechunk(dataset(4, 2).drop_vars("b"), session, append_dim="t")
    expected = xr.concat([dataset(0, 4), dataset(4, 2)], "t", data_vars="minimal")
    xr.testing.assert_equal(shown(repo, session), expected)


@pytest.mark.parametrize("region", [{"t": slice(2, 4)}, {"t": "auto"}, "auto"], ids=str)
@pytest.mark.parametrize("lazy", [False, True], ids=["in memory", "dask"])
def test_a_region_is_replaced_and_nothing_else(repo, session, region, lazy):
    to_icechunk(dataset(), session, encoding={"a": {"chunks": (2, 4)}})
    part = dataset().isel(t=slice(2, 4))[["a"]] * -1
    if region != "auto":
        part = part.drop_vars("x")
    to_icechunk(part.chunk(t=2) if lazy else part, session, region=region)
    expected = dataset()
    expected["a"][2:4] *= -1
    xr.testing.assert_equal(shown(repo, session), expected)


# -- dask ------------------------------------------------------------------------------------


@pytest.mark.ci
@pytest.mark.parametrize("scheduler", ["sync", "threads", "processes"])
def test_dask_writes_with_every_scheduler(repo, session, scheduler):
    large = xr.Dataset({"d": (("r", "s"), np.arange(6000.0).reshape(60, 100))}, {"r": range(60)})
    lazy = large.chunk(r=7, s=40)
    with dask.config.set(num_workers=2):
        to_icechunk(lazy, session, chunkmanager_store_kwargs={"scheduler": scheduler})
    xr.testing.assert_identical(shown(repo, session), large)


def test_dask_writes_to_a_bucket_from_other_processes(s3):
    repo = Repository.create(s3.icevirt())
    session = repo.writable_session("main")
    with dask.config.set(scheduler="processes", num_workers=2):
        to_icechunk(dataset(0, 6).chunk(t=2), session)
        to_icechunk(dataset(6, 8).drop_vars("b").chunk(t=2), session, append_dim="t")
    expected = xr.concat([dataset(0, 6), dataset(6, 8)], "t", data_vars="minimal")
    xr.testing.assert_equal(shown(repo, session), expected)
    theirs = icechunk.Repository.open(s3.official()).readonly_session("main").store
    xr.testing.assert_equal(xr.open_zarr(theirs, consolidated=False).load(), expected)


def test_dask_appends_with_many_forks(repo, session):
    first, second = dataset(0, 6).chunk(t=2), dataset(6, 6).chunk(t=2).drop_vars("b")
    to_icechunk(first, session, split_every=2)
    to_icechunk(second, session, append_dim="t", split_every=2)
    expected = xr.concat([dataset(0, 6), dataset(6, 6)], "t", data_vars="minimal")
    xr.testing.assert_equal(shown(repo, session), expected)


def test_dask_chunks_that_share_a_chunk_are_refused(session):
    with pytest.raises(ValueError, match="align"):
        to_icechunk(dataset().chunk(t=3), session, encoding={"a": {"chunks": (2, 4)}})


# -- refusals --------------------------------------------------------------------------------


def test_what_is_there_is_not_overwritten_by_default(session):
    to_icechunk(dataset(), session)
    with pytest.raises(FileExistsError):
        to_icechunk(dataset(), session)
    to_icechunk(dataset(), session, mode="w")


def test_a_session_that_takes_no_changes_is_reported_before_anything_happens(repo):
    with pytest.raises(ReadOnlyError, match="writable_session"):
        to_icechunk(dataset(), repo.readonly_session("main"))


def test_other_things_are_no_datasets(session):
    with pytest.raises(InvalidInputError, match="DataTree"):
        to_icechunk(xr.DataTree(dataset()), session)
