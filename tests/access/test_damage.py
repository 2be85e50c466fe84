"""What is there and cannot be read is an error, for every public way to read; never a fill value."""

import os
import shutil

import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync as run

from access.virtual import make
from icevirt.errors import IcevirtError
from icevirt.repo.repository import Repository


@pytest.fixture
def virtual(tmp_path):
    return make(tmp_path)


READS = {
    "store.get": lambda at, _: get_all(at),
    "store.get, asynchronously": lambda at, _: get_all(at, sync=False),
    "store.get_partial_values": lambda at, _: get_partial(at),
    "zarr array": lambda at, _: [zarr.open_array(at.store(), path=p, mode="r")[:] for p in PATHS],
    "zarr group": lambda at, _: [a[:] for _, a in zarr.open_group(at.store(), mode="r").arrays()],
    "zarr with fused codecs": lambda at, _: fused(at),
    "xarray's zarr engine": lambda at, _: xr.open_zarr(at.store(), consolidated=False).load(),
    "open_dataset": lambda at, options: open_dataset(at, options).load(),
    "open_dataset with dask": lambda at, options: open_dataset(at, options, chunks={}).compute(),
    "open_datatree": lambda at, options: xr.open_datatree(
        at.root, engine="icevirt", **options
    ).load(),
    "open_groups": lambda at, options: [
        ds.load() for ds in xr.open_groups(at.root, engine="icevirt", **options).values()
    ],
    "a Dataset indexed": lambda at, options: open_dataset(at, options).isel(y=[0, 3], n=1).load(),
}
PATHS = ["v", "inline", "native"]


def get_all(at, *, sync=True):
    store = at.store()
    for key in ("v/c/0/0", "v/c/1/0", "inline/c/1/0", "native/c/0/0"):
        got = store.get_sync(key) if sync else run(store.get(key, default_buffer_prototype()))
        assert got is not None, key


def get_partial(at):
    keys = [(key, None) for key in ("v/c/0/0", "inline/c/1/0", "native/c/0/0")]
    assert None not in run(at.store().get_partial_values(default_buffer_prototype(), keys))


def fused(at):
    with zarr.config.set({"codec_pipeline.path": "zarr.core.codec_pipeline.FusedCodecPipeline"}):
        return [zarr.open_array(at.store(), path=path, mode="r")[:] for path in PATHS]


def open_dataset(at, options, **more):
    return xr.open_dataset(at.root, engine="icevirt", **options, **more)


def chunk_objects(at):
    return [path.unlink() for path in (at.root / "chunks").iterdir()]


def manifests(at):
    return [path.unlink() for path in (at.root / "manifests").iterdir()]


def truncated(folder):
    def damage(at):
        for path in (at.root / folder).iterdir():
            path.write_bytes(path.read_bytes()[:-20])

    return damage


DAMAGES = {
    "chunk objects are gone": chunk_objects,
    "chunk objects are cut short": truncated("chunks"),
    "the folder of chunk objects is gone": lambda at: shutil.rmtree(at.root / "chunks"),
    "manifests are gone": manifests,
    "manifests are cut short": truncated("manifests"),
    "manifests are empty": lambda at: [
        path.write_bytes(b"") for path in (at.root / "manifests").iterdir()
    ],
    "snapshots are gone": lambda at: shutil.rmtree(at.root / "snapshots"),
    "snapshots are cut short": truncated("snapshots"),
    "repo is gone": lambda at: (at.root / "repo").unlink(),
    "repo is empty": lambda at: (at.root / "repo").write_bytes(b""),
    "the repository is gone": lambda at: shutil.rmtree(at.root),
    "the source is gone": lambda at: at.source.unlink(),
    "the archive is gone": lambda at: shutil.rmtree(at.archive),
    "the source is a directory": lambda at: (at.source.unlink(), at.source.mkdir()),
    "the source is empty": lambda at: at.source.write_bytes(b""),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_damage_is_told_by_every_read(virtual, damage, read):
    options = {"authorize_virtual_chunk_access": [virtual.prefix]}
    read(virtual, options)
    damage(virtual)
    with pytest.raises(IcevirtError) as told:
        read(virtual, options)
    assert not isinstance(told.value, KeyError | FileNotFoundError)


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_what_cannot_be_read_for_want_of_permission_is_told(virtual, read, monkeypatch):
    """Tests may run as root, who may read everything; so the system call is made to refuse."""

    def refuse(*arguments, **options):
        raise PermissionError(13, "Permission denied")

    options = {"authorize_virtual_chunk_access": [virtual.prefix]}
    monkeypatch.setattr(os, "pread", refuse)
    with pytest.raises(IcevirtError):
        read(virtual, options)


def test_an_open_session_is_not_disturbed_by_what_it_has_read(virtual):
    """Manifests are immutable: once decoded they serve the session."""
    store = virtual.store()
    before = zarr.open_array(store, path="v", mode="r")[:]
    manifests(virtual)
    np.testing.assert_array_equal(zarr.open_array(store, path="v", mode="r")[:], before)


def test_a_repository_that_is_not_there_is_named(tmp_path):
    with pytest.raises(IcevirtError, match="nowhere"):
        xr.open_dataset(tmp_path / "nowhere", engine="icevirt")
    assert not Repository.exists(tmp_path / "nowhere")
