"""What Spark says of a failed job becomes one error that names the executor and what to do."""

import pytest

from icevirt.errors import ExecutorError, SparkJobError
from icevirt.execution.spark_failures import explain

LOST = (
    "An error occurred while calling o51.collectToPython.\n: org.apache.spark.SparkException: Job"
    " aborted due to stage failure: Task 1 in stage 0.0 failed 4 times, most recent failure: Lost"
    " task 1.3 in stage 0.0 (TID 9) (10.77.2.2 executor 1): "
)
PYTHON = "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
SAID = {
    "another Python": (
        PYTHON
        + "    raise PySparkRuntimeError(\npyspark.errors.exceptions.base.PySparkRuntimeError:"
        " [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in"
        " driver: 3.13, PySpark cannot run with different minor versions.\n",
        "executors run another version of Python than the driver",
        "spark.pyspark.python",
    ),
    "another Python, as Spark 3.5 says it": (
        PYTHON + "RuntimeError: Python in worker has different version 3.12 than that in driver"
        " 3.13, PySpark cannot run with different minor versions.",
        "executors run another version of Python than the driver",
        "spark.archives",
    ),
    "no Python": (
        LOST + 'java.io.IOException: Cannot run program "/opt/python3": error=2, No such file or'
        " directory\n\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)\n",
        "an executor has no program /opt/python3",
        "spark.pyspark.python",
    ),
    "no pyarrow": (
        PYTHON + "    func, profiler = read_udfs(\n           ~~~~~~~~~^\n    )\n    ^\n"
        "    import pyarrow as pa\nModuleNotFoundError: No module named 'pyarrow'\n",
        "the Python of an executor has no module pyarrow",
        "pip install 'pyarrow>=18'",
    ),
    "no distutils, which Spark 3.5 imports": (
        LOST + PYTHON + "ModuleNotFoundError: No module named 'distutils'\n",
        "the Python of an executor has no module distutils",
        "pip install setuptools",
    ),
    "no icevirt": (
        PYTHON + "ModuleNotFoundError: No module named 'icevirt.tasks'\n",
        "the Python of an executor has no module icevirt",
        "icevirt.spark.ship(spark)",
    ),
    "no module of the user": (
        PYTHON + "ModuleNotFoundError: No module named 'ours.functions'\n",
        "the Python of an executor has no module ours",
        "addArtifacts",
    ),
    "another icevirt": (
        PYTHON + "RuntimeError: icevirt refuses this executor, worker-2 (/usr/bin/python3): it has"
        " icevirt 0.2.0, the driver 0.1.0.\nicevirt ran on executor worker-2\n",
        "an executor does not suit: it has icevirt 0.2.0, the driver 0.1.0",
        "icevirt.spark.ship(spark)",
    ),
    "a dead worker": (
        LOST + "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n",
        "a Python worker of an executor ended",
        "spark.executor.memoryOverhead",
    ),
    "a dead executor": (
        LOST.replace(
            "): ",
            "): ExecutorLostFailure (executor 1 exited caused by one of the running"
            " tasks) Reason: Container killed by YARN for exceeding physical memory limits.\n",
        ),
        "an executor ended while it worked",
        "spark.executor.memoryOverhead",
    ),
}


@pytest.mark.parametrize(("text", "what", "do"), SAID.values(), ids=SAID.keys())
def test_known_failures_say_what_to_do(text, what, do):
    error = explain(text)
    assert type(error) is ExecutorError
    assert error.what.startswith(what)
    assert do in error.do


@pytest.mark.parametrize(
    ("text", "host"),
    {
        "in Java's words": (LOST + "java.io.IOException: no space\n", "10.77.2.2"),
        "in a note": (PYTHON + "OSError: no\nicevirt ran on executor worker-2", "worker-2"),
        "nowhere": (PYTHON + "OSError: no\n", None),
        "of local mode": (LOST.replace("executor 1", "executor driver") + "OSError", None),
    }.values(),
)
def test_the_executor_is_named_where_the_text_does(text, host):
    assert explain(text).facts.get("executor") == host
    assert explain(text, "worker-9").facts["executor"] == (host or "worker-9")


def test_other_failures_keep_their_last_lines():
    error = explain(
        PYTHON + '  File "x.py", line 7, in f\n    ~~~~^^^\nOSError: the disk is full\n'
    )
    assert type(error) is SparkJobError
    assert error.facts["cause"].endswith("OSError: the disk is full")
    assert "^" not in error.facts["cause"]


def test_whatever_fails_in_a_session_that_was_stopped_is_reported_as_that():
    text = 'java.lang.NullPointerException: Cannot invoke "org.apache.spark.SparkEnv.rpcEnv()"'
    error = explain(text, "worker-9", is_stopped=True)
    assert type(error) is ExecutorError
    assert error.what == "the Spark session has been stopped"
    assert "JAVA_HOME that is not there" in error.do
    assert type(explain(text)) is SparkJobError
