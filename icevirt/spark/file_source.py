"""Be the source "icevirt-files" for Spark, which imports this module in its Python workers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import batched
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from icevirt.archive.scanned import SourceFile
from icevirt.connect.urls import is_url
from icevirt.errors import InvalidInputError
from icevirt.execution.installation import SentBySpark
from icevirt.spark.file_stream import (
    NAME,
    SCHEMA,
    SHARES,
    as_offset,
    differing,
    listed_files,
    share_of,
    sums_of,
)

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2, which makes one batch of what is available

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Nothing that this Spark asks for."""


_ROWS = 1 << 13  # of a partition


class FileNames(SentBySpark, DataSource):
    """The source: a listing of files as a stream."""

    @classmethod
    def name(cls) -> str:
        """Return what `format` takes."""
        return NAME

    def schema(self) -> str:
        """Return the columns."""
        return SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802, ARG002 - Spark's
        """Return what Spark asks for offsets and rows."""
        return FileNamesReader(self.options)


class FileNamesReader(SentBySpark, SupportsTriggerAvailableNow, DataSourceStreamReader):
    """Lists files; it lives as long as the query, in a process of the driver's machine."""

    def __getstate__(self) -> dict[str, Any]:
        """Return nothing: a partition holds the rows that an executor yields."""
        return {}

    def __init__(self, options: Mapping[str, str]) -> None:
        self._path = options.get("path", "")
        self._access = options.get("access", "")
        if not self._path:
            raise InvalidInputError(
                "the stream has no prefix",
                do=f'Pass it to load: spark.readStream.format("{NAME}").load("s3://bucket/2024/").',
            )
        if not (is_url(self._path) or os.path.isabs(self._path)):
            raise InvalidInputError(
                "the path of the stream is relative, and Spark may run anywhere",
                do=f"Pass {os.path.abspath(self._path)!r}, or where the files are.",
                path=self._path,
            )
        self._listed: tuple[dict[str, str], tuple[SourceFile, ...]] | None = None
        self._is_last = False  # the listing; files that come behind it are for the next query

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Return the offset of a query that begins: no file was named yet."""
        return as_offset([0] * SHARES)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """List the files once for all batches of a query that ends; Spark 4.2 and newer ask.

        The first batch may repeat one that a kill interrupted; the next one names what came since.
        """
        self._list()
        self._is_last = True

    def latestOffset(self, *_: Any) -> dict[str, str]:  # noqa: N802 - Spark's name
        """List the files. Spark 4.2 and newer say where the last batch ended, and a limit."""
        if self._listed is None or not self._is_last:
            return self._list()[0]
        return self._listed[0]

    def _list(self) -> tuple[dict[str, str], tuple[SourceFile, ...]]:
        files = listed_files(self._path, self._access)
        self._listed = (as_offset(sums_of(files)), files)
        return self._listed

    def partitions(
        self, start: Mapping[str, str], end: Mapping[str, str]
    ) -> Sequence[InputPartition]:
        """Return the files of all shares that differ between two offsets.

        After a restart the listing of ``end`` is gone, and the files of now are named instead:
        those that came since are named by the next batch once more.
        """
        listed = self._listed
        if listed is None or (listed[0] != end and not self._is_last):
            listed = self._list()
        shares = differing(start, end)
        rows = (
            (file.url, file.size, file.etag, file.last_modified)
            for file in listed[1]
            if share_of(file.url) in shares
        )
        return [InputPartition(some) for some in batched(rows, _ROWS)]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, int, str, datetime]]:
        """Yield the rows of a partition."""
        for url, size, etag, nanoseconds in partition.value:
            yield url, size, etag, datetime.fromtimestamp(nanoseconds / 1e9, UTC)

    def commit(self, end: Mapping[str, str]) -> None:
        """Take note of nothing: the checkpoint has the offset."""
