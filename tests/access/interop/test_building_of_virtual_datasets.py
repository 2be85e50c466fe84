"""Virtual datasets become commits of icevirt's, and what icevirt knows becomes virtual datasets."""

import os

import numpy as np
import pytest
import xarray as xr
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from virtualizarr import open_virtual_datatree, open_virtual_mfdataset
from virtualizarr.manifests import ChunkManifest, ManifestArray
from virtualizarr.parsers import HDFParser
from zarr.core.metadata.v3 import ArrayV3Metadata

import icevirt
from icevirt.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidInputError,
    NodeNotFoundError,
    SourcesChangedError,
    StaleReferenceError,
)
from icevirt.virtualizarr import Hdf5Parser, build, open_virtual_dataset

TOGETHER = {"combine": "nested", "concat_dim": "t", "coords": "minimal", "compat": "override"}
MANY = 600_000


@pytest.fixture
def files(tmp_path):
    """Three files, with packed and plain variables, one of them with a group."""
    (tmp_path / "archive").mkdir()
    found = []
    for number in range(3):
        values = np.linspace(0, 50, 24).reshape(4, 6) + number
        values[1, 1] = np.nan
        time = np.arange(number * 4, number * 4 + 4)
        ds = xr.Dataset(
            {"a": (("t", "x"), values, {"units": "K"}), "b": (("t", "x"), values.astype("f4"))},
            coords={"t": ("t", time, {"units": "days since 2000-01-01"}), "z": ("x", np.ones(6))},
            attrs={"title": "archive"},
        )
        packing = {"dtype": "i2", "scale_factor": np.float32(0.1), "_FillValue": np.int16(-1)}
        chunks = {"chunksizes": (2, 6), "zlib": True}
        path = tmp_path / f"archive/{number}.nc"
        ds.to_netcdf(path, encoding={"a": packing | chunks, "b": chunks}, engine="netcdf4")
        found.append(str(path))
    return found


@pytest.fixture
def nested(files):
    """The last file, with a group that holds the same."""
    ds = xr.load_dataset(files[2], engine="netcdf4")
    ds.to_netcdf(files[2], group="deep/er", mode="a", engine="netcdf4")
    return files[2]


@pytest.fixture
def registry():
    return ObjectStoreRegistry({"file://": LocalStore()})


def opened(files, registry, parser, **options):
    return open_virtual_mfdataset(files, registry, parser, **TOGETHER, **options)


def expected(files):
    return xr.open_mfdataset(files, engine="netcdf4", data_vars="all", **TOGETHER).load()


