"""Chunks that are named by their content: stored once, and safe from garbage collection."""

import os
import pickle
from datetime import UTC, datetime

import icechunk
import numpy as np
import pytest
import zarr

from icevirt.errors import InvalidInputError
from icevirt.model.chunks import ChunkType
from icevirt.repo.repository import Repository
from repo.support import array_json, sound

OLD = (1_700_000_000, 1_700_000_000)


@pytest.fixture
def repo(repo_path):
    return Repository.create(repo_path, content_addressed_chunks=True)


def chunks(path):
    return set(os.listdir(f"{path}/chunks")) if os.path.isdir(f"{path}/chunks") else set()


def write(repo, value, name="a", branch="main", message="x"):
    session = repo.writable_session(branch)
    group = zarr.open_group(session.store, mode="a")
    array = group.require_array(name, shape=(4000,), chunks=(1000,), dtype="f8", compressors=None)
    array[:] = value
    return session.commit(message, allow_empty=True)


def test_equal_chunks_are_stored_once(repo, repo_path):
    write(repo, 1.0)
    assert len(chunks(repo_path)) == 1
    write(repo, 1.0, name="b")
    repo.create_branch("dev", repo.lookup_branch("main"))
    write(repo, 1.0, branch="dev", name="c")
    assert len(chunks(repo_path)) == 1
    write(repo, np.repeat([1.0, 2.0], 2000))
    assert len(chunks(repo_path)) == 2
    assert repo.readonly_session("main").chunk_type("/a", [0]) is ChunkType.native
    stats = repo.chunk_storage_stats()
    sizes = {name: os.path.getsize(f"{repo_path}/chunks/{name}") for name in chunks(repo_path)}
    assert stats.native_bytes == sum(sizes.values())
    assert sound(repo.storage)


def test_without_the_option_every_chunk_is_stored(repo_path):
    write(Repository.create(repo_path), 1.0)
    assert len(chunks(repo_path)) == 4


def test_the_official_client_reads_and_goes_on(repo, repo_path):
    write(repo, np.repeat([1.0, 2.0], 2000))
    official = icechunk.Repository.open(icechunk.local_filesystem_storage(repo_path))
    session = official.writable_session("main")
    array = zarr.open_array(session.store, path="a")
    np.testing.assert_array_equal(array[:], np.repeat([1.0, 2.0], 2000))
    array[:1000] = 3.0
    session.commit("theirs")
    assert official.chunk_storage_stats().native_bytes == repo.chunk_storage_stats().native_bytes
    np.testing.assert_array_equal(
        zarr.open_array(repo.readonly_session("main").store, path="a")[:],
        np.repeat([3.0, 1.0, 2.0, 2.0], 1000),
    )
    assert official.config.inline_chunk_threshold_bytes is None  # nothing was persisted
    assert sound(repo.storage)


def test_two_processes_give_equal_chunks_one_name(tmp_path):
    for name in ("one", "two"):
        write(Repository.create(tmp_path / name, content_addressed_chunks=True), 5.0)
    assert chunks(tmp_path / "one") == chunks(tmp_path / "two")


def test_forks_reopened_and_pickled_repositories_keep_the_option(repo, repo_path):
    write(repo, 1.0)
    for other in (repo.reopen(), pickle.loads(pickle.dumps(repo))):
        write(other, 1.0, name="d")
    session = repo.writable_session("main")
    fork = pickle.loads(pickle.dumps(session.fork()))
    zarr.open_array(fork.store, path="a")[:] = 1.0
    session.merge(fork)
    session.commit("merged")
    assert len(chunks(repo_path)) == 1


@pytest.mark.parametrize("collector", ["icevirt", "icechunk"])
def test_a_chunk_collected_between_two_writes_is_written_again(repo, repo_path, collector):
    write(repo, 1.0)
    (name,) = chunks(repo_path)
    write(repo, 2.0)
    repo.reset_branch("main", list(repo.ancestry(branch="main"))[-1].id)
    if collector == "icechunk":
        client = icechunk.Repository.open(icechunk.local_filesystem_storage(repo_path))
    else:
        client = repo
    client.garbage_collect(datetime.now(UTC))
    os.utime(f"{repo_path}/chunks/{name}", OLD) if name in chunks(repo_path) else None
    client.garbage_collect(datetime(2025, 1, 1, tzinfo=UTC))
    assert name not in chunks(repo_path)
    write(repo, 1.0)
    assert name in chunks(repo_path)
    np.testing.assert_array_equal(
        zarr.open_array(client.readonly_session("main").store, path="a")[:], 1.0
    )


