"""Log, diff, undo, reset, branches, tags and the ops log agree with what the official client says."""

from dataclasses import replace

import icechunk
import numpy as np
import pytest
import zarr

import icevirt
from icevirt.api.history import moves
from icevirt.display.render import as_text
from icevirt.errors import (
    AlreadyExistsError,
    ConflictError,
    FormatError,
    InvalidInputError,
    SnapshotNotFoundError,
)
from icevirt.ids import INITIAL_SNAPSHOT_ID, ObjectId12
from icevirt.model.updates import NewCommit
from repo.support import array_json, group_json, sound

ROOT = str(INITIAL_SNAPSHOT_ID)
FOUR = np.zeros(12, "<i4").tobytes()


@pytest.fixture
def tips(repo, source, official):
    """Snapshots of a history with every kind of change; the official client wrote the last."""
    made = [ROOT]
    session = repo.writable_session("main")
    session.add_group("/", group_json(title="one"))
    session.add_group("/deep", group_json())
    session.add_array("/deep/a", array_json(), source.table(range(4)))
    session.add_array("/b", array_json(dimension_names=["time"]), source.table(range(4)))
    session.add_array("/gone", array_json(), source.table([0]))
    made.append(session.commit("one"))
    session = repo.writable_session("main")
    session.set_metadata(
        "/b", array_json((60,), dimension_names=["time"], attributes={"units": "K"})
    )
    session.set_chunk("/b", [4], FOUR)
    session.set_chunk("/b", [0], FOUR)
    session.delete("/gone")
    made.append(session.commit("two\nand more"))
    theirs = official().writable_session("main")
    group = zarr.open_group(theirs.store)
    group["deep/a"][0:12] = 9
    group.create_array("new", shape=(4,), chunks=(2,), dtype="i4")[:] = 1
    group.create_group("empty")
    made.append(theirs.commit("three"))
    return made


def test_the_log_is_the_official_ancestry_in_pages(repo, tips, official):
    theirs = list(official().ancestry(branch="main"))
    pages = [icevirt.log(repo, n=2)]
    while pages[-1].next is not None:
        pages.append(icevirt.log(repo, snapshot_id=pages[-1].next, n=2))
    ours = [each for page in pages for each in page]
    assert [len(page) for page in pages] == [2, 2]
    for name, other in (("snapshot_id", "id"), ("message",) * 2, ("written_at",) * 2):
        assert [getattr(each, name) for each in ours] == [getattr(each, other) for each in theirs]
    assert [each.parent_id for each in ours] == [each.parent_id for each in theirs]
    assert ours[0].branches == ("main",)
    assert ours[1].title == "two"
    assert icevirt.log(repo, n=None).next is None
    assert repr(icevirt.log(repo.storage)) == (
        f"<CommitLog branch main  4 commits  newest {tips[-1][:6]}>"
    )
    with pytest.raises(InvalidInputError, match="at least one row"):
        icevirt.log(repo, n=0)


def test_a_diff_says_what_the_official_one_says(repo, tips, official):
    for first in range(len(tips)):
        for last in range(first + 1, len(tips)):
            ours = icevirt.diff(repo, tips[first], tips[last])
            theirs = official().diff(from_snapshot_id=tips[first], to_snapshot_id=tips[last])
            there = {
                node.path for node in repo.readonly_session(snapshot_id=tips[last]).snapshot.nodes
            }
            before = {
                node.path for node in repo.readonly_session(snapshot_id=tips[first]).snapshot.nodes
            }
            assert {*ours.of("added", "array")} == {*theirs.new_arrays} & there
            assert {*ours.of("added", "group")} == {*theirs.new_groups} & there
            assert {*ours.of("removed")} == (theirs.deleted_arrays | theirs.deleted_groups) & before
            chunks = {each.path: each.chunks_written for each in ours.nodes if each.chunks_written}
            assert chunks == {path: len(each) for path, each in theirs.updated_chunks.items()}
            assert (ours.commits_before, ours.commits_after) == (0, last - first)


def test_a_diff_says_how_shape_and_metadata_changed(repo, tips):
    (change,) = [each for each in icevirt.diff(repo, "main~2", "main~1").nodes if each.path == "/b"]
    assert (change.change, change.shape_before, change.shape) == ("changed", (48,), (60,))
    assert [(each.name, each.before, each.after) for each in change.metadata] == [
        ("attributes.units", None, "K")
    ]
    assert change.chunks_written == 2


