"""Repositories: made whole, opened, configured, and never losing what somebody was told is done."""

import os
import pickle
from datetime import UTC, datetime

import pytest

from icevirt.errors import (
    AlreadyExistsError,
    FormatError,
    InvalidInputError,
    ReadOnlyError,
    RefNotFoundError,
    RepositoryNotFoundError,
    SnapshotNotFoundError,
    StorageError,
)
from icevirt.ids import INITIAL_SNAPSHOT_ID
from icevirt.model.config.document import RepositoryConfig
from icevirt.model.repo_info import RepoAvailability
from icevirt.repo.history.types import RepoStatus
from icevirt.repo.repository import Repository
from icevirt.repo.summary import summary
from icevirt.storage.memory import MemoryStorage
from icevirt.versioning.history.timestamps import micros
from repo.faults.faulty import deaths
from repo.support import array_json, group_json

ROOT = str(INITIAL_SNAPSHOT_ID)


# -- making and opening ----------------------------------------------------------------------------


def test_a_repository_is_made_and_opened_by_path_and_url(repo_path):
    assert not Repository.exists(repo_path)
    made = Repository.create(repo_path)
    assert Repository.exists(f"file://{repo_path}")
    assert repr(made) == f"<icevirt.Repository file://{repo_path}>"
    assert Repository.open(repo_path).lookup_branch("main") == ROOT
    assert made.spec_version == 2
    assert made.head.read().info.config is None


def test_a_repository_is_made_once(repo_path):
    Repository.create(repo_path)
    with pytest.raises(AlreadyExistsError, match="repository already exists"):
        Repository.create(repo_path)
    with pytest.raises(AlreadyExistsError):
        Repository.create(repo_path, check_clean_root=False)
    assert Repository.open_or_create(repo_path).lookup_branch("main") == ROOT


def test_a_path_that_holds_something_else_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(AlreadyExistsError) as caught:
        Repository.create(tmp_path)
    assert caught.value.facts["found"] == "notes.txt"
    (tmp_path / "file").write_text("")
    with pytest.raises(AlreadyExistsError):
        Repository.create(tmp_path / "file")
    Repository.create(tmp_path, check_clean_root=False)


@pytest.mark.parametrize("path", ["/proc/nowhere/repo", "/dev/null/repo"])
def test_a_path_that_cannot_be_written_is_one_clear_error(path):
    with pytest.raises(StorageError) as caught:
        Repository.create(path)
    assert path.rsplit("/", 1)[0] in str(caught.value)
    assert caught.value.do


def test_opening_nothing_says_so_and_makes_nothing(tmp_path):
    with pytest.raises(RepositoryNotFoundError, match=r"icevirt\.build\(files, repo\)"):
        Repository.open(tmp_path / "new")
    assert os.listdir(tmp_path) == []
    Repository.open_or_create(tmp_path / "new")


def test_a_v1_repository_is_not_created_over(tmp_path):
    import icechunk

    icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path)), spec_version=1)
    with pytest.raises(AlreadyExistsError, match="already exists at this path"):
        Repository.create(tmp_path)


def test_a_damaged_repo_info_is_said(repo_path):
    repo = Repository.create(repo_path)
    repo.storage.put("repo", b"not at all")
    with pytest.raises(FormatError):
        Repository.open(repo_path)


def test_creation_killed_at_any_call_leaves_nothing_or_a_repository():
    for storage in deaths(Repository.create, MemoryStorage):
        repo = Repository.open_or_create(storage)
        assert [s.id for s in repo.ancestry(branch="main")] == [ROOT]
        assert repo.readonly_session("main").snapshot.nodes == ()
        snapshot = repo.readonly_session("main").snapshot
        assert micros(repo.lookup_snapshot(ROOT).written_at) == snapshot.flushed_at


def test_a_repository_pickles(repo):
    again = pickle.loads(pickle.dumps(repo))
    assert again.storage == repo.storage
    assert again.config.document == repo.config.document


# -- nothing acknowledged is lost ------------------------------------------------------------------


def test_a_storage_that_fails_is_an_error_and_not_a_loss(repo, monkeypatch):
    from icevirt.storage import durable

    def full(*_args):
        raise OSError(28, "No space left on device")

    session = repo.writable_session("main")
    session.add_group("/g", group_json())
    with monkeypatch.context() as patched:
        patched.setattr(durable.os, "fsync", full)
        with pytest.raises(StorageError, match="disk is full"):
            session.commit("x")
    assert session.commit("x") == repo.lookup_branch("main")


def test_a_clock_that_stands_still_is_no_obstacle(repo, monkeypatch):
    stopped = repo.head.now()
    monkeypatch.setattr(repo.head, "now", lambda: stopped)
    for n in range(3):
        session = repo.writable_session("main")
        session.add_group(f"/g{n}", group_json())
        session.commit(str(n))
    times = [s.written_at for s in repo.ancestry(branch="main")]
    assert times == sorted(set(times), reverse=True)


def test_a_clock_far_behind_stops_the_writer(repo, monkeypatch):
    monkeypatch.setattr(repo.head, "now", lambda: 1_500_000_000_000_000)
    with pytest.raises(StorageError, match="clock"):
        repo.create_branch("dev", ROOT)
    assert repo.list_branches() == {"main"}


