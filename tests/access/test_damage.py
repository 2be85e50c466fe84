"""What is there and cannot be read is an error, for every public way to read; never a fill value."""

import asyncio
import os
import pickle
import shutil
import zlib

import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr

from access.reads import READS, open_dataset
from access.virtual import VALUES, document, make
from builds.kept import Kept
from icevirt.errors import IcevirtError, StorageError
from icevirt.model.chunks import ChunkTable, Locations
from icevirt.repo.repository import Repository


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return Kept(tmp_path_factory.mktemp("kept"), make)


@pytest.fixture
def virtual(kept):
    return kept.lay_down()


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
def test_damage_is_given_by_every_read(virtual, damage):
    options = {"authorize_virtual_chunk_access": [virtual.prefix]}
    for read in READS.values():
        read(virtual, options)
    damage(virtual)
    for name, read in READS.items():
        with pytest.raises(IcevirtError) as caught:
            read(virtual, options)
        assert not isinstance(caught.value, KeyError | FileNotFoundError), name


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_what_cannot_be_read_for_want_of_permission_is_reported(virtual, read, monkeypatch):
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


# -- bytes that no codec takes -------------------------------------------------------------------


def compressed(at, codec):
    """Add a file of compressed chunks, and ``/packed`` that refers to them; return the file."""
    file = at.archive / "packed.bin"
    packer = numcodecs.get_codec({"id": codec})
    chunks = [bytes(packer.encode(VALUES[row : row + 2].tobytes())) for row in range(0, 8, 2)]
    file.write_bytes(b"".join(chunks))
    length = np.array([len(chunk) for chunk in chunks])
    session = at.open().writable_session("main")
    session.add_array(
        "/packed",
        document(
            codecs=[
                {"name": "bytes", "configuration": {"endian": "little"}},
                {"name": f"numcodecs.{codec}", "configuration": {}},
            ]
        ),
        ChunkTable.virtual(
            index=np.stack([np.arange(4), np.zeros(4, int)], axis=1),
            offset=np.cumsum(length) - length,
            length=length,
            locations=Locations.one(
                at.prefix + file.name, last_modified=-(-file.stat().st_mtime_ns // 10**9)
            ),
        ),
    )
    session.commit("pack")
    return file


def overwrite(file, body):
    """Replace the first bytes as a failing disk does: size and time stay."""
    before = file.stat()
    file.write_bytes(body + file.read_bytes()[len(body) :])
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


BROKEN = {
    "zlib": ("zlib", b"\xaa" * 20),
    "zlib, of another size": ("zlib", zlib.compress(b"x")),
    "gzip": ("gzip", b"\xaa" * 20),
    "bz2": ("bz2", b"\xaa" * 20),
    "lzma": ("lzma", b"\xaa" * 20),
    "zstd": ("zstd", b"\xaa" * 20),
    "blosc": ("blosc", b"\xaa" * 20),
}
VALUES_READ = {
    "load": lambda ds: ds.packed.load(),
    "dask": lambda ds: ds.chunk().packed.compute(),
    "a slice": lambda ds: ds.packed.isel(y=slice(1, 3)).load(),
    "an outer indexer": lambda ds: ds.packed.isel(y=[0, 3], x=[1, 2]).load(),
    "points": lambda ds: ds.packed.isel(y=xr.DataArray([0, 3]), x=xr.DataArray([1, 2])).load(),
    "asynchronously": lambda ds: asyncio.run(ds.packed.load_async()),
}


@pytest.mark.filterwarnings("ignore:.*codecs are not in the Zarr:UserWarning")
@pytest.mark.parametrize(("codec", "body"), BROKEN.values(), ids=BROKEN.keys())
def test_bytes_that_no_codec_takes_are_reported_by_chunk_and_range(virtual, codec, body):
    file = compressed(virtual, codec)
    options = {"authorize_virtual_chunk_access": [virtual.prefix]}
    for read in VALUES_READ.values():
        read(open_dataset(virtual, options))
    overwrite(file, body)
    for name, read in VALUES_READ.items():
        with pytest.raises(StorageError, match=r"cannot be decoded.*icevirt verify") as caught:
            read(open_dataset(virtual, options))
        assert (caught.value.facts["chunk"], caught.value.facts["offset"]) == ([0, 0], 0), name
        assert caught.value.facts["location"] == virtual.prefix + file.name
        assert caught.value.facts["repo"] == virtual.root.as_uri()
        assert caught.value.facts["variable"] == "/packed", name
        assert type(caught.value.__cause__).__name__ in caught.value.facts["reason"]
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_wrong_index_is_the_callers_and_stays_an_index_error(virtual):
    ds = open_dataset(virtual, {"authorize_virtual_chunk_access": [virtual.prefix]})
    for index in (99, [0, 99], xr.DataArray([0, 99])):
        with pytest.raises(IndexError):
            ds.v.isel(y=index).load()
