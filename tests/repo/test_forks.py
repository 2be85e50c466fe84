"""Sessions that work side by side are put together by one session, which commits for all."""

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
import zarr

from icevirt.errors import ConflictError, ReadOnlyError, SessionStateError
from icevirt.model.chunks import ChunkTable
from icevirt.repo.repository import Repository
from icevirt.repo.session import ForkSession
from icevirt.storage.local import local_filesystem_storage
from icevirt.versioning.merge.conflicts import ConflictDetector
from repo.support import array_json, group_json, sound


@pytest.fixture
def repo(repo, source):
    return repo.reopen(authorize_virtual_chunk_access=[source.prefix])


@pytest.fixture
def session(repo, source):
    begun = repo.writable_session("main")
    begun.add_array("/a", array_json((96,)), source.table(range(2)))
    begun.add_array("/b", array_json(), source.table(range(4)))
    begun.commit("base")
    return repo.writable_session("main")


def write(session, chunk, value, path="a"):
    array = zarr.open_array(session.store, path=path, mode="r+")
    array[chunk * 12 : chunk * 12 + 12] = value


def values(session, path="a"):
    return zarr.open_array(session.store, path=path, mode="r")[::12].tolist()


def work(raw: bytes, chunk: int) -> bytes:
    fork = pickle.loads(raw)
    write(fork, chunk, 100 + chunk)
    return pickle.dumps(fork)


@pytest.mark.ci
def test_workers_in_other_processes_write_one_commit(repo, session, official):
    fork = pickle.dumps(session.fork())
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        done = list(pool.map(work, [fork] * 6, range(2, 8)))
    session.merge(*map(pickle.loads, done))
    made = session.commit("together")
    expected = [0, 12, 102, 103, 104, 105, 106, 107]
    assert values(official().readonly_session("main")) == values(session) == expected
    history = list(official().ancestry(branch="main"))
    assert [s.message for s in history][:2] == ["together", "base"]
    diff = repo.diff(from_snapshot_id=history[1].id, to_snapshot_id=made)
    assert diff.updated_chunks["/a"].ravel().tolist() == [2, 3, 4, 5, 6, 7]
    assert sound(repo.storage)


def test_a_fork_begins_with_the_changes_made_so_far_and_sees_its_own(session, source):
    session.add_array("/new", array_json(), ChunkTable.empty(1))
    write(session, 0, 5)
    fork = pickle.loads(pickle.dumps(session.fork()))
    write(fork, 1, 6, "new")
    write(fork, 1, 6)
    assert values(fork)[:3] == [5, 6, -1]
    assert values(session)[:3] == [5, 12, -1]
    write(session, 2, 7)
    session.merge(fork)
    assert values(session)[:3] == [5, 6, 7]
    assert values(session, "new") == [-1, 6, -1, -1]
    session.commit("x")


def test_the_fork_that_is_merged_last_wins(session):
    forks = [session.fork() for _ in range(3)]
    for value, fork in enumerate(forks):
        write(fork, 0, value)
    session.merge(forks[2], forks[0], forks[1])
    assert values(session)[0] == 1


def test_forks_of_forks_are_merged_where_they_came_from(session):
    fork = session.fork()
    zarr.open_group(fork.store).create_array("n", shape=(24,), chunks=(12,), dtype="i4")[:] = 1
    inner = fork.fork()
    write(inner, 1, 2, "n")
    fork.merge(inner)
    session.merge(fork)
    assert values(session, "n") == [1, 2]


def test_a_discarded_fork_is_as_it_began(session):
    write(session, 0, 5)
    fork = session.fork()
    write(fork, 0, 6)
    fork.discard_changes()
    assert values(fork)[0] == 5


def add(path, document):
    return lambda s: s.add_group(path, document)


MINE, YOURS = group_json(who="mine"), group_json(who="yours")

