"""Driver, JVM, executors and workers die at random moments of builds: each resumes to the same bytes.

``ICEVIRT_BUILD_DEATHS=50`` is how many builds (`just build-deaths`); the seed of the moments is in
the report, with what died and how often, and what the build was doing then.
"""

import contextlib
import os
import random
import secrets
import signal
import sys
import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

import icevirt
from builds.support import assert_same_dataset, expected_dataset, official, opened, write_days
from execution.dying import MOMENTS, Run
from icevirt.api.dataset.tail import read_tail
from icevirt.ids import INITIAL_SNAPSHOT_ID, ObjectId12
from icevirt.model.updates import NewCommit
from icevirt.repo.commits.build_commit import BUILD_ID

pytestmark = [pytest.mark.ci, pytest.mark.slow]

BUILDS = int(os.environ.get("ICEVIRT_BUILD_DEATHS", "1"))
DAYS, SLOTS = 12, 2
LOCAL, CLUSTER, PROCESSES = "local[2,3]", "local-cluster[2,1,512]", "processes"
WORKERS = {LOCAL: ("worker",), CLUSTER: ("worker", "executor")}
ROUTES = ("direct", "shuffle")
DEATHS = (1, 1, 2, 3)  # of one build; one that survives a death is through
LONGER = {LOCAL: 1.0, CLUSTER: 1.5}  # than without a cluster each moment is, about
BUSY = (
    "scanning",
    "writing",
)  # when executors and workers do most; they may die at other times too
LOSES = {"driver": SLOTS, "JVM": SLOTS, "executor": 1, "worker": 1}
"""How many windows were being written by what died, at most; an executor has one slot."""


class Deck:
    """What dies next, and when: every pair once in a random order before any comes again.

    In front of them each kind comes once: an executor or a worker, a driver, and a JVM.
    """

    def __init__(self, dice):
        self._dice = dice
        self._cards = {
            master: [
                ("JVM", dice.choice(MOMENTS[1:])),
                ("driver", dice.choice(MOMENTS[MOMENTS.index("scanning") :])),
                (workers[-1], "scanning"),
            ]
            for master, workers in WORKERS.items()
        }

    def draw(self, master):
        """Return a victim and a moment."""
        cards = self._cards[master]
        if not cards:
            cards += [(kind, moment) for kind in ("driver", "JVM") for moment in MOMENTS[1:]]
            cards += [("driver", "start")]
            moments = (*BUSY * 2, "scan", "plan", "write", "commit")
            cards += [(kind, moment) for kind in WORKERS[master] for moment in moments]
            self._dice.shuffle(cards)
        return cards.pop()

    def put_back(self, master, card):
        """Deal a card again, later."""
        self._cards[master].insert(0, card)


def kill(run, kind, moment, length, dice):
    """Kill at a random time of a moment; return the moment that it hit, None if none was there."""
    due = {*MOMENTS[MOMENTS.index(moment) :]}  # it may be skipped, where it was done before
    while run.lives and due.isdisjoint(run.moments()):
        time.sleep(0.01)
    time.sleep(dice.uniform(0, length))
    while run.lives:
        if there := run.victims()[kind]:
            hit = list(run.moments())[-1]
            with contextlib.suppress(ProcessLookupError):
                os.kill(dice.choice(there), signal.SIGKILL)
                return hit
        time.sleep(0.01)
    return None


def objects_of(repo):
    """Return names and bytes of all manifests and chunks."""
    found = {}
    for folder in ("manifests", "chunks"):
        for path in sorted((repo / folder).glob("*")):
            found[f"{folder}/{path.name}"] = path.read_bytes()
    return found


def content_of(repo):
    """Return all that main's tip says, without what is made anew each time: ids and the clock."""
    opened_repo = icevirt.Repository.open(repo)
    tip = ObjectId12.parse(opened_repo.lookup_branch("main"))
    snapshot = opened_repo.assets.snapshot(tip)
    log = opened_repo.assets.transaction_log(tip)
    arrays = {node.path: node for node in snapshot.arrays()}
    groups = {node.path: node.user_data for node in snapshot.nodes if node.path not in arrays}
    assert log.new_arrays == {node.id for node in arrays.values()}
    return {
        "arrays": arrays,
        "groups": groups,
        "manifests": snapshot.manifest_files,
        "message": (snapshot.message, *said(opened_repo.storage, snapshot.metadata)),
        "log": replace(log, id=INITIAL_SNAPSHOT_ID, new_groups=frozenset(), updated_chunks={}),
        "chunks": {key: index.tolist() for key, index in log.updated_chunks.items()},
        "containers": dict(opened_repo.config.virtual_chunk_containers),
    }


def said(storage, metadata):
    """Return what a build recorded; of its end, what was decided and not how parts lay."""
    record = dict(metadata["icevirt_build"])
    tail = replace(read_tail(storage, record.pop("tail")), described={})
    return {**metadata, "icevirt_build": record}, tail


def tip_of(repo):
    """Return main's snapshot, None where there is no repository, or nothing in it."""
    if not icevirt.Repository.exists(repo):
        return None
    tip = icevirt.Repository.open(repo).lookup_branch("main")
    return None if tip == str(INITIAL_SNAPSHOT_ID) else tip


