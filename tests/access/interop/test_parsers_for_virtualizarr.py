"""VirtualiZarr opens files with icevirt's parsers: through its registry's stores, with equal values."""

import pickle

import h5py
import numpy as np
import obstore
import pytest
import xarray as xr
from obspec_utils.readers import BlockStoreReader
from obspec_utils.registry import ObjectStoreRegistry
from obspec_utils.wrappers import RequestTrace, TracingReadableStore
from obstore.store import LocalStore, MemoryStore, S3Store
from virtualizarr import open_virtual_dataset, open_virtual_datatree, open_virtual_mfdataset
from virtualizarr.manifests import ManifestArray

import icevirt
from icevirt.errors import InvalidInputError, ScanError, StorageError
from icevirt.virtualizarr import FileParser, Hdf5Parser, NetCDF3Parser, build

FORMATS = {"NETCDF4": Hdf5Parser, "NETCDF3_64BIT": NetCDF3Parser}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two files for each format, with packed, plain and scalar variables, and one with groups."""
    folder = tmp_path_factory.mktemp("archive")
    for number in range(2):
        time = np.arange(number * 4, number * 4 + 4)
        values = np.linspace(0, 50, 24).reshape(4, 6) + number
        values[1, 1] = np.nan
        ds = xr.Dataset(
            {"a": (("t", "x"), values, {"units": "K"}), "b": (("t", "x"), values.astype("f4"))},
            coords={"t": ("t", time, {"units": "days since 2000-01-01"}), "z": ((), 3.5)},
            attrs={"title": "archive"},
        )
        packing = {"dtype": "i2", "scale_factor": np.float32(0.1), "_FillValue": np.int16(-1)}
        for form in FORMATS:
            chunks = {"chunksizes": (2, 6), "zlib": True} if form == "NETCDF4" else {}
            encoding = {"a": packing | chunks, "b": chunks}
            path = folder / f"{form}.{number}.nc"
            ds.to_netcdf(path, encoding=encoding, format=form, engine="netcdf4")
    ds.to_netcdf(folder / "NETCDF4.1.nc", group="deep/er", mode="a", engine="netcdf4")
    return folder


@pytest.fixture
def registry():
    return ObjectStoreRegistry({"file://": LocalStore()})


def in_memory(folder, url="s3://bucket"):
    """The files in memory, under URLs of a server that nobody could reach."""
    store = MemoryStore()
    for path in folder.iterdir():
        store.put(f"in/{path.name}", path.read_bytes())
    return store, ObjectStoreRegistry({url: store})


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("place", ["local", "memory", "reader"])
def test_values_equal_those_of_xarray(form, place, folder, registry):
    parser, path = FORMATS[form], folder / f"{form}.0.nc"
    url, more = str(path), {}
    if place == "memory":
        _, registry = in_memory(folder)
        url = f"s3://bucket/in/{path.name}"
    if place == "reader":
        more = {"reader_factory": BlockStoreReader}
    expected = xr.load_dataset(path, engine="netcdf4")
    for made in (parser(**more), FileParser(**more), pickle.loads(pickle.dumps(parser(**more)))):
        vds = open_virtual_dataset(url, registry, made, loadable_variables=[])
        assert all(isinstance(v.data, ManifestArray) for v in vds.variables.values())
        everything = list(expected.variables)
        found = open_virtual_dataset(url, registry, made, loadable_variables=everything).load()
        xr.testing.assert_allclose(found, expected, rtol=1e-6)
        assert set(found.coords) == set(expected.coords)


@pytest.mark.parametrize("form", FORMATS)
def test_many_files_become_a_commit_that_decodes_as_xarray_does(form, folder, registry, tmp_path):
    files = [str(folder / f"{form}.{number}.nc") for number in range(2)]
    combined = {"combine": "nested", "concat_dim": "t", "compat": "override", "coords": "minimal"}
    vds = open_virtual_mfdataset(
        files, registry, FORMATS[form](), loadable_variables=["t", "z"], **combined
    )
    prefix = f"file://{folder}/"
    config = icevirt.RepositoryConfig()
    store = icevirt.local_filesystem_store(str(folder))
    config.set_virtual_chunk_container(icevirt.VirtualChunkContainer(prefix, store))
    repo = icevirt.Repository.create(tmp_path / "repo", config, [prefix])
    session = repo.writable_session("main")
    icevirt.from_virtualizarr(vds, session)
    session.commit("virtual")
    found = xr.open_dataset(
        tmp_path / "repo", engine="icevirt", authorize_virtual_chunk_access=[prefix]
    )
    expected = xr.open_mfdataset(files, engine="netcdf4", data_vars="all", **combined)
    assert found["a"].dtype == expected["a"].dtype  # of the float32 scale_factor
    xr.testing.assert_equal(found.load(), expected.load())


def test_groups_and_variables_are_chosen_as_virtualizarr_does(folder, registry):
    url = str(folder / "NETCDF4.1.nc")
    parser = Hdf5Parser(group="deep/er", drop_variables=["b", "not there"])
    vds = open_virtual_dataset(url, registry, parser)
    assert set(vds.variables) == {"a", "t", "z"}
    tree = open_virtual_datatree(url, registry, Hdf5Parser())
    assert set(tree["deep/er"].variables) == {"a", "b", "t", "z"}
    three = open_virtual_dataset(
        str(folder / "NETCDF3_64BIT.0.nc"), registry, NetCDF3Parser(skip_variables=["a"])
    )
    assert set(three.variables) == {"b", "t", "z"}


def test_the_registry_alone_decides_how_a_file_is_reached(folder, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of the environment")
    store, _ = in_memory(folder)
    trace = RequestTrace()
    registry = ObjectStoreRegistry({"s3://bucket": TracingReadableStore(store, trace)})
    Hdf5Parser()("s3://bucket/in/NETCDF4.0.nc", registry)
    assert 0 < len(trace.requests) < 4
    with pytest.raises(InvalidInputError, match=r"registry\.register\('s3://other/in/'"):
        Hdf5Parser()("s3://other/in/NETCDF4.0.nc", registry)


def test_a_virtual_dataset_is_followed_through_the_registry_only(tmp_path):
    (tmp_path / "raw").mkdir()
    values = np.arange(8.0).reshape(2, 4)
    layout = h5py.VirtualLayout((2, 4), "f8")
    for number in range(2):
        with h5py.File(tmp_path / f"raw/{number}.h5", "w") as file:
            file.create_dataset("v", data=values[number : number + 1], chunks=(1, 4))
        layout[number] = h5py.VirtualSource(f"raw/{number}.h5", "v", (1, 4))[0]
    with h5py.File(tmp_path / "all.h5", "w") as file:
        file.create_virtual_dataset("v", layout)
    memory = MemoryStore()
    for name in ("all.h5", "raw/0.h5", "raw/1.h5"):
        memory.put(f"in/{name}", (tmp_path / name).read_bytes())
    wrapped = TracingReadableStore(LocalStore(), RequestTrace())
    for root, held in (
        (f"file://{tmp_path}", LocalStore()),
        (f"file://{tmp_path}", wrapped),
        ("s3://bucket/in", memory),
        ("memory://here/in", memory),
    ):
        registry = ObjectStoreRegistry({root.rpartition("/")[0]: held})
        store = Hdf5Parser()(f"{root}/all.h5", registry)
        paths = store._group.arrays["v"].manifest.dict()
        assert {entry["path"] for entry in paths.values()} == {
            f"{root}/raw/0.h5",
            f"{root}/raw/1.h5",
        }
        found = xr.open_zarr(store, zarr_format=3, consolidated=False)
        np.testing.assert_array_equal(found["v"], values)
    alone = ObjectStoreRegistry({f"file://{tmp_path}/all.h5": LocalStore()})
    with pytest.raises(InvalidInputError, match="the registry has no store for a file"):
        Hdf5Parser()(f"file://{tmp_path}/all.h5", alone)


def test_errors_are_caught_as_virtualizarrs_and_as_icevirts(folder, registry, tmp_path):
    (tmp_path / "no.nc").write_text("nothing")
    for kinds in ((ValueError, ScanError),):
        for kind in kinds:
            with pytest.raises(kind, match="looks like text"):
                FileParser()(f"file://{tmp_path}/no.nc", registry)
            with pytest.raises(kind, match="no such group"):
                Hdf5Parser("nowhere")(f"file://{folder}/NETCDF4.0.nc", registry)
    with pytest.raises(FileNotFoundError, match="no such file"):
        Hdf5Parser()(f"file://{tmp_path}/gone.nc", registry)
    with h5py.File(tmp_path / "refs.h5", "w") as file:
        file.create_dataset("v", data=[1.0])
        file.create_dataset("r", data=[file["v"].ref], dtype=h5py.ref_dtype)
    with pytest.raises(NotImplementedError, match="links_and_references=True"):
        Hdf5Parser()(f"file://{tmp_path}/refs.h5", registry)
    with pytest.raises(NotImplementedError, match="draft"):
        Hdf5Parser(links_and_references=True)
    skipping = Hdf5Parser(scan_options={"variable_policy": "skip"})
    with pytest.warns(UserWarning, match="left out"):
        store = skipping(f"file://{tmp_path}/refs.h5", registry)
    assert list(store._group.arrays) == ["v"]
    with pytest.raises(InvalidInputError, match="given twice"):
        Hdf5Parser("a", scan_options={"source_group": "a"})


def test_a_store_that_refuses_is_an_error_without_its_secrets(http_server):
    endpoint = http_server.url.rstrip("/")
    options = {"endpoint": endpoint, "access_key_id": "who", "secret_access_key": "a secret"}
    store = S3Store("bucket", region="us-east-1", client_options={"allow_http": True}, **options)
    registry = ObjectStoreRegistry({"s3://bucket": store})
    with pytest.raises((StorageError, FileNotFoundError)) as caught:
        Hdf5Parser()("s3://bucket/a.nc", registry)
    assert "a secret" not in f"{caught.value} {caught.value.facts}"


def test_a_bucket_is_read_and_built_with_the_registrys_keys_alone(
    s3_proxy, folder, monkeypatch, tmp_path
):
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    place, paths = s3_proxy.place, sorted(folder.glob("NETCDF4.*.nc"))
    for path in paths:
        obstore.put(s3_proxy.direct.store(), path.name, path.read_bytes())
    registry = ObjectStoreRegistry({place.url: place.store()})
    combined = {"combine": "nested", "concat_dim": "t", "compat": "override", "coords": "minimal"}
    s3_proxy.rules.requests.clear()
    vds = open_virtual_mfdataset(
        [f"{place.url}/{path.name}" for path in paths],
        registry,
        Hdf5Parser(),
        data_vars="minimal",
        **combined,
    )
    assert 0 < len(s3_proxy.rules.requests) < 10
    report = build(vds, tmp_path / "repo", registry=registry)
    assert report.files_unverifiable == 0
    session = icevirt.Repository.open(tmp_path / "repo").readonly_session("main")
    etags = session.store.refs_table("a")["etag"].to_pylist()
    assert len(set(etags)) == 2
    assert None not in etags
    assert "access_key" not in f"{report} {session.config.document}"
