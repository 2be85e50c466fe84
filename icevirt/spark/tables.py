"""Show a repository as data frames, whose rows the executors make, and register its formats."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from icevirt.errors import UnsupportedError
from icevirt.execution.spark_executor import SparkExecutor
from icevirt.storage.constructors import StorageLike, storage_of
from icevirt.tasks.table_query import COUNTED, TABLES, ChunksLike, TableQuery, ddl
from icevirt.tasks.table_rows import MOST_PARTITIONS, plan_shares, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Setting of Spark 4.1 and newer without which it refuses data sources that take filters."""


def register(spark: SparkSession) -> None:
    """Let a session read ``icevirt`` and ``icevirt-files``, by Spark's Python Data Source API.

    Afterwards ``spark.read.format("icevirt").option("table", "references").load(repo)`` is a data
    frame; docs/spark-tables.md has its options. If the session's setting
    ``spark.sql.python.filterPushdown.enabled`` is "true" now, filters on ``path``,
    ``index`` and ``manifest_id`` decide which manifests are read. Register again after a change of
    that setting.

    ``spark.readStream.format("icevirt-files").load(folder)`` is a stream of the files below a
    folder or prefix, for `icevirt.spark.foreach_batch`: docs/living.md.

    Executors, and the driver of Spark Connect, import icevirt from their own installation.

    Raises:
        InvalidInputError: This is not a session.
        UnsupportedError: This Spark has no Python Data Source API, which came with 4.0.
    """
    from icevirt.execution.spark_session import check_session

    check_session(spark)
    sources = getattr(spark, "dataSource", None)
    if sources is None:
        raise UnsupportedError(
            "this version of Spark cannot read formats that are written in Python",
            do='Use icevirt.spark.table(spark, repo, "references"), which returns the same data'
            ' frames on Spark 3.5, and the stream source "binaryFile"; or Spark 4.0 and newer.',
            spark=spark.version,
        )
    from icevirt.spark.data_source import FilteringIcevirtSource, IcevirtSource
    from icevirt.spark.file_stream import FileNames

    sources.register(FilteringIcevirtSource if _takes_filters(spark) else IcevirtSource)
    sources.register(FileNames)


def _takes_filters(spark: SparkSession) -> bool:
    from pyspark.errors import PySparkException

    try:
        return str(spark.conf.get(PUSHDOWN, "false")).lower() == "true"
    except PySparkException:  # a platform that shows settings to no one
        return False


_TASKS_PER_SLOT = 4


def table(
    spark: SparkSession,
    repo: StorageLike,
    table: str,
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    array: str | None = None,
    chunks: ChunksLike = None,
) -> DataFrame:
    """Return a table of a repository as a data frame; docs/spark-tables.md describes its columns.

    The version is looked up now, its rows are made when they are needed. Manifests in which nothing
    of ``array`` and ``chunks`` lies are not read. No row reaches the driver unless you collect it.

    Args:
        spark: The session, classic or of Spark Connect.
        repo: Path or URL of the repository, or a storage such as ``icevirt.s3_storage(...)``, whose
            credentials go to the executors with the tasks and not into the plan.
        table: ``references`` (a row for each chunk reference), ``locations`` and ``files`` (what
            virtual references lead to, with counts), ``arrays``, ``snapshots`` or ``ops_log``.
        branch: The branch whose newest version is shown; by default ``main``.
        tag: The tag whose version is shown.
        snapshot_id: The version that is shown.
        array: Only this array, or the arrays below this group.
        chunks: Only these chunks of the array: a number or a range for each dimension, as in
            ``"0:10, 5, :"`` or ``(slice(0, 10), 5, None)``.

    Raises:
        InvalidInputError: There is no such table, or arguments do not fit it or each other.
        RepositoryNotFoundError: There is no repository.
        RefNotFoundError, SnapshotNotFoundError: No such version.
        NodeNotFoundError: There is no such array.
    """
    storage = storage_of(repo)
    query = TableQuery.of(
        table, branch=branch, tag=tag, snapshot_id=snapshot_id, array=array, chunks=chunks
    )
    executor = SparkExecutor(spark)
    at_most = MOST_PARTITIONS
    if table != "references":
        at_most = executor.parallelism * _TASKS_PER_SLOT
    shares = [pickle.dumps(share) for share in plan_shares(storage, query, at_most=at_most)]
    numbers = spark.range(0, len(shares), 1, max(1, len(shares)))
    return _add_up(numbers.mapInArrow(executor.guard(_rows(shares)), ddl(table)), table)


def _rows(shares: Sequence[bytes]) -> Any:
    """Return the function that Spark runs over the numbers of shares."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in map(int, batch.column("id").to_numpy()):
                yield from rows_of(pickle.loads(shares[number]))  # noqa: S301  # made above

    return run


def _add_up(frame: DataFrame, table: str) -> DataFrame:
    """Return a table that tasks counted over their own manifests, each file or array once."""
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users name it

    names = [name for name, _ in TABLES[table]]
    if table in COUNTED:
        sums = [F.sum(name).alias(name) for name in ("references", "bytes")]
        return frame.groupBy(*COUNTED[table]).agg(*sums).select(*names)
    if table == "arrays":
        counts = ("virtual", "native", "inline", "bytes")
        said = [F.first(n, ignorenulls=True).alias(n) for n in names[1:] if n not in counts]
        sums = [F.sum(name).alias(name) for name in counts]
        return frame.groupBy("path").agg(*said, *sums).select(*names)
    return frame
