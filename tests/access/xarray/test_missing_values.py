"""NaN, infinities and complex numbers in attributes have one form, whoever wrote them.

The engine shows what was written; official readers mask the same values and can append.
"""

import shutil
from functools import cache

import icechunk.xarray
import netCDF4
import numpy as np
import pytest
import xarray as xr

import icevirt
import icevirt.xarray
from builds.support import official, opened
from icevirt.errors import InvalidInputError

pytestmark = pytest.mark.ci

NAN, INF = float("nan"), float("inf")
ODD = {
    "a double": (NAN, np.float64(NAN)),
    "infinity": (INF, np.float64(INF)),
    "minus infinity": (-INF, np.float64(-INF)),
    "a list": ([1.0, NAN], np.array([1.0, NAN])),
    "a list of a whole number": ([1, INF], np.array([1.0, INF])),
    "a tuple": ((1.0, NAN), np.array([1.0, NAN])),
    "a float32": (np.float32(NAN), np.float32(NAN)),
    "an array": (np.array([1, NAN], "f4"), np.array([1, NAN], "f4")),
    "a complex number": (1 + 2j, np.complex128(1 + 2j)),
    "text": ("NaN", "NaN"),
    "a list of texts": (["NaN", "x"], ["NaN", "x"]),
    "a number": (1.5, 1.5),
}
# missing_value, _FillValue of float32 data, and the values that xarray masks in the file
MISSING = {
    "NaN": (np.float32(NAN), None, []),
    "NaN, a double": (np.float64(NAN), None, []),
    "NaN beside a fill value": (np.float32(NAN), np.float32(-9), [-9]),
    "NaN twice": (np.float32(NAN), np.float32(NAN), []),
    "NaN and a number": (np.array([NAN, 1], "f4"), None, [1]),
    "infinity": (np.float32(INF), None, [INF]),
    "infinity and a number": (np.array([INF, 1], "f4"), None, [INF, 1]),
    "infinity twice": (np.float32(INF), np.float32(INF), [INF]),
    "a number": (np.float32(1), None, [1]),
}
VALUES = np.array([0, 1, -9, INF, NAN, 5], "f4")


def day(number, values=VALUES):
    times = xr.date_range("2000-01-01", periods=2)[number : number + 1]
    return xr.Dataset({"v": (("time", "x"), values[None])}, coords={"time": times})


