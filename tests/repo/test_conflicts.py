"""What icevirt calls a conflict the official client calls one too, case by case, both ways round."""

import pickle
import shutil

import icechunk
import numpy as np
import pytest
import zarr

from icevirt.errors import ConflictError, RebaseFailedError
from icevirt.repo.repository import Repository
from icevirt.versioning.merge.conflicts import (
    BasicConflictSolver,
    ConflictDetector,
    ConflictType,
    VersionSelection,
)
from repo.support import group_json, sound


def opened(session) -> zarr.Group:
    return zarr.open_group(session.store, mode="r" if session.read_only else "a")


def nothing(_group) -> None:
    """Change nothing."""


def write(path, at, value=5):
    def change(group):
        group[path][at] = value

    return change


def attribute(path, **attributes):
    def change(group):
        group[path].attrs.update(**attributes)

    return change


def resize(path, to):
    return lambda group: group[path].resize(to)


def add_array(path):
    def change(group):
        group.create_array(path, shape=(2,), chunks=(1,), dtype="i4", fill_value=0)[:] = 7

    return change


def add_group(path):
    return lambda group: group.create_group(path)


def delete(path):
    def change(group):
        del group[path]

    return change


def both(*changes):
    def change(group):
        for each in changes:
            each(group)

    return change


# what is odd: (ours, theirs)
CASES = {
    "different arrays": (write("a", 1), write("b", 1)),
    "different chunks of one array": (write("a", 1), write("a", 2)),
    "the same chunk": (write("a", slice(0, 3)), write("a", slice(2, 5))),
    "the same chunk, deleted by us": (write("a", 1, 0), write("a", 1)),
    "both add a group": (add_group("n"), add_group("n")),
    "both add below a new group": (add_group("n/m"), add_group("n/k")),
    "they add an array where we add a group": (add_group("n"), add_array("n")),
    "we add below what became an array": (
        add_group("g/h/x/y"),
        both(delete("g/h"), add_array("g/h")),
    ),
    "both change attributes of an array": (attribute("a", x=1), attribute("a", y=1)),
    "both change attributes of a group": (attribute("g", x=1), attribute("g", x=1)),
    "both append": (both(resize("a", 9), write("a", 8)), both(resize("a", 9), write("a", 8))),
    "attributes of an array they deleted": (attribute("a", x=1), delete("a")),
    "attributes of a group they deleted": (attribute("g", x=1), delete("g")),
    "chunks of an array they deleted": (write("a", 1), delete("a")),
    "chunks of an array whose attributes they changed": (write("a", 1), attribute("a", x=1)),
    "chunks of an array they resized": (write("a", 1), resize("a", 9)),
    "attributes of an array whose chunks they wrote": (attribute("a", x=1), write("a", 1)),
    "a resize of an array whose chunks they wrote": (resize("a", 4), write("a", slice(2, 6))),
    "we delete an array whose chunks they wrote": (delete("a"), write("a", 1)),
    "we delete an array they resized": (delete("a"), resize("a", 9)),
    "we delete a group whose attributes they changed": (delete("g"), attribute("g", x=1)),
    "we delete a group with a changed one inside": (delete("g"), attribute("g/h", x=1)),
    "we recreate an array whose chunks they wrote": (
        both(delete("a"), add_array("a")),
        write("a", 1),
    ),
    "we recreate an array they left alone": (both(delete("a"), add_array("a")), write("b", 1)),
    "both delete an array": (delete("a"), delete("a")),
    "we delete what lies in a group they deleted": (delete("g/h"), delete("g")),
    "we add below a group they deleted": (add_group("g/h/x"), delete("g/h")),
    "they move something": (write("a", 1), None),
}

# the official client goes on without a word and drops or hides acknowledged changes
STRICTER = {
    "they add below a group we delete": (
        delete("g"),
        add_group("g/new"),
        ConflictType.DeleteOfUpdatedGroup,
    ),
    "both recreate an array": (
        both(delete("a"), add_array("a")),
        both(delete("a"), add_array("a")),
        ConflictType.NewNodeConflictsWithExistingNode,
    ),
}


