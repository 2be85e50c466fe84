"""Whatever the clocks say: no writer leaves a repository that the others cannot write to.

The clocks of the machines are replaced; that of the storage is that of a server which is ahead or
behind.
"""

import itertools
import time
from contextlib import contextmanager
from datetime import timedelta

import icechunk
import numpy as np
import pytest
import zarr

from icevirt.errors import StorageError
from icevirt.model.chunks import ChunkTable
from icevirt.repo.maintenance.check import check
from icevirt.repo.repository import Repository
from icevirt.storage.memory import MemoryStorage
from icevirt.storage.protocol import LostRace
from icevirt.versioning.history.timestamps import lag, moment
from icevirt.versioning.merge.conflicts import ConflictDetector
from repo.support import array_json, group_json, sound
from servers.fixtures import gcs_running
from servers.places import GcsPlace

SECOND = 1_000_000
DAY = 86_400 * SECOND


def real() -> int:
    return time.time_ns() // 1000


def opened(storage, ahead: int = 0) -> Repository:
    """Open a repository on a machine whose clock is so many microseconds ahead."""
    repo = Repository.open(storage)
    repo.head.now = lambda: real() + ahead
    return repo


def commit(repo, name: str) -> str:
    session = repo.writable_session("main")
    session.add_group(f"/{name}", group_json())
    return session.commit(name)


def commit_officially(storage, name: str) -> str:
    session = icechunk.Repository.open(storage).writable_session("main")
    zarr.create_group(session.store, path=name)
    return session.commit(name)


def messages(storage) -> list[str]:
    return [output.message for output in Repository.open(storage).ancestry(branch="main")][::-1]


@contextmanager
def skewed(seconds: float):
    with gcs_running(ahead=seconds) as url:
        yield GcsPlace(endpoint=url, prefix="repo")


def test_a_writer_whose_clock_is_a_day_ahead_is_stopped_and_nobody_else(local):
    Repository.create(local.icevirt())
    hasty = opened(local.icevirt(), DAY)
    for act in (commit, Repository.create_tag):
        with pytest.raises(StorageError, match="ahead of the storage's"):
            act(hasty, "x") if act is commit else act(hasty, "x", hasty.lookup_branch("main"))
    hasty.head.now = real  # somebody has set the clock
    commit(hasty, "ours")
    commit_officially(local.official(), "theirs")
    assert messages(local.icevirt())[1:] == ["ours", "theirs"]
    assert sound(local.icevirt())


def test_a_clock_that_is_set_wrong_between_two_commits_is_noticed(local):
    repo = Repository.create(local.icevirt())
    commit(repo, "one")
    repo.head.now = lambda: real() + DAY
    with pytest.raises(StorageError, match="ahead of the storage's"):
        commit(repo, "two")
    commit_officially(local.official(), "theirs")
    assert messages(local.icevirt())[1:] == ["one", "theirs"]


@pytest.mark.ci
def test_a_clock_that_goes_backwards_a_little_stops_nobody(local):
    storage = local.icevirt()
    Repository.create(storage)
    drifts = [1_500_000, 0, 1_000_000, -30 * SECOND, -5 * SECOND, 1_200_000, 0]
    for number, ahead in enumerate(drifts):
        commit(opened(storage, ahead), f"n{number}")
    times = [output.written_at for output in Repository.open(storage).ancestry(branch="main")]
    assert times == sorted(set(times), reverse=True)
    time.sleep(1.5)  # the official client waits for the future to come
    commit_officially(local.official(), "theirs")
    assert len(messages(storage)) == len(drifts) + 2
    assert sound(storage)


def test_a_clock_that_goes_backwards_a_lot_stops_its_own_writer_only(local):
    storage = local.icevirt()
    Repository.create(storage)
    with pytest.raises(StorageError, match="in the future of this machine's clock"):
        commit(opened(storage, -DAY), "x")
    commit(opened(storage), "ours")
    commit_officially(local.official(), "theirs")
    assert sound(storage)


