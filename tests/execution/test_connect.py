"""Spark Connect: a client without JVM builds, verifies and looks into catalogs on a server."""

import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from builds.support import opened, write_days

pytestmark = [pytest.mark.ci, pytest.mark.spark, pytest.mark.timeout(1800)]

PROGRAM = """
    import json
    import os
    import signal
    import sys
    import time

    import icevirt
    import icevirt.spark
    from icevirt.execution.java import find_java, java_home
    from icevirt.execution.spark_executor import SparkExecutor
    from icevirt.planning.schedule import write_tasks as routes
    from pyspark.sql import SparkSession

    folder, *files = sys.argv[1:]
    os.environ |= {"JAVA_HOME": str(java_home(find_java())), "PYSPARK_PYTHON": sys.executable}
    os.environ["SPARK_TESTING"] = "1"  # any port: other servers may run here
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.connect.grpc.binding.address", "127.0.0.1")
        .getOrCreate()
    )
    assert "connect" in type(spark).__module__
    told = []
    try:
        catalog = f"{folder}/catalog"
        assert icevirt.scan_files(files, catalog, concat_dim="time", executor=spark).ok
        icevirt.build(files, f"{folder}/direct", concat_dim="time", executor=spark)
        routes._FEW_READS = routes._FACTOR = -1
        icevirt.build(
            files, f"{folder}/shuffle", concat_dim="time", executor=spark, progress=told.append
        )
        authorize = [f"file://{os.path.dirname(files[0])}/"]
        checked = icevirt.verify(
            f"{folder}/shuffle",
            references=True,
            authorize_virtual_chunk_access=authorize,
            executor=spark,
        )
        view = icevirt.catalog_view(catalog)
        rows = view.dataframe(spark, "references").count()
        icevirt.spark.register(spark)
        repo = f"{folder}/direct"
        source = spark.read.format("icevirt").option("table", "references")
        by_format = source.option("array", "/packed").load(repo)
        frame = icevirt.spark.table(spark, repo, "references", array="/packed")
        session = icevirt.Repository.open(repo).readonly_session("main")
        written = icevirt.spark.write_references(
            frame.where("kind = 'virtual'"),
            f"{folder}/copy",
            arrays={"/packed": session.array("/packed").user_data},
            containers=session.config.virtual_chunk_containers.values(),
        )

        def ring(*_):
            raise InterruptedError

        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, 2)
        try:
            SparkExecutor(spark).run(time.sleep, [3600, 3600])  # in both slots
        except InterruptedError:
            rung = SparkExecutor(spark).run(str, [1, 2, 3])
        try:
            SparkExecutor(spark).run(int, ["no number"])
        except icevirt.errors.SparkJobError as error:
            said = str(error)
        print(
            json.dumps(
                {
                    "verified": checked.ok,
                    "references": [written.references, by_format.count(), frame.count()],
                    "rows": [rows, view.references().read_all().num_rows],
                    "done": [step.done == step.total for step in told if step.phase == "write"][-1],
                    "slots": SparkExecutor(spark).parallelism,
                    "after a signal": rung,
                    "said": said,
                }
            )
        )
    finally:
        spark.stop()
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What a program found that used a server of this machine, and where it built."""
    if lacking := _lacking():
        pytest.skip(lacking)
    folder = tmp_path_factory.mktemp("connect")
    files = list(map(str, write_days(folder / "archive", 6)))
    mixed = [files[n] for n in (3, 0, 5, 1, 4, 2)]
    path = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(folder), *mixed],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "default"},
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return folder, json.loads(ran.stdout.splitlines()[-1])


def _lacking():
    """Say what Spark Connect lacks in this environment, "" if nothing."""
    import pyspark

    if not list(Path(pyspark.__file__).parent.glob("jars/spark-connect_*.jar")):
        return f"the package of Spark {pyspark.__version__} has no Connect server"
    names = [name for name in ("grpc", "grpc_status") if not importlib.util.find_spec(name)]
    return f"Spark Connect needs {names}: uv sync" if names else ""


def test_both_ways_write_the_same_manifests(found):
    folder, _ = found
    names = [sorted(os.listdir(folder / name / "manifests")) for name in ("direct", "shuffle")]
    assert names[0] == names[1] != []


def test_verification_catalogs_and_progress_work(found):
    _, output = found
    assert output["verified"]
    assert output["rows"][0] == output["rows"][1] > 0
    assert output["done"]
    assert output["slots"] >= 1


def test_a_signal_cancels_the_job(found):
    _, output = found
    assert output["after a signal"] == ["1", "2", "3"]


def test_tables_and_written_references_work(found):
    folder, output = found
    assert len({*output["references"]}) == 1
    assert output["references"][0] > 0
    one, other = (opened(str(folder / name))["packed"].values for name in ("direct", "copy"))
    assert np.array_equal(one, other, equal_nan=True)


def test_an_error_of_a_task_is_reported_with_its_cause(found):
    _, output = found
    assert "a Spark task failed" in output["said"]
    assert "invalid literal for int()" in output["said"]
