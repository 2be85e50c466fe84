"""Python workers of our own sessions find imported what they need, and share its memory."""

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

from icevirt.execution import spark_daemon
from icevirt.execution.spark_executor import SparkExecutor

THREADS = """
import json, os, sys
from icevirt.tasks.forkserver import prepare
from icevirt.execution.spark_daemon import NEEDED
prepare(NEEDED)
print(json.dumps([len(os.listdir("/proc/self/task")), "zarr" in sys.modules]))
"""


def imported(name):
    """Say whether a module was imported before this task, and who made the process."""
    parent = Path(f"/proc/{os.getppid()}/cmdline").read_text().split("\0")
    return name in sys.modules, parent[2]


def test_nothing_that_is_imported_before_workers_are_forked_starts_a_thread():
    """A fork has the one thread that forked; locks that others held stay locked in it for ever."""
    ran = subprocess.run(
        [sys.executable, "-c", THREADS],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # as Spark sets it
    )
    assert json.loads(ran.stdout) == [1, False]  # and nothing that only verifying needs


def test_all_scanners_of_this_package_are_imported_before_workers_are_forked():
    """None costs each worker its import; `SCANNERS` is a list only so that no package is asked."""
    found = entry_points(group="icevirt.scanners")
    modules = {each.module for each in found if each.module.startswith("icevirt_scanners.")}
    assert modules
    assert modules <= set(spark_daemon.NEEDED)


def test_workers_are_forked_with_all_they_need(spark):
    found = SparkExecutor(spark).run(imported, list(spark_daemon.NEEDED))
    assert found == [(True, "icevirt.execution.spark_daemon")] * len(spark_daemon.NEEDED)