@pytest.mark.servers
@pytest.mark.parametrize("seconds", [5, -5])
def test_a_storage_whose_clock_differs_is_written_to_by_both_clients(seconds):
    with skewed(seconds) as place:
        Repository.create(place.icevirt())
        for number in range(3):
            commit(Repository.open(place.icevirt()), f"ours{number}")
            commit_officially(place.official(), f"theirs{number}")
        assert len(messages(place.icevirt())) == 7
        repo = Repository.open(place.icevirt())
        repo.expire_snapshots(moment(real()))
        repo.garbage_collect(moment(real()))
        assert sound(place.icevirt())
        commit_officially(place.official(), "last")


@pytest.mark.servers
def test_a_storage_whose_clock_is_far_behind_is_not_written_to():
    """To every other client on it the machine's clock would be as far ahead."""
    with skewed(-3600) as place:
        repo = Repository.create(place.icevirt())
        with pytest.raises(StorageError, match="or of the storage"):
            commit(repo, "x")


@pytest.mark.ci
@pytest.mark.servers
@pytest.mark.parametrize("seconds", [5, -5])
def test_what_an_open_session_wrote_is_no_garbage_though_the_clocks_differ(seconds):
    """The collection is told a time before the session began, as it has to be."""
    with skewed(seconds) as place:
        repo = Repository.create(place.icevirt())
        session = repo.writable_session("main")
        session.add_array("/a", array_json(), ChunkTable.empty(1))
        before = moment(real()) - timedelta(milliseconds=1)
        session.set_chunk("/a", [0], b"\1" * 600)
        time.sleep(2.5)
        Repository.open(place.icevirt()).garbage_collect(before)
        session.commit("kept")
        assert sound(place.icevirt())
        assert messages(place.icevirt())[-1] == "kept"
        chunks = list(place.icevirt().list("chunks"))
        assert len(chunks) == 1


@pytest.mark.parametrize(
    ("now", "written", "expected"),
    [
        (10_000_000, 10_000_000, 0),
        (10_900_000, 10_000_000, 0),  # cut off to seconds
        (10_004_000, 10_000_001, 0),  # a coarse clock
        (15_900_000, 10_000_000, 5_900_000),
        (15_000_000, 10_000_001, 4_999_999),
        (10_000_000, 15_000_000, 0),
    ],
)
def test_a_lag_is_never_taken_for_less_than_it_may_be(now, written, expected):
    assert lag(now, written) == expected


@pytest.mark.ci
def test_two_writers_in_one_microsecond(local):
    storage = local.icevirt()
    Repository.create(storage)
    first = opened(storage).writable_session("main")
    first.add_array("/a", array_json((120,)), ChunkTable.empty(1))
    first.commit("array")
    moment_of_both = real()
    repos = [Repository.open(storage) for _ in range(2)]
    for repo in repos:
        repo.head.now = lambda: moment_of_both
    for number in range(5):
        sessions = [repo.writable_session("main") for repo in repos]
        for which, session in enumerate(sessions):
            index = np.array([[number * 2 + which]])
            session.set_chunks("/a", ChunkTable.of_inline(index=index, chunks=[b"\1\0\0\0" * 12]))
            session.commit(f"{number} {which}", rebase_with=ConflictDetector())
    updates = [update.updated_at for update in Repository.open(storage).ops_log()]
    assert updates == sorted(set(updates), reverse=True)
    commit_officially(local.official(), "theirs")
    assert len(messages(storage)) == 13
    assert sound(storage)


def test_a_commit_that_waits_eleven_minutes_leaves_a_repository_for_all(local, monkeypatch):
    """Its snapshot was written; then others kept it from being published, and it rebased."""
    storage, waited = local.icevirt(), 660 * SECOND
    with monkeypatch.context() as patched:
        patched.setattr("icevirt.repo.repo_info_file._now", lambda: real() - 2 * waited)
        commit(Repository.create(storage), "first")

    class Kept:
        """Loses the first race for `repo`, and by then it is later."""

        url = storage.url
        tries = itertools.count(1)

        def __getattr__(self, name):
            return getattr(storage, name)

        def put_if(self, path, body, *, was, **more):
            if path == "repo" and next(self.tries) == 1:
                repo.head.now = real
                commit(opened(storage), "faster")
                return LostRace()
            return storage.put_if(path, body, was=was, **more)

    repo = Repository.open(Kept())
    session = repo.writable_session("main")
    session.add_group("/slow", group_json())
    repo.head.now = lambda: real() - waited
    made = session.commit("slow", rebase_with=ConflictDetector())
    output = Repository.open(storage).lookup_snapshot(made)
    assert abs(output.written_at.timestamp() - time.time()) < 60
    commit_officially(local.official(), "theirs")
    assert messages(storage)[1:] == ["first", "faster", "slow", "theirs"]
    assert sound(storage)


