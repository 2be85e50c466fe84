"""Streams whose driver is killed append each file once, from the same checkpoint and from a new one.

``just stream-deaths`` kills at every moment, with both sources, for minutes. Without it a query fails
in the session of the suite, which is what Spark sees of a batch that was killed.
"""

import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
import sys
import textwrap

import pytest

import icevirt.spark
from builds.support import assert_same_dataset, expected_dataset, opened, write_days

MOMENTS = ("list", "scan", "plan", "write", "commit", "committed")
"""When the driver dies: in these phases, or behind the commit and before Spark notes the batch."""

IS_LONG = bool(os.environ.get("ICEVIRT_STREAM_DEATHS"))

PROGRAM = """
    import os
    import signal
    import sys

    import icevirt.spark
    from icevirt.execution.spark_session import local_session

    repo, folder, checkpoint, source, moment, whole = sys.argv[1:]

    def die():
        # the JVM too, or the driver alone: its JVM then ends by itself
        os.killpg(0, signal.SIGKILL) if whole == "whole" else os.kill(os.getpid(), signal.SIGKILL)

    def look(step):
        if step.phase == moment:
            die()

    spark = local_session(app_name="stream", cores=2)
    if source == "icevirt-files":
        icevirt.spark.register(spark)
        names = spark.readStream.format(source).load(folder)
    else:
        schema = "path string, modificationTime timestamp, length long, content binary"
        names = spark.readStream.format(source).schema(schema).load(folder).select("path")
    append = icevirt.spark.foreach_batch(repo, concat_dim="time", progress=look)

    def each(batch, number):
        append(batch, number)
        if moment == "committed":
            die()

    query = names.writeStream.foreachBatch(each).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()
    spark.stop()
"""


def run(site, repo, folder, checkpoint, source, moment="", whole="whole"):
    """Run the stream until nothing is new, or it is killed; return the status."""
    program = site / "stream.py"
    program.write_text(textwrap.dedent(PROGRAM))
    words = [str(each) for each in (program, repo, folder, checkpoint, source, moment, whole)]
    with open(site / "told.txt", "w") as output:
        status = subprocess.run(
            [sys.executable, *words],
            start_new_session=True,
            stdout=output,
            stderr=output,
            check=False,
        ).returncode
    assert status == (-signal.SIGKILL if moment else 0), (site / "told.txt").read_text()[-3000:]


def appended(repo):
    """Return the commits of the stream: their batches."""
    found = icevirt.Repository.open(repo).ancestry(branch="main")
    return [each.metadata["icevirt_batch"] for each in found if "icevirt_batch" in each.metadata]


@pytest.mark.ci
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not IS_LONG, reason="just stream-deaths: it takes minutes")
@pytest.mark.parametrize("checkpoint", ["same", "new"])
@pytest.mark.parametrize("source", ["icevirt-files", "binaryFile"])
def test_a_killed_stream_appends_each_file_once(source, checkpoint, tmp_path):
    days = write_days(tmp_path / "days", 2 + len(MOMENTS))
    folder, repo = tmp_path / "arriving", str(tmp_path / "repo")
    folder.mkdir()
    arriving = iter(days)
    places = (tmp_path / f"checkpoint{at}" for at in itertools.count())
    place = next(places)

    def arrive():
        shutil.move(next(arriving), folder)

    arrive()
    for number, moment in enumerate(MOMENTS):
        arrive()
        whole = ("whole", "driver")[number % 2]
        run(tmp_path, repo, folder, place, source, moment, whole)
        if checkpoint == "new":
            place = next(places)
    for _ in range(1 if source == "icevirt-files" and _has_trigger() else 2):
        run(tmp_path, repo, folder, place, source)  # may only repeat what was interrupted
    there = sorted(map(str, folder.iterdir()))
    assert_same_dataset(opened(repo), expected_dataset(there, "time"))
    before = appended(repo)
    assert len(before) <= len(there)
    assert all(each["query_id"] for each in before)
    run(tmp_path, repo, folder, place, source)
    run(tmp_path, repo, folder, next(places), source)  # names all files once more
    assert appended(repo) == before


@pytest.mark.ci
@pytest.mark.spark
def test_a_batch_that_failed_behind_its_commit_appends_nothing_when_it_is_repeated(spark, tmp_path):
    """Of what a batch did, Spark knows only whether it ended well. What came since is next."""
    days, repo = write_days(tmp_path / "days", 3), str(tmp_path / "repo")
    folder = tmp_path / "arriving"
    folder.mkdir()
    arriving = iter(days)
    shutil.move(next(arriving), folder)
    shutil.move(next(arriving), folder)
    icevirt.spark.register(spark)
    names = spark.readStream.format("icevirt-files").load(str(folder))
    append = icevirt.spark.foreach_batch(repo, concat_dim="time")
    numbers = []

    def each(batch, number):
        numbers.append(number)
        append(batch, number)
        if len(numbers) == 1:
            raise RuntimeError("behind the commit")

    query = names.writeStream.foreachBatch(each).trigger(availableNow=True)
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match="behind the commit"):
        query.start().awaitTermination()
    shutil.move(next(arriving), folder)
    query.start().awaitTermination()
    if _has_trigger():
        assert numbers == [0, 0, 1]
    else:  # the batch that was interrupted may be the only one
        query.start().awaitTermination()
    assert len(appended(repo)) == 2
    there = sorted(map(str, folder.iterdir()))
    assert_same_dataset(opened(repo), expected_dataset(there, "time"))


def _has_trigger():
    return importlib.util.find_spec("pyspark.sql.streaming.datasource") is not None
