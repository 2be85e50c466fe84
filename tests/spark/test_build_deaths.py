"""Driver, JVM, executors and workers die at random moments of builds: each resumes to the same bytes.

``ICEVIRT_BUILD_DEATHS=50`` is how many builds (`just build-deaths`); the seed of the moments is in
the report.
"""

import contextlib
import os
import random
import secrets
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter

import pytest

import icevirt
from pipeline.support import assert_same_dataset, expected_dataset, official, opened, write_days

from .processes import processes_of, workers_of

BUILDS = int(os.environ.get("ICEVIRT_BUILD_DEATHS", "2"))
DAYS, SLOTS = 12, 2
MASTERS = ("local[2,3]", "local-cluster[2,1,512]")

STORAGE = """
    import os
    import time

    from icevirt.storage.local import LocalStorage

    class NotingStorage(LocalStorage):
        def put(self, path, body):
            if path.startswith("manifests/"):
                time.sleep(0.15)
                with open(os.environ["NOTED"], "a") as log:
                    log.write(path + "\\n")
            return LocalStorage.put(self, path, body)
"""

PROGRAM = """
    import sys

    import icevirt
    from icevirt.logic.wish import Wish
    from icevirt.spark.session import local_session
    from noting_of_tests import NotingStorage

    Wish.__init__.__kwdefaults__["max_references"] = 3  # many windows over few files
    repo, master, *days = sys.argv[1:]
    with local_session(config={"spark.master": master, "spark.executor.memory": "512m"}) as spark:
        icevirt.build(days, NotingStorage(repo), concat_dim="time", spark=spark)
"""


class Build:
    """A build by a driver in a session of its own; manifests are noted when they are written."""

    def __init__(self, tmp_path, days, repo, master):
        site = tmp_path / "site"
        site.mkdir(exist_ok=True)
        (site / "noting_of_tests.py").write_text(textwrap.dedent(STORAGE))
        self.noted = repo.with_suffix(".noted")
        self.noted.touch()
        self.began_at = self.noted.stat().st_size
        self.driver = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(PROGRAM), repo, master, *days],
            env={**os.environ, "PYTHONPATH": str(site), "NOTED": str(self.noted)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @property
    def runs(self):
        return self.driver.poll() is None

    @property
    def writes(self):
        """Whether this run wrote a manifest yet."""
        return self.noted.stat().st_size > self.began_at

    def end(self):
        """Wait for the driver, and for Spark to follow it; return the driver's status and words."""
        _, words = self.driver.communicate(timeout=300)
        patience = time.monotonic() + 60
        while processes_of(self.driver.pid):
            assert time.monotonic() < patience, processes_of(self.driver.pid)
            time.sleep(0.05)
        return self.driver.returncode, words

    def victims(self):
        """Return the processes that may die, by what they are."""
        everything = processes_of(self.driver.pid)
        java = [each for each in everything if "java" in each.command.split(" ")[0]]
        executors = [each.pid for each in java if "CoarseGrainedExecutorBackend" in each.command]
        return {
            "driver": [self.driver.pid],
            "JVM": [each.pid for each in java if each.pid not in executors],
            "executor": executors,
            "worker": [each.pid for each in workers_of(self.driver.pid)],
        }


def kill_one(build, dice):
    """Kill something at a random moment; return what it was, None if the build was faster."""
    late = dice.random() < 0.7  # while it writes, or any time before
    patience = time.monotonic() + (240 if late else dice.uniform(0, 10))
    while build.runs and time.monotonic() < patience and not (late and build.writes):
        time.sleep(0.02)
    time.sleep(dice.uniform(0, 2.5) if late else 0)
    there = {kind: pids for kind, pids in build.victims().items() if pids} if build.runs else {}
    if not there:
        return None
    kind = dice.choice(sorted(there))
    with contextlib.suppress(ProcessLookupError):
        os.kill(dice.choice(there[kind]), signal.SIGKILL)
    return kind


def objects_of(repo):
    """Return names and bytes of all manifests and chunks."""
    found = {}
    for folder in ("manifests", "chunks"):
        for path in sorted((repo / folder).glob("*")):
            found[f"{folder}/{path.name}"] = path.read_bytes()
    return found


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_builds_that_die_again_and_again_end_as_if_nothing_had_happened(tmp_path):
    days = write_days(tmp_path / "archive", DAYS)
    whole = tmp_path / "whole"
    status, words = Build(tmp_path, days, whole, MASTERS[0]).end()
    assert status == 0, words
    wanted = objects_of(whole)
    windows = len(whole.with_suffix(".noted").read_text().split())
    assert windows > 15

    seed = int(os.environ.get("ICEVIRT_SEED", secrets.randbelow(1 << 32)))
    dice, deaths, failures, again = random.Random(seed), Counter(), 0, 0
    for number in range(BUILDS):
        repo, master = tmp_path / f"repo{number}", MASTERS[number % 2]
        died = Counter()
        planned = dice.randint(1, 3)
        while True:
            build = Build(tmp_path, days, repo, master)
            if died.total() < planned and (kind := kill_one(build, dice)) is not None:
                died[kind] += 1
            status, words = build.end()
            if status == 0:
                break
            failures += status != -signal.SIGKILL
        told = (seed, number, master, dict(died))
        assert objects_of(repo) == wanted, told
        assert icevirt.check(repo).problems == (), told
        assert len(list(official(str(repo)).ancestry(branch="main"))) == 2, told
        assert not (repo / "icevirt").exists(), told
        twice = len(build.noted.read_text().split()) - windows
        assert twice <= SLOTS * died.total(), told
        again += twice
        deaths += died
    assert_same_dataset(opened(str(repo)), expected_dataset(days, "time"))
    sys.stdout.write(
        f"\n{BUILDS} builds of {windows} windows, {again} written again:"
        f" {(seed, dict(deaths), failures)}\n"
    )