def archive(folder, missing, fill):
    """Write a day as netCDF4 does: what xarray would write beside these is left out."""
    folder.mkdir()
    with netCDF4.Dataset(folder / "day0.nc", "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", len(VALUES))
        time = file.createVariable("time", "f8", ("time",))
        time.units = "days since 2000-01-01"
        time[:] = [0]
        variable = file.createVariable("v", "f4", ("time", "x"), fill_value=fill)
        variable.set_auto_mask(False)
        variable.missing_value = missing
        variable[0] = VALUES
    return folder / "day0.nc"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return a function that builds a case once, and returns its file and repository."""
    folder = tmp_path_factory.mktemp("built")

    @cache
    def build(name):
        root = folder / str([*MISSING].index(name))
        missing, fill, _ = MISSING[name]
        root.mkdir()
        source = archive(root / "archive", missing, fill)
        icevirt.build([str(source)], str(root / "repo"), executor="in-process")
        return source, str(root / "repo")

    return build


@pytest.fixture
def copied(built, tmp_path):
    """Return a function that returns a copy of the repository of a case, to be written to."""
    return lambda name: str(shutil.copytree(built(name)[1], tmp_path / "repo"))


def masked(values, name):
    return np.where(np.isin(values, MISSING[name][2]), np.float32(NAN), values)


def of_official(repo):
    store = official(repo).readonly_session("main").store
    return xr.open_zarr(store, consolidated=False)


@pytest.mark.parametrize(("value", "wanted"), ODD.values(), ids=ODD)
def test_the_engine_shows_the_numbers_that_were_written(value, wanted, tmp_path):
    repo = icevirt.Repository.create(tmp_path / "repo")
    session = repo.writable_session("main")
    ds = xr.Dataset({"v": ("x", VALUES, {"a": value})}, attrs={"a": value})
    icevirt.xarray.to_icechunk(ds, session)
    session.commit("written")
    found = xr.open_dataset(tmp_path / "repo", engine="icevirt")
    for shown in (found.attrs["a"], found["v"].attrs["a"]):
        assert type(shown) is type(wanted)
        assert getattr(shown, "dtype", None) == getattr(wanted, "dtype", None)
        np.testing.assert_array_equal(shown, wanted)


@pytest.mark.filterwarnings("ignore:variable .* has multiple fill values")
@pytest.mark.parametrize("name", MISSING)
def test_a_build_masks_alike_for_all_and_the_engine_shows_the_file(name, built):
    source, repo = built(name)
    with xr.open_dataset(source) as wanted:
        np.testing.assert_array_equal(opened(repo)["v"], wanted["v"])
        np.testing.assert_array_equal(of_official(repo)["v"], wanted["v"])
        np.testing.assert_array_equal(wanted["v"].values[0], masked(VALUES, name))
    with xr.open_dataset(source, decode_cf=False) as wanted:
        found = opened(repo, decode_cf=False)["v"].attrs
        assert found.keys() == wanted["v"].attrs.keys()
        for key, value in wanted["v"].attrs.items():
            assert found[key].dtype == value.dtype
            np.testing.assert_array_equal(found[key], value)


@pytest.mark.filterwarnings("ignore:variable .* has multiple fill values")
@pytest.mark.parametrize("name", MISSING)
@pytest.mark.parametrize("client", ["icevirt", "icechunk", "to_zarr"])
def test_datasets_are_appended_to_a_build(client, name, copied):
    if name == "infinity and a number":
        pytest.skip("xarray writes no array of which two values mean missing")
    repo = copied(name)
    if client == "icechunk":
        session = official(repo).writable_session("main")
        icechunk.xarray.to_icechunk(day(1), session, append_dim="time")
    else:
        session = icevirt.Repository.open(repo).writable_session("main")
        if client == "icevirt":
            icevirt.xarray.to_icechunk(day(1), session, append_dim="time")
        else:
            day(1).to_zarr(session.store, append_dim="time", consolidated=False)
    session.commit("appended")
    for found in (opened(repo), of_official(repo)):
        np.testing.assert_array_equal(found["v"].values, [masked(VALUES, name)] * 2)
    held = opened(repo, decode_cf=False)["v"].attrs["missing_value"]
    np.testing.assert_array_equal(held, MISSING[name][0])


@pytest.mark.filterwarnings("ignore:variable .* has multiple fill values")
@pytest.mark.parametrize("name", MISSING)
def test_what_was_read_is_written_to_another_group(name, copied):
    """xarray keeps ``missing_value`` in the encoding, from where it becomes an attribute again."""
    if name in ("NaN and a number", "infinity and a number"):
        pytest.skip("xarray writes no array of which two values mean missing")
    repo = copied(name)
    session = icevirt.Repository.open(repo).writable_session("main")
    icevirt.xarray.to_icechunk(opened(repo).load(), session, group="copy")
    session.commit("copied")
    found = opened(repo, group="copy")["v"]
    np.testing.assert_array_equal(found.values[0], masked(VALUES, name))
    np.testing.assert_array_equal(found.encoding["missing_value"], MISSING[name][0])
    store = official(repo).readonly_session("main").store
    np.testing.assert_array_equal(
        xr.open_zarr(store, group="copy", consolidated=False)["v"].values, found.values
    )


def test_what_others_cannot_be_told_is_said_by_the_plan(tmp_path):
    source = archive(tmp_path / "archive", np.array([INF, -INF], "f4"), None)
    made = icevirt.plan([str(source)], executor="in-process")
    assert "do not mask all of missing_value of /v" in " ".join(str(made).split())


def test_bare_nan_in_metadata_is_refused_and_the_remedy_keeps_it(tmp_path):
    session = icevirt.Repository.create(tmp_path / "repo").writable_session("main")
    ds = xr.Dataset({"v": ("x", VALUES, {"valid_min": NAN})})
    with pytest.raises(InvalidInputError, match=r"icevirt\.xarray\.to_icechunk"):
        ds.to_zarr(session.store, consolidated=False)
    icevirt.xarray.to_icechunk(ds, session, mode="w")
