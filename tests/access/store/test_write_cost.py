"""What zarr's reads and writes between two commits cost, in counts that vary on no machine."""

import numpy as np
import pytest
import zarr

import icevirt
from icevirt.access.store.request_batcher import RequestBatcher
from icevirt.repo.session import Session

SHAPE, CHUNK = 40, 10


@pytest.fixture
def repo(tmp_path):
    """A repository with an array, all chunks written."""
    repo = icevirt.Repository.create(tmp_path / "repo")
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="x", data=np.arange(SHAPE), chunks=(CHUNK,))
    session.commit("an array")
    return repo


@pytest.fixture
def counted(monkeypatch):
    """Keys that are read in turns of the event loop, and arrays whose changes are looked into."""
    batched, looked_into = [], []
    read, references = RequestBatcher.read, Session.references

    async def counted_read(batcher, key, byte_range):
        batched.append(key)
        return await read(batcher, key, byte_range)

    def counted_references(session, path, index):
        looked_into.append(path)
        return references(session, path, index)

    monkeypatch.setattr(RequestBatcher, "read", counted_read)
    monkeypatch.setattr(Session, "references", counted_references)
    return batched, looked_into


def test_opening_an_array_awaits_no_turn_of_the_loop(repo, counted):
    array = zarr.open_array(repo.writable_session("main").store, path="x", mode="r+")
    assert array.shape == (SHAPE,)
    assert counted == ([], [])


def test_a_chunk_is_read_as_a_reader_does_until_something_changed(repo, counted):
    batched, looked_into = counted
    session = repo.writable_session("main")
    array = zarr.open_array(session.store, path="x", mode="r+")
    array[3] = -3  # reads the rest of its chunk
    assert batched == ["x/c/0"]
    assert not looked_into
    array[4] = -4
    assert looked_into == ["/x"]
    expected = np.arange(SHAPE)
    expected[3:5] *= -1
    assert np.array_equal(array[:], expected)
    session.commit("two values")
    assert np.array_equal(zarr.open_array(session.store, path="x", mode="r")[:], expected)


def test_changes_that_were_discarded_are_not_seen(repo, counted):
    session = repo.writable_session("main")
    array = zarr.open_array(session.store, path="x", mode="r+")
    array[:CHUNK] = 0
    session.discard_changes()
    assert array[3] == 3
    assert not counted[1]
