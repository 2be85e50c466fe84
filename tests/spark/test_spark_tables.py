"""Spark shows a repository as tables, and a data frame of references becomes a commit."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import icevirt
import icevirt.spark
from builds.support import opened, write_days
from icevirt.errors import InvalidInputError, UnsupportedError
from icevirt.tasks.table_query import TABLES

pytestmark = pytest.mark.ci

VIRTUAL = "kind = 'virtual'"


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """A repository that a build made, and its files."""
    folder = tmp_path_factory.mktemp("archive")
    files = write_days(folder / "files")
    repo = str(folder / "repo")
    report = icevirt.build(files, repo, concat_dim="time", executor="in-process")
    return repo, files, report


@pytest.fixture
def formats(spark):
    """The session, which knows our formats."""
    if not hasattr(spark, "dataSource"):
        pytest.skip(f"Spark {spark.version} has no formats that are written in Python")
    icevirt.spark.register(spark)
    return spark


def as_text(frame, *without):
    return sorted(map(str, frame.drop(*without).collect()))


def containers_of(repo):
    session = icevirt.Repository.open(repo).readonly_session("main")
    return list(session.config.virtual_chunk_containers.values())


def test_all_tables_are_the_same_by_function_and_by_format(formats, archive):
    spark, (repo, files, report) = formats, archive
    for table in TABLES:
        ours = icevirt.spark.table(spark, repo, table)
        theirs = spark.read.format("icevirt").option("table", table).load(repo)
        assert ours.schema == theirs.schema
        assert as_text(ours) == as_text(theirs) != []
    locations = icevirt.spark.table(spark, repo, "locations").toPandas()
    assert sorted(locations["location"]) == [Path(path).as_uri() for path in files]
    assert locations["references"].sum() == report.references.virtual
    assert locations["bytes"].sum() == report.references.bytes_referenced
    arrays = icevirt.spark.table(spark, repo, "arrays", array="packed").collect()
    assert [(row["path"], row["virtual"]) for row in arrays] == [("/packed", 12)]


def test_options_choose_version_array_and_chunks(formats, archive):
    repo, _, report = archive
    source = formats.read.format("icevirt").option("table", "references")
    found = source.options(array="/packed", chunks="0:2, :, :", snapshot=report.snapshot_id)
    index = [row["index"] for row in found.load(repo).collect()]
    assert index
    assert {at[0] for at in index} <= {0, 1}


WRONG = {
    "a secret": ({"access_key_id": "x"}, "takes no credentials as options"),
    "a typing error": ({"brunch": "main"}, "no such option"),
    "no table": ({"table": ""}, "no such table"),
    "both names": ({"snapshot": "A", "snapshot_id": "B"}, "same option"),
    "a relative path": ({"path": "repo"}, "absolute path"),
    "no flag": ({"anonymous": "perhaps"}, "true or false"),
}


@pytest.mark.parametrize(("options", "match"), WRONG.values(), ids=WRONG)
def test_wrong_options_are_refused(options, match):
    from icevirt.spark.data_source import query_of

    with pytest.raises(InvalidInputError, match=match):
        query_of({"table": "references", "path": "/data/repo"} | options)


def test_the_format_does_not_write_and_says_what_does(formats, archive, tmp_path):
    frame = icevirt.spark.table(formats, archive[0], "references")
    with pytest.raises(Exception, match=r"icevirt\.spark\.write_references\(df, repo\)"):
        frame.write.format("icevirt").mode("append").save(str(tmp_path / "out"))


def test_filters_of_a_query_decide_which_manifests_are_read(formats, archive):
    """As the session is set when the format is registered."""
    from pyspark.sql import datasource

    from icevirt.spark.tables import PUSHDOWN

    spark, (repo, _, _) = formats, archive
    if not hasattr(datasource, "Filter"):
        pytest.skip(f"Spark {spark.version} gives no filters to formats")
    spark.conf.set(PUSHDOWN, "true")
    try:
        icevirt.spark.register(spark)
        frame = spark.read.format("icevirt").option("table", "references").load(repo)
        whole = frame.rdd.getNumPartitions()
        some = frame.where("path = '/packed' and index >= array(1)")
        assert some.rdd.getNumPartitions() < whole
        ours = icevirt.spark.table(spark, repo, "references", array="/packed")
        assert as_text(some) == as_text(ours.where("index >= array(1)"))
    finally:
        spark.conf.unset(PUSHDOWN)
        icevirt.spark.register(spark)


def test_executors_with_another_icevirt_read_no_partition(spark, archive, monkeypatch):
    """What Spark pickles of the format compares first, and holds no storage."""
    from pyspark.cloudpickle import dumps
    from pyspark.sql.types import StructType

    from icevirt.execution import installation
    from icevirt.spark.data_source import FilteringIcevirtSource

    made = FilteringIcevirtSource({"table": "references", "path": archive[0]})
    schema = StructType.fromDDL(made.schema())
    there = {**installation.of_driver(), "icevirt": "9.9"}
    monkeypatch.setattr(installation, "of_driver", lambda: there)
    for each in (made, made.reader(schema)):
        raw = dumps(each)
        assert (archive[0].encode() in raw) == (each is made)
        with pytest.raises(RuntimeError, match=r"refuses this executor.*the driver 9\.9"):
            pickle.loads(raw)


def test_an_older_spark_is_reported_what_to_use_instead():
    class Session:
        version, createDataFrame = "3.5.9", None

    with pytest.raises(UnsupportedError, match=r"icevirt\.spark\.table"):
        icevirt.spark.register(Session())


def test_references_are_written_into_another_repository(spark, archive, tmp_path):
    repo, _, _ = archive
    copy = str(tmp_path / "copy")
    frame = icevirt.spark.table(spark, repo, "references", array="/packed").where(VIRTUAL)
    session = icevirt.Repository.open(repo).readonly_session("main")
    metadata = {"/packed": session.array("/packed").user_data}
    done = icevirt.spark.write_references(
        frame.repartition(3),
        copy,
        arrays=metadata,
        containers=containers_of(repo),
        message="copied",
        metadata={"by": "test"},
    )
    assert (done.references, done.arrays) == (12, {"/packed": 12})
    info = icevirt.Repository.open(copy).lookup_snapshot(done.snapshot_id)
    assert (info.message, info.metadata["by"]) == ("copied", "test")
    theirs = icevirt.spark.table(spark, copy, "references")
    assert as_text(theirs, "manifest_id") == as_text(frame, "manifest_id")
    again = icevirt.spark.write_references(frame, copy)
    assert again.snapshot_id == done.snapshot_id
    wanted = opened(repo)["packed"].values
    assert np.array_equal(opened(copy)["packed"].values, wanted, equal_nan=True)


def test_a_template_brings_coordinates_and_names(spark, archive, tmp_path):
    repo, files, _ = archive
    copy = str(tmp_path / "copy")
    import dask.array as da

    times = 12
    template = xr.Dataset(
        {"v": (("time", "x"), da.zeros((times, 4), chunks=(1, 4), dtype="f4"))},
        coords={"time": np.arange(times)},
    )
    rows = [("/g/v", [at, 0], Path(files[0]).as_uri(), 8 * at, 16) for at in range(times)]
    frame = spark.createDataFrame(
        rows, "path string, index array<int>, location string, offset bigint, length bigint"
    )
    icevirt.spark.write_references(
        frame, copy, template=template, group="g", containers=containers_of(repo)
    )
    session = icevirt.Repository.open(copy).readonly_session("main")
    found = xr.open_zarr(session.store, group="g", consolidated=False)
    assert found["time"].values.tolist() == [*range(times)]
    assert session.chunk_coordinates("/g/v").tolist() == [[at, 0] for at in range(times)]
    assert json.loads(session.array("/g/v").user_data)["dimension_names"] == ["time", "x"]
    values = template.compute() + 1
    values["v"].encoding["chunks"] = (1, 4)
    with pytest.raises(InvalidInputError, match=r"Pass an xarray\.Dataset"):
        icevirt.spark.write_references(frame, str(tmp_path / "no"), template="other.nc")
    with pytest.raises(InvalidInputError, match="holds values of an array"):
        icevirt.spark.write_references(
            frame,
            str(tmp_path / "other"),
            template=values,
            group="g",
            containers=containers_of(repo),
        )


def test_wrong_rows_and_columns_leave_the_branch_as_it_is_and_make_no_repository(
    spark, archive, tmp_path
):
    from pyspark.sql import functions as F

    repo, _, _ = archive
    tip = icevirt.Repository.open(repo).lookup_branch("main")
    frame = icevirt.spark.table(spark, repo, "references", array="/packed").where(VIRTUAL)
    for bad, match in (
        (frame.unionAll(frame), "for the same chunk"),
        (frame.withColumn("offset", F.lit(-1)), "offset of a reference"),
        (frame.withColumnRenamed("etag", "e_tag"), "columns of references"),
        (frame.withColumn("length", F.col("length").cast("string")), "columns of references"),
        (frame.where("false"), "no rows"),
    ):
        with pytest.raises(InvalidInputError, match=match):
            icevirt.spark.write_references(bad, repo)
    assert icevirt.Repository.open(repo).lookup_branch("main") == tip
    new = tmp_path / "new"
    session = icevirt.Repository.open(repo).readonly_session("main")
    for bad, match in (
        (frame.unionAll(frame), "for the same chunk"),
        (frame.withColumn("offset", F.lit(-1)), "offset of a reference"),
    ):
        with pytest.raises(InvalidInputError, match=match):
            icevirt.spark.write_references(
                bad,
                new,
                arrays={"/packed": session.array("/packed").user_data},
                containers=containers_of(repo),
            )
        assert not icevirt.Repository.exists(new)
    assert [path for path in new.rglob("*") if path.is_file()] == []


def test_data_frames_are_lists_of_sources(spark, archive, monkeypatch):
    """Sizes and times of Spark are those of the files, whatever time zone the driver has."""
    import datetime as dt
    import time
    from zoneinfo import ZoneInfo

    from icevirt.api.sources.inputs import Inputs
    from icevirt.objects.source_lists.rows import rows_of_spark

    _, files, _ = archive
    looked = [Path(path).stat() for path in files]
    rows = [
        (path, at.st_size, dt.datetime.fromtimestamp(int(at.st_mtime), ZoneInfo("UTC")))
        for path, at in zip(files, looked, strict=True)
    ]
    frame = spark.createDataFrame(rows, "path string, size bigint, mtime timestamp")
    assert [file.url for file in Inputs(frame).files()] == [Path(path).as_uri() for path in files]
    lists = [files[0], frame.where(frame.path.endswith("day2.nc"))]
    assert len(Inputs(lists).files()) == 2
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        seconds = [row.last_modified // 1_000_000_000 for row in rows_of_spark(frame)]
    finally:
        monkeypatch.undo()
        time.tzset()
    assert seconds == [int(at.st_mtime) for at in looked]
    with pytest.raises(InvalidInputError, match="no URL column"):
        Inputs(frame.select("size"))
    wrong = spark.createDataFrame([(files[0], 1)], "url string, size bigint")
    with pytest.raises(InvalidInputError, match="differs from its entry"):
        Inputs(wrong).files()
