"""Every edit of a repo info does what it says, once, and says it in the ops log."""

import re

import pytest

from icevirt.errors import (
    AlreadyExistsError,
    ConflictError,
    FormatError,
    InvalidInputError,
    RefNotFoundError,
    SnapshotNotFoundError,
)
from icevirt.ids import INITIAL_SNAPSHOT_ID, ObjectId12
from icevirt.model.repo_info import SnapshotSummary
from icevirt.model.updates import (
    BranchCreated,
    BranchDeleted,
    BranchReset,
    ConfigChanged,
    MetadataChanged,
    NewCommit,
    RepoInitialized,
    TagCreated,
    TagDeleted,
)
from icevirt.versioning import repo_updates
from icevirt.versioning.history import ops_log

ROOT = INITIAL_SNAPSHOT_ID
A = ObjectId12(b"a" * 12)
INFO = repo_updates.initialize(1000)


def commit_of(key, parent=ROOT):
    return repo_updates.commit(
        "main", SnapshotSummary(id=key, parent_id=parent, flushed_at=2000, message="m")
    )


COMMITTED, _ = commit_of(A)(INFO)


def test_a_new_repository_has_a_main_branch_at_an_empty_root():
    root = INFO.snapshots[ROOT]
    assert INFO.branches == {"main": ROOT}
    assert root.parent_id is None
    assert root.message == "Repository initialized"
    assert root.metadata == {"__icechunk": {"is_root": True}}
    assert [update.kind for update in INFO.latest_updates] == [RepoInitialized()]


def test_a_commit_moves_its_branch():
    after, kind = commit_of(A)(INFO)
    assert after.branches == {"main": A}
    assert set(after.snapshots) == {ROOT, A}
    assert kind == NewCommit("main", A)


def test_a_commit_on_a_branch_that_moved_conflicts():
    with pytest.raises(ConflictError) as caught:
        commit_of(ObjectId12(b"b" * 12))(COMMITTED)
    assert caught.value.facts["expected_parent"] == str(ROOT)
    assert caught.value.facts["actual_parent"] == str(A)


def test_a_commit_on_a_branch_that_is_gone_says_how_to_make_it():
    edit = repo_updates.commit(
        "dev", SnapshotSummary(id=A, parent_id=ROOT, flushed_at=1, message="")
    )
    with pytest.raises(RefNotFoundError, match="create_branch"):
        edit(INFO)


def test_a_branch_is_created_moved_and_deleted():
    one, created = repo_updates.create_branch("dev", A)(COMMITTED)
    two, moved = repo_updates.reset_branch("dev", ROOT)(one)
    three, deleted = repo_updates.delete_branch("dev")(two)
    assert (created, moved, deleted) == (
        BranchCreated("dev"),
        BranchReset("dev", A),
        BranchDeleted("dev", ROOT),
    )
    assert two.branches["dev"] == ROOT
    assert set(three.branches) == {"main"}
    assert set(three.snapshots) == {ROOT, A}


def test_a_branch_is_not_created_twice():
    with pytest.raises(AlreadyExistsError):
        repo_updates.create_branch("main", A)(COMMITTED)


def test_a_reset_that_expects_another_tip_conflicts():
    with pytest.raises(ConflictError):
        repo_updates.reset_branch("main", ROOT, expected=ROOT)(COMMITTED)
    after, _ = repo_updates.reset_branch("main", ROOT, expected=A)(COMMITTED)
    assert after.branches["main"] == ROOT


def test_main_stays():
    with pytest.raises(InvalidInputError):
        repo_updates.delete_branch("main")(INFO)


def test_a_tag_name_is_used_once_only():
    one, created = repo_updates.create_tag("v1", A)(COMMITTED)
    two, deleted = repo_updates.delete_tag("v1")(one)
    assert (created, deleted) == (TagCreated("v1"), TagDeleted("v1", A))
    assert two.deleted_tags == {"v1"}
    for info in (one, two):
        with pytest.raises(AlreadyExistsError):
            repo_updates.create_tag("v1", A)(info)


MISSING = {
    "branch to unknown snapshot": repo_updates.create_branch("b", ObjectId12(b"x" * 12)),
    "reset to unknown snapshot": repo_updates.reset_branch("main", ObjectId12(b"x" * 12)),
    "tag of unknown snapshot": repo_updates.create_tag("t", ObjectId12(b"x" * 12)),
    "reset of unknown branch": repo_updates.reset_branch("b", ROOT),
    "deletion of unknown branch": repo_updates.delete_branch("b"),
    "deletion of unknown tag": repo_updates.delete_tag("t"),
}


@pytest.mark.parametrize("edit", MISSING.values(), ids=MISSING.keys())
def test_what_is_named_must_exist(edit):
    with pytest.raises((RefNotFoundError, SnapshotNotFoundError)):
        edit(INFO)


def test_settings_that_do_not_change_are_no_edit():
    after, kind = repo_updates.set_config(lambda _: {"a": 1})(INFO)
    assert (after.config, kind) == ({"a": 1}, ConfigChanged())
    assert repo_updates.set_config(lambda _: {"a": 1})(after) is None
    after, kind = repo_updates.set_metadata(lambda _: {"a": 1})(INFO)
    assert (after.metadata, kind) == ({"a": 1}, MetadataChanged())
    assert repo_updates.set_metadata(lambda _: {"a": 1})(after) is None


# -- the ops log -----------------------------------------------------------------------------------


def grown(n, limit=1000):
    info = INFO
    for at in range(n):
        info = ops_log.add_entry(
            info, ConfigChanged(), now=1000, backup=f"backup {at}", limit=limit
        )
    return info


def test_the_newest_entry_names_no_backup_and_the_next_to_it_the_newest_one():
    info = grown(3)
    assert [update.backup_path for update in info.latest_updates] == [
        None,
        "backup 2",
        "backup 1",
        "backup 0",
    ]


def test_entries_are_strictly_newer_even_when_the_clock_stands_still():
    times = [update.updated_at for update in grown(3).latest_updates]
    assert times == [1003, 1002, 1001, 1000]


def test_an_overflow_points_at_the_backup_whose_newest_entry_was_dropped():
    info = grown(5, limit=3)
    assert [update.backup_path for update in info.latest_updates] == [None, "backup 4", "backup 3"]
    assert info.repo_before_updates == "backup 2"


def test_without_overflow_the_pointer_stays():
    info = INFO._replace(repo_before_updates="older")
    after = ops_log.add_entry(info, ConfigChanged(), now=1000, backup="b")
    assert after.repo_before_updates == "older"


def test_entries_without_a_backup_are_no_place_to_cut():
    old = [entry._replace(backup_path=None) for entry in grown(4).latest_updates]
    info = INFO._replace(latest_updates=tuple(old))
    after = ops_log.add_entry(info, ConfigChanged(), now=1000, backup="b", limit=2)
    assert len(after.latest_updates) == 6
    assert after.repo_before_updates is None


def test_backups_sort_last_one_first():
    early = ops_log.backup_name(1_700_000_000_000_000, A)
    late = ops_log.backup_name(1_800_000_000_000_000, A)
    assert late < early
    assert re.fullmatch(r"repo\.\d{14}\.[0-9A-Z]{20}", early)
    assert ops_log.check_backup(early) == early


@pytest.mark.parametrize("name", ["../repo", "repo", "repo.1.x", "repo.00000000000000.ABC/DEF", ""])
def test_a_name_that_is_no_backup_is_refused(name):
    with pytest.raises(FormatError):
        ops_log.check_backup(name)