# -- configuration, metadata, status ---------------------------------------------------------------


def test_what_is_given_at_opening_is_used_and_persisted_when_saved(repo, repo_path):
    given = RepositoryConfig(inline_chunk_threshold_bytes=9)
    opened = Repository.open(repo_path, given)
    assert opened.config.inline_chunk_threshold_bytes == 9
    assert opened.config.virtual_chunk_containers == repo.config.virtual_chunk_containers
    assert Repository.open(repo_path).config.inline_threshold == 512
    opened.save_config()
    assert Repository.open(repo_path).config.inline_chunk_threshold_bytes == 9
    before = len(list(repo.ops_log()))
    opened.save_config()
    assert len(list(repo.ops_log())) == before


def test_defaults_of_the_storage_are_never_persisted(repo, repo_path):
    assert Repository.fetch_config(repo_path).document["storage"] is None


def test_a_session_keeps_the_config_it_began_with(repo):
    session = repo.readonly_session("main")
    repo.config.clear_virtual_chunk_containers()
    assert session.config.virtual_chunk_containers


def test_metadata_is_set_and_added_to(repo):
    repo.set_metadata({"a": 1})
    assert repo.update_metadata({"b": [1, None]}) == {"a": 1, "b": [1, None]}
    repo.set_metadata({})
    assert repo.metadata == {}
    with pytest.raises(InvalidInputError, match="JSON"):
        repo.set_metadata({"x": float("nan")})


def test_a_read_only_repository_takes_no_writes_but_its_status(repo):
    session = repo.writable_session("main")
    session.add_group("/g", group_json())
    repo.set_status(RepoStatus(RepoAvailability.read_only, limited_availability_reason="moving"))
    assert repo.status.availability == RepoAvailability.read_only
    for action in (
        lambda: session.commit("x"),
        lambda: repo.writable_session("main"),
        lambda: repo.create_branch("dev", ROOT),
        lambda: repo.set_metadata({"a": 1}),
    ):
        with pytest.raises(ReadOnlyError, match="writable"):
            action()
    repo.set_status(RepoStatus(RepoAvailability.online))
    session.commit("x")


# -- history ---------------------------------------------------------------------------------------


def test_exactly_one_version_is_named(repo):
    for which in ({}, {"branch": "main", "tag": "x"}, {"tag": "x", "snapshot_id": ROOT}):
        with pytest.raises(InvalidInputError, match="exactly one"):
            repo.readonly_session(**which)
    with pytest.raises(InvalidInputError, match="branch"):
        repo.readonly_session(tag="x", as_of=datetime.now(UTC))


def test_what_does_not_exist_is_said(repo):
    with pytest.raises(RefNotFoundError, match="main"):
        repo.readonly_session("nope")
    with pytest.raises(RefNotFoundError):
        repo.lookup_tag("nope")
    for name in ("nope", ROOT[:-1] + "1", "1CECHNKREP0F1RSTCMTG"):
        with pytest.raises(SnapshotNotFoundError):
            repo.readonly_session(snapshot_id=name)
    with pytest.raises(SnapshotNotFoundError, match="before this time"):
        repo.readonly_session("main", as_of=datetime(2000, 1, 1, tzinfo=UTC))


def test_a_diff_goes_forward_in_one_history(repo):
    session = repo.writable_session("main")
    session.add_group("/g", group_json())
    made = session.commit("g")
    assert repo.diff(from_branch="main", to_branch="main").is_empty()
    with pytest.raises(InvalidInputError, match="ancestor"):
        repo.diff(from_snapshot_id=made, to_snapshot_id=ROOT)


def test_a_missing_backup_stops_the_ops_log_loudly(repo_path):
    repo = Repository.create(repo_path)
    repo.config.document["num_updates_per_repo_info_file"] = 1
    repo.save_config()
    repo.create_branch("a", ROOT)
    repo.storage.delete(f"overwritten/{repo.head.read().info.repo_before_updates}")
    with pytest.raises(StorageError):
        list(repo.ops_log())


# -- summary ---------------------------------------------------------------------------------------


def test_a_summary_counts_references_by_kind(repo, source):
    session = repo.writable_session("main")
    session.add_group("/", group_json(title="t"))
    session.add_array("/a", array_json(dimension_names=["x"]), source.table(range(3)))
    session.set_chunk("/a", [0], b"i" * 10)
    session.set_chunk("/a", [3], b"n" * 600)
    made = session.commit("a")
    repo.create_tag("v1", made)
    found = summary(repo, tag="v1")
    (array,) = found.arrays
    assert (array.path, array.data_type, array.shape, array.chunk_shape) == (
        "/a",
        "int32",
        (48,),
        (12,),
    )
    counts = array.references
    assert (counts.virtual, counts.native, counts.inline) == (2, 1, 1)
    assert (counts.bytes_referenced, counts.bytes_stored) == (96, 610)
    assert (array.manifests, array.dimension_names) == (1, ("x",))
    assert (found.snapshot_id, found.message, found.snapshots) == (made, "a", 2)
    assert found.groups[0].attributes == {"title": "t"}
    assert found.containers == (source.prefix,)
    assert found == summary(repo)
