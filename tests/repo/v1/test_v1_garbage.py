"""Garbage of V1 repositories: what the official client deletes, and nothing that a writer needs."""

import shutil
import time
from datetime import UTC, datetime

import icechunk
import numpy as np
import pytest
import zarr

from icevirt.errors import ConflictError, FormatError
from icevirt.repo.repository import Repository
from repo.v1.clients import official


def files(path):
    return {str(each.relative_to(path)) for each in path.rglob("*") if each.is_file()}


@pytest.fixture
def littered(tmp_path):
    """Return a V1 repository with a deleted branch, a deleted tag, an expired history and a flush."""
    config = icechunk.RepositoryConfig(inline_chunk_threshold_bytes=0)
    repo = icechunk.Repository.create(
        icechunk.local_filesystem_storage(str(tmp_path / "a")), config, spec_version=1
    )
    root = repo.lookup_branch("main")
    for branch in ("main", "gone", "kept"):
        if branch != "main":
            repo.create_branch(branch, root)
        for number in range(3):
            session = repo.writable_session(branch)
            zarr.create_array(session.store, name="a", data=np.full(2, number), overwrite=True)
            session.commit(f"{branch} {number}")
    repo.create_tag("tag", repo.lookup_branch("kept"))
    repo.create_tag("dead", repo.lookup_branch("gone"))
    repo.delete_tag("dead")
    repo.delete_branch("gone")
    repo.delete_branch("kept")
    newest = repo.lookup_snapshot(repo.lookup_branch("main"))
    repo.expire_snapshots(newest.written_at)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    return tmp_path


def test_what_is_left_is_what_the_official_client_leaves(littered):
    now = datetime.now(UTC)
    planned = Repository.open(littered / "a").garbage_collect(now, dry_run=True)
    assert files(littered / "a") == files(littered / "b")
    found = Repository.open(littered / "a").garbage_collect(now)
    theirs = official(littered / "b").garbage_collect(now)
    assert found == planned
    for name in ("snapshots", "manifests", "chunks", "transaction_logs"):
        assert getattr(found, f"{name}_deleted") == getattr(theirs, f"{name}_deleted") > 0, name
    assert found.bytes_deleted == theirs.bytes_deleted
    assert files(littered / "a") == files(littered / "b")
    for client in (Repository.open, official):
        repo = client(littered / "a")
        for session in (repo.readonly_session("main"), repo.readonly_session(tag="tag")):
            assert zarr.open_array(session.store, path="a", mode="r")[:].tolist() == [2, 2]
    assert Repository.open(littered / "a").garbage_collect(now).bytes_deleted == 0


def test_what_a_writer_is_about_to_commit_stays(littered):
    """A young snapshot is kept, and the old files of the unreachable history that it builds upon."""
    repo = Repository.open(littered / "a")
    session = repo.writable_session("main")
    repo.create_branch("other", session.snapshot_id)
    base = repo.writable_session("other")
    zarr.create_array(base.store, name="b", data=np.arange(3))
    base.commit("to be unreachable")
    late = repo.writable_session("other")
    zarr.create_array(late.store, name="c", data=np.arange(4))
    repo.delete_branch("other")
    cutoff = datetime.now(UTC)
    time.sleep(0.05)  # times of files are coarse
    flushed = late.flush("young")
    repo.garbage_collect(cutoff)
    left = repo.readonly_session(snapshot_id=flushed)
    assert zarr.open_array(left.store, path="b", mode="r")[:].tolist() == [0, 1, 2]
    assert zarr.open_array(left.store, path="a", mode="r")[:].tolist() == [2, 2]


def test_a_branch_that_moves_to_garbage_meanwhile_stops_it(littered, monkeypatch):
    """Nothing is deleted then."""
    from icevirt.repo.maintenance import garbage_collection

    repo = Repository.open(littered / "a")
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="b", data=np.arange(3))
    lost = session.commit("to be garbage")
    repo.reset_branch("main", str(repo.lookup_snapshot(lost).parent_id))
    before = files(littered / "a")

    class Reviving(garbage_collection.ChunksHere):
        def look(self, manifests):
            super().look(manifests)
            official(littered / "a").create_branch("again", lost)

    monkeypatch.setattr(garbage_collection, "ChunksHere", Reviving)
    with pytest.raises(ConflictError, match="about to be deleted"):
        repo.garbage_collect(datetime.now(UTC))
    assert before <= files(littered / "a")


def test_a_history_with_a_hole_is_left_alone(littered):
    repo = Repository.open(littered / "a")
    (littered / "a" / "snapshots" / repo.lookup_branch("main")).unlink()
    before = files(littered / "a")
    with pytest.raises(FormatError, match="nothing was deleted"):
        Repository.open(littered / "a").garbage_collect(datetime.now(UTC))
    assert files(littered / "a") == before
