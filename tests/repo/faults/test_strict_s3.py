"""On a strict S3: half a PUT is nothing, lost answers are found, and stale reads lose no commit."""

import icechunk
import numpy as np
import pytest
import zarr

from icevirt.connect import retry
from icevirt.errors import ConflictError, RepositoryNotFoundError, StorageError
from icevirt.model.chunks import ChunkTable
from icevirt.repo.repository import Repository
from icevirt.storage import object_store
from icevirt.storage.constructors import s3_storage
from icevirt.versioning.merge.conflicts import ConflictDetector
from long_forms import cases, crossed
from repo.support import array_json, group_json, sound
from servers.faults import ANSWER_LOST, conflicting, torn
from servers.places import BUCKET

REPO = r"/repo/repo(\?|$)"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(object_store, "_LONGEST_PAUSE", 0.02)
    monkeypatch.setattr(retry, "TOTAL", 3.0)


def prepared(strict_s3):
    repo = Repository.create(strict_s3.place.icevirt())
    session = repo.writable_session("main")
    session.add_array("/a", array_json((120,)), ChunkTable.empty(1))
    session.commit("array")
    strict_s3.rules.clear()
    return repo


def chunk(number):
    return ChunkTable.of_inline(
        index=np.array([[number]]), chunks=[np.full(12, number, "<i4").tobytes()]
    )


def commit(repo, number, **how):
    session = repo.writable_session("main")
    session.set_chunks("/a", chunk(number))
    return session.commit(f"n{number}", **how)


def messages(strict_s3):
    repo = Repository.open(strict_s3.place.icevirt())
    return [output.message for output in repo.ancestry(branch="main")][::-1][2:]


def theirs(strict_s3):
    return icechunk.Repository.open(strict_s3.place.official())


def test_both_clients_live_on_it(strict_s3):
    """Uploads in parts, listings, conditional writes, copies and deletions, all of them checked."""
    repo = prepared(strict_s3)
    commit(repo, 1)
    official = theirs(strict_s3)
    session = official.writable_session("main")
    group = zarr.open_group(session.store)
    group.create_array("t", shape=(4,), chunks=(2,), dtype="i4")[:] = 7
    session.commit("theirs")
    session = repo.writable_session("main")
    session.set_chunk("/a", [2], bytes(12 * 4))
    session.commit("n2")
    large = bytes(range(256)) * (33 << 12)
    repo.storage.put("chunks/00000000000000000000", large)  # in parts
    assert repo.storage.get("chunks/00000000000000000000") == large
    assert strict_s3.cloud.uploads == 0
    repo.garbage_collect(repo_now(repo))
    assert f"{BUCKET}/repo/chunks/00000000000000000000" not in strict_s3.cloud.bodies()
    assert messages(strict_s3) == ["n1", "theirs", "n2"]
    assert sound(strict_s3.place.icevirt())
    assert (
        list(
            zarr.open_array(theirs(strict_s3).readonly_session("main").store, path="t", mode="r")[:]
        )
        == [7] * 4
    )


def repo_now(repo):
    from icevirt.versioning.history.timestamps import moment

    return moment(repo.head.now())


@pytest.mark.parametrize(
    ("target", "at"), crossed(["/manifests/", "/snapshots/", "/transactions/", REPO], [0, 1, 100])
)
def test_a_torn_put_is_sent_again_and_stored_once(strict_s3, target, at):
    repo = prepared(strict_s3)
    strict_s3.rules.add(torn(at), method="PUT", target=target)
    commit(repo, 1)
    assert strict_s3.rules.hits == 1
    assert messages(strict_s3) == ["n1"]
    assert sound(strict_s3.place.icevirt())


@pytest.mark.ci
@pytest.mark.parametrize("target", ["/manifests/", REPO])
def test_puts_that_are_always_torn_fail_and_nothing_is_there(strict_s3, target):
    repo = prepared(strict_s3)
    before = strict_s3.cloud.bodies()
    strict_s3.rules.add(torn(10), method="PUT", target=target, times=10**6)
    with pytest.raises(StorageError):
        commit(repo, 1)
    strict_s3.rules.clear()
    assert messages(strict_s3) == []
    after = strict_s3.cloud.bodies()
    assert {name: after[name] for name in before} == before
    commit(repo, 2)
    assert messages(strict_s3) == ["n2"]
    assert sound(strict_s3.place.icevirt())


@pytest.mark.ci
def test_a_torn_part_of_an_upload_leaves_nothing_that_is_read(strict_s3):
    storage = strict_s3.place.icevirt()
    body = bytes(range(256)) * (33 << 12)
    strict_s3.rules.add(torn(1 << 20), method="PUT", target="partNumber=2")
    storage.put("chunks/x", body)
    assert storage.get("chunks/x") == body
    strict_s3.rules.add(torn(1 << 20), method="PUT", target="partNumber=", times=10**6)
    with pytest.raises(StorageError):
        storage.put("chunks/y", body)
    assert not any(name.endswith("chunks/y") for name in strict_s3.cloud.bodies())


# -- stale reads ---------------------------------------------------------------------------------


