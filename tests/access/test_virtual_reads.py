"""Virtual chunks through the store: what is read, what is refused, what is told."""

import os

import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr

from access.virtual import VALUES, make
from icevirt.access.store.reading import SessionReader
from icevirt.errors import InvalidInputError, StaleReferenceError, StorageError, UnauthorizedError
from icevirt.model.chunks import ChunkTable, Locations


@pytest.fixture
def virtual(tmp_path):
    return make(tmp_path)


def test_values_are_those_of_the_file(virtual):
    np.testing.assert_array_equal(zarr.open_array(virtual.store(), path="v", mode="r")[:], VALUES)


def test_a_chunk_that_was_never_written_is_the_fill_value(tmp_path):
    array = zarr.open_array(make(tmp_path, skip=[1, 3]).store(), path="v", mode="r")
    expected = VALUES.copy()
    expected[2:4], expected[6:8] = 7, 7
    np.testing.assert_array_equal(array[:], expected)


def test_the_official_client_reads_the_same(virtual):
    config = icechunk.RepositoryConfig.default()
    repo = icechunk.Repository.open(
        icechunk.local_filesystem_storage(str(virtual.root)),
        config,
        {virtual.prefix: icechunk.credentials.LocalFileSystemAccess},
    )
    store = repo.readonly_session("main").store
    np.testing.assert_array_equal(zarr.open_array(store, path="v", mode="r")[:], VALUES)


def test_a_named_container_is_found_by_its_name(tmp_path):
    virtual = make(tmp_path, name="archive", location="vcc://archive/source.bin")
    np.testing.assert_array_equal(zarr.open_array(virtual.store(), path="v", mode="r")[:], VALUES)


def test_without_authorisation_metadata_inline_and_native_chunks_can_be_read(virtual):
    group = zarr.open_group(virtual.store(None), mode="r")
    assert group["v"].shape == (8, 5)
    assert group["inline"][2, 0] == VALUES[2, 0]
    assert group["native"][0, 0] == 0


READS = {
    "store.get": lambda store: store.get_sync("v/c/0/0"),
    "zarr": lambda store: zarr.open_array(store, path="v", mode="r")[:],
    "xarray": lambda store: xr.open_zarr(store, consolidated=False)["v"].load(),
    "many at once": lambda store: SessionReader(store.session).read_all([("v/c/0/0", None)] * 2),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
@pytest.mark.parametrize("authorize", [None, ["file:///"], ["s3://bucket/"]], ids=str)
def test_the_refusal_says_what_to_pass_and_passing_it_works(virtual, read, authorize):
    with pytest.raises(UnauthorizedError) as refused:
        read(virtual.store(authorize))
    argument = f'authorize_virtual_chunk_access=["{virtual.prefix}"]'
    assert argument in str(refused.value)
    options = eval(f"dict({argument})")
    ds = xr.open_dataset(virtual.root, engine="icevirt", **options)
    np.testing.assert_array_equal(ds["v"], VALUES)


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_a_rewritten_source_is_stale(virtual, read):
    read(virtual.store())
    virtual.source.write_bytes(b"HEAD" + VALUES[::-1].tobytes())
    after = virtual.source.stat().st_mtime + 5
    os.utime(virtual.source, (after, after))
    with pytest.raises(StaleReferenceError, match=r"source\.bin"):
        read(virtual.store())


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_a_truncated_source_is_reported(virtual, read):
    facts = virtual.source.stat()
    os.truncate(virtual.source, 10)
    os.utime(virtual.source, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    with pytest.raises(StorageError, match="ends too early"):
        read(virtual.store())


def hostile(virtual, location):
    """Commit a reference as somebody would who writes manifests without asking."""
    session = virtual.open().writable_session("main")
    table = ChunkTable.virtual(
        index=np.zeros((1, 2), int),
        offset=np.zeros(1, int),
        length=np.full(1, 40),
        locations=Locations.one(location),
    )
    session._change().put(session.array("/v"), table)
    session.commit("hostile")
    return virtual.store()


ATTEMPTS = {
    "two dots": "{prefix}../secret",
    "encoded dots": "{prefix}%2e%2e/secret",
    "an encoded slash": "{prefix}..%2fsecret",
    "dots around a newline": "{prefix}.\n./secret",
    "a link out of the container": "{prefix}link",
    "a linked directory out of the container": "{prefix}up/secret",
    "no container": "file://{outside}/secret",
    "another host": "file://localhost{outside}/archive/source.bin",
    "another scheme": "s3://{outside}/archive/source.bin",
    "the metadata address of a cloud": "http://169.254.169.254/latest",
    "a container that does not exist": "vcc://archive/secret",
    "a plain path": "{outside}/secret",
    "an empty location": "",
}


@pytest.mark.parametrize("location", ATTEMPTS.values(), ids=ATTEMPTS.keys())
def test_a_hostile_reference_reads_nothing_outside(virtual, tmp_path, location):
    (tmp_path / "secret").write_bytes(b"s" * 100)
    (virtual.archive / "link").symlink_to(tmp_path / "secret")
    (virtual.archive / "up").symlink_to("..")
    location = location.format(prefix=virtual.prefix, outside=tmp_path)
    with pytest.raises(InvalidInputError):
        hostile(virtual, location).get_sync("v/c/0/0")


def test_a_reference_whose_offset_leaves_63_bits_is_reported(virtual):
    session = virtual.open().writable_session("main")
    table = ChunkTable.virtual(
        index=np.zeros((1, 2), int),
        offset=np.full(1, 2**63 + 5, np.uint64),
        length=np.full(1, 40),
        locations=Locations.one(virtual.prefix + "source.bin"),
    )
    session.set_chunks("/v", table)
    with pytest.raises(StorageError):
        session.store.get_sync("v/c/0/0")


def test_a_reference_of_more_bytes_than_memory_is_reported(virtual):
    session = virtual.open().writable_session("main")
    table = ChunkTable.virtual(
        index=np.zeros((1, 2), int),
        offset=np.zeros(1, int),
        length=np.full(1, 2**62),
        locations=Locations.one(virtual.prefix + "source.bin"),
    )
    session.set_chunks("/v", table)
    with pytest.raises(StorageError):
        session.store.get_sync("v/c/0/0")
