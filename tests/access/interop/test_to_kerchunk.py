"""References written as kerchunk's: fsspec, zarr and xarray read from them what the session holds."""

import json
import shutil

import fsspec
import numpy as np
import pytest
import xarray as xr
import zarr
from fsspec.implementations.reference import LazyReferenceMapper

import icevirt
from icevirt.access.kerchunk import to_kerchunk
from icevirt.connect.urls import file_url
from icevirt.errors import AlreadyExistsError, InvalidInputError, UnsupportedError
from icevirt.objects.opening import open_source
from icevirt.scan.contract import ScannerOptions
from icevirt_scanners.kerchunk.scanner import KerchunkScanner

NAME = "an archive, 100% full"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / NAME


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A file with packed, plain, missing, text and scalar variables in a group."""
    values = np.linspace(0, 50, 24).reshape(4, 6)
    values[1, 1] = np.nan
    ds = xr.Dataset(
        {
            "a": (("t", "x"), values, {"units": "K", "limits": np.array([np.nan, 1.5])}),
            "b": (("t", "x"), values.astype(">f4"), {"missing_value": np.float32("nan")}),
            "zero": (("t",), np.zeros(4, "i4")),
            "name": (("t",), np.array([b"ab", b"c", b"", b"def"], "S3")),
            "text": (("x",), np.array(["a", "", "déf", "x", "y", "z"], object)),
        },
        coords={"t": ("t", np.arange(4), {"units": "days since 2000-01-01"}), "z": ((), 3.5)},
        attrs={"title": "archive"},
    )
    packing = {"dtype": "i2", "scale_factor": 0.125, "_FillValue": np.int16(-1)}
    chunks = {"chunksizes": (2, 6), "zlib": True, "shuffle": True}
    encoding = {"a": packing | chunks, "b": chunks, "zero": {"_FillValue": None}}
    encoding |= {"z": {"_FillValue": None}}
    path = tmp_path_factory.mktemp("file") / "0.nc"
    for group in (None, "in/deep"):
        ds.to_netcdf(path, mode="a", group=group, encoding=encoding, engine="h5netcdf")
    return path


@pytest.fixture
def session(file, folder, tmp_path):
    """A session over the file."""
    folder.mkdir()
    shutil.copy(file, folder)
    prefix = file_url(folder) + "/"
    config = icevirt.RepositoryConfig()
    store = icevirt.local_filesystem_store(str(folder))
    config.set_virtual_chunk_container(icevirt.VirtualChunkContainer(prefix, store))
    repo = icevirt.Repository.create(tmp_path / "repo", config, [prefix])
    session = repo.writable_session("main")
    icevirt.scan_file(folder / "0.nc").write_to(session)
    return session


@pytest.fixture(autouse=True)
def arrow(monkeypatch):
    """fastparquet, fsspec's default, is not installed."""
    monkeypatch.setattr(
        LazyReferenceMapper.__init__, "__defaults__", (None, None, 128, 10, "pyarrow")
    )


def reference_store(path):
    fs = fsspec.filesystem("reference", fo=str(path), remote_protocol="file", asynchronous=True)
    return zarr.storage.FsspecStore(fs, read_only=True)


FORMATS = [("json", 10), ("parquet", 1), ("parquet", 3), ("parquet", 100_000)]


def export(session, path, file, form):
    to_kerchunk(session, path, file, format=form[0], record_size=form[1])
    return file


@pytest.mark.parametrize("form", FORMATS, ids=str)
@pytest.mark.parametrize("group", ["/", "in/deep"])
@pytest.mark.parametrize("settings", [{}, {"decode_cf": False}], ids=["decoded", "raw"])
def test_xarray_reads_what_the_session_holds(form, group, settings, session, tmp_path):
    refs = export(session, group, tmp_path / "refs", form)
    found = xr.open_dataset(reference_store(refs), engine="zarr", consolidated=False, **settings)
    wanted = xr.open_dataset(
        session.store, group=group, engine="zarr", consolidated=False, **settings
    )
    assert set(found.variables) == set(wanted.variables)
    for name in wanted.variables:
        np.testing.assert_array_equal(found[name].values, wanted[name].values, err_msg=name)
        assert found[name].dims == wanted[name].dims
    assert found.attrs == wanted.attrs
    assert found["a"].attrs["units"] == "K"
    np.testing.assert_array_equal(found["a"].attrs["limits"], [np.nan, 1.5])


