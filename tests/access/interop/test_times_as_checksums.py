"""A time as the checksum of a reference: what each client records of it, and what both refuse."""

import os
from datetime import UTC, datetime

import icechunk
import numpy as np
import pytest
import zarr
from icechunk.credentials import LocalFileSystemAccess

import icevirt
from icevirt.connect.urls import file_url
from icevirt.errors import StaleReferenceError

SECOND = 1_700_000_000
VALUES = np.arange(4, dtype="i4")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "archive").mkdir()
    VALUES.tofile(tmp_path / "archive/a.bin")
    return tmp_path


def repository(client, folder):
    prefix, storage = file_url(folder / "archive") + "/", folder / "repo"
    store = client.local_filesystem_store(str(folder / "archive"))
    if client is icechunk:
        storage = icechunk.local_filesystem_storage(str(storage))
    config = client.RepositoryConfig.default()
    config.set_virtual_chunk_container(client.VirtualChunkContainer(prefix, store))
    access = {prefix: LocalFileSystemAccess if client is icechunk else None}
    return client.Repository.open_or_create(
        storage, config=config, authorize_virtual_chunk_access=access
    )


def reads(client, folder):
    refused = icechunk.StorageError if client is icechunk else StaleReferenceError
    store = repository(client, folder).readonly_session("main").store
    array = zarr.open_array(store, path="a", mode="r")
    try:
        return array[...].tolist() == VALUES.tolist()
    except refused:
        return False


# of the second: what was given, and the last time of the file that readers accept
ROUNDED = {
    (icevirt, 0.0): 0.0,
    (icevirt, 0.25): 1.0,
    (icevirt, 1.0): 1.0,
    (icechunk, 0.0): 0.0,
    (icechunk, 0.25): 0.0,
    (icechunk, 1.0): 1.0,
}


@pytest.mark.parametrize(
    ("writer", "given"), ROUNDED, ids=[f"{each.__name__} {at}" for each, at in ROUNDED]
)
def test_a_reference_is_stale_behind_the_second_that_its_writer_recorded(folder, writer, given):
    session = repository(writer, folder).writable_session("main")
    zarr.create_array(
        session.store, name="a", shape=(4,), chunks=(4,), dtype="i4", compressors=None
    )
    session.store.set_virtual_ref(
        "a/c/0",
        file_url(folder / "archive/a.bin"),
        offset=0,
        length=16,
        checksum=datetime.fromtimestamp(SECOND + given, UTC),
    )
    session.commit("a reference")
    last = ROUNDED[writer, given]
    for at in (-1.0, 0.0, 0.25, 0.75, 1.0, 1.25):
        time = int((SECOND + at) * 1_000_000_000)
        os.utime(folder / "archive/a.bin", ns=(time, time))
        for reader in (icevirt, icechunk):
            assert reads(reader, folder) == (at <= last), (reader.__name__, at)
