"""Nodes move and chunks shift without a byte copied, as with the official client."""

import json
import shutil

import icechunk
import numpy as np
import pytest
import zarr

from icevirt.errors import (
    AlreadyExistsError,
    InvalidInputError,
    NodeNotFoundError,
    RebaseFailedError,
    SessionStateError,
)
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.repo.repository import Repository
from icevirt.repo.view import SessionMode
from icevirt.versioning.merge.conflicts import ConflictDetector
from repo.support import array_json, group_json, sound


@pytest.fixture
def filled(repo, source):
    """A repository of nested groups, an array of virtual chunks and a grid of inline ones."""
    session = repo.writable_session("main")
    session.add_array("/g/h/a", array_json(), source.table(range(4)))
    session.add_array("/g-x", array_json(), source.table(range(2)))
    session.add_group("/other", group_json(x=1))
    index = np.array([[0, 0], [0, 2], [1, 1], [2, 0], [3, 3]])
    chunks = [np.int32(n).tobytes() for n in range(5)]
    inline = ChunkTable.of_inline(index=index, chunks=chunks)
    session.add_array("/grid", array_json((4, 4), (1, 1)), inline)
    session.commit("filled")
    return repo


def tree(session) -> list[str]:
    group = zarr.open_group(session.store, mode="r")
    return sorted(name for name, _ in group.members(max_depth=None))


def test_moves_are_seen_and_given_by_both_clients(filled, source, official):
    session = filled.rearrange_session("main")
    assert session.mode is SessionMode.rearrange
    session.move("/g", "/other/g")
    session.move("other/g/h", "other/h")
    assert [tuple(m) for m in session.status().moved_nodes] == [
        ("/g", "/other/g"),
        ("/g/h", "/other/h"),
        ("/g/h/a", "/other/h/a"),
    ]
    session.commit("moved")
    back = official().rearrange_session("main")
    back.move("/g-x", "/other/g/x")
    made = back.commit("moved back")
    expected = ["grid", "other", "other/g", "other/g/x", "other/h", "other/h/a"]
    assert tree(filled.readonly_session("main")) == expected
    reader = official().readonly_session("main")
    assert tree(reader) == expected
    values = zarr.open_array(reader.store, path="other/h/a", mode="r")
    np.testing.assert_array_equal(values[:], source.values[:48])
    first = list(filled.ancestry(branch="main"))[2].id
    ours = filled.diff(from_snapshot_id=first, to_snapshot_id=made)
    theirs = official().diff(from_snapshot_id=first, to_snapshot_id=made)
    assert sorted(ours.moved_nodes) == sorted(theirs.moved_nodes)
    assert sound(filled.storage)


# what is odd: (from, to, error)
REFUSED = {
    "nothing there": ("/nope", "/x", NodeNotFoundError),
    "something there": ("/grid", "/g/h", AlreadyExistsError),
    "no such group": ("/grid", "/no/x", InvalidInputError),
    "into an array": ("/g", "/grid/x", InvalidInputError),
    "into itself": ("/g", "/g/h/x", InvalidInputError),
    "onto itself": ("/grid", "/grid", InvalidInputError),
    "the root": ("/", "/x", InvalidInputError),
}


@pytest.mark.parametrize("case", REFUSED)
def test_moves_that_make_no_sense_are_refused_by_both_clients(filled, official, case):
    source, target, error = REFUSED[case]
    with pytest.raises(error):
        filled.rearrange_session("main").move(source, target)
    with pytest.raises(icechunk.IcechunkError):
        official().rearrange_session("main").move(source, target)


def test_each_mode_does_its_own_only(filled, source):
    with pytest.raises(SessionStateError, match="rearrange_session"):
        filled.writable_session("main").move("/g", "/n")
    session = filled.rearrange_session("main")
    for change in (
        lambda: session.delete("/g"),
        lambda: session.set_chunks("/grid", source.table([[0, 0]])),
        lambda: session.set_metadata("/other", group_json()),
    ):
        with pytest.raises(SessionStateError, match="only moves"):
            change()
    assert not session.has_uncommitted_changes


def test_a_move_takes_along_what_others_put_there_meanwhile(filled, source, official):
    session = filled.rearrange_session("main")
    session.move("/g", "/other/g")
    first = official().writable_session("main")
    group = zarr.open_group(first.store)
    group.create_group("g/new")
    group["g/h/a"][0:12] = 5
    first.commit("theirs")
    session.commit("ours", rebase_with=ConflictDetector())
    reader = official().readonly_session("main")
    moved = ["other/g", "other/g/h", "other/g/h/a", "other/g/new"]
    assert tree(reader) == ["g-x", "grid", "other", *moved]
    values = zarr.open_array(reader.store, path="other/g/h/a", mode="r")[::12]
    assert values.tolist() == [5, 12, 24, 36]
    assert sound(filled.storage)