def test_a_snapshot_that_waited_eleven_minutes_to_be_published_leaves_one_too(local, monkeypatch):
    """Others changed something else meanwhile, so that it is published as it was written."""
    storage, waited = local.icevirt(), 660 * SECOND
    with monkeypatch.context() as patched:
        patched.setattr("icevirt.repo.repo_info_file._now", lambda: real() - 2 * waited)
        Repository.create(storage)

    class Kept:
        url = storage.url
        tries = itertools.count(1)

        def __getattr__(self, name):
            return getattr(storage, name)

        def put_if(self, path, body, *, was, **more):
            if path == "repo" and next(self.tries) == 1:
                repo.head.now = real
                for each, content in more["after"].items():
                    storage.put(each, content)
                opened(storage).create_tag("v1", repo.lookup_branch("main"))
                return LostRace()
            return storage.put_if(path, body, was=was, **more)

    repo = Repository.open(Kept())
    repo.head.now = lambda: real() - waited
    commit(repo, "slow")
    commit_officially(local.official(), "theirs")
    assert messages(storage)[1:] == ["slow", "theirs"]
    assert sound(storage)


def test_clocks_of_writers_that_race_may_all_differ():
    storage = MemoryStorage()
    Repository.create(storage)
    repos = [opened(storage, ahead * SECOND) for ahead in (-5, 0, 5, 50, -50, 60)]
    for number, repo in enumerate(repos * 3):
        commit(repo, f"n{number}")
    assert len(messages(storage)) == 19
    assert sound(storage)


# -- clocks that jump ----------------------------------------------------------------------------

HOUR = 3600 * SECOND


class Jumping:
    """A machine's clock that somebody sets, and a storage whose clock is that of the machine."""

    def __init__(self) -> None:
        self.ahead = 0

    def __call__(self) -> int:
        return real() + self.ahead


class OfTheMachine(MemoryStorage):
    """A disk: it dates files by the clock of the machine, so that nothing tells a wrong one."""

    def __init__(self, clock) -> None:
        super().__init__()
        self.clock, self.dates = clock, {}

    def put(self, path, body):
        self.dates[path] = self.clock()
        super().put(path, body)

    def put_if(self, path, body, *, was, **more):
        done = super().put_if(path, body, was=was, **more)
        if not isinstance(done, LostRace):
            self.dates[path] = self.clock()
        return done

    def list(self, prefix=""):
        for info in super().list(prefix):
            yield info._replace(last_modified=self.dates[info.path])


@pytest.fixture
def machine():
    clock = Jumping()
    storage = OfTheMachine(clock)
    repo = Repository.create(storage)
    repo.head.now = clock
    return clock, storage, repo


def stamps_ascend(storage) -> None:
    repo = Repository.open(storage)
    for times in (
        [output.written_at for output in repo.ancestry(branch="main")],
        [entry.updated_at for entry in repo.ops_log()],
    ):
        assert times == sorted(set(times), reverse=True)


@contextmanager
def done_or_refused():
    """What a wrong clock stops names the clock, and a remedy."""
    try:
        yield
    except StorageError as error:
        if "clock" not in str(error) or not error.do:
            raise


def intact(storage) -> bool:
    """Check all but that nothing is dated in the future, which the real clock says."""
    return {problem.code for problem in check(storage).problems} <= {"future"}


