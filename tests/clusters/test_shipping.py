"""Executors that lack icevirt get it from the driver, or are refused with what to install."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from builds.support import write_days

pytestmark = [
    pytest.mark.ci,
    pytest.mark.spark,
    pytest.mark.skipif("ICEVIRT_CLUSTERS" not in os.environ, reason="a cluster takes minutes"),
]

PROGRAM = """
import sys
import icevirt, icevirt.spark
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local-cluster[2,1,1024]")
builder = builder.config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
path = [*sys.path]

def tried(work):
    try:
        found = work()
    except icevirt.errors.ExecutorError as error:
        print("REFUSED", error)
    else:
        print("DONE", getattr(found, "executor", None) or found)

def build():
    return icevirt.build("in/*.nc", "repo", concat_dim="time", executor=spark)

tried(build)
tried(lambda: icevirt.spark.ship(spark))
assert sys.path == path
tried(build)
spark.stop()
"""


def python_without(folder, *names):
    """Return a Python that has what this one has, but for some packages."""
    venv.EnvBuilder(symlinks=True).create(folder)
    (to,) = folder.glob("lib/python*/site-packages")
    left_out = ("icevirt", "_icevirt", "_editable", *names)
    for each in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not each.name.replace("-", "_").startswith(left_out) and each.suffix != ".pth":
            (to / each.name).symlink_to(each)
    return folder / "bin" / "python"


def run(folder, *lacking):
    write_days(folder / "in", 3)
    python = python_without(folder / "environment", *lacking)
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYSPARK_PYTHON": str(python)},
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert ran.returncode == 0, ran.stderr
    return [line for line in ran.stdout.splitlines() if line.startswith(("REFUSED", "DONE"))]


def test_icevirt_is_sent_to_executors_that_lack_it(tmp_path):
    first, shipped, second = run(tmp_path)
    assert "icevirt is not installed there" in first
    assert "icevirt.spark.ship(spark)" in first
    assert "archive='icevirt-" in shipped
    assert second == "DONE spark"


def test_where_a_compiled_package_is_missing_too_the_error_says_how_to_install_it(tmp_path):
    first, shipped, second = run(tmp_path, "obstore")
    assert "It lacks obstore" in first
    assert "these packages cannot: obstore>=0.12,<0.13" in shipped
    assert "-m pip install 'obstore>=0.12,<0.13'" in shipped
    assert second == first
