"""Sessions that work side by side are put together by one session, which commits for all."""

import os
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
import zarr

from icevirt.errors import ConflictError, ReadOnlyError, SessionStateError
from icevirt.model.chunks import ChunkTable
from icevirt.model.config.document import RepositoryConfig
from icevirt.repo.repository import Repository
from icevirt.repo.session import ForkSession, SessionMode
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
def test_a_worker_in_another_process_writes_what_one_commit_holds(repo, session, official):
    fork = pickle.dumps(session.fork())
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
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


# what one fork does, and what the other does, without knowing of it: they meet in a chunk
MEETING = {
    "both write values": (lambda s: write(s, 0, 1), lambda s: write(s, 0, 2)),
    "each writes a half": (lambda s: part(s, 0, 6), lambda s: part(s, 6, 12)),
    "one deletes the chunk": (lambda s: write(s, 0, 1), lambda s: s.delete_chunks("/a", [[0]])),
    "one moves chunks there": (lambda s: write(s, 2, 1), lambda s: s.shift_array("/a", (1,))),
    "one of many": (
        lambda s: [write(s, chunk, 1) for chunk in range(8)],
        lambda s: [write(s, chunk, chunk) for chunk in (7, 1)],
    ),
}


def part(session, start, stop):
    zarr.open_array(session.store, path="a", mode="r+")[start:stop] = 7


@pytest.mark.parametrize("inline", [0, 512])
@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("case", MEETING)
def test_a_chunk_that_two_forks_wrote_side_by_side_is_refused(session, case, order, inline):
    session.config.inline_chunk_threshold_bytes = inline
    forks = [session.fork() for _ in range(2)]
    for fork, change in zip(forks, MEETING[case], strict=True):
        change(fork)
    with pytest.raises(ConflictError, match="wrote the same chunk") as caught:
        session.merge(*forks[::order])
    assert (caught.value.facts["path"], caught.value.facts["block"]) == ("/a", (12,))
    assert "blocks of (12,) values" in str(caught.value)
    assert not session.has_uncommitted_changes
    session.merge(forks[0])  # one alone is merged
    with pytest.raises(ConflictError, match="wrote the same chunk"):
        forks[0].merge(forks[1])


def test_what_the_session_wrote_after_the_fork_is_not_lost(session):
    fork = session.fork()
    part(fork, 0, 6)
    part(session, 6, 12)
    with pytest.raises(ConflictError, match="wrote the same chunk"):
        session.merge(fork)
    assert zarr.open_array(session.store, path="a")[:12].tolist() == [*range(6), *[7] * 6]


@pytest.mark.parametrize("inline", [0, 512])
def test_the_same_bytes_of_two_forks_are_one_chunk(repo, session, inline):
    """Workers that write a region write the coordinates of the whole, too."""
    repo = repo.reopen(config=RepositoryConfig(inline_chunk_threshold_bytes=inline))
    session = repo.writable_session("main")
    forks = [session.fork() for _ in range(3)]
    for chunk, fork in enumerate(forks):
        write(fork, 0, 5)
        write(fork, chunk + 1, chunk)
    session.merge(*forks)
    assert values(session)[:4] == [5, 0, 1, 2]


def test_writers_that_work_one_after_the_other_hand_on_what_they_wrote(session):
    first = session.fork()
    part(first, 0, 4)
    second = pickle.loads(pickle.dumps(first))
    part(second, 4, 8)
    third = second.fork()
    part(third, 8, 12)
    second.merge(third)
    for order in ([first, second], [second, first], [second], [second, second]):
        parent = copy_of(session)
        parent.merge(*order)
        assert zarr.open_array(parent.store, path="a")[:12].tolist() == [7] * 12
    write(first, 0, 9)  # who goes on after it handed on is another writer
    with pytest.raises(ConflictError, match="wrote the same chunk"):
        session.merge(second, first)


def copy_of(session):
    """A session of the same version, that forks of the other are merged into."""
    return type(session)(session._context, session._base, "main", SessionMode.writable)


def test_a_merged_fork_may_go_on(session):
    fork = session.fork()
    for step in range(3):
        part(fork, 4 * step, 4 * step + 4)
        session.merge(fork)
    assert zarr.open_array(session.store, path="a")[:12].tolist() == [7] * 12


def test_a_child_process_is_another_writer(session):
    fork = session.fork()
    part(fork, 0, 1)
    reader, writer = os.pipe()
    if not (child := os.fork()):
        part(fork, 1, 6)
        os.write(writer, pickle.dumps(fork))
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        theirs = pickle.load(stream)
    session.merge(fork, theirs)
    assert zarr.open_array(session.store, path="a")[:12].tolist() == [7] * 6 + [*range(6, 12)]
    part(fork, 6, 12)
    with pytest.raises(ConflictError, match="wrote the same chunk"):
        session.merge(fork)


def test_what_was_discarded_does_not_come_back_with_a_fork(session):
    write(session, 0, 5)
    fork = session.fork()
    write(fork, 1, 6)
    session.discard_changes()
    session.merge(fork)
    assert values(session)[:2] == [0, 6]


def test_what_a_fork_discarded_is_not_missed(session):
    fork = session.fork()
    write(fork, 0, 5)
    inner = fork.fork()
    write(inner, 1, 6)
    fork.discard_changes()
    with pytest.raises(SessionStateError, match="the fork that it came from"):
        session.merge(inner)
    session.merge(fork, inner)
    assert values(session)[:2] == [0, 6]
    session.discard_changes()
    session.merge(inner)  # what is merged again is there again
    assert values(session)[:2] == [0, 6]


def resize(length):
    return lambda s: s.set_metadata("/a", array_json((length,)))


def test_forks_may_append_while_others_write(session):
    one, other = session.fork(), session.fork()
    resize(120)(one)
    write(one, 9, 9)
    write(other, 0, 1)
    session.merge(other, one)
    assert values(session) == [1, 12, *[-1] * 7, 9]


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
    "one deletes what the other writes into": (
        lambda s: write(s, 0, 1, "b"),
        lambda s: s.delete("/b"),
    ),
    "one writes chunks that mean something else": (
        lambda s: write(s, 0, 1),
        lambda s: s.set_metadata("/a", array_json((96,), (6,))),
    ),
    "one fills with another value": (
        lambda s: s.set_metadata("/b", array_json(fill_value=0)),
        lambda s: write(s, 0, 1, "b"),
    ),
    "one makes the array smaller": (lambda s: write(s, 7, 1), resize(72)),
    "the other makes the array smaller": (resize(72), lambda s: write(s, 7, 1)),
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
