"""Signals end builds: no process stays, nothing is half committed, and the next build goes on."""

import os
import signal
import time

import pytest

import icevirt
from builds.support import assert_same_dataset, expected_dataset, opened, write_days
from execution.dying import MOMENTS, Run
from execution.processes import Driver, kill
from icevirt.errors import RepositoryNotFoundError

pytestmark = [pytest.mark.ci, pytest.mark.slow]

DAYS = 12
SPARK, PROCESSES = "local[2,3]", "processes"
STEPS = (
    (PROCESSES, signal.SIGTERM, "scanning"),
    (SPARK, signal.SIGTERM, "writing"),
    (PROCESSES, signal.SIGINT, "committing"),
)
"""What ends a build, wherever it runs; the next goes on with what it left."""

GONE = 20  # seconds in which every process is, however busy the machine


def until(run, moment):
    """Wait until a build is at a moment, or beyond."""
    due = {*MOMENTS[MOMENTS.index(moment) :]}
    while run.lives and due.isdisjoint(run.moments()):
        time.sleep(0.01)
    assert run.lives, run.end()


def assert_gone(run):
    """Wait for what is left of a session; a task that nobody waits for takes longer than that."""
    patience = time.monotonic() + GONE
    while left := run.processes():
        if time.monotonic() > patience:
            kill(each.pid for each in left)
            pytest.fail(f"left behind: {left}")
        time.sleep(0.05)


@pytest.mark.spark
def test_a_build_that_signals_end_leaves_no_process_and_is_finished_by_the_next(tmp_path):
    """As a terminal and batch systems do it: all processes of the session get the signal."""
    site, repo = tmp_path / "site", tmp_path / "repo"
    site.mkdir()
    days = write_days(tmp_path / "in", DAYS)
    for where, number, moment in STEPS:
        run = Run(site, days, repo, where, "direct")
        until(run, moment)
        os.killpg(run.pid, number)
        assert_gone(run)
        status, words = run.end()
        assert status in {-number, 1}, words
        assert_nothing_is_half_committed(repo, days)
    run = Run(site, days, repo, PROCESSES, "direct")
    status, words = run.end()
    assert status == 0, words
    assert run.noted("scans") == []  # the catalog was whole
    assert_same_dataset(opened(str(repo)), expected_dataset(days, "time"))


def assert_nothing_is_half_committed(repo, days):
    try:
        history = list(icevirt.Repository.open(repo).ancestry(branch="main"))
    except RepositoryNotFoundError:
        return
    if len(history) > 1:
        assert_same_dataset(opened(str(repo)), expected_dataset(days, "time"))


BUSY = """
    import os, sys, time
    from icevirt.execution.local_executors import ProcessExecutor
    from noting import nap

    with ProcessExecutor(2) as processes:
        processes.run(nap, sys.argv[1:])
"""
NAP = """
import time
def nap(path):
    open(path, "w").close()
    time.sleep(3600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_task_outlives_its_driver_however_it_ends(number, tmp_path):
    """Only the driver hears of it; its children are in the middle of a long task."""
    (tmp_path / "noting.py").write_text(NAP)
    begun = [tmp_path / name for name in "ab"]
    driver = Driver(BUSY, *begun, site=tmp_path)
    while driver.lives and not all(path.exists() for path in begun):
        time.sleep(0.02)
    assert len(driver.processes()) == 4
    os.kill(driver.pid, number)
    assert_gone(driver)
    assert driver.end()[0] == -number
