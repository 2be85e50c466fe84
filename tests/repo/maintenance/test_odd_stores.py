"""Garbage collection where the storage lacks a request, refuses some, or has another clock."""

import time
from datetime import UTC, datetime

import numpy as np
import pytest
import zarr

import icevirt
from icevirt import icechunk
from icevirt.connect import retry
from icevirt.errors import StorageError
from icevirt.storage.memory import MemoryStorage
from servers.faults import refused

pytestmark = pytest.mark.ci

SECOND = 1_000_000


def garbage(storage, *, names=icechunk):
    """Make a repository whose only branch left three commits; return it and now."""
    repo = names.Repository.create(storage)
    first = repo.lookup_branch("main")
    for number in range(3):
        session = repo.writable_session("main")
        group = zarr.open_group(session.store, mode="a")
        made = group.create_array(
            f"v{number}", shape=(4000,), chunks=(1000,), dtype="f8", compressors=None
        )
        made[:] = np.arange(4000) + number
        session.commit(f"commit {number}")
    repo.reset_branch("main", first)
    time.sleep(1.1)  # the times of S3 are cut off to seconds
    return repo, datetime.now(UTC)


@pytest.mark.parametrize("status", [405, 501])
def test_a_store_that_cannot_delete_many_objects_at_once_deletes_one_by_one(strict_s3, status):
    strict_s3.rules.add(refused(status, "NotImplemented"), method="POST", target="delete", times=99)
    repo, now = garbage(strict_s3.place.icevirt())
    found = repo.garbage_collect(now)
    assert (found.snapshots_deleted, found.chunks_deleted) == (3, 12)
    assert not found.delete_errors
    left = [name for name in strict_s3.cloud.bodies() if "/chunks/" in name]
    assert not left
    asked = len([each for each in strict_s3.rules.requests if each.method == "POST"])
    strict_s3.place.icevirt().delete_many(["chunks/none"])
    again = len([each for each in strict_s3.rules.requests if each.method == "POST"])
    assert again == asked  # what it lacks is remembered


@pytest.mark.parametrize(
    ("target", "failed", "deleted", "left_out"),
    [
        ("/snapshots/", 3, (0, 0), ["transaction_logs", "manifests", "chunks"]),
        ("/manifests/", 3, (3, 0), ["chunks"]),
        ("/chunks/[0-9A-F]", None, (3, None), []),
    ],
)
@pytest.mark.parametrize(
    "how", ["at once", *(pytest.param(each, marks=pytest.mark.ci) for each in ["tersely", "alone"])]
)
def test_what_a_store_refuses_to_delete_is_counted_with_its_reason(
    strict_s3, target, failed, deleted, left_out, how
):
    if how == "alone":
        strict_s3.rules.add(refused(501), method="POST", target="delete", times=99)
    repo, now = garbage(strict_s3.place.icevirt())
    strict_s3.cloud.keep(target, "AccessDenied", **({"message": ""} if how == "tersely" else {}))
    begin = time.monotonic()
    found = repo.garbage_collect(now)
    assert time.monotonic() - begin < 20  # a refusal is not tried for a minute
    kept = [name for name in strict_s3.cloud.bodies() if "/chunks/" in name]
    if failed is None:
        failed, deleted = len(kept), (deleted[0], 12 - len(kept))
    assert found.objects_failed_to_delete == failed
    assert (found.snapshots_deleted, found.chunks_deleted) == deleted
    assert found.skipped_phases == left_out
    assert "AccessDenied" in found.delete_errors[0]
    strict_s3.cloud.keep("nothing", "")
    after = repo.garbage_collect(now)
    assert found.snapshots_deleted + after.snapshots_deleted == 3
    assert found.chunks_deleted + after.chunks_deleted == 12


def test_our_own_call_raises_what_was_refused(strict_s3):
    repo, now = garbage(strict_s3.place.icevirt(), names=icevirt)
    strict_s3.cloud.keep("/chunks/", "AccessDenied")
    with pytest.raises(StorageError, match="refused to delete") as caught:
        repo.garbage_collect(now)
    assert caught.value.facts["refused"] == 12
    assert "AccessDenied" in caught.value.facts["reasons"][0]


class _AheadStorage(MemoryStorage):
    """A storage whose clock is ahead of that of its writers."""

    def list(self, prefix="", *, after=""):
        for info in super().list(prefix, after=after):
            yield info._replace(last_modified=info.last_modified + 100 * SECOND)


def test_a_snapshot_goes_when_its_file_is_old_by_the_clock_of_the_storage():
    storage = _AheadStorage()
    repo, now = garbage(storage)
    assert repo.garbage_collect(now).snapshots_deleted == 0
    assert len(repo.inspect_repo_info()["snapshots"]) == 4
    assert len([*storage.list("snapshots")]) == 4


@pytest.mark.parametrize("how", ["of a request", "of keys", "alone"])
def test_throttles_are_waited_for_and_counted(strict_s3, how, monkeypatch):
    monkeypatch.setattr(retry, "_FIRST_PAUSE", 0.01)
    repo, now = garbage(strict_s3.place.icevirt())
    busy = refused(503, "SlowDown")
    if how == "of a request":
        strict_s3.rules.add(busy, method="POST", target="delete", times=3)
    elif how == "alone":
        strict_s3.rules.add(refused(501), method="POST", target="delete", times=99)
        strict_s3.rules.add(busy, method="DELETE", times=3)
    else:
        asked = [0]

        def refuse_twice(name):
            asked[0] += "/chunks/" in name
            return "SlowDown" if "/chunks/" in name and asked[0] <= 2 else ""

        monkeypatch.setattr(strict_s3.cloud, "_refusal_of", refuse_twice)
    found = repo.garbage_collect(now)
    assert (found.snapshots_deleted, found.chunks_deleted) == (3, 12)
    assert found.throttled_batches >= 1
    assert not found.delete_errors
    assert repo.garbage_collect(now).throttled_batches == 0


def test_a_store_that_goes_on_throttling_is_given_up_with_the_reason(strict_s3, monkeypatch):
    monkeypatch.setattr(retry, "TOTAL", 0.5)
    repo, now = garbage(strict_s3.place.icevirt())
    strict_s3.cloud.keep("/chunks/", "SlowDown")
    found = repo.garbage_collect(now)
    assert (found.objects_failed_to_delete, found.chunks_deleted) == (12, 0)
    assert "SlowDown" in found.delete_errors[0]
    assert found.throttled_batches >= 1
