"""Changes of two writers: which conflict, who wins, and the nodes that both make together."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.versioning.merge.conflicts import (
    AppendConflictSolver,
    BasicConflictSolver,
    Conflict,
    ConflictDetector,
    Conflicts,
    ConflictType,
    Replayed,
    VersionSelection,
    find_conflicts,
    step,
)
from unit.versioning.states import array, changes, group, key, snapshot, table

A, B, G = array(1, "/a"), array(2, "/g/b"), group(3, "/g")
BASE = snapshot(A, G, B)


def rebased(ours, theirs, solver=None, *, base=BASE, mine=None, other=None):
    """Replay our nodes on theirs; chunks by the number of the array."""
    left = changes(base, snapshot(*ours, number=2), **(mine or {}))
    right = changes(base, snapshot(*theirs, number=3), **(other or {}))
    number = itertools.count(200)
    return step(
        left, right.log, right.after, solver or ConflictDetector(), lambda: key(next(number))
    )


def kinds(*sides, **more):
    """Return the conflicts by kind and path."""
    found = rebased(*sides, **more)
    if isinstance(found, Replayed):
        return []
    return [(each.conflict_type.name, each.path) for each in found]


def again(node, **attributes):
    """Return a node with other metadata."""
    make = group if node.path == "/g" else array
    return make(node.id[0], node.path, **attributes)


T = ConflictType
LONGER = array(1, "/a", 6)
RECODED = array(1, "/a", codecs=("bytes", "zstd"))
TABLE = {
    "both add a node": ([A, G, B, array(7, "/n")], [A, G, B, array(8, "/n")], {}, [
        (T.NewNodeConflictsWithExistingNode, "/n")]),
    "an array over their nodes": ([A, G, B, array(7, "/n")], [A, G, B, group(9, "/n"), array(8, "/n/x")],
        {}, [(T.NewNodeConflictsWithExistingNode, "/n")]),
    "a node below their array": ([A, G, B, group(9, "/n"), array(7, "/n/x")], [A, G, B, array(8, "/n")],
        {}, [(T.NewNodeConflictsWithExistingNode, "/n"), (T.NewNodeInInvalidGroup, "/n")]),
    "both set metadata": ([again(A, n=1), G, B], [again(A, n=2), G, B], {}, [
        (T.ZarrMetadataDoubleUpdate, "/a")]),
    "both set metadata of a group": ([A, again(G, n=1), B], [A, again(G, n=1), B], {}, [
        (T.ZarrMetadataDoubleUpdate, "/g")]),
    "metadata of a deleted array": ([again(A, n=1), G, B], [G, B], {}, [
        (T.ZarrMetadataUpdateOfDeletedArray, "/a")]),
    "metadata of a deleted group": ([A, again(G, n=1), B], [A], {}, [
        (T.ZarrMetadataUpdateOfDeletedGroup, "/g")]),
    "one chunk": ([A, G, B], [A, G, B], {"mine": {"a1": [0, 2]}, "other": {"a1": [2, 3]}}, [
        (T.ChunkDoubleUpdate, "/a")]),
    "chunks of a deleted array": ([A, G, B], [G, B], {"mine": {"a1": [0]}}, [
        (T.ChunksUpdatedInDeletedArray, "/a")]),
    "chunks of an updated array": ([A, G, B], [LONGER, G, B], {"mine": {"a1": [0]}}, [
        (T.ChunksUpdatedInUpdatedArray, "/a")]),
    "another encoding for their chunks": ([RECODED, G, B], [A, G, B], {"other": {"a1": [0]}}, [
        (T.ChunksUpdatedInUpdatedArray, "/a")]),
    "delete of their array": ([G, B], [again(A, n=1), G, B], {}, [(T.DeleteOfUpdatedArray, "/a")]),
    "delete of chunks": ([G, B], [A, G, B], {"other": {"a1": [0]}}, [(T.DeleteOfUpdatedArray, "/a")]),
    "delete of their group": ([A], [A, again(G, n=1), B], {}, [(T.DeleteOfUpdatedGroup, "/g")]),
    "delete of a group that they filled": ([A], [A, G, B, array(7, "/g/n")], {}, [
        (T.DeleteOfUpdatedGroup, "/g")]),
    "move of what they deleted": ([array(1, "/c"), G, B], [G, B], {}, [
        (T.MoveOperationCannotBeRebased, "/a")]),
    "their move": ([again(A, n=1), G, B], [A, group(3, "/h"), array(2, "/h/b")], {}, [
        (T.MoveOperationCannotBeRebased, "/g")]),
}  # fmt: skip


@pytest.mark.parametrize(("ours", "theirs", "chunks", "wanted"), TABLE.values(), ids=TABLE)
def test_conflicts_are_found_and_nothing_else(ours, theirs, chunks, wanted):
    assert kinds(ours, theirs, **chunks) == [(kind.name, path) for kind, path in wanted]


FINE = {
    "other nodes": ([A, G, B, array(7, "/m")], [A, G, B, array(8, "/n")], {}),
    "other chunks": ([A, G, B], [A, G, B], {"mine": {"a1": [0]}, "other": {"a1": [1]}}),
    "a new length for their chunks": ([LONGER, G, B], [A, G, B], {"other": {"a1": [0]}}),
    "both delete": ([G, B], [G, B], {}),
    "an array where they deleted one": ([A, G, B, array(7, "/n")], [G, B], {}),
    "an array anew in its place": ([array(7, "/a"), G, B], [A, G, B], {}),
    "delete beside changes": ([G, B], [A, again(G, n=1), B], {}),
}


@pytest.mark.parametrize(("ours", "theirs", "chunks"), FINE.values(), ids=FINE)
def test_changes_apart_are_no_conflict(ours, theirs, chunks):
    assert kinds(ours, theirs, **chunks) == []


edits = st.fixed_dictionaries(
    {node.path: st.sampled_from(["keep", "delete", "change"]) for node in (A, B, G)}
)


def applied(how, extra, number):
    """Return the nodes that one writer leaves."""
    nodes = []
    for node in (A, G, B):
        inside = node is B and how["/g"] == "delete"
        if how[node.path] != "delete" and not inside:
            nodes.append(again(node, by=number) if how[node.path] == "change" else node)
    return [*nodes, *(array(number * 10 + at, path) for at, path in enumerate(sorted(extra)))]


news = st.sets(st.sampled_from(["/x", "/y", "/z"]), max_size=2)


@settings(max_examples=30)
@given(edits, edits, news, news)
def test_what_does_not_conflict_merges_as_a_loop_over_paths_does(one, two, mine, other):
    ours, theirs = applied(one, mine, 4), applied(two, other, 5)
    found = rebased(ours, theirs)
    before, left, right = (
        {node.path: node for node in snapshot(*nodes).nodes} for nodes in ((A, G, B), ours, theirs)
    )
    clash = {
        path
        for path in {*before, *left, *right}
        if left.get(path) != before.get(path) != right.get(path)
        and left.get(path) != right.get(path)
    }
    if isinstance(found, Conflicts):
        assert clash or "/g" in {*before} - {*left}
        return
    merged = {
        path: left.get(path) if left.get(path) != before.get(path) else right.get(path)
        for path in {*before, *left, *right}
    }
    assert found.nodes == {path: node for path, node in merged.items() if node is not None}


# -- solvers --------------------------------------------------------------------------------------

CHUNKS = {"mine": {"a1": [0, 2]}, "other": {"a1": [2, 3]}}


def test_our_chunks_win_or_theirs():
    ours = BasicConflictSolver()
    theirs = BasicConflictSolver(on_chunk_conflict=VersionSelection.UseTheirs)
    held = table(0, 2)
    kept = [
        rebased([A, G, B], [A, G, B], each, **CHUNKS).chunks(A.id, held) for each in (ours, theirs)
    ]
    assert [each.index.ravel().tolist() for each in kept] == [[0, 2], [0]]
    fail = BasicConflictSolver(on_chunk_conflict=VersionSelection.Fail)
    assert kinds([A, G, B], [A, G, B], solver=fail, **CHUNKS) == [("ChunkDoubleUpdate", "/a")]


def test_a_delete_wins_unless_the_solver_says_otherwise():
    made = rebased([A], [A, again(G, n=1), B], BasicConflictSolver())
    assert [*made.nodes] == ["/", "/a"]
    fail = BasicConflictSolver(fail_on_delete_of_updated_group=True)
    assert kinds([A], [A, again(G, n=1), B], solver=fail) == [("DeleteOfUpdatedGroup", "/g")]
    fail = BasicConflictSolver(fail_on_delete_of_updated_array=True)
    assert kinds([G, B], [again(A, n=1), G, B], solver=fail) == [("DeleteOfUpdatedArray", "/a")]


def test_metadata_that_both_set_has_no_winner():
    sides = [again(A, n=1), G, B], [again(A, n=2), G, B]
    assert kinds(*sides, solver=BasicConflictSolver()) == [("ZarrMetadataDoubleUpdate", "/a")]


@settings(max_examples=15)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
def test_appends_of_both_lie_behind_one_another(mine, other, edge):
    """Of whole chunks; else they are refused."""
    start, solver = 2 * edge, AppendConflictSolver(append_dim="time")
    base = snapshot(array(1, "/a", start, edge=edge))
    count = -(-mine // edge)
    index = [2 + at for at in range(count)]
    found = rebased(
        [array(1, "/a", start + mine, edge=edge)],
        [array(1, "/a", start + other, edge=edge)],
        solver,
        base=base,
        mine={"a1": index},
        other={"a1": [2 + at for at in range(-(-other // edge))]},
    )
    if other % edge:
        assert isinstance(found, Conflicts)
        return
    assert found.nodes["/a"].shape == (start + other + mine,)
    moved = found.chunks(key(1), table(0, *index)).index.ravel().tolist()
    assert moved == [0, *(at + other // edge for at in index)]


@pytest.mark.parametrize(
    ("ours", "theirs", "dims"),
    [
        (array(1, "/a", 6), array(1, "/a", 6, n=1), ("time",)),
        (array(1, "/a", 6, dims=None), array(1, "/a", 6, dims=None), None),
        (array(1, "/a", 3), array(1, "/a", 6), ("time",)),
        (array(1, "/a", 6, dims=("x",)), array(1, "/a", 6, dims=("x",)), ("x",)),
    ],
    ids=["other attributes", "nameless", "cut", "another dimension"],
)
def test_what_is_no_append_of_both_is_refused(ours, theirs, dims):
    base = snapshot(array(1, "/a", dims=dims))
    found = rebased([ours], [theirs], AppendConflictSolver(append_dim="time"), base=base)
    assert isinstance(found, Conflicts)


def test_chunks_before_the_append_still_conflict():
    found = rebased(
        [array(1, "/a", 6)], [array(1, "/a", 6)], AppendConflictSolver(append_dim="time",
        on_chunk_conflict=VersionSelection.Fail), base=snapshot(A),
        mine={"a1": [1, 4, 5]}, other={"a1": [1, 4, 5]},
    )  # fmt: skip
    (conflict,) = found
    assert conflict.conflicted_chunks.ravel().tolist() == [1]


# -- moves ----------------------------------------------------------------------------------------


def test_our_moves_take_along_what_they_created_below():
    found = rebased(
        [A, group(3, "/h"), array(2, "/h/b")], [A, G, B, array(7, "/g/new"), array(8, "/z")]
    )
    assert {path: node.id[0] for path, node in found.nodes.items() if path != "/"} == {
        "/a": 1, "/h": 3, "/h/b": 2, "/h/new": 7, "/z": 8
    }  # fmt: skip


def test_groups_that_they_deleted_are_there_again_for_our_nodes():
    found = rebased([A, G, B, array(7, "/g/new")], [A])
    assert found.nodes["/g"].id not in (G.id, None)
    assert [*found.nodes] == ["/", "/a", "/g", "/g/new"]


def test_a_conflict_is_shown_with_its_chunks():
    found = rebased([A, G, B], [A, G, B], **CHUNKS)
    assert repr(found) == "<ChunkDoubleUpdate /a in 1 chunks, [2] first>"
    many = Conflicts(Conflict(conflict_type=T.DeleteOfUpdatedGroup, path=f"/{n}") for n in range(7))
    assert repr(many).endswith("<DeleteOfUpdatedGroup /4>, and 2 more")
    ours = changes(BASE, snapshot(A, G, B), a1=[0])
    assert [*find_conflicts(ours, changes(BASE, BASE).log, BASE)] == []
