"""Spark Connect: a client without JVM builds, verifies and looks into catalogs on a server."""

import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from builds.support import write_days

pytestmark = [pytest.mark.ci, pytest.mark.spark, pytest.mark.timeout(600)]

PROGRAM = """
    import json
    import os
    import sys

    import icevirt
    from icevirt.execution.java import find_java, java_home
    from icevirt.execution.spark_executor import SparkExecutor
    from icevirt.planning.schedule import write_tasks as routes
    from pyspark.sql import SparkSession

    folder, *files = sys.argv[1:]
    os.environ |= {"JAVA_HOME": str(java_home(find_java())), "PYSPARK_PYTHON": sys.executable}
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
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
        try:
            SparkExecutor(spark).run(int, ["no number"])
        except icevirt.errors.SparkJobError as error:
            said = str(error)
        print(
            json.dumps(
                {
                    "verified": checked.ok,
                    "rows": [rows, view.references().read_all().num_rows],
                    "done": [step.done == step.total for step in told if step.phase == "write"][-1],
                    "slots": SparkExecutor(spark).parallelism,
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
    _, told = found
    assert told["verified"]
    assert told["rows"][0] == told["rows"][1] > 0
    assert told["done"]
    assert told["slots"] >= 1


def test_an_error_of_a_task_is_told_with_its_cause(found):
    _, told = found
    assert "a Spark task failed" in told["said"]
    assert "invalid literal for int()" in told["said"]
