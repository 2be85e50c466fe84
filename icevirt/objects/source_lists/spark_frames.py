"""Read a data frame of Spark as a list of source files, a partition at a time.

A table of Delta Lake, Iceberg or Hive that Spark reads is such a data frame. Only the columns that
lists have are computed, and the driver holds one partition of them at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from icevirt.errors import IcevirtError, StorageError
from icevirt.objects.source_lists.rows import MODIFIED, URL, Row, column_of, no_urls, row
from icevirt.redaction import without_secrets


def is_spark_frame(source: object) -> bool:
    """Say whether this is a data frame of Spark, classic or Connect, without importing Spark."""
    return hasattr(source, "sparkSession") and hasattr(source, "toLocalIterator")


def rows_of_spark(frame: Any) -> Iterator[Row]:
    """Yield the files of a data frame.

    Raises:
        InvalidInputError: It has no column of URLs, or a row is wrong.
        StorageError: Spark cannot compute it.
    """
    name = type(frame).__name__
    there = [*frame.columns]
    columns = [column_of(names, there) for names in (URL, ("size",), ("etag",), MODIFIED)]
    if columns[0] is None:
        raise no_urls(name, there)
    used = [column for column in columns if column is not None]
    zoned = {each.name for each in frame.schema.fields if each.dataType.typeName() == "timestamp"}
    wanted = frame.select(*(frame[column] for column in used))
    try:
        for line, found in enumerate(wanted.toLocalIterator(prefetchPartitions=True), 1):
            values = dict(zip(used, found, strict=True))
            yield row(_values(values, columns, zoned), name, line)
    except IcevirtError:
        raise
    except Exception as error:  # of Spark, in each version another tree
        raise StorageError(
            "Spark cannot compute a list of sources",
            do="Look at the cause; `df.count()` has to work first.",
            list=name,
            cause=without_secrets(str(error))[:500],
        ) from error


def _values(values: Mapping[str, Any], columns: list[str | None], zoned: set[str]) -> Iterator[Any]:
    for column in columns:
        value = None if column is None else values[column]
        if column in zoned and isinstance(value, datetime):
            value = value.astimezone(UTC)  # Spark gives a moment in the time of this machine
        yield value
