"""References of real programs go into a repository and come out of it, and read as the files."""

import json
from functools import partial

import numpy as np
import pytest
import xarray as xr
from fsspec.implementations.reference import LazyReferenceMapper
from kerchunk.combine import MultiZarrToZarr
from kerchunk.hdf import SingleHdf5ToZarr
from kerchunk.utils import refs_as_store
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from typer.testing import CliRunner
from virtualizarr import open_virtual_mfdataset
from virtualizarr.parsers import HDFParser, NetCDF3Parser

import icevirt
from icevirt.access.kerchunk import target
from icevirt.cli.main import app
from icevirt.errors import AlreadyExistsError, InvalidInputError, UnsupportedError
from icevirt.virtualizarr import FileParser

TOGETHER = {"combine": "nested", "concat_dim": "t", "coords": "minimal", "compat": "override"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three files in two formats, and the dataset that they are together."""
    folder = tmp_path_factory.mktemp("archive")
    for number in range(3):
        values = np.linspace(0, 50, 24).reshape(4, 6) + number
        values[1, 1] = np.nan
        time = np.arange(number * 4, number * 4 + 4)
        ds = xr.Dataset(
            {
                "a": (("t", "x"), values, {"units": "K"}),
                "b": (("t", "x"), values.astype("f4")),
                "mask": ("x", np.arange(6, dtype="i4")),
                "name": ("x", np.array(list("abcdef"), "S1")),
            },
            coords={"t": ("t", time, {"units": "days since 2000-01-01"}), "z": ("x", np.ones(6))},
            attrs={"title": "archive"},
        )
        packing = {"dtype": "i2", "scale_factor": 0.125, "_FillValue": np.int16(-1)}
        chunks = {"chunksizes": (2, 6), "zlib": True, "shuffle": True}
        ds.to_netcdf(folder / f"{number}.nc", encoding={"a": packing | chunks, "b": chunks})
        ds.to_netcdf(folder / f"{number}.nc3", format="NETCDF3_64BIT", encoding={"a": packing})
    return folder


@pytest.fixture(scope="module")
def expected(folder):
    files = sorted(folder.glob("?.nc"))
    return xr.open_mfdataset(files, data_vars="minimal", engine="netcdf4", **TOGETHER).load()


@pytest.fixture(autouse=True)
def arrow(monkeypatch):
    """fastparquet, fsspec's default, is not installed."""
    monkeypatch.setattr(
        LazyReferenceMapper.__init__, "__defaults__", (None, None, 128, 10, "pyarrow")
    )


def by_kerchunk(folder, out):
    each = [
        SingleHdf5ToZarr(str(path), inline_threshold=100).translate()
        for path in sorted(folder.glob("?.nc"))
    ]
    combined = MultiZarrToZarr(each, concat_dims=["t"], identical_dims=["x", "z", "mask", "name"])
    out.write_text(json.dumps(combined.translate()))


def by_virtualizarr(folder, out, parser, pattern):
    registry = ObjectStoreRegistry({"file://": LocalStore()})
    files = [str(path) for path in sorted(folder.glob(pattern))]
    vds = open_virtual_mfdataset(
        files, registry, parser, data_vars="minimal", decode_times=False, **TOGETHER
    )
    vds.vz.to_kerchunk(str(out), format="json")


PROGRAMS = {
    "kerchunk": by_kerchunk,
    "VirtualiZarr over NetCDF-4": partial(by_virtualizarr, parser=HDFParser(), pattern="?.nc"),
    "VirtualiZarr over NetCDF-3": partial(by_virtualizarr, parser=NetCDF3Parser(), pattern="?.nc3"),
    "icevirt's parser": partial(by_virtualizarr, parser=FileParser(), pattern="?.nc"),
}


def build(folder, program, tmp_path):
    PROGRAMS[program](folder, tmp_path / "combined.json")
    options = {"allow_references_to": str(folder)}
    repo = tmp_path / "repo"
    icevirt.build(tmp_path / "combined.json", repo, scan_options=options, executor="in-process")
    return repo


def assert_equal(found, expected):
    for name in expected.variables:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    assert found.attrs["title"] == "archive"
    assert found["a"].attrs["units"] == "K"


@pytest.mark.ci
@pytest.mark.parametrize("program", PROGRAMS)
def test_references_of_programs_go_round(program, folder, expected, tmp_path):
    repo = build(folder, program, tmp_path)
    given = xr.open_dataset(str(tmp_path / "combined.json"), engine="kerchunk").load()
    if "NetCDF-3" not in program:  # there VirtualiZarr writes that 0 is missing, in all variables
        assert_equal(given, expected)
    expected = given
    for name in ("out.json", "out.parquet"):
        report = icevirt.export(repo, tmp_path / name)
        assert report.arrays == len(expected.variables)
        assert report.format == name.partition(".")[2]
        found = xr.open_dataset(str(tmp_path / name), engine="kerchunk")
        assert_equal(found.load(), expected)
        # and in again
        again = tmp_path / f"again {name}"
        options = {"allow_references_to": str(folder)}
        built = icevirt.build(tmp_path / name, again, scan_options=options, executor="in-process")
        session = icevirt.Repository.open(
            again, authorize_virtual_chunk_access=built.containers
        ).readonly_session("main")
        store = session.store
        assert_equal(xr.open_dataset(store, engine="zarr", consolidated=False).load(), expected)
    icevirt.export(repo, tmp_path / "v3.json", zarr_format=3)
    three = refs_as_store(str(tmp_path / "v3.json"))
    three = xr.open_dataset(three, engine="zarr", consolidated=False, zarr_format=3)
    assert_equal(three.load(), expected)


@pytest.fixture
def repo(folder, tmp_path):
    report = icevirt.build(
        sorted(folder.glob("?.nc")), tmp_path / "repo", concat_dim="t", executor="in-process"
    )
    return icevirt.Repository.open(
        tmp_path / "repo", authorize_virtual_chunk_access=report.containers
    )


def test_a_version_and_arrays_are_chosen(repo, tmp_path, expected):
    repo.create_tag("first", snapshot_id=repo.lookup_branch("main"))
    session = repo.writable_session("main")
    session.delete("/b")
    session.commit("without b")
    report = icevirt.export(repo, tmp_path / "tag.json", tag="first", drop_variables=["mask"])
    assert report.snapshot_id == repo.lookup_tag("first")
    refs = json.loads((tmp_path / "tag.json").read_text())["refs"]
    names = {key.partition("/")[0] for key in refs if "/" in key}
    assert names == {"a", "b", "name", "t", "z"}
    with pytest.raises(InvalidInputError, match="no such array"):
        icevirt.export(repo, tmp_path / "main.json", variables=["b"])
    out = tmp_path / "cli.parq"
    words = f"export {tmp_path}/repo --to kerchunk {out} --tag first --variable b --variable t"
    ran = CliRunner().invoke(app, words.split())
    assert ran.exit_code == 0, ran.output
    assert "2 arrays, 6 references into 3 files" in ran.output
    found = xr.open_dataset(str(out), engine="kerchunk")
    np.testing.assert_array_equal(found["b"], expected["b"])


def test_what_cannot_be_said_is_refused_and_leaves_nothing(repo, tmp_path):
    session = repo.writable_session("main")
    session.store  # noqa: B018 - the store imports zarr
    import zarr

    root = zarr.open_group(session.store, mode="a")
    root.create_array("sharded", data=np.arange(8), shards=(4,), chunks=(2,))
    root.create_array("large", data=np.random.default_rng(0).random(1 << 18), chunks=(1 << 17,))
    session.commit("native")
    for name in ("out.json", "out.parq"):
        for variable, why in (("sharded", "zarr_format=3"), ("large", "inline_native")):
            with pytest.raises(UnsupportedError, match=why):
                icevirt.export(repo, tmp_path / name, variables=["a", variable])
    icevirt.export(repo, tmp_path / "three.json", zarr_format=3, variables=["sharded"])
    found = zarr.open_group(refs_as_store(str(tmp_path / "three.json")), mode="r")["sharded"]
    assert found[...].tolist() == list(range(8))
    with pytest.raises(InvalidInputError, match="zarr v2 only"):
        icevirt.export(repo, tmp_path / "out.parq", zarr_format=3)
    with pytest.raises(InvalidInputError, match=r"\.json or \.parquet"):
        icevirt.export(repo, tmp_path / "out.refs")
    with pytest.raises(InvalidInputError, match='to="kerchunk"'):
        icevirt.export(repo, tmp_path / "out.json", to="zarr")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["repo", "three.json"]
    icevirt.export(repo, tmp_path / "out.parq", variables=["t"])
    with pytest.raises(AlreadyExistsError):
        icevirt.export(repo, tmp_path / "out.parq")


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("s3://bucket/month%201/100%25.nc", "s3://bucket/month 1/100%.nc"),
        ("https://host/a%20b.nc", "https://host/a%20b.nc"),
        ("file:///a%20b.nc", "file:///a b.nc"),
        ("az://container/a%C3%A9.nc", "az://container/aé.nc"),
    ],
)
def test_urls_are_spelled_as_fsspec_takes_them(url, wanted):
    assert target(url) == wanted
