"""Trimming the ops log: what is kept of it stays whole for both clients, and backups go."""

import os
from datetime import UTC, datetime, timedelta

import pytest
import zarr

from icevirt.errors import InvalidInputError, ReadOnlyError, StorageError
from icevirt.model.repo_info import RepoAvailability
from icevirt.repo.history.types import RepoStatus, UpdateType
from icevirt.repo.repository import Repository
from long_forms import crossed
from repo.support import group_json, sound


def backups(repo_path):
    return set(os.listdir(f"{repo_path}/overwritten"))


def grown(repo, official, turns=10, per_file=None):
    """Change metadata by turns of both clients, in files that say they are some days old."""
    if per_file is not None:
        repo.config.num_updates_per_repo_info_file = per_file
        repo.save_config()
    for turn in range(turns):
        (repo if turn % 2 else official()).set_metadata({"turn": turn})


def log_of(client):
    return [(type(u.kind).__name__, u.updated_at, u.backup_path) for u in client.ops_log()]


def aged(repo_path):
    """Make every backup a file of last year, so that the time of a log entry decides alone."""
    for name in backups(repo_path):
        os.utime(f"{repo_path}/overwritten/{name}", (1_700_000_000, 1_700_000_000))


@pytest.mark.parametrize(("kept", "per_file"), crossed([0, 1, 4, 11, 30], [None, 1, 3]))
def test_what_is_kept_is_whole_for_both_clients(repo, repo_path, official, per_file, kept):
    grown(repo, official, per_file=per_file)
    before = log_of(repo)
    aged(repo_path)
    at = before[min(kept, len(before) - 1)][1] if kept else datetime.now(UTC)
    summary = repo.trim_ops_log(at)
    after = log_of(Repository.open(repo_path))
    assert after == log_of(official())
    assert [entry[0] for entry in after[:2]] == ["GCRan", "MetadataChanged"]
    wanted = [entry[:2] for entry in before if entry[1] >= at]
    found = [entry[:2] for entry in after[1:]]
    assert found[: len(wanted)] == wanted  # the file in which the log ends keeps its newest entry
    assert len(found) <= len(wanted) + 1
    named = {entry[2] for entry in after} - {None}
    assert named <= backups(repo_path)
    assert summary.backups_deleted == (0 if kept >= len(before) else summary.backups_deleted)
    if kept < 4:
        assert len(backups(repo_path)) <= len(wanted) + 2
        assert summary.bytes_deleted > 0
    assert sound(repo.storage)


def test_both_clients_go_on_afterwards(repo, repo_path, official):
    grown(repo, official, per_file=2)
    aged(repo_path)
    repo.trim_ops_log(datetime.now(UTC))
    grown(repo, official)
    session = official().writable_session("main")
    zarr.open_group(session.store).attrs["a"] = 1
    session.commit("theirs")
    assert log_of(repo) == log_of(official())
    assert len(log_of(repo)) == 13
    assert sound(repo.storage)


def test_young_backups_stay(repo, repo_path, official):
    grown(repo, official)
    before = backups(repo_path)
    summary = repo.trim_ops_log(datetime.now(UTC) - timedelta(days=1))
    assert (summary.backups_deleted, summary.bytes_deleted) == (0, 0)
    assert before < backups(repo_path)


def test_backups_that_nothing_leads_to_go_too_and_other_files_stay(repo, repo_path, official):
    grown(repo, official, turns=3)
    names = backups(repo_path)
    lost = "repo.30708500264057.552WSSB4N45HEECA3Q60"
    for name in (lost, "notes.txt"):
        with open(f"{repo_path}/overwritten/{name}", "wb") as file:
            file.write(b"x")
    aged(repo_path)
    repo.trim_ops_log(list(repo.ops_log())[-1].updated_at)
    assert backups(repo_path) - names == {"notes.txt", *(backups(repo_path) - names - {lost})}
    assert lost not in backups(repo_path)
    assert "notes.txt" in backups(repo_path)


