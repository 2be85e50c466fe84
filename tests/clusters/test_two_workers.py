"""Two workers that share neither disks nor environments with the driver build in buckets."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clusters.hosts import CODE, DISK, Host
from clusters.standalone import BUCKET, MANY, MORE

DEED = """
import os
import tempfile

import icevirt
import icevirt.spark
import obstore
from icevirt.planning.combine.options import CombineSpec
from icevirt.planning.schedule import write_tasks as routes
from obstore.store import S3Store

CombineSpec.__init__.__kwdefaults__["max_references"] = 20  # many windows
if sys.argv[1:] == ["shuffle"]:
    routes._FEW_READS = routes._FACTOR = -1

def deed(spark, step, **arguments):
    return globals()[step](spark, **arguments)

def where(spark, path):
    def looked(batches):
        import os, socket, time
        import icevirt, pyarrow
        time.sleep(1)
        row = f"{socket.gethostname()} {icevirt.__file__} {os.path.exists(path)}"
        for batch in batches:
            yield pyarrow.RecordBatch.from_pydict({"row": [row]})
    found = spark.range(0, 6, 1, 6).mapInArrow(looked, "row string").collect()
    return sorted({row["row"] for row in found})

def build(spark, sources, repo, catalog):
    def progress(step):
        if 0 < step.done < step.total:
            print("MIDDLE", step.phase, flush=True)
    report = icevirt.build(
        sources, repo, concat_dim="time", catalog=catalog, executor=spark, progress=progress
    )
    return {"scanned": report.files_scanned, "again": report.already_built}

def objects(repo):
    store = S3Store(
        "icevirt", virtual_hosted_style_request=False, client_options={"allow_http": True}
    )
    prefix = repo.removeprefix("s3://icevirt/") + "/manifests/"
    return sorted(row["path"].removeprefix(prefix) for page in obstore.list(store, prefix) for row in page)

def rest(spark, sources, repo, catalog, calm, more):
    found = {"again": build(spark, sources, repo, catalog)}
    build(spark, sources, calm, catalog)
    found["manifests"] = objects(repo)
    found["undisturbed"] = objects(calm)
    recipe = os.path.join(tempfile.mkdtemp(), "recipe.toml")
    with open(recipe, "w") as file:
        file.write(f"version = 2\\nsources = [{sources!r}, {more!r}]\\nconcat_dim = ['time']\\n")
    for _ in range(2):
        report = icevirt.update(repo, recipe=recipe, catalog=catalog, executor=spark)
        found.setdefault("update", []).append([report.files_added, report.files_known])
    found["verified"] = icevirt.verify(
        repo, references=True, authorize_virtual_chunk_access=["s3://icevirt/", sources],
        executor=spark
    ).ok
    for table in ("locations", "references"):
        icevirt.spark.table(spark, repo, table).createOrReplaceTempView(table)
    query = '''
        select count(*), sum(`references`),
            (select count(*) from references where kind = 'virtual')
        from locations
    '''
    found["sql"] = list(spark.sql(query).first())
    return found
"""


@pytest.fixture(scope="module")
def packed(uv, tmp_path_factory) -> Path:
    """An archive of an environment with the wheel of this tree, and without PySpark."""
    folder = tmp_path_factory.mktemp("packed")
    python = Path(sys.executable).resolve()  # whose interpreter workers have at the same path
    for command in (
        (uv, "build", "--quiet", "--wheel", "--out-dir", folder / "dist", CODE),
        (uv, "venv", "--quiet", "--relocatable", "--python", python, folder / "environment"),
    ):
        subprocess.run(command, check=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    own = folder / "environment" / "bin" / "python"
    install = (uv, "pip", "install", "--quiet", "--python", own, f"{wheel}[cluster,hdf5]")
    subprocess.run(install, check=True)
    made = folder / "environment.tar.gz"
    subprocess.run(
        ["tar", "-C", folder / "environment", "-I", "gzip -1", "-cf", made, "."], check=True
    )
    return made


@pytest.fixture(scope="module")
def settings(standalone, packed):
    """Settings by which executors have the packed environment, and nothing else of ours."""
    found = standalone.settings()
    del found["spark.executorEnv.PYTHONPATH"]
    return found | {"spark.archives": f"{packed}#environment"}


@pytest.fixture(scope="module", params=["direct", "shuffle"])
def driver(request, standalone):
    """A driver whose executors run Python of the packed environment."""
    with standalone.asking(DEED, request.param, PYSPARK_PYTHON="./environment/bin/python") as found:
        found.route = request.param
        yield found


def test_executors_have_an_environment_and_a_disk_of_their_own(standalone, settings, driver):
    mine = f"{DISK}/of-the-driver"
    standalone.network.sh(f"touch {mine}")
    output = driver.ask(settings, step="where", path=mine)
    rows = [row.split() for row in output["result"]]
    assert [host for host, _, _ in rows] == ["worker-a", "worker-b"]
    assert all("/environment/lib/python3" in path for _, path, _ in rows), rows
    assert {seen for _, _, seen in rows} == {"False"}


def kill_executor(host: Host) -> None:
    """Kill the executor of a worker, whose Python workers follow it."""
    found = host.processes("CoarseGrainedExecutorBackend")
    assert found
    for pid in found:
        os.kill(pid, signal.SIGKILL)


def test_a_dataset_outlives_executors_grows_and_is_read_by_sql(
    standalone, settings, many, more, driver
):
    """One dies in the scan, one in the write; the objects are those of an undisturbed build."""
    places = {"repo": f"{BUCKET}/{driver.route}-killed"}
    places["catalog"] = f"{BUCKET}/{driver.route}-catalog"
    driver.send(settings, step="build", sources=many, **places)
    driver.until("MIDDLE scan")
    kill_executor(standalone.network.hosts["worker-b"])
    driver.until("MIDDLE write")
    kill_executor(standalone.network.hosts["worker-a"])
    output = driver.answer()
    assert output.get("result", {}).get("scanned") == MANY, output

    rest = {"calm": f"{BUCKET}/{driver.route}-calm", "more": more}
    output = driver.ask(settings, step="rest", sources=many, **places, **rest)
    assert "result" in output, output
    found = output["result"]
    assert found["again"] == {"scanned": 0, "again": True}
    assert found["manifests"] == found["undisturbed"]
    assert len(found["manifests"]) > 10
    assert found["update"] == [[MORE, MANY], [0, MANY + MORE]]
    assert found["verified"] is True
    files, references, counted = found["sql"]
    assert files == MANY + MORE
    assert references == counted > files