def their(path):
    return icechunk.Repository.open(icechunk.local_filesystem_storage(str(path)))


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A repository of two arrays and two groups."""
    path = tmp_path_factory.mktemp("conflicts") / "base"
    repo = Repository.create(str(path))
    session = repo.writable_session("main")
    group = opened(session)
    group.create_array("a", shape=(8,), chunks=(1,), dtype="i4", fill_value=0)[:] = 1
    group.create_array("b", shape=(4,), chunks=(1,), dtype="i4", fill_value=0)[:] = 1
    group.create_group("g").create_group("h")
    session.commit("base")
    return path


@pytest.fixture
def path(base, tmp_path):
    return shutil.copytree(base, tmp_path / "repo")


def race(path, mine, other, ours, theirs):
    """Begin a session, let another commit come first, and return the session."""
    session = mine(path).writable_session("main")
    ours(opened(session))
    if theirs is None:
        first = other(path).rearrange_session("main")
        first.move("/g/h", "/moved")
    else:
        first = other(path).writable_session("main")
        theirs(opened(first))
    first.commit("theirs")
    return session


def ours_of(path) -> Repository:
    return Repository.open(str(path))


def kind_of(conflict) -> str:
    kind = conflict.conflict_type
    return kind.name if isinstance(kind, ConflictType) else repr(kind).split(".")[-1]


def decided(session, detector):
    """What a client says of the conflicts: kind, path, chunks."""
    try:
        session.rebase(detector)
    except (RebaseFailedError, icechunk.RebaseFailedError) as error:
        return sorted(
            (
                kind_of(c),
                "" if kind_of(c).startswith("Move") else c.path,  # the official one names none
                sorted(map(list, c.conflicted_chunks if c.conflicted_chunks is not None else ())),
            )
            for c in error.conflicts
        )
    return []


def state(session):
    """Return everything that a reader sees."""
    found = {"": dict(opened(session).attrs)}
    for name, member in opened(session).members(max_depth=None):
        values = member[:].tolist() if isinstance(member, zarr.Array) else None
        found[name] = (dict(member.attrs), values)
    return found


@pytest.mark.parametrize("case", CASES)
def test_conflicts_are_those_the_official_client_finds(path, tmp_path, case):
    copy = shutil.copytree(path, tmp_path / "other")
    found = decided(race(copy, their, their, *CASES[case]), icechunk.ConflictDetector())
    ours = race(path, ours_of, their, *CASES[case])
    assert decided(ours, ConflictDetector()) == found


HIDDEN = "we add below a group they deleted"  # theirs is there and cannot be listed


@pytest.mark.parametrize("case", CASES)
def test_a_rebase_ends_where_the_official_one_ends(path, tmp_path, case):
    """Each over a commit of the other, with the basic solver."""
    copy = shutil.copytree(path, tmp_path / "other")
    theirs, ours = (
        race(copy, their, ours_of if CASES[case][1] else their, *CASES[case]),
        race(path, ours_of, their, *CASES[case]),
    )
    outcomes = []
    for session, solver in (
        (theirs, icechunk.BasicConflictSolver()),
        (ours, BasicConflictSolver()),
    ):
        try:
            session.commit("ours", rebase_with=solver)
        except (RebaseFailedError, icechunk.RebaseFailedError):
            outcomes.append("refused")
        else:
            outcomes.append(state(session))
    if case != HIDDEN:
        assert outcomes[0] == outcomes[1]
    if outcomes[1] != "refused":
        assert outcomes[1] == state(their(path).readonly_session("main"))
        history = ours_of(path).ancestry(branch="main")
        assert next(history).metadata == {"__icechunk": {"rebase_attempts": 1}}
    assert sound(str(path))


@pytest.mark.parametrize("case", STRICTER)
def test_acknowledged_changes_are_not_dropped_without_a_word(path, case):
    ours, theirs, kind = STRICTER[case]
    session = race(path, ours_of, their, ours, theirs)
    with pytest.raises(RebaseFailedError) as error:
        session.commit("ours", rebase_with=ConflictDetector())
    assert [c.conflict_type for c in error.value.conflicts] == [kind]


def test_our_delete_of_a_group_takes_what_they_added_if_the_solver_says_so(path):
    session = race(path, ours_of, their, delete("g"), add_group("g/new/er"))
    session.commit("ours", rebase_with=BasicConflictSolver())
    assert sorted(state(session)) == ["", "a", "b"]
    assert sound(str(path))


def test_chunks_they_wrote_for_another_encoding_are_a_conflict(path):
    session = ours_of(path).writable_session("main")
    document = session.node("/a").user_data.replace(b'"int32"', b'"float32"')
    session.set_metadata("/a", document)
    first = their(path).writable_session("main")
    opened(first)["a"][1] = 5
    first.commit("theirs")
    with pytest.raises(RebaseFailedError, match="ChunksUpdatedInUpdatedArray"):
        session.rebase(BasicConflictSolver())


@pytest.mark.parametrize(
    ("chosen", "values"),
    [(VersionSelection.UseOurs, [1, 5, 5, 6]), (VersionSelection.UseTheirs, [1, 5, 6, 6])],
)
def test_the_solver_chooses_whose_chunks_are_kept(path, chosen, values):
    session = race(path, ours_of, their, write("a", slice(1, 3)), write("a", slice(2, 4), 6))
    session.commit("ours", rebase_with=BasicConflictSolver(on_chunk_conflict=chosen))
    assert opened(session)["a"][:4].tolist() == values
    assert opened(their(path).readonly_session("main"))["a"][:4].tolist() == values


def test_a_solver_may_refuse_to_delete_what_changed(path):
    session = race(path, ours_of, their, both(delete("a"), delete("g")), write("a", 1))
    with pytest.raises(RebaseFailedError, match="DeleteOfUpdatedArray /a"):
        session.rebase(BasicConflictSolver(fail_on_delete_of_updated_array=True))
    session.rebase(BasicConflictSolver(fail_on_delete_of_updated_group=True))


def test_a_rebase_stops_at_the_last_commit_it_could_follow(path):
    session = ours_of(path).writable_session("main")
    opened(session)["a"][1] = 5
    commits = []
    for change in (write("b", 1), write("a", 1), write("b", 2)):
        first = their(path).writable_session("main")
        change(opened(first))
        commits.append(first.commit("theirs"))
    with pytest.raises(RebaseFailedError) as error:
        session.rebase(ConflictDetector())
    assert (session.snapshot_id, error.value.snapshot) == (commits[0], commits[1])
    assert opened(session)["a"][1] == opened(session)["b"][1] == 5
    session.commit("ours", rebase_with=BasicConflictSolver())
    assert opened(session)["b"][2] == 5


def test_a_failed_rebase_is_said_with_its_conflicts_and_pickles(path):
    session = race(path, ours_of, their, write("a", slice(0, 3)), write("a", slice(2, 5)))
    with pytest.raises(RebaseFailedError, match=r"ChunkDoubleUpdate /a in 1 chunks, \[2\] first"):
        session.commit("ours", rebase_with=ConflictDetector())
    with pytest.raises(RebaseFailedError) as error:
        session.rebase(ConflictDetector())
    again = pickle.loads(pickle.dumps(error.value))
    assert str(again) == str(error.value)
    np.testing.assert_array_equal(again.conflicts[0].conflicted_chunks, [[2]])


def test_without_a_solver_a_commit_that_comes_second_is_refused(path):
    session = race(path, ours_of, their, write("a", 1), write("b", 1))
    with pytest.raises(ConflictError) as error:
        session.commit("ours")
    assert not isinstance(error.value, RebaseFailedError)
    assert opened(session)["a"][1] == 5
    session.rebase(ConflictDetector())
    session.commit("ours")


def test_a_rebase_says_how_often_it_was_tried(path):
    repo = ours_of(path)
    session = repo.writable_session("main")
    session.set_metadata("/g", group_json(x=1))
    made = session.commit("x", {"k": 1}, rebase_with=ConflictDetector())
    assert repo.lookup_snapshot(made).metadata == {"k": 1, "__icechunk": {"rebase_attempts": 0}}


def test_a_rebase_that_may_not_be_tried_is_refused(path):
    session = race(path, ours_of, their, write("a", 1), write("b", 1))
    with pytest.raises(ConflictError):
        session.commit("ours", rebase_with=ConflictDetector(), rebase_tries=0)


def test_a_rewritten_history_is_said(path):
    repo = ours_of(path)
    session = race(path, ours_of, their, write("a", 1), write("b", 1))
    root = list(repo.ancestry(branch="main"))[-1].id
    repo.reset_branch("main", root)
    with pytest.raises(ConflictError, match="no longer contains"):
        session.commit("ours", rebase_with=ConflictDetector())


def test_a_transaction_rebases_too(path):
    repo = ours_of(path)
    with repo.transaction("main", message="ours", rebase_with=ConflictDetector()) as store:
        zarr.open_group(store)["a"][1] = 5
        first = their(path).writable_session("main")
        opened(first)["b"][1] = 6
        first.commit("theirs")
    final = opened(their(path).readonly_session("main"))
    assert (final["a"][1], final["b"][1]) == (5, 6)
