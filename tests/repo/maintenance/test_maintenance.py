"""Histories get shorter and garbage goes, exactly as with the official client, and nothing else."""

import shutil
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import icechunk
import numpy as np
import pytest
import zarr

from icevirt.errors import (
    ConflictError,
    FormatError,
    InvalidInputError,
    ReadOnlyError,
    RebaseFailedError,
)
from icevirt.ids import INITIAL_SNAPSHOT_ID
from icevirt.model.chunks import ChunkTable
from icevirt.model.config.document import SplitRule
from icevirt.model.repo_info import RepoAvailability
from icevirt.repo.history.types import RepoStatus, UpdateType
from icevirt.repo.repository import Repository
from icevirt.versioning.merge.conflicts import ConflictDetector
from repo.support import array_json, group_json, sound

ROOT = str(INITIAL_SNAPSHOT_ID)
LARGE = np.arange(300, dtype="<i4").tobytes()


def commit(repo, branch, number) -> str:
    """Commit one native chunk, and metadata now and then."""
    session = repo.writable_session(branch)
    if session.find("/a") is None:
        session.add_array("/a", array_json((3000,), (300,)), ChunkTable.empty(1))
    session.set_chunk("/a", [number % 4], LARGE)
    if number % 3 == 0:
        session.set_metadata("/", group_json(number=number))
    return session.commit(f"{branch} {number}")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Two branches that part at the fourth commit, a tag on each, a detached snapshot."""
    path = tmp_path_factory.mktemp("maintenance") / "base"
    repo = Repository.create(str(path))
    made = [commit(repo, "main", number) for number in range(4)]
    repo.create_branch("dev", made[3])
    made += [commit(repo, "dev", number) for number in range(4, 7)]
    repo.create_tag("early", made[1])
    made += [commit(repo, "main", number) for number in range(7, 10)]
    repo.create_tag("late", made[8])
    session = repo.writable_session("main")
    session.set_chunk("/a", [5], LARGE)
    made.append(session.flush("detached"))
    session = repo.writable_session("main")
    session.set_chunk("/a", [6], LARGE)
    made.append(session.amend("main 9, amended"))
    return path, made


@pytest.fixture
def made(base):
    return base[1]


@pytest.fixture
def path(base, tmp_path):
    return shutil.copytree(base[0], tmp_path / "repo")


@pytest.fixture
def repo(path):
    return Repository.open(str(path))


def their(path):
    return icechunk.Repository.open(icechunk.local_filesystem_storage(str(path)))


def written(repo, snapshot) -> datetime:
    return repo.lookup_snapshot(snapshot).written_at


def now() -> datetime:
    time.sleep(0.002)
    return datetime.now(UTC)


def shape(path):
    """What an expiry may change of a repository."""
    info = Repository.open(str(path)).head.read().info
    snapshots = {
        key: (output.parent_id, tuple(output.pruned_ancestor_tx_logs or ()))
        for key, output in info.snapshots.items()
    }
    return info.branches, info.tags, info.deleted_tags, snapshots


BOTH = {"delete_expired_branches": True, "delete_expired_tags": True}


@pytest.mark.parametrize("options", [{}, BOTH], ids=["refs stay", "old refs go"])
@pytest.mark.parametrize("times", [[2], [5], [8], [11], [3, 6], [5, 9], [4, 2]], ids=str)
def test_expiry_leaves_what_the_official_one_leaves(path, tmp_path, made, times, options):
    copy = shutil.copytree(path, tmp_path / "copy")
    for at in times:
        ours = Repository.open(str(path))
        limit = written(ours, made[at]) if at < len(made) and at in _there(ours, made) else now()
        found = ours.expire_snapshots(limit, **options)
        assert found == their(copy).expire_snapshots(limit, **options)
        assert shape(path) == shape(copy)
    assert isinstance(next(ours.ops_log()).kind, UpdateType.ExpirationRan)
    assert sound(str(path))


def _there(repo, made):
    known = repo.head.read().info.snapshots
    return {at for at, key in enumerate(made) if key in set(map(str, known))}


def test_what_survives_an_expiry_reads_and_differs_as_before(repo, path, made):
    before = repo.diff(from_snapshot_id=ROOT, to_branch="main")
    values = zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")[:]
    repo.expire_snapshots(written(repo, made[8]))
    repo.garbage_collect(now())
    after = repo.diff(from_snapshot_id=ROOT, to_branch="main")
    theirs = their(path).diff(from_snapshot_id=ROOT, to_branch="main")
    assert after.new_arrays == before.new_arrays == theirs.new_arrays
    assert theirs.updated_chunks["/a"] == after.updated_chunks["/a"].tolist()
    np.testing.assert_array_equal(after.updated_chunks["/a"], before.updated_chunks["/a"])
    for client in (repo, their(path)):
        reader = client.readonly_session("main")
        found = zarr.open_array(reader.store, path="a", mode="r")[:]
        np.testing.assert_array_equal(found, values)
    assert sound(str(path))


def test_a_session_whose_beginning_expired_is_reported_so(repo):
    session = repo.writable_session("main")
    session.set_chunk("/a", [8], LARGE)
    for number in range(10, 14):
        commit(repo, "main", number)
    repo.expire_snapshots(now())
    with pytest.raises(ConflictError, match="expired"):
        session.rebase(ConflictDetector())


def test_sessions_rebase_over_commits_that_expired(tmp_path):
    """The transaction logs of what expired still tell what is in conflict."""
    path = str(tmp_path / "young")
    repo = Repository.create(path)
    sessions = [repo.writable_session("main") for _ in range(2)]
    theirs = their(path).writable_session("main")
    for number in range(4):
        commit(repo, "main", number)
    repo.expire_snapshots(now())
    assert len(list(repo.ancestry(branch="main"))) == 2
    sessions[0].add_group("/", group_json())
    with pytest.raises(RebaseFailedError, match="NewNodeConflictsWithExistingNode /"):
        sessions[0].rebase(ConflictDetector())
    sessions[1].rebase(ConflictDetector())
    sessions[1].set_chunk("/a", [8], LARGE)
    sessions[1].commit("ours")
    zarr.create_group(theirs.store)
    with pytest.raises(icechunk.RebaseFailedError):
        theirs.rebase(icechunk.ConflictDetector())
    messages = [output.message for output in their(path).ancestry(branch="main")]
    assert messages == ["ours", "main 3", "Repository initialized"]
    assert sound(path)


def counts(summary):
    names = ("bytes", "chunks", "manifests", "snapshots", "transaction_logs")
    return {name: getattr(summary, f"{name}_deleted") for name in names}


def everything(path):
    return {
        str(file.relative_to(path)): file.stat().st_size
        for file in Path(path).rglob("*")
        if file.is_file() and file.name != "repo" and file.parent.name != "overwritten"
    }


GARBAGE = {
    "a detached and an amended snapshot": lambda _: None,
    "expired snapshots": lambda repo: repo.expire_snapshots(now()),
    "expired refs": lambda repo: repo.expire_snapshots(now(), **BOTH),
    "a deleted branch": lambda repo: repo.delete_branch("dev"),
    "a branch that was reset": lambda repo: repo.reset_branch("main", ROOT),
}


@pytest.mark.parametrize("case", GARBAGE)
def test_the_garbage_is_what_the_official_client_deletes(repo, path, tmp_path, case):
    GARBAGE[case](repo)
    copy = shutil.copytree(path, tmp_path / "copy")  # with the times of the files
    limit = now()
    planned = repo.garbage_collect(limit, dry_run=True)
    assert everything(path) == everything(copy)
    ours, theirs = repo.garbage_collect(limit), their(copy).garbage_collect(limit)
    assert planned == ours
    assert counts(ours) == counts(theirs)
    assert everything(path) == everything(copy)
    assert shape(path) == shape(copy)
    assert isinstance(next(repo.ops_log()).kind, UpdateType.GCRan)
    assert sum(counts(repo.garbage_collect(now())).values()) == 0
    assert counts(their(path).garbage_collect(now()))["bytes"] == 0
    assert sound(str(path))


def test_files_of_others_stay(repo, path):
    kept = ["README", "chunks/notes.txt", "manifests/sub/1CECHNKREP0F1RSTCMT0", "icevirt/builds/x"]
    for name in kept:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("mine")
    backups = sorted((path / "overwritten").iterdir())
    repo.expire_snapshots(now())
    repo.garbage_collect(now())
    assert all((path / name).read_text() == "mine" for name in kept)
    assert set(backups) <= set((path / "overwritten").iterdir())
    assert len(list(repo.ops_log())) > len(backups)


@pytest.mark.ci
def test_what_is_young_stays(repo, path, made):
    repo.delete_branch("dev")
    before = everything(path)
    assert sum(counts(repo.garbage_collect()).values()) == 0
    assert sum(counts(repo.garbage_collect(now() - timedelta(hours=1))).values()) == 0
    assert everything(path) == before
    assert repo.lookup_snapshot(made[6])


def test_chunks_of_an_open_session_stay_if_it_began_after_the_limit(repo):
    limit = now()
    time.sleep(0.02)  # a file's time is that of the kernel's last tick
    session = repo.writable_session("main")
    session.set_chunk("/a", [9], LARGE)
    repo.garbage_collect(limit)
    session.commit("late")
    values = zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")
    assert values[2700:].tolist() == list(range(300))


def test_a_kept_file_that_cannot_be_read_stops_the_collection(repo, path):
    repo.delete_branch("dev")
    tip = repo.readonly_session("main").snapshot
    victim = path / "manifests" / str(tip.manifest_files[0].id)
    victim.write_bytes(victim.read_bytes()[:-9])
    before = everything(path)
    with pytest.raises(FormatError):
        repo.garbage_collect(now())
    assert everything(path) == before


def test_the_future_is_no_limit(repo):
    with pytest.raises(InvalidInputError, match="future"):
        repo.garbage_collect(datetime.now(UTC) + timedelta(hours=1))


def test_a_read_only_repository_is_left_alone(repo):
    repo.set_status(RepoStatus(RepoAvailability.read_only))
    for act in (
        lambda: repo.expire_snapshots(now()),
        lambda: repo.garbage_collect(now()),
        lambda: repo.garbage_collect(now(), dry_run=True),
        lambda: repo.rewrite_manifests("x", branch="main"),
    ):
        with pytest.raises(ReadOnlyError):
            act()


@pytest.mark.parametrize("method", ["new_commit", "amend"])
def test_rewritten_manifests_follow_the_configured_splitting(repo, path, method):
    tip = repo.lookup_branch("main")
    values = zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")[:]
    repo.config.add_split_rules([SplitRule(path_regex=None, num_chunks=((0, 2),))])
    repo.save_config()
    made = repo.rewrite_manifests("split", branch="main", metadata={"k": 1}, commit_method=method)
    assert len(repo.list_manifest_files(made)) == 3
    output = repo.lookup_snapshot(made)
    assert (output.parent_id == tip) == (method == "new_commit")
    assert output.metadata["k"] == 1
    assert "splitting_config" in output.metadata["__icechunk"]
    if method == "new_commit":
        assert repo.diff(from_snapshot_id=tip, to_snapshot_id=made).is_empty()
        assert their(path).diff(from_snapshot_id=tip, to_snapshot_id=made).is_empty()
    found = zarr.open_array(their(path).readonly_session("main").store, path="a", mode="r")[:]
    np.testing.assert_array_equal(found, values)
    assert their(path).rewrite_manifests("again", branch="main")
    assert sound(str(path))


def test_bytes_are_counted_as_the_official_client_counts_them(repo, path, source):
    repo.config.set_virtual_chunk_container(source.container)
    repo.save_config()
    session = repo.writable_session("main")
    index = np.array([[0], [1], [2]])
    session.add_array("/v", array_json(), source.table(index))
    session.add_array("/w", array_json(), source.table([[0], [3]]))
    session.add_array(
        "/i", array_json(), ChunkTable.of_inline(index=index, chunks=[b"\1\0\0\0" * 12] * 3)
    )
    session.commit("kinds")
    ours, theirs = repo.chunk_storage_stats(), their(path).chunk_storage_stats()
    for name in ("native_bytes", "virtual_bytes", "inlined_bytes"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.virtual_bytes == 3 * 48
    assert ours.total_bytes() == theirs.total_bytes()
    assert ours.non_virtual_bytes() == theirs.non_virtual_bytes()
