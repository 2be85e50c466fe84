"""Stream the names of files that appear below a prefix: a source for Spark 4.0 and newer.

``spark.readStream.format("icevirt-files").load(prefix)`` yields a row for each new file, wherever
icevirt lists files, and however old a file claims to be: not times are compared, but listings.
An offset holds a sum for each of 256 shares of the listing. A share whose sum changed since is
named again, so each file is named at least once; `icevirt.spark.foreach_batch` appends it once.
Spark imports this module in its Python workers.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import batched
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from icevirt.archive.scanned import SourceFile
from icevirt.connect.urls import is_url
from icevirt.errors import InvalidInputError, NotFoundError
from icevirt.execution.installation import SentBySpark
from icevirt.objects.source_access import SourceAccess, granted
from icevirt.objects.source_lists.listing import list_sources

NAME = "icevirt-files"
SCHEMA = "path string, length bigint, etag string, modificationTime timestamp"
SHARES = 256
"""How many shares an offset tells apart: of a million files, a new one has 4,000 named again."""

_WIDTH = 16  # letters of a sum
_MODULUS = 1 << 64


def share_of(url: str) -> int:
    """Return the share of the listing that a file belongs to."""
    return hashlib.blake2b(url.encode(), digest_size=1).digest()[0]


def sums_of(files: Iterable[SourceFile]) -> list[int]:
    """Return a sum of what identifies its files for each share; their order does not matter."""
    sums = [0] * SHARES
    for file in files:
        text = f"{file.url}\n{file.size}\n{file.etag}\n{file.last_modified}"
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        share = share_of(file.url)
        sums[share] = (sums[share] + int.from_bytes(digest)) % _MODULUS
    return sums


def as_offset(sums: Iterable[int]) -> dict[str, str]:
    """Return the offset of a listing; that of an empty one is the first of all."""
    return {"shares": "".join(f"{each:0{_WIDTH}x}" for each in sums)}


def differing(start: Mapping[str, str], end: Mapping[str, str]) -> frozenset[int]:
    """Return the shares in which two listings differ.

    Raises:
        InvalidInputError: An offset is not of this source.
    """
    texts = [each.get("shares", "") for each in (start, end)]
    if any(len(text) != SHARES * _WIDTH for text in texts):
        raise InvalidInputError(
            "the checkpoint holds offsets of another source",
            do="Start the query from a new checkpoint: no file is appended twice.",
        )
    one, other = texts
    return frozenset(
        share
        for share in range(SHARES)
        if one[share * _WIDTH :][:_WIDTH] != other[share * _WIDTH :][:_WIDTH]
    )


def listed_files(path: str, access: str) -> tuple[SourceFile, ...]:
    """List the files below a prefix; none where a folder or bucket holds none yet.

    Raises:
        NotFoundError: There is no such folder.
    """
    grants = {path: access} if access else None
    with granted(SourceAccess.of(grants)):
        try:
            return list_sources([path])
        except NotFoundError:
            raise
        except InvalidInputError as error:
            if error.facts.get("source") == path:  # nothing matches it, or not yet
                return ()
            raise


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
