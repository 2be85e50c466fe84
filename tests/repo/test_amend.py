"""A tip is replaced by a commit that holds its changes too; a flush makes a snapshot on no branch."""

import icechunk
import numpy as np
import pytest
import zarr

from icevirt.errors import ConflictError, ReadOnlyError, SessionStateError
from icevirt.ids import INITIAL_SNAPSHOT_ID
from icevirt.model.chunks import ChunkTable
from icevirt.repo.history.types import UpdateType
from repo.support import array_json, group_json, sound

ROOT = str(INITIAL_SNAPSHOT_ID)


def first_commit(repo, source) -> str:
    session = repo.writable_session("main")
    session.add_array("/g/a", array_json(), source.table(range(4)))
    session.add_array("/g/b", array_json(), source.table(range(4)))
    session.commit("base")
    session = repo.writable_session("main")
    session.set_metadata("/g", group_json(first=1))
    session.set_chunks("/g/a", source.table([[2]]))
    session.add_array("/born", array_json(), source.table([[0]]))
    session.delete("/g/b")
    return session.commit("first")


def ours(repo, source) -> str:
    session = repo.writable_session("main")
    session.set_chunks("/g/a", source.table([[1]]))
    session.set_metadata("/born", array_json(attributes={"x": 1}))
    session.add_group("/new", group_json())
    return session.amend("amended", metadata={"k": 1})


def theirs(official) -> str:
    session = official().writable_session("main")
    group = zarr.open_group(session.store)
    group["g/a"][12:24] = 7
    group["born"].attrs["x"] = 1
    group.create_group("new")
    return session.amend("amended", metadata={"k": 1})


@pytest.mark.parametrize("who", ["ours", "theirs"])
def test_an_amended_commit_takes_the_place_of_the_tip(repo, source, official, who):
    tip = first_commit(repo, source)
    base = repo.lookup_snapshot(tip).parent_id
    made = ours(repo, source) if who == "ours" else theirs(official)
    for client in (repo, official()):
        history = list(client.ancestry(branch="main"))
        assert [s.id for s in history] == [made, base, ROOT]
        assert (history[0].message, history[0].metadata) == ("amended", {"k": 1})
        assert client.lookup_snapshot(tip).parent_id == base  # stays until it is garbage
        diff = client.diff(from_snapshot_id=base, to_branch="main")
        assert set(diff.new_arrays) == {"/born"}
        assert set(diff.new_groups) == {"/new"}
        assert set(diff.deleted_arrays) == {"/g/b"}
        assert set(diff.updated_groups) == {"/g"}
        assert np.array_equal(diff.updated_chunks["/g/a"], [[1], [2]])
    entry = next(repo.ops_log()).kind
    assert isinstance(entry, UpdateType.CommitAmended)
    assert (entry.previous_snap_id, entry.new_snap_id) == (tip, made)
    assert sound(repo.storage)


def test_both_clients_amend_and_commit_on_top_of_an_amended_commit(repo, source, official):
    first_commit(repo, source)
    ours(repo, source)
    session = official().writable_session("main")
    zarr.open_group(session.store)["g/a"][0] = 9
    session.amend("theirs")
    session = repo.writable_session("main")
    session.set_chunks("/g/a", source.table([[3]]))
    session.amend("ours")
    session = official().writable_session("main")
    zarr.open_group(session.store)["g/a"][1] = 8
    session.commit("on top")
    assert [s.message for s in repo.ancestry(branch="main")][:3] == ["on top", "ours", "base"]
    values = zarr.open_group(official().readonly_session("main").store, mode="r")["g/a"]
    assert values[:3].tolist() == [9, 8, 2]
    assert sound(repo.storage)


def test_the_initial_snapshot_cannot_be_amended(repo):
    session = repo.writable_session("main")
    session.add_group("/", group_json())
    with pytest.raises(SessionStateError, match="Commit instead"):
        session.amend("no")
    session.commit("yes")


def test_a_tip_that_moved_cannot_be_amended(repo, source):
    first_commit(repo, source)
    session = repo.writable_session("main")
    session.delete("/born")
    other = repo.writable_session("main")
    other.add_group("/other", group_json())
    other.commit("other")
    with pytest.raises(ConflictError):
        session.amend("late")


def test_nothing_is_not_amended_unless_asked_for(repo, source):
    tip = first_commit(repo, source)
    with pytest.raises(SessionStateError):
        repo.writable_session("main").amend("same")
    made = repo.writable_session("main").amend("another message", allow_empty=True)
    assert repo.lookup_snapshot(made).parent_id == repo.lookup_snapshot(tip).parent_id


def test_a_flushed_snapshot_is_on_no_branch(repo, source, official):
    tip = first_commit(repo, source)
    session = repo.writable_session("main")
    session.add_array("/flushed", array_json(), source.table(range(4)))
    made = session.flush("aside", metadata={"k": 1})
    assert session.read_only
    with pytest.raises(ReadOnlyError):
        session.delete("/flushed")
    assert repo.lookup_branch("main") == tip
    info = official().lookup_snapshot(made)
    assert (info.parent_id, info.message, info.metadata) == (tip, "aside", {"k": 1})
    seen = zarr.open_group(official().readonly_session(snapshot_id=made).store, mode="r")
    np.testing.assert_array_equal(seen["flushed"][:], source.values[:48])
    assert next(repo.ops_log()).kind.new_snap_id == made
    assert isinstance(next(repo.ops_log()).kind, UpdateType.NewDetachedSnapshot)
    repo.create_branch("aside", made)
    assert official().lookup_branch("aside") == made
    assert sound(repo.storage)


def test_the_official_client_rebases_over_our_amended_commits(repo, source, official):
    first_commit(repo, source)
    late = official().writable_session("main")
    zarr.open_group(late.store)["born"][47] = 1
    session = repo.writable_session("main")
    session.set_chunks("/g/a", source.table([[1]]))
    session.commit("one more")
    session = repo.writable_session("main")
    session.add_array("/g/c", array_json(), ChunkTable.empty(1))
    session.amend("and more")
    late.commit("late", rebase_with=icechunk.ConflictDetector())
    messages = [s.message for s in repo.ancestry(branch="main")]
    assert messages[:3] == ["late", "and more", "first"]