@pytest.mark.parametrize("form", FORMATS, ids=str)
def test_icevirt_scans_what_it_wrote(form, session, folder, tmp_path):
    refs = export(session, "/", tmp_path / "refs", form)
    with open_source(refs / ".zmetadata" if form[0] == "parquet" else refs) as source:
        scanned = KerchunkScanner().scan(source, ScannerOptions(allow_references_to=(str(folder),)))
    again = icevirt.Repository.open(
        tmp_path / "repo", authorize_virtual_chunk_access=[file_url(folder) + "/"]
    ).writable_session("main")
    scanned.write_to(again)
    found, wanted = (zarr.open_group(each.store, mode="r") for each in (again, session))
    names = [name for name, _ in wanted.members(max_depth=None)]
    assert [name for name, _ in found.members(max_depth=None)] == names
    for name in names:
        if isinstance(wanted[name], zarr.Array):
            np.testing.assert_array_equal(found[name][...], wanted[name][...], err_msg=name)


def test_one_array_becomes_the_only_one_of_a_group(session, tmp_path):
    to_kerchunk(session, "/in/deep/b", tmp_path / "b.json")
    root = zarr.open_group(reference_store(tmp_path / "b.json"), mode="r")
    assert list(root.array_keys()) == ["b"]
    wanted = zarr.open_array(session.store, path="in/deep/b")[...]
    np.testing.assert_array_equal(root["b"][...], wanted)


def test_native_chunks_go_along_only_where_they_are_few(session, tmp_path):
    values = np.random.default_rng(0).random(1000)
    root = zarr.open_group(session.store, mode="a")
    root.create_array("n", data=values, chunks=(500,), compressors=None)
    with pytest.raises(UnsupportedError, match="lie in the repository"):
        to_kerchunk(session, "/n", tmp_path / "n.json", inline_native=7999)
    to_kerchunk(session, "/n", tmp_path / "n.json", inline_native=8000)
    found = zarr.open_group(reference_store(tmp_path / "n.json"), mode="r")["n"]
    np.testing.assert_array_equal(found[...], values)


MISSING = [
    ({"fill_value": 0}, None, 0),
    ({"fill_value": -9, "attributes": {"_FillValue": -9}}, None, -9),
    ({"fill_value": -9}, "without a _FillValue", None),
    ({"fill_value": 0, "attributes": {"_FillValue": -9}}, "not read as _FillValue", None),
]


@pytest.mark.parametrize(("settings", "refused", "value"), MISSING)
@pytest.mark.parametrize("form", ["json", "parquet"])
def test_missing_chunks_are_what_they_were_or_refused(
    form, settings, refused, value, session, tmp_path
):
    array = zarr.open_group(session.store, mode="a").create_array(
        "m", shape=(4,), chunks=(2,), dtype="i4", dimension_names=["x"], **settings
    )
    array[:2] = [1, 2]
    if refused:
        with pytest.raises(UnsupportedError, match=refused):
            to_kerchunk(session, "m", tmp_path / "m", format=form)
        return
    to_kerchunk(session, "m", tmp_path / "m", format=form)
    found = zarr.open_group(reference_store(tmp_path / "m"), mode="r")["m"]
    assert found[...].tolist() == [1, 2, value, value]


def test_what_version_2_of_zarr_cannot_say_is_refused(session, tmp_path):
    root = zarr.open_group(session.store, mode="a")
    root.create_array("s", shape=(8,), shards=(4,), chunks=(2,), dtype="i4")
    with pytest.raises(UnsupportedError, match="sharding") as caught:
        to_kerchunk(session, "/", tmp_path / "s.json")
    assert caught.value.facts["path"] == "/s"
    assert not (tmp_path / "s.json").exists()


def test_a_directory_that_exists_is_not_touched(session, tmp_path):
    with pytest.raises(AlreadyExistsError):
        to_kerchunk(session, "/", tmp_path, format="parquet")
    with pytest.raises(InvalidInputError, match="unknown format"):
        to_kerchunk(session, "/", tmp_path / "x", format="yaml")


def test_urls_are_absolute_and_as_fsspec_takes_them(session, folder, tmp_path):
    to_kerchunk(session, "/", tmp_path / "r.json")
    refs = json.loads((tmp_path / "r.json").read_text())["refs"]
    assert refs["a/0.0"][0] == f"file://{folder}/0.nc"