def test_a_diff_back_and_across_branches_counts_both_sides(repo, tips):
    moves.create_branch(repo, "side", tips[1])
    session = repo.writable_session("side")
    session.set_chunk("/deep/a", [3], FOUR)
    session.commit("aside")
    across = icevirt.diff(repo, "side", "main")
    assert (across.commits_before, across.commits_after) == (1, 2)
    written = {each.path: each.chunks_written for each in across.nodes}
    assert written["/deep/a"] == 2
    back = icevirt.diff(repo, "main", tips[1])
    assert (back.commits_before, back.commits_after) == (2, 0)
    assert back.of("added") == ("/gone",)
    assert icevirt.diff(repo, "main", "main").is_empty()


def test_an_undo_moves_the_branch_and_a_redo_takes_it_back(repo, tips, official):
    moved = icevirt.undo(repo, expect=tips[3][:8])
    assert (moved.before.snapshot_id, moved.after.snapshot_id) == (tips[3], tips[2])
    assert [each.message for each in moved.dropped] == ["three"]
    assert official().lookup_branch("main") == tips[2]
    icevirt.undo(repo)
    assert official().lookup_branch("main") == tips[1]
    assert icevirt.redo(repo).after.snapshot_id == tips[2]
    icevirt.undo(repo)
    for tip in tips[2:]:
        icevirt.redo(repo)
        assert official().lookup_branch("main") == tip
    with pytest.raises(InvalidInputError, match="was no undo"):
        icevirt.redo(repo)
    kinds = [type(each.kind).__name__ for each in official().ops_log()]
    assert kinds[:6] == ["BranchReset"] * 6
    assert [each.operation for each in icevirt.ops_log(repo, n=None)] == [
        type(each.kind).__name__ for each in repo.ops_log()
    ]
    assert len(kinds) == len(icevirt.ops_log(repo, n=None))
    assert icevirt.ops_log(repo, n=2).has_more
    assert sound(repo.storage)


def test_an_undo_refuses_what_was_not_shown_and_the_beginning(repo, tips):
    with pytest.raises(ConflictError, match="not the snapshot that you expect") as caught:
        icevirt.undo(repo, expect=tips[1])
    assert caught.value.facts["tip"] == tips[3]
    assert repo.lookup_branch("main") == tips[3]
    for _ in range(3):
        icevirt.undo(repo)
    with pytest.raises(InvalidInputError, match="no commit that can be undone"):
        icevirt.undo(repo)
    session = repo.writable_session("main")
    session.add_group("/other", group_json())
    session.commit("other")
    with pytest.raises(InvalidInputError, match="was no undo"):
        icevirt.redo(repo)


def test_an_undo_refuses_to_jump_over_expired_snapshots(repo, tips):
    limit = icevirt.log(repo)[0].written_at
    assert repo.expire_snapshots(limit)
    assert icevirt.log(repo)[0].parents_expired
    with pytest.raises(InvalidInputError, match=f"icevirt reset .* {ROOT} --branch main"):
        icevirt.undo(repo)
    assert repo.lookup_branch("main") == tips[3]
    found = icevirt.diff(repo, ROOT, "main")
    assert {each.path: each.chunks_written for each in found.nodes}["/b"] == 5


def test_a_race_lost_by_an_undo_changes_nothing(repo, tips, monkeypatch):
    from icevirt.repo.repo_info_file import RepoInfoFile

    swap = RepoInfoFile.swap

    def after_another(self, current, *edits, **more):
        monkeypatch.setattr(RepoInfoFile, "swap", swap)
        session = repo.writable_session("main")
        session.add_group("/faster", group_json())
        session.commit("faster")
        return swap(self, current, *edits, **more)

    monkeypatch.setattr(RepoInfoFile, "swap", after_another)
    with pytest.raises(ConflictError):
        icevirt.undo(repo.storage)
    assert icevirt.log(repo)[0].message == "faster"


def test_a_reset_names_versions_as_people_do(repo, tips, official):
    official().create_tag("v1", tips[1])
    for version in ("v1", "main~2", tips[1], tips[1][:6].lower(), "v1~0"):
        moved = icevirt.reset(repo, version, branch="main")
        assert official().lookup_branch("main") == tips[1]
        icevirt.reset(repo, moved.before.snapshot_id, branch="main", expect=tips[1])
    assert icevirt.reset(repo, "main", branch="main").dropped == ()
    for wrong in ("nope", "main~4", "v1~x", "ZZZZ"):
        with pytest.raises((SnapshotNotFoundError, InvalidInputError)):
            icevirt.reset(repo, wrong, branch="main")
    official().create_branch("v1", tips[0])
    with pytest.raises(InvalidInputError, match="both a branch and a tag"):
        icevirt.diff(repo, "v1")


