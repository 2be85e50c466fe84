"""What VirtualiZarr found in real files, written by icevirt and read as netCDF4 reads the files."""

import numpy as np
import pytest
import xarray as xr
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from virtualizarr import open_virtual_dataset
from virtualizarr.manifests import ChunkManifest, ManifestArray
from virtualizarr.parsers import HDFParser

import icevirt
from icevirt.connect.urls import file_url
from icevirt.errors import AlreadyExistsError, InvalidInputError, ReadOnlyError


@pytest.fixture
def archive(tmp_path):
    """Two files in a directory, each with packed and plain variables."""
    (tmp_path / "archive").mkdir()
    for number in range(2):
        time = np.arange(number * 4, number * 4 + 4)
        values = np.linspace(0, 50, 24).reshape(4, 6) + number
        ds = xr.Dataset(
            {"a": (("t", "x"), values, {"units": "K"}), "b": (("t", "x"), values.astype("f4"))},
            coords={"t": ("t", time, {"units": "days since 2000-01-01"}), "z": ("x", np.arange(6))},
            attrs={"title": "archive"},
        )
        packing = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": np.int16(-1)}
        chunks = {"chunksizes": (2, 6), "zlib": True}
        encoding = {"a": packing | chunks, "b": chunks}
        ds.to_netcdf(tmp_path / "archive" / f"{number}.nc", encoding=encoding, engine="netcdf4")
    return tmp_path / "archive"


@pytest.fixture
def repo(tmp_path, archive):
    prefix = file_url(archive) + "/"
    config = icevirt.RepositoryConfig()
    store = icevirt.local_filesystem_store(str(archive))
    config.set_virtual_chunk_container(icevirt.VirtualChunkContainer(prefix, store))
    return icevirt.Repository.create(tmp_path / "repo", config, [prefix])


def virtual(archive, number, **options):
    registry = ObjectStoreRegistry({"file://": LocalStore()})
    url = file_url(archive / f"{number}.nc")
    return open_virtual_dataset(url, registry=registry, parser=HDFParser(), **options)


def shown(repo, **options):
    granted = list(repo.authorized_virtual_container_prefixes)
    return xr.open_dataset(
        repo.storage, engine="icevirt", authorize_virtual_chunk_access=granted, **options
    ).load()


@pytest.mark.parametrize("group", [None, "deep/er"])
@pytest.mark.parametrize("loaded", [[], ["t"]], ids=["all virtual", "one loaded"])
def test_values_are_those_of_the_files(repo, archive, group, loaded):
    parts = [virtual(archive, number, loadable_variables=loaded) for number in range(2)]
    vds = xr.concat(parts, "t", coords="minimal", compat="override", data_vars="minimal")
    session = repo.writable_session("main")
    icevirt.from_virtualizarr(vds, session, group=group)
    assert len(session.store.refs_table(f"{group or ''}/a")) == 4
    session.commit("virtual")
    files = [xr.load_dataset(archive / f"{n}.nc", engine="netcdf4") for n in range(2)]
    expected = xr.concat(files, "t", coords="minimal", compat="override", data_vars="minimal")
    found = shown(repo, group=group)
    xr.testing.assert_equal(found, expected)
    assert found["a"].attrs == expected["a"].attrs
    assert found.attrs == expected.attrs


def test_a_checksum_is_kept(repo, archive):
    session = repo.writable_session("main")
    icevirt.from_virtualizarr(virtual(archive, 0, loadable_variables=[]), session, checksum="1-2-3")
    assert session.store.source_of("a", (0, 0)).etag == "1-2-3"


def test_missing_and_inlined_chunks_are_carried_over(repo, archive):
    whole = virtual(archive, 0, loadable_variables=[])["b"].data
    body = np.full((2, 6), 7, "f4").tobytes()
    entries = {"1.0": {"path": "", "offset": 0, "length": 4, "data": body}}
    metadata = whole.metadata.from_dict(
        whole.metadata.to_dict()
        | {"codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]}
    )
    manifest = ChunkManifest(entries, shape=(2, 1))
    vds = xr.Dataset({"b": (("t", "x"), ManifestArray(metadata=metadata, chunkmanifest=manifest))})
    session = repo.writable_session("main")
    icevirt.from_virtualizarr(vds, session)
    session.commit("sparse")
    found = shown(repo)["b"].values
    np.testing.assert_array_equal(found[2:], 7)
    assert session.chunk_type("b", (0, 0)).name == "uninitialized"


def test_what_is_there_is_not_overwritten(repo, archive):
    session = repo.writable_session("main")
    icevirt.from_virtualizarr(virtual(archive, 0, loadable_variables=[]), session)
    with pytest.raises(AlreadyExistsError):
        icevirt.from_virtualizarr(virtual(archive, 1, loadable_variables=[]), session)


def test_files_that_no_container_covers_are_refused(tmp_path, archive):
    session = icevirt.Repository.create(tmp_path / "other").writable_session("main")
    with pytest.raises(InvalidInputError, match="set_virtual_chunk_container"):
        icevirt.from_virtualizarr(virtual(archive, 0, loadable_variables=[]), session)


def test_a_session_that_takes_no_changes_is_reported(repo, archive):
    with pytest.raises(ReadOnlyError):
        icevirt.from_virtualizarr(xr.Dataset(), repo.readonly_session("main"))