@pytest.mark.parametrize("parser", [HDFParser(), Hdf5Parser()], ids=["theirs", "ours"])
def test_a_combined_dataset_is_committed_with_checksums(files, registry, parser, tmp_path):
    vds = opened(files, registry, parser)
    report = build(vds, tmp_path / "repo", registry=registry, group="deep", message="first")
    assert (report.files, report.containers) == (3, (f"file://{tmp_path}/archive/",))
    wanted = expected(files)
    same = xr.testing.assert_equal if isinstance(parser, Hdf5Parser) else xr.testing.assert_allclose
    same(report.open().load(), wanted)
    table = icevirt.Repository.open(tmp_path / "repo").readonly_session("main")
    found = table.store.refs_table("deep/a").to_pydict()
    ceiling = [-(-os.stat(path).st_mtime_ns // 10**9) for path in files]
    assert {int(each.timestamp()) for each in found["last_modified"]} == set(ceiling)
    os.utime(files[1], (2**31, 2**31))
    with pytest.raises(StaleReferenceError):
        report.open()["a"].load()
    with pytest.raises(AlreadyExistsError, match='mode="w"'):
        build(vds, tmp_path / "repo", registry=registry, group="deep")
    again = build(vds[["b"]], tmp_path / "repo", registry=registry, group="deep", mode="w")
    np.testing.assert_array_equal(again.open()["b"], wanted["b"])
    assert "a" not in again.open()


def test_a_report_opens_a_repository_whose_storage_is_an_object(files, registry):
    storage = icevirt.in_memory_storage()
    report = build(opened(files, registry, Hdf5Parser()), storage, registry=registry)
    xr.testing.assert_equal(report.open().load(), expected(files))
    assert "storage" not in repr(report)


def test_groups_become_groups(nested, registry, tmp_path):
    tree = open_virtual_datatree(nested, registry, Hdf5Parser())
    report = build(tree, tmp_path / "repo", registry=registry, write_inherited_coords=True)
    options = {"engine": "icevirt", "authorize_virtual_chunk_access": report.containers}
    for group in ("/", "deep/er"):
        found = xr.open_dataset(tmp_path / "repo", group=group, **options).load()
        wanted = xr.open_dataset(nested, group=group, engine="netcdf4").load()
        xr.testing.assert_equal(found, wanted)
    scanned = icevirt.scan_file(nested)
    assert set(open_virtual_dataset(scanned, group="deep/er").variables) == {"a", "b", "t", "z"}
    with pytest.raises(NodeNotFoundError):
        open_virtual_dataset(scanned, group="nowhere")


def test_files_that_changed_since_they_were_parsed_are_refused(files, registry, tmp_path):
    vds = opened(files, registry, HDFParser())
    with open(files[0], "r+b") as file:
        file.truncate(100)
    with pytest.raises(SourcesChangedError, match="shorter than its references"):
        build(vds, tmp_path / "repo", registry=registry)
    with pytest.raises(InvalidInputError, match=r"registry\.register"):
        build(vds, tmp_path / "repo", registry=ObjectStoreRegistry())
    os.unlink(files[0])
    with pytest.raises(icevirt.NotFoundError):
        build(vds, tmp_path / "repo", registry=registry)
    assert not (tmp_path / "repo").exists()


@pytest.mark.ci
def test_many_references_are_cut_into_manifests_and_share_locations(registry, tmp_path):
    path = tmp_path / "large.bin"
    path.write_bytes(b"\0" * 16)
    located = np.full(MANY, f"file://{path}", np.dtypes.StringDType())
    offsets = np.arange(MANY, dtype=np.uint64) % 8
    manifest = ChunkManifest.from_arrays(
        paths=located, offsets=offsets, lengths=np.full(MANY, 8, np.uint64), validate_paths=False
    )
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [MANY],
        "data_type": "float64",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "fill_value": 0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": {},
        "dimension_names": ["x"],
    }
    array = ManifestArray(ArrayV3Metadata.from_dict(document), manifest)
    report = build(xr.Dataset({"v": (("x",), array)}), tmp_path / "repo", registry=registry)
    repo = icevirt.Repository.open(tmp_path / "repo")
    files = repo.list_manifest_files(report.snapshot_id)
    assert sum(each.num_chunk_refs for each in files) == report.references == MANY
    assert len(files) == 2
    assert sum(each.size_bytes for each in files) < 10 * MANY  # of locations of a hundred bytes
    other = repo.writable_session("main")
    build(xr.Dataset({"v": (("x",), array)}), tmp_path / "repo", registry=registry, group="beside")
    other.delete("/v")
    with pytest.raises(ConflictError):
        other.commit("too late")


def test_what_icevirt_knows_becomes_a_virtual_dataset(files, registry, tmp_path):
    wanted = expected(files)
    plan = icevirt.plan(files, concat_dim="t", executor="in-process")
    plan.write(tmp_path / "built")
    scanned = icevirt.scan_file(files[2])
    for source, like in (
        (plan, wanted),
        (tmp_path / "built", wanted),
        (icevirt.Repository.open(tmp_path / "built").readonly_session("main"), wanted),
        (scanned, xr.open_dataset(files[2], engine="netcdf4").load()),
    ):
        vds = open_virtual_dataset(source)
        assert all(isinstance(each.data, ManifestArray) for each in vds.variables.values())
        repo = tmp_path / f"{type(source).__name__} again"
        report = build(vds, repo, registry=registry)
        xr.testing.assert_equal(report.open().load(), like)