def test_a_dry_run_says_what_would_go(repo, repo_path, official):
    grown(repo, official, per_file=2)
    aged(repo_path)
    before, log = backups(repo_path), log_of(repo)
    dry = repo.trim_ops_log(datetime.now(UTC), dry_run=True)
    assert (backups(repo_path), log_of(repo)) == (before, log)
    assert dry.backups_deleted > 5
    assert repo.trim_ops_log(datetime.now(UTC)).backups_deleted == dry.backups_deleted


def test_a_writer_between_the_listing_and_the_cut_loses_no_backup(repo, repo_path, official):
    """It made its backup before the listing, and replaces `repo` after the cut."""
    grown(repo, official, turns=2)
    slow = Repository.open(repo_path)
    put_if, done = slow.storage.put_if, []

    class Slow:
        url = slow.storage.url

        def __getattr__(self, name):
            return getattr(slow.storage, name)

        def put_if(self, path, body, *, was, **more):
            if not done:
                done.append(aged(repo_path))
                repo.trim_ops_log(datetime.now(UTC))
            return put_if(path, body, was=was, **more)

    slow._head.storage = Slow()
    slow.set_metadata({"slow": True})
    assert done
    named = {entry[2] for entry in log_of(repo)} - {None}
    assert named <= backups(repo_path)
    assert log_of(repo) == log_of(official())
    assert repo.metadata == {"slow": True}


@pytest.mark.parametrize("at", range(3, 8))
def test_of_two_that_trim_at_once_neither_brings_back_what_the_other_deleted(
    repo, repo_path, official, at
):
    """One keeps more: between its reading and writing of a backup, the other one trims."""
    grown(repo, official, turns=20, per_file=6)
    before = log_of(repo)
    aged(repo_path)
    slow = Repository.open(repo_path)
    real, done = slow.storage, []

    class Slow:
        url = real.url

        def __getattr__(self, name):
            return getattr(real, name)

        def _trimmed(self, path):
            if path == f"overwritten/{before[at][2]}" and not done:
                done.append(path)
                repo.trim_ops_log(before[at][1])

        def put(self, path, body):
            self._trimmed(path)
            return real.put(path, body)

        def put_if(self, path, body, *, was, **more):
            self._trimmed(path)
            return real.put_if(path, body, was=was, **more)

    slow._head.storage = Slow()
    slow.trim_ops_log(before[at + 4][1])
    for turn in range(6):  # the log goes on in another file each time
        assert {entry[2] for entry in log_of(repo)} - {None} <= backups(repo_path)
        assert log_of(repo) == log_of(official())
        repo.set_metadata({"turn": -turn})


class Dying:
    """A storage that takes a few changes and no more."""

    def __init__(self, real, calls):
        self.real, self.calls, self.url = real, calls, real.url

    def delete_many(self, paths):
        for path in paths:
            self.delete(path)

    def __getattr__(self, name):
        call = getattr(self.real, name)
        if name not in {"put", "put_if", "delete"}:
            return call

        def killed(*args, **kwargs):
            if next(self.calls, None) is None:
                raise StorageError("killed", do="")
            return call(*args, **kwargs)

        return killed


def test_killed_before_any_call_the_log_is_whole(repo, repo_path, official):
    grown(repo, official, per_file=2)
    aged(repo_path)
    real = repo.storage
    for survives in range(40):
        head = Repository.open(repo_path)
        head._head.storage = Dying(real, iter(range(survives)))
        try:
            head.trim_ops_log(datetime.now(UTC))
        except StorageError:
            assert log_of(Repository.open(repo_path)) == log_of(official())
            assert sound(real)
        else:
            break
    assert survives > 5


def test_what_cannot_be_trimmed_is_said(repo):
    with pytest.raises(InvalidInputError, match="past"):
        repo.trim_ops_log(datetime.now(UTC) + timedelta(minutes=1))
    repo.set_status(RepoStatus(RepoAvailability.read_only))
    for dry_run in (True, False):
        with pytest.raises(ReadOnlyError):
            repo.trim_ops_log(datetime.now(UTC), dry_run=dry_run)


def test_the_ops_log_says_that_it_was_trimmed(repo):
    repo.writable_session("main").add_group("/", group_json())
    repo.trim_ops_log(datetime.now(UTC))
    assert next(repo.ops_log()).kind == UpdateType.GCRan()