@pytest.mark.parametrize("reads", [1, 2, 5])
def test_a_commit_begun_on_a_stale_state_is_a_conflict_or_rebased(strict_s3, reads):
    repo, other = prepared(strict_s3), Repository.open(strict_s3.place.icevirt())
    commit(other, 1)
    strict_s3.cloud.lag("/repo/repo", reads)
    session = repo.writable_session("main")
    session.set_chunks("/a", chunk(2))
    try:
        session.commit("n2", rebase_with=ConflictDetector())
        expected = ["n1", "n2"]
    except ConflictError:
        expected = ["n1"]
    strict_s3.cloud.lag("/repo/repo", 0)
    assert messages(strict_s3) == expected
    assert sound(strict_s3.place.icevirt())


@pytest.mark.parametrize("reads", cases(range(8), 0, 1, 3, 7))
@pytest.mark.parametrize("rebasing", [False, True], ids=["plain", "rebasing"])
def test_a_commit_whose_answer_is_lost_is_there_once_though_reads_are_stale(
    strict_s3, reads, rebasing
):
    """Reading back shows a state from before the commit, several times."""
    repo = prepared(strict_s3)
    session = repo.writable_session("main")
    session.set_chunks("/a", chunk(1))
    strict_s3.rules.add(ANSWER_LOST, method="PUT", target=REPO)
    strict_s3.cloud.lag_after_put("/repo/repo", reads)
    how = {"rebase_with": ConflictDetector()} if rebasing else {}
    session.commit("n1", **how)
    assert strict_s3.rules.hits == 1
    assert messages(strict_s3) == ["n1"]
    assert sound(strict_s3.place.icevirt())


def test_conflicts_of_requests_that_overlap_are_sent_again(strict_s3):
    repo = prepared(strict_s3)
    strict_s3.rules.add(conflicting(), method="PUT", target=REPO, times=3)
    commit(repo, 1)
    assert messages(strict_s3) == ["n1"]


@pytest.mark.parametrize("reads", [1, 3])
def test_other_changes_survive_stale_reads(strict_s3, reads):
    repo = prepared(strict_s3)
    commit(repo, 1)
    strict_s3.cloud.lag("/repo/repo", reads)
    repo.update_metadata({"by": "us"})
    strict_s3.cloud.lag("/repo/repo", 0)
    session = repo.writable_session("main")
    session.add_group("/g", group_json())
    session.commit("n2")
    assert messages(strict_s3) == ["n1", "n2"]
    assert Repository.open(strict_s3.place.icevirt()).metadata == {"by": "us"}
    assert sound(strict_s3.place.icevirt())


def test_a_store_that_only_shows_the_past_makes_the_outcome_unknown_not_a_conflict(
    strict_s3, monkeypatch
):
    monkeypatch.setattr("icevirt.repo.repo_info_file.pause", lambda _: None)
    repo = prepared(strict_s3)
    strict_s3.rules.add(ANSWER_LOST, method="PUT", target=REPO)
    strict_s3.cloud.lag_after_put("/repo/repo", 10**6)
    with pytest.raises(StorageError, match="unknown whether the write took place"):
        commit(repo, 1)
    strict_s3.cloud.lag("/repo/repo", 0)
    assert messages(strict_s3) == ["n1"]
    commit(repo, 2)
    assert messages(strict_s3) == ["n1", "n2"]


@pytest.mark.parametrize("reads", [1, 4])
def test_garbage_collection_from_a_stale_state_deletes_nothing_that_is_needed(strict_s3, reads):
    """It publishes before it deletes, which a stale state does not survive."""
    repo = prepared(strict_s3)
    late = Repository.open(strict_s3.place.icevirt())
    commit(repo, 1)
    commit(repo, 2)
    strict_s3.cloud.lag("/repo/repo", reads)
    late.garbage_collect(repo_now(late))
    strict_s3.cloud.lag("/repo/repo", 0)
    assert messages(strict_s3) == ["n1", "n2"]
    assert sound(strict_s3.place.icevirt())


def test_garbage_collection_survives_listings_from_the_past(strict_s3):
    """Objects that are gone are listed, new ones are not."""
    repo = prepared(strict_s3)
    gone = repo.writable_session("main")
    gone.set_chunk("/a", [3], bytes(48))
    gone.flush("gone")
    strict_s3.cloud.freeze_listings()
    commit(repo, 1)
    repo.garbage_collect(repo_now(repo))
    repo.garbage_collect(repo_now(repo))
    strict_s3.cloud.freeze_listings(False)
    assert messages(strict_s3) == ["n1"]
    assert sound(strict_s3.place.icevirt())


@pytest.mark.parametrize("prefix", ["", "/before"])
def test_a_repository_whose_keys_begin_with_a_slash_is_named(strict_s3, prefix):
    """The official client wrote so before 2.1 for an empty prefix, and writes so for the other."""
    options = strict_s3.place.options | {"prefix": prefix}
    if prefix:
        icechunk.Repository.create(icechunk.s3_storage(**options))
    else:
        strict_s3.place.icevirt().put("repo", b"")
        strict_s3.cloud.move("/repo/", "//")
    with pytest.raises(RepositoryNotFoundError, match="keys that begin with '/'") as caught:
        Repository.open(s3_storage(**options))
    assert "legacy_rooted_keys=True" in str(caught.value)
    assert "aws s3 cp" in str(caught.value)


def test_a_bucket_without_such_keys_gets_the_usual_sentence(strict_s3):
    strict_s3.place.icevirt().put("other", b"")
    with pytest.raises(RepositoryNotFoundError) as caught:
        Repository.open(strict_s3.place.icevirt())
    assert "aws s3 cp" not in str(caught.value)