# what is odd: what they do before our move of /g to /other/g
MOVES_REFUSED = {
    "they made something there": lambda s: s.add_group("/other/g", group_json()),
    "the group is gone": lambda s: s.delete("/g"),
    "the new place is an array now": lambda s: (
        s.delete("/other"),
        s.add_array("/other", array_json(), ChunkTable.empty(1)),
    ),
}


@pytest.mark.parametrize("case", MOVES_REFUSED)
def test_a_move_that_no_longer_fits_is_a_conflict(filled, case):
    session = filled.rearrange_session("main")
    session.move("/g", "/other/g")
    first = filled.writable_session("main")
    MOVES_REFUSED[case](first)
    first.commit("theirs")
    with pytest.raises(RebaseFailedError):
        session.commit("ours", rebase_with=ConflictDetector())


# -- chunks ----------------------------------------------------------------------------------------


def grid(session):
    return zarr.open_array(session.store, path="grid", mode="r")[:].tolist()


def either(filled, tmp_path, change):
    """The grid after a change by each client."""
    copy = shutil.copytree(filled.storage.url.removeprefix("file://"), tmp_path / "copy")
    theirs = icechunk.Repository.open(icechunk.local_filesystem_storage(str(copy)))
    for repo in (filled, theirs):
        session = repo.writable_session("main")
        change(session)
        before = grid(session)
        session.commit("changed")
        assert grid(session) == before
        yield before
    assert grid(theirs.readonly_session("main")) == before


@pytest.mark.parametrize("by", [(1, 0), (-1, 2), (0, 0), (4, 0), (-2, -2)])
def test_a_shift_agrees_with_the_official_one(filled, tmp_path, by):
    ours, theirs = either(filled, tmp_path, lambda s: s.shift_array("/grid", by))
    assert ours == theirs
    assert sound(filled.storage)


def turn(index):
    return [index[1], index[0]]


def down(index):
    return [index[0] + 1, index[1]] if index[0] < 3 else None


def up(index):
    return [index[0] - 1, index[1]] if index[0] else None


@pytest.mark.parametrize(
    ("forward", "backward"),
    [(turn, None), (turn, turn), (down, None), (down, up)],
    ids=["turned", "turned and cleared", "down", "down and cleared"],
)
def test_a_reindexing_agrees_with_the_official_one(filled, tmp_path, forward, backward):
    ours, theirs = either(filled, tmp_path, lambda s: s.reindex_array("/grid", forward, backward))
    assert ours == theirs
    assert sound(filled.storage)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.shift_array("/grid", (1,)), "2 numbers"),
        (lambda s: s.reindex_array("/grid", lambda i: [i[0] + 9, 0]), "inside the grid"),
        (lambda s: s.reindex_array("/grid", lambda i: [0]), "inside the grid"),
        (lambda s: s.reindex_array("/grid", lambda i: [0, 0]), "different index"),
        (lambda s: s.shift_array("/uneven", (1,)), "regular"),
    ],
    ids=["too few numbers", "outside", "too few axes", "two to one place", "uneven chunks"],
)
def test_what_would_corrupt_an_array_is_refused(filled, change, message):
    session = filled.writable_session("main")
    document = json.loads(array_json((5,), (5,)))
    document["chunk_grid"] = {
        "name": "rectilinear",
        "configuration": {"kind": "inline", "chunk_shapes": [[2, 3]]},
    }
    with zarr.config.set({"array.rectilinear_chunks": True}):
        session.add_array("/uneven", json.dumps(document).encode(), ChunkTable.empty(1))
    with pytest.raises(InvalidInputError, match=message):
        change(session)


def test_chunks_are_distinguished_by_where_they_lie(filled, source, official):
    session = filled.writable_session("main")
    session.delete_chunks("/grid", np.array([[0, 0]]))
    theirs = official().readonly_session("main")
    for state in (filled.readonly_session("main"), session):
        assert state.chunk_type("/g/h/a", [1]) is ChunkType.virtual
        assert state.chunk_type("/grid", (0, 2)) is ChunkType.inline
        assert state.chunk_type("/grid", (0, 1)) is ChunkType.uninitialized
        assert state.all_virtual_chunk_locations() == [source.url]
    assert set(theirs.all_virtual_chunk_locations()) == {source.url}
    assert session.chunk_type("/grid", (0, 0)) is ChunkType.uninitialized
    assert session.chunk_coordinates("/grid").tolist() == [[0, 2], [1, 1], [2, 0], [3, 3]]
    assert Repository.open(filled.storage).readonly_session("main").mode is SessionMode.readonly
