"""Make Spark know the formats ``icevirt`` and ``icevirt-files``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icevirt.errors import UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    from icevirt.spark.file_source import FileNames

    sources.register(FilteringIcevirtSource if _takes_filters(spark) else IcevirtSource)
    sources.register(FileNames)


def _takes_filters(spark: SparkSession) -> bool:
    from pyspark.errors import PySparkException

    try:
        return str(spark.conf.get(PUSHDOWN, "false")).lower() == "true"
    except PySparkException:  # a platform that shows settings to no one
        return False
