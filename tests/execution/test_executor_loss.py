"""An executor that is lost in the middle costs time and nothing else, with speculation on."""

import os
import signal
import time

import pytest

import icevirt
from builds.support import assert_same_dataset, expected_dataset, opened, write_days
from execution.dying import Run

pytestmark = [
    *(pytest.mark.ci, pytest.mark.slow, pytest.mark.spark),
    pytest.mark.skipif("ICEVIRT_EXECUTOR_LOSS" not in os.environ, reason="just executor-loss"),
]

DAYS = 12


def test_a_build_that_loses_an_executor_finishes(tmp_path):
    site, repo = tmp_path / "site", tmp_path / "repo"
    site.mkdir()
    days = write_days(tmp_path / "in", DAYS)
    settings = {"spark.speculation": "true", "spark.speculation.interval": "100ms"}
    run = Run(site, days, repo, "local-cluster[3,1,1024]", "direct", settings=settings)
    lost = None
    while run.lives and lost is None:
        if run.noted("scans") and (executors := run.executors()):
            lost = executors[0]
            os.kill(lost, signal.SIGKILL)
        time.sleep(0.02)
    status, words = run.end()
    assert status == 0, words
    assert lost is not None
    assert len(list(icevirt.Repository.open(repo).ancestry(branch="main"))) == 2
    assert_same_dataset(opened(str(repo)), expected_dataset(days, "time"))