def test_equal_bytes_put_again_are_young(repo, repo_path):
    """Ages protect what an open session wrote, so writing again must renew them."""
    for path in ("chunks/00000000000000000000", "manifests/00000000000000000000"):
        repo.storage.put(path, b"same")
        os.utime(f"{repo_path}/{path}", OLD)
        repo.storage.put(path, b"same")
        assert os.stat(f"{repo_path}/{path}").st_mtime > OLD[0] + 1


@pytest.mark.parametrize("collector", ["icevirt", "icechunk"])
def test_an_old_unused_chunk_that_a_session_wrote_again_is_young(repo, repo_path, collector):
    """The session is open, nothing refers to the chunk yet, and its first writing was long ago."""
    write(repo, 1.0)
    repo.reset_branch("main", list(repo.ancestry(branch="main"))[-1].id)
    (name,) = chunks(repo_path)
    repo.garbage_collect(datetime.now(UTC))  # forgets the snapshot that used it
    repo.storage.put(f"chunks/{name}", np.full(1000, 1.0).tobytes())
    os.utime(f"{repo_path}/chunks/{name}", OLD)
    session = repo.writable_session("main")
    array = zarr.open_group(session.store).create_array(
        "a", shape=(4000,), chunks=(1000,), dtype="f8", compressors=None
    )
    array[:] = 1.0
    client = repo
    if collector == "icechunk":
        client = icechunk.Repository.open(icechunk.local_filesystem_storage(repo_path))
    client.garbage_collect(datetime(2025, 1, 1, tzinfo=UTC))
    assert chunks(repo_path) == {name}
    session.commit("x")
    assert sound(repo.storage)


def test_a_chunk_written_again_after_garbage_was_listed_stays(repo, repo_path):
    """It was old and unused when the collection began, and is young and used when it deletes."""
    write(repo, 1.0)
    repo.reset_branch("main", list(repo.ancestry(branch="main"))[-1].id)
    (name,) = chunks(repo_path)
    repo.garbage_collect(datetime.now(UTC))
    repo.storage.put(f"chunks/{name}", np.full(1000, 1.0).tobytes())
    os.utime(f"{repo_path}/chunks/{name}", OLD)
    collector = Repository.open(repo_path)
    real, writer = collector.storage, []

    class Hooked:
        url = real.url

        def __getattr__(self, attribute):
            return getattr(real, attribute)

        def put_if(self, path, body, *, was, **more):
            done = real.put_if(path, body, was=was, **more)
            writer.append(write(repo, 1.0))  # after the garbage was chosen
            return done

    collector._head.storage = Hooked()
    summary = collector.garbage_collect(datetime(2025, 1, 1, tzinfo=UTC))
    assert len(writer) == 1
    assert summary.chunks_deleted == 0
    assert chunks(repo_path) == {name}
    assert sound(repo.storage)


def test_small_chunks_stay_inline(repo, repo_path):
    session = repo.writable_session("main")
    array = zarr.open_group(session.store).create_array("s", shape=(4,), chunks=(2,), dtype="i2")
    array[:] = 7
    session.commit("x")
    assert chunks(repo_path) == set()
    assert repo.readonly_session("main").chunk_type("/s", [0]) is ChunkType.inline


def test_set_chunk_names_by_content_too(repo, repo_path):
    from icevirt.model.chunks import ChunkTable

    session = repo.writable_session("main")
    session.add_array("/a", array_json((2000,), (1000,)), ChunkTable.empty(1))
    for at in range(2):
        session.set_chunk("/a", [at], b"\1\0\0\0" * 1000)
    assert len(chunks(repo_path)) == 1


def test_what_is_no_policy_is_said(repo_path):
    Repository.create(repo_path)
    with pytest.raises(InvalidInputError, match="ignore"):
        Repository.open(repo_path, on_stale="never")