JUMPS = {
    "an hour back": [0, -HOUR, -HOUR, 0],
    "days back": [0, -5 * DAY, 0],
    "an hour ahead and back": [HOUR, HOUR, 0, HOUR],
    "days ahead and back": [3 * DAY, 0, 0, 3 * DAY],
    "to and fro": [0, 60 * SECOND, -60 * SECOND, 90 * SECOND, 0, -20 * SECOND],
    "summer time, twice": [0, HOUR, 0, HOUR, 2 * HOUR],
}


@pytest.mark.parametrize("jumps", JUMPS.values(), ids=JUMPS.keys())
def test_whatever_jumps_stamps_ascend_and_what_was_acknowledged_is_there(machine, jumps):
    """A commit may be refused, by an error that says why."""
    clock, storage, repo = machine
    acknowledged = []
    for number, ahead in enumerate(jumps):
        clock.ahead = ahead
        for writer in (repo, Repository.open(storage)):
            writer.head.now = clock
            with done_or_refused():
                name = f"n{number}-{len(acknowledged)}"
                commit(writer, name)
                acknowledged.append(name)
    clock.ahead = max(jumps)
    commit(repo, "last")
    assert messages(storage)[1:] == [*acknowledged, "last"]
    stamps_ascend(storage)


@pytest.mark.parametrize("jump", [-30 * SECOND, 60 * SECOND, 100 * SECOND, -100 * SECOND])
def test_a_clock_that_jumps_during_a_rebase_leaves_stamps_ascending(machine, jump):
    clock, storage, repo = machine
    commit(repo, "root")
    first, second = (repo.writable_session("main") for _ in range(2))
    first.add_group("/first", group_json())
    second.add_group("/second", group_json())
    first.commit("first")
    ticks = itertools.count()

    def jumping() -> int:
        clock.ahead = jump if next(ticks) % 2 else 0
        return clock()

    repo.head.now = jumping
    second.commit("second", rebase_with=ConflictDetector())
    assert messages(storage)[1:] == ["root", "first", "second"]
    stamps_ascend(storage)


@pytest.mark.parametrize(
    "jump", [-30 * DAY, -DAY, -HOUR, HOUR, DAY, 30 * DAY], ids=lambda jump: f"{jump // HOUR} h"
)
@pytest.mark.parametrize("before", [False, True], ids=["after the commits", "before the commits"])
def test_garbage_collection_never_deletes_what_branches_need_whatever_the_clock(
    machine, jump, before
):
    """Age decides about garbage only, so a wrong clock can keep too much, and no more."""
    clock, storage, repo = machine
    clock.ahead = jump if before else 0
    done: set[str] = set()
    with done_or_refused():
        commit(repo, "one")
        done.add("/one")
        session = repo.writable_session("main")
        session.add_array("/a", array_json((24,)), ChunkTable.empty(1))
        session.set_chunk("/a", [0], b"\1" * 600)
        session.commit("two")
        done.add("/a")
    assert done or (before and jump < 0)
    clock.ahead = 0 if before else jump
    collector = Repository.open(storage)
    collector.head.now = clock
    for age in (timedelta(0), timedelta(days=7)):
        cutoff = moment(clock()) - age
        with done_or_refused():
            collector.expire_snapshots(cutoff)
        with done_or_refused():
            collector.garbage_collect(cutoff)
    assert intact(storage)
    session = Repository.open(storage).readonly_session("main")
    assert {node.path for node in session.snapshot.nodes} >= done


@pytest.mark.parametrize("jump", [-2 * DAY, 2 * DAY], ids=["back", "ahead"])
def test_the_default_age_protects_an_open_session_from_a_jump_of_days(machine, jump):
    """Seven days are more than a clock is usually wrong."""
    clock, storage, repo = machine
    session = repo.writable_session("main")
    session.add_array("/a", array_json((24,)), ChunkTable.empty(1))
    session.set_chunk("/a", [0], b"\1" * 600)
    clock.ahead = jump
    collector = Repository.open(storage)
    collector.head.now = clock
    with done_or_refused():
        collector.garbage_collect()
    clock.ahead = max(0, jump)
    session.commit("x")
    assert intact(storage)
