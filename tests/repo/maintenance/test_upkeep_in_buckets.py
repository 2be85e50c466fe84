"""Trimming the ops log and chunks named by content, where times are whole seconds and far away."""

import time
from datetime import UTC, datetime

import icechunk
import numpy as np
import pytest
import zarr

from icevirt.repo.repository import Repository
from repo.support import sound


def write(repo, name):
    session = repo.writable_session("main")
    group = zarr.open_group(session.store, mode="a")
    group.create_array(name, shape=(4000,), chunks=(1000,), dtype="f8", compressors=None)[:] = 1
    session.commit(name)


def test_garbage_goes_by_few_requests(s3_proxy):
    """Between the last look at its age and its deletion nobody should have time to use it again."""
    repo = Repository.create(s3_proxy.place.icevirt())
    session = repo.writable_session("main")
    array = zarr.create_array(session.store, shape=(40_000,), chunks=(1000,), dtype="f8")
    array[:] = np.random.default_rng(1).random(40_000)
    session.flush("garbage")
    time.sleep(1.1)  # ages count in whole seconds
    before = len(s3_proxy.rules.requests)
    collected = repo.garbage_collect(datetime.now(UTC))
    assert (collected.snapshots_deleted, collected.chunks_deleted) == (1, 40)
    assert len(s3_proxy.rules.requests) - before < 40
    assert not list(repo.storage.list("chunks"))
    assert sound(repo.storage)


@pytest.mark.ci
@pytest.mark.servers
def test_upkeep(place):
    repo = Repository.create(place.icevirt(), content_addressed_chunks=True)
    write(repo, "a")
    (first,) = repo.storage.list("chunks")
    official = icechunk.Repository.open(place.official())
    for turn in range(3):
        (repo if turn % 2 else official).set_metadata({"turn": turn})
    time.sleep(2.1)  # ages count in whole seconds
    moment = datetime.now(UTC)
    write(repo, "b")
    (again,) = repo.storage.list("chunks")
    assert again.path == first.path
    assert again.last_modified > first.last_modified
    summary = repo.trim_ops_log(moment)
    assert summary.backups_deleted >= 4
    for client in (repo, official):
        kinds = [type(output.kind).__name__ for output in client.ops_log()]
        assert kinds == ["GCRan", "NewCommit"]
    collected = repo.garbage_collect(datetime.now(UTC))
    assert collected.chunks_deleted == 0
    session = icechunk.Repository.open(place.official()).readonly_session("main")
    for name in ("a", "b"):
        np.testing.assert_array_equal(zarr.open_array(session.store, path=name)[:], 1)
    assert sound(repo.storage)
