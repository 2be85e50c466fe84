"""A session's group as a virtual dataset: VirtualiZarr writes it on, and the values are the same."""

import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr
from icechunk.credentials import LocalFileSystemAccess
from virtualizarr.manifests import ManifestArray

import icevirt
from icevirt.access.virtualizarr import to_virtualizarr
from icevirt.connect.urls import file_url
from icevirt.errors import InvalidInputError, NodeNotFoundError, UnsupportedError


@pytest.fixture
def archive(tmp_path):
    """A file with packed, plain, missing and scalar variables, in a directory of its own."""
    (tmp_path / "archive").mkdir()
    values = np.linspace(0, 50, 24).reshape(4, 6)
    values[1, 1] = np.nan
    ds = xr.Dataset(
        {"a": (("t", "x"), values, {"units": "K"}), "b": (("t", "x"), values.astype("f4"))},
        coords={"t": ("t", np.arange(4), {"units": "days since 2000-01-01"}), "z": ((), 3.5)},
        attrs={"title": "archive", "level": np.float32(0.1)},
    )
    packing = {"dtype": "i2", "scale_factor": np.float32(0.1), "_FillValue": np.int16(-1)}
    chunks = {"chunksizes": (2, 6), "zlib": True}
    ds.to_netcdf(
        tmp_path / "archive/0.nc", encoding={"a": packing | chunks, "b": chunks}, engine="netcdf4"
    )
    return tmp_path / "archive"


def repository(folder, archive):
    prefix = file_url(archive) + "/"
    config = icevirt.RepositoryConfig()
    store = icevirt.local_filesystem_store(str(archive))
    config.set_virtual_chunk_container(icevirt.VirtualChunkContainer(prefix, store))
    return icevirt.Repository.create(folder, config, [prefix])


@pytest.fixture
def session(tmp_path, archive):
    session = repository(tmp_path / "repo", archive).writable_session("main")
    icevirt.scan_file(archive / "0.nc").write_to(session)
    return session


def shown(store, **options):
    return xr.open_dataset(store, engine="zarr", consolidated=False, **options).load()


def test_every_array_is_virtual_and_lazy(session):
    vds = to_virtualizarr(session)
    assert set(vds.variables) == {"a", "b", "t", "z"}
    assert all(isinstance(variable.data, ManifestArray) for variable in vds.variables.values())
    assert vds.attrs == {"title": "archive", "level": float(np.float32(0.1))}
    assert vds["a"].attrs["scale_factor"] == float(np.float32(0.1))
    assert vds.vz.to_kerchunk(format="dict")["refs"]


@pytest.mark.parametrize("group", [None, "deep/er"])
def test_it_comes_back_as_it_went(session, tmp_path, archive, group):
    again = repository(tmp_path / "again", archive).writable_session("main")
    icevirt.from_virtualizarr(to_virtualizarr(session), again, group=group)
    for settings in ({}, {"decode_cf": False}):
        found = shown(again.store, group=group, **settings)
        xr.testing.assert_identical(found, shown(session.store, **settings))


def test_virtualizarr_writes_it_on(session, tmp_path, archive):
    prefix = file_url(archive) + "/"
    config = icechunk.RepositoryConfig.default()
    container = icechunk.VirtualChunkContainer(
        prefix, icechunk.local_filesystem_store(str(archive))
    )
    config.set_virtual_chunk_container(container)
    repo = icechunk.Repository.create(
        icechunk.local_filesystem_storage(str(tmp_path / "theirs")),
        config,
        authorize_virtual_chunk_access={prefix: LocalFileSystemAccess},
    )
    theirs = repo.writable_session("main")
    to_virtualizarr(session).vz.to_icechunk(theirs.store)
    raw = {"decode_cf": False}
    found, wanted = shown(theirs.store, **raw), shown(session.store, **raw)
    for name in wanted.variables:
        np.testing.assert_array_equal(found[name].values, wanted[name].values)


def test_a_group_below_and_chunks_that_were_never_written(session):
    root = zarr.open_group(session.store, mode="a")
    array = root.create_array(
        "g/v", shape=(4,), chunks=(2,), dtype="f8", dimension_names=["x"], fill_value=9
    )
    array[:2] = [1, 2]
    vds = to_virtualizarr(session, "g")
    assert list(vds.variables) == ["v"]
    assert vds["v"].data.manifest.dict().keys() == {"0"}
    assert vds["v"].data.metadata.fill_value == 9


def test_native_chunks_go_along_only_where_they_are_few(session):
    root = zarr.open_group(session.store, mode="a")
    values = np.random.default_rng(0).random(1000)
    root.create_array("n", data=values, chunks=(500,), dimension_names=["n"], compressors=None)
    assert session.chunk_type("/n", (0,)) == icevirt.ChunkType.native
    with pytest.raises(UnsupportedError, match="lie in the repository") as caught:
        to_virtualizarr(session, inline_native=7999)
    assert caught.value.facts["nbytes"] == 8000
    vds = to_virtualizarr(session, inline_native=8000)
    assert set(vds["n"].data.manifest._paths.tolist()) == {"__inlined__"}
    assert vds["n"].data.manifest._inlined[(0,)] == values[:500].tobytes()


def test_what_virtualizarr_cannot_hold_is_refused(session):
    zarr.open_group(session.store, mode="a").create_array("u", shape=(4,), dtype="f8")
    with pytest.raises(UnsupportedError, match="named dimensions"):
        to_virtualizarr(session)
    with pytest.raises(NodeNotFoundError):
        to_virtualizarr(session, "nowhere")


def test_without_virtualizarr_the_error_says_what_to_install(session, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "virtualizarr.manifests", None)
    with pytest.raises(InvalidInputError, match="pip install virtualizarr"):
        to_virtualizarr(session)