def assert_committed_once(repo, tip, output):
    """One snapshot on the first one, one commit in the log of what was done, nothing left."""
    names = [each.id for each in official(str(repo)).ancestry(branch="main")]
    assert names == [tip, str(INITIAL_SNAPSHOT_ID)], output
    info = icevirt.Repository.open(repo).head.read().info
    assert {str(name) for name in info.snapshots} == set(names), output
    commits = [entry.kind for entry in info.latest_updates if isinstance(entry.kind, NewCommit)]
    assert [str(each.new_snap_id) for each in commits] == [tip], output
    assert info.snapshots[ObjectId12.parse(tip)].metadata[BUILD_ID], output
    assert not (repo / "icevirt" / "builds").exists(), output


def again(before, run, kind):
    """Return how many things this run did that were done before, or that it did twice."""
    now = Counter(what for _, what in run.noted(kind))
    twice = sum(number - (name not in before) for name, number in now.items())
    before.update(now)
    return twice


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_builds_that_die_again_and_again_end_as_if_nothing_had_happened(tmp_path):
    days = write_days(tmp_path / "archive", DAYS)
    site = tmp_path / "site"
    site.mkdir()
    whole = tmp_path / "whole"
    run = Run(site, days, whole, LOCAL if BUILDS > 1 else PROCESSES, "direct")
    status, words = run.end()
    assert status == 0, words
    began = [*run.moments().values(), time.time() - run.began]
    lengths = dict(zip(MOMENTS, (b - a for a, b in pairwise(began)), strict=True))
    objects, content = objects_of(whole), content_of(whole)
    windows = {name for _, name in run.noted("writes")}
    assert len(run.noted("writes")) == len(windows) == len(objects) > 15
    assert len(run.noted("scans")) == DAYS

    seed = int(os.environ.get("ICEVIRT_SEED", secrets.randbelow(1 << 32)))
    dice = random.Random(seed)
    deck, deaths, rewritten, rescanned, runs, misses = Deck(dice), Counter(), Counter(), 0, 0, 0
    for number in range(BUILDS):
        repo, master = tmp_path / f"repo{number}", (CLUSTER, LOCAL)[number % 2]
        route, exists = ROUTES[(number + number // 2) % 2], number % 3 == 1
        if exists:
            icevirt.Repository.create(repo)
        # CI's build loses an executor, then its driver, and is finished without Spark; that Spark
        # itself dies is in test_deaths.py
        most = max(DEATHS) if BUILDS > 1 else 2
        died, planned = [], dice.choice(DEATHS) if number > 1 else most
        written, scanned, tip, broken = Counter(), Counter(), None, None
        while True:
            where = PROCESSES if BUILDS == 1 and len(died) == planned else master
            run, killed, broken_now = Run(site, days, repo, where, route), [], None
            while len(died) < planned and not broken_now:
                kind, moment = card = deck.draw(master)
                if killed and kind in WORKERS[master]:  # a task that fails thrice is given up
                    deck.put_back(master, card)
                    break
                hit = kill(run, kind, moment, lengths[moment] * LONGER[master], dice)
                if hit is None:
                    deck.put_back(master, card)
                    misses += 1
                    break
                died.append((kind, hit))
                killed.append(kind)
                broken_now = kind if kind not in WORKERS[master] else None
            status, words = run.end()
            runs += 1
            output = (seed, number, master, route, died, words)
            # by what died now, or ended the run before this one
            lost = sum(LOSES[kind] for kind in killed) + (LOSES[broken] if broken else 0)
            windows_again, files_again = again(written, run, "writes"), again(scanned, run, "scans")
            assert windows_again <= lost, output
            assert files_again <= lost, output
            rewritten[windows_again] += 1
            rescanned += files_again
            assert tip in (None, tip_of(repo)), output
            tip = tip_of(repo)
            assert tip is None or icevirt.check(repo).problems == (), output
            if status == 0 and died and (BUILDS > 1 or len(died) == planned):
                break
            if status == 0:  # it was too quick; there is nothing left to do for another run
                repo = tmp_path / f"repo{number}, again {misses}"
                written, scanned, tip = Counter(), Counter(), None
                if exists:
                    icevirt.Repository.create(repo)
                continue
            # workers and executors are Spark's to replace; of the JVM's end the driver speaks
            broken = broken_now
            assert (broken, status) in (("driver", -signal.SIGKILL), ("JVM", 1)), output
            assert broken == "driver" or "icevirt.errors." in words.splitlines()[-1], output
        assert objects_of(repo) == objects, output
        assert content_of(repo) == content, output
        assert_committed_once(repo, tip, output)
        assert set(written) == windows, output
        deaths.update(died)
        how = "existing repository" if exists else "new repository"
        sys.stdout.write(f"\nbuild {number}, seed {seed}, {master}, {route}, {how}: {died}")
        sys.stdout.flush()
    assert_same_dataset(opened(str(repo)), expected_dataset(days, "time"))

    kinds, moments = Counter(), Counter()
    for (kind, hit), count in deaths.items():
        kinds[kind] += count
        moments[hit] += count
    output = [f"{kind} {hit}: {deaths[kind, hit]}" for kind in LOSES for hit in MOMENTS]
    sys.stdout.write(
        f"\n\nseed {seed}: {BUILDS} builds of {len(windows)} windows in {runs} runs,"
        f" {deaths.total()} deaths: {dict(kinds)} {dict(moments)}\n"
        f"windows written again by a run: {dict(sorted(rewritten.items()))};"
        f" files scanned again: {rescanned}; kills too late: {misses}\n"
        + "\n".join(line for line in output if not line.endswith(": 0"))
        + "\n"
    )
    if BUILDS >= 20:
        assert min(kinds[kind] for kind in LOSES) >= BUILDS // 10, kinds
    if BUILDS >= 50:  # so many deaths that every card was dealt
        assert {*MOMENTS} - {*moments} <= {"plan", "commit"}, moments  # which take no time