# what is odd: (one fork, the other fork)
REFUSED = {
    "both add an array": (
        lambda s: s.add_array("/n", array_json(), ChunkTable.empty(1)),
        lambda s: s.add_array("/n", array_json(), ChunkTable.empty(1)),
    ),
    "both add a group, and say different things": (add("/n", MINE), add("/n", YOURS)),
    "both change one node": (
        lambda s: s.set_metadata("/", MINE),
        lambda s: s.set_metadata("/", YOURS),
    ),
    "one changes what the other deleted": (
        lambda s: s.delete("/b"),
        lambda s: s.set_metadata("/b", array_json((60,))),
    ),
    "one deletes what the other changed": (
        lambda s: s.set_metadata("/b", array_json((60,))),
        lambda s: s.delete("/b"),
    ),
    "one writes into what the other deleted": (
        lambda s: s.delete("/b"),
        lambda s: write(s, 0, 1, "b"),
    ),
    "one deletes the group the other adds to": (
        lambda s: s.add_group("/n", MINE),
        lambda s: s.delete("/"),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_forks_that_changed_one_node_are_not_merged(session, case):
    one, other = session.fork(), session.fork()
    REFUSED[case][0](one)
    REFUSED[case][1](other)
    write(session, 5, 5)
    with pytest.raises(ConflictError, match="before `fork`"):
        session.merge(one, other)
    assert values(session)[5] == 5
    session.merge(one)  # the refusal changed nothing


# what is odd: (one fork, the other fork)
MERGED = {
    "the same plain parents": (add("/p/q", MINE), add("/p/r", YOURS)),
    "the same metadata": (
        lambda s: s.set_metadata("/", MINE),
        lambda s: s.set_metadata("/", MINE),
    ),
    "the same delete": (lambda s: s.delete("/b"), lambda s: s.delete("/b")),
    "metadata and chunks": (
        lambda s: s.set_metadata("/b", array_json(attributes={"x": 1})),
        lambda s: write(s, 0, 1, "b"),
    ),
    "nothing": (lambda _: None, lambda _: None),
}


@pytest.mark.parametrize("case", MERGED)
def test_forks_that_agree_are_merged(repo, session, case):
    one, other = session.fork(), session.fork()
    MERGED[case][0](one)
    MERGED[case][1](other)
    session.merge(one, other)
    session.commit("merged", allow_empty=True)
    assert sound(repo.storage)


@pytest.mark.parametrize("verb", ["commit", "amend", "flush"])
def test_a_fork_does_not_commit(session, verb):
    fork = session.fork()
    write(fork, 0, 1)
    with pytest.raises(SessionStateError, match="merge"):
        getattr(fork, verb)("no")
    assert (fork.read_only, fork.branch) == (False, None)


def test_only_forks_of_the_same_snapshot_are_merged(repo, session):
    with pytest.raises(SessionStateError, match="only forks"):
        session.merge(repo.writable_session("main"))
    fork = session.fork()
    other = repo.writable_session("main")
    write(other, 0, 1)
    other.commit("x")
    with pytest.raises(SessionStateError, match="before a rebase"):
        repo.writable_session("main").merge(fork)


def test_a_fork_of_another_repository_is_not_merged(tmp_path):
    """Both begin at the snapshot that every repository begins with, and its chunks lie elsewhere."""
    one, other = (
        Repository.create(local_filesystem_storage(tmp_path / name)).writable_session("main")
        for name in ("one", "other")
    )
    assert one.snapshot_id == other.snapshot_id
    with pytest.raises(SessionStateError, match="only forks of this session"):
        one.merge(pickle.loads(pickle.dumps(other.fork())))
    one.merge(pickle.loads(pickle.dumps(one.fork())))


def test_a_session_that_takes_no_changes_is_not_forked(repo, session):
    with pytest.raises(ReadOnlyError):
        repo.readonly_session("main").fork()
    with pytest.raises(SessionStateError):
        repo.rearrange_session("main").fork()


def test_read_only_sessions_and_forks_pickle_and_writable_ones_do_not(repo, session):
    reader = pickle.loads(pickle.dumps(repo.readonly_session("main")))
    assert values(reader)[:2] == [0, 12]
    assert isinstance(pickle.loads(pickle.dumps(session.fork())), ForkSession)
    store = pickle.loads(pickle.dumps(session.fork().store))
    assert not store.read_only
    with pytest.raises(SessionStateError):
        pickle.dumps(session)


def test_merged_forks_rebase_as_one(repo, session, official):
    fork = session.fork()
    write(fork, 3, 3)
    first = official().writable_session("main")
    write(first, 4, 4)
    first.commit("theirs")
    session.merge(fork)
    session.commit("ours", rebase_with=ConflictDetector())
    assert values(official().readonly_session("main"))[3:5] == [3, 4]
    assert np.array_equal(session.chunk_coordinates("/a").ravel(), [0, 1, 3, 4])
