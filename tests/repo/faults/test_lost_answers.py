"""Over a bad network: each request of a client to S3 goes wrong in each way, and nothing is lost.

The requests pass a proxy. Unlike in `test_crashes` the client's own retries are at work here, and the
server has done what the client never hears of.
"""

import itertools
from types import SimpleNamespace

import pytest

from icevirt.connect import retry
from icevirt.errors import StorageError
from icevirt.repo.repository import Repository
from icevirt.storage import object_store
from long_forms import IS_LONG, cases
from repo.faults import racers
from repo.faults.test_crashes import ACTS, commit, state, steps, template
from repo.faults.test_races import made as made_at
from repo.faults.test_races import nothing_is_lost
from repo.support import sound
from servers.faults import (
    ANSWER_LOST,
    DROPPED,
    applied_but_refused,
    conflicting,
    refused,
    truncated,
)
from servers.haste import hasten
from servers.places import S3Place
from servers.racing import raced

pytestmark = [pytest.mark.ci, pytest.mark.slow]

# of puts; the first two befall all requests
FAULTS = {
    "answer lost": ANSWER_LOST,
    "dropped": DROPPED,
    "500 but done": applied_but_refused(500),
    "503": refused(503, "SlowDown"),
    "409": conflicting(),
}
REPO = r"/repo(\?|$)"


@pytest.fixture
def fresh(s3_proxy, monkeypatch):
    """Lay down copies of one repository; give each as the server has it, and through the proxy.

    The client sends as often as usual, and waits shortly in between.
    """
    monkeypatch.setattr(object_store, "_LONGEST_PAUSE", 0.005)
    hasten(monkeypatch)
    numbers = itertools.count()

    def lay_down() -> tuple[S3Place, S3Place]:
        s3_proxy.rules.clear()
        prefix = f"{s3_proxy.direct.prefix}/{next(numbers)}"
        direct, proxied = (
            S3Place(endpoint=place.endpoint, prefix=prefix)
            for place in (s3_proxy.direct, s3_proxy.place)
        )
        store = direct.store()
        for info in template().list():
            store.put(info.path, template().get(info.path))
        return direct, proxied

    return lay_down


def outcome(act, direct, proxied, allowed) -> bool:
    """Act through the proxy; say whether it was acknowledged. What is left is as it should be."""
    try:
        act(Repository.open(proxied.icevirt()))
        acknowledged = True
    except StorageError:
        acknowledged = False
    storage = direct.icevirt()
    before, after = allowed
    left = state(storage)
    assert left == after or not (acknowledged or left != before)
    commit(Repository.open(storage), "main", 9, "next")  # heals nothing of what is checked now
    assert sound(storage)
    return acknowledged


CASES = [
    *((name, fault) for name in ("commit", "config save") for fault in FAULTS),
    ("amend", "answer lost"),
    ("expire", "500 but done"),
]


# a configuration is put like what a commit writes: a new object first, and `repo` in its place
HARD = ("answer lost", "409")
FEW = [case for case in CASES if case[0] != "config save"][-2:]
FEW += [("commit" if fault in HARD else "config save", fault) for fault in FAULTS]


@pytest.mark.parametrize(("name", "fault"), cases(CASES, *FEW))
def test_what_is_acknowledged_is_there_and_once(name, fault, fresh, s3_proxy):
    act, rules = ACTS[name], s3_proxy.rules
    direct, proxied = fresh()
    allowed = steps(act, direct.icevirt)
    act(Repository.open(fresh()[1].icevirt()))  # a process tries first whether S3 heeds conditions
    direct, proxied = fresh()
    before = state(direct.icevirt())
    (after,) = allowed - {before}
    rules.clear()
    act(Repository.open(proxied.icevirt()))
    everything = fault in ("answer lost", IS_LONG and "dropped") and name == "commit"
    methods = [request.method for request in rules.requests]
    spots = [at for at, method in enumerate(methods, 1) if everything or method == "PUT"]
    assert len(spots) >= 2
    for at in spots:
        direct, proxied = fresh()
        rules.add(FAULTS[fault], nth=at)
        acknowledged = outcome(act, direct, proxied, (before, after))
        assert rules.hits == 1
        assert acknowledged or fault == "409"


def test_a_client_that_never_hears_says_that_it_does_not_know(fresh, s3_proxy, monkeypatch):
    direct, proxied = fresh()
    repo = Repository.open(proxied.icevirt())
    away = {"target": REPO, "times": float("inf")}

    def instead_of_waiting(seconds):
        s3_proxy.rules.add(refused(403, "Forbidden"), method="GET", **away)

    s3_proxy.rules.add(ANSWER_LOST, method="PUT", **away)
    monkeypatch.setattr(object_store, "time", SimpleNamespace(sleep=instead_of_waiting))
    with pytest.raises(StorageError, match="unknown whether"):
        commit(repo, "main", 5, "unheard")
    history = [
        output.message for output in Repository.open(direct.icevirt()).ancestry(branch="main")
    ]
    assert history[:2] == ["unheard", "third"]
    assert sound(direct.icevirt())


def test_others_build_upon_a_commit_before_its_writer_asks_again(fresh, s3_proxy, monkeypatch):
    """The answer is lost, and before the request is sent again somebody has committed on top."""
    direct, proxied = fresh()
    repo, other = Repository.open(proxied.icevirt()), Repository.open(direct.icevirt())
    paused = []

    def instead_of_waiting(seconds):
        paused.append(seconds)
        commit(other, "main", 7, "on top")

    s3_proxy.rules.add(ANSWER_LOST, method="PUT", target=REPO)
    monkeypatch.setattr(object_store, "time", SimpleNamespace(sleep=instead_of_waiting))
    made = commit(repo, "main", 5, "overtaken")
    assert len(paused) == 1
    history = list(Repository.open(direct.icevirt()).ancestry(branch="main"))
    assert [output.message for output in history][:3] == ["on top", "overtaken", "third"]
    assert history[1].id == made
    assert sound(direct.icevirt())


def test_a_listing_that_breaks_off_is_not_a_short_one(fresh, s3_proxy, monkeypatch):
    """Garbage collection goes by listings: half of one must not look like all of it."""
    monkeypatch.setattr(retry, "TOTAL", 2.0)
    direct, proxied = fresh()
    before = state(direct.icevirt())
    repo = Repository.open(proxied.icevirt())
    s3_proxy.rules.add(truncated(100), method="GET", target=r"list-type", times=float("inf"))
    with pytest.raises(StorageError):
        ACTS["gc"](repo)
    assert state(direct.icevirt()) == before
    assert sound(direct.icevirt())


def test_writers_that_race_over_a_bad_network_lose_nothing(s3_proxy):
    rules, commits, writers = s3_proxy.rules, 6, 3
    made_at(s3_proxy.direct, commits * writers)
    for nth in range(1, 30):
        rules.add(ANSWER_LOST, method="PUT", target=REPO, nth=nth * 4)
        rules.add(refused(503, "SlowDown"), nth=nth * 7)
        rules.add(conflicting(), method="PUT", target=REPO, nth=nth * 6 + 1)
    found = raced(racers.commit_chunks, [(s3_proxy.place, n, commits) for n in range(writers)])
    assert rules.hits > 10
    nothing_is_lost(s3_proxy.direct, found)