def test_branches_and_tags_are_what_the_official_client_lists(repo, tips, official):
    moves.create_branch(repo, "dev", "main~1")
    moves.create_branch(repo, "more")
    moves.rename_branch(repo, "dev", "develop")
    moves.delete_branch(repo, "more")
    assert {each.name for each in moves.branches(repo)} == official().list_branches()
    assert official().lookup_branch("develop") == tips[2]
    for wrong in (("main", "x"), ("develop", "main")):
        with pytest.raises((InvalidInputError, AlreadyExistsError)):
            moves.rename_branch(repo, *wrong)
    assert official().list_branches() == {"main", "develop"}
    moves.create_tag(repo, "v1", "develop")
    moves.create_tag(repo, "v2")
    assert official().lookup_tag("v1") == tips[2]
    moves.delete_tag(repo, "v2")
    assert {each.name for each in moves.tags(repo)} == official().list_tags() == {"v1"}
    assert moves.tags(repo).deleted == ("v2",)
    with pytest.raises(AlreadyExistsError, match="existed and was deleted"):
        moves.create_tag(repo, "v2")
    assert icevirt.log(repo.storage, branch="develop")[0].tags == ("v1",)
    assert sound(repo.storage)


def test_the_source_of_values_of_each_kind(repo, source, tips):
    (virtual,) = icevirt.source(repo, "b", {"time": 13})
    assert (virtual.kind, virtual.location, virtual.chunk) == ("virtual", source.url, (1,))
    assert (virtual.offset, virtual.length) == (48, 48)
    assert virtual.last_modified.timestamp() == 1_600_000_000
    assert virtual.written_by.snapshot_id == tips[1]
    (stored,) = icevirt.source(repo, "b", {"time": 0})
    assert stored.kind in ("inline", "native")
    assert stored.written_by.message == "two\nand more"
    everything = icevirt.source(repo, "new", {})
    assert [each.chunk for each in everything] == [(0,), (1,)]
    assert {each.written_by.snapshot_id for each in everything} == {tips[3]}
    assert icevirt.source(repo, "b", {"time": 13}, snapshot_id=tips[1]).snapshot_id == tips[1]
    with pytest.raises(InvalidInputError, match="a number from 0 to 59"):
        icevirt.source(repo, "b", {"time": 60})
    with pytest.raises(InvalidInputError, match="no dimension 'lat'"):
        icevirt.source(repo, "b", {"lat": 60})


def test_a_long_history_is_listed_in_pages(repo):
    current = repo.head.read()
    start = current.info.snapshots[INITIAL_SNAPSHOT_ID]
    made = {start.id: start}
    tip = start
    for _ in range(10_000):
        key = ObjectId12.random()
        tip = replace(start, id=key, parent_id=tip.id, flushed_at=tip.flushed_at + 1, message="x")
        made[key] = tip
    grown = current.info._replace(snapshots=made, branches={"main": tip.id})
    repo.head.swap(current, lambda _info: (grown, NewCommit("main", tip.id)))
    page = icevirt.log(repo.storage, n=3)
    assert (len(page), page[0].snapshot_id) == (3, str(tip.id))
    assert icevirt.log(repo, snapshot_id=page.next, n=1)[0].snapshot_id == page[2].parent_id
    assert len(icevirt.log(repo, n=None)) == 10_001


def test_a_repository_of_the_v1_format_has_the_same_history(tmp_path):
    storage = icechunk.local_filesystem_storage(str(tmp_path / "v1"))
    theirs = icechunk.Repository.create(storage, spec_version=1)
    for number in range(2):
        session = theirs.writable_session("main")
        zarr.create_array(session.store, name=f"a{number}", shape=2, chunks=1, dtype="i4")[:] = 1
        session.commit(f"commit {number}")
    url = str(tmp_path / "v1")
    assert [each.message for each in icevirt.log(url)] == [
        each.message for each in theirs.ancestry(branch="main")
    ]
    assert icevirt.diff(url, "main~1").of("added") == ("/a1",)
    moved = icevirt.undo(url)
    assert theirs.lookup_branch("main") == moved.after.snapshot_id
    with pytest.raises(FormatError, match="V1"):
        icevirt.redo(url)
    icevirt.reset(url, moved.before.snapshot_id, branch="main")
    assert theirs.lookup_branch("main") == moved.before.snapshot_id
    moves.create_branch(url, "dev")
    moves.rename_branch(url, "dev", "develop")
    assert theirs.list_branches() == {"main", "develop"}


def test_pictures_escape_what_others_wrote(repo):
    session = repo.writable_session("main")
    session.add_group("/<i>", group_json(**{"<b>": "<script>"}))
    session.commit("<script>alert(1)</script>\x1b[31m")
    shown = [icevirt.log(repo), icevirt.diff(repo, "main~1"), icevirt.ops_log(repo)]
    shown += [moves.branches(repo), icevirt.undo(repo)]
    for value in shown:
        drawn = value._repr_html_()
        assert "<script>" not in drawn
        assert "<i>" not in drawn
        assert "\x1b" not in drawn + repr(value) + as_text(value)
        assert "\n" not in repr(value)
