"""Implement the format ``icevirt-files``: the files of a prefix as a stream of rows.

``spark.readStream.format("icevirt-files").load(prefix)`` yields a row for each new file, wherever
icevirt lists files, and however old a file claims to be: not times are compared, but listings.
An offset holds a sum for each of 256 shares of the listing. A running query knows the listing of
its last batch, and names the files that were not in it. After a restart it names all files of each
share whose sum changed. So each file is named at least once; `icevirt.spark.foreach_batch` appends
it once.

Rows are made where files are listed, in a process of the driver's machine, and go to Spark with the
plan of a batch: no Python process of an executor is asked for them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, SimpleDataSourceStreamReader

from icevirt.archive.sources import SourceFile
from icevirt.connect.urls import is_url
from icevirt.errors import InvalidInputError, NotFoundError
from icevirt.execution.installation import SentBySpark
from icevirt.objects.source_access import SourceAccess, grant_access
from icevirt.objects.source_lists.listing import list_sources

NAME = "icevirt-files"
SCHEMA = "path string, length bigint, etag string, modificationTime timestamp"
SHARES = 256
"""The number of sums in an offset. After a restart, one new file among a million makes the stream
name the 4,000 files of its share again."""

_WIDTH = 16  # letters of a sum


def share_of(url: str) -> int:
    """Return the share of the listing that a file belongs to."""
    return hashlib.blake2b(url.encode(), digest_size=1).digest()[0]


@dataclass(frozen=True)
class Listing:
    """Files as they were listed, and what is compared of them."""

    files: Sequence[SourceFile] = ()

    @cached_property
    def digests(self) -> NDArray[np.uint64]:
        """A digest of what identifies each file."""
        texts = (
            f"{file.url}\n{file.size}\n{file.etag}\n{file.last_modified}" for file in self.files
        )
        raw = b"".join(hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts)
        return np.frombuffer(raw, ">u8").astype(np.uint64)

    @cached_property
    def shares(self) -> NDArray[np.uint8]:
        """The share of each file."""
        return np.array([share_of(file.url) for file in self.files], np.uint8)

    @cached_property
    def offset(self) -> dict[str, str]:
        """The sums of the shares, in which the order of files does not matter."""
        sums = np.zeros(SHARES, np.uint64)
        np.add.at(sums, self.shares, self.digests)  # beyond 64 bits it begins again
        return {"shares": "".join(f"{each:0{_WIDTH}x}" for each in sums.tolist())}

    def names(self, chosen: NDArray[np.bool_]) -> NamedFiles:
        """Return the rows of some of the files."""
        return NamedFiles([self.files[at] for at in np.flatnonzero(chosen).tolist()])


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


def list_files(path: str, access: str) -> tuple[SourceFile, ...]:
    """List the files below a prefix; none where a folder or bucket holds none yet.

    Raises:
        NotFoundError: There is no such folder.
    """
    grants = {path: access} if access else None
    with grant_access(SourceAccess.of(grants)):
        try:
            return list_sources([path])
        except NotFoundError:
            raise
        except InvalidInputError as error:
            if error.facts.get("source") == path:  # nothing matches it, or not yet
                return ()
            raise


type Row = tuple[str, int, str, datetime]


class NamedFiles(Iterator[Row]):
    """The rows of files. Spark copies it, and reads each copy from its place on."""

    def __init__(self, files: Sequence[SourceFile] = ()) -> None:
        self._files, self._at = files, 0

    def __next__(self) -> Row:
        if self._at >= len(self._files):
            raise StopIteration
        file = self._files[self._at]
        self._at += 1
        moment = datetime.fromtimestamp(file.last_modified / 1e9, UTC)
        return file.url, file.size, file.etag, moment


try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2, which makes one batch of what is available

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Nothing that this Spark asks for."""


try:
    from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper as Prefetching
except ImportError:  # this Spark calls it otherwise
    Prefetching = None  # type: ignore[assignment,misc]


class FileNames(SentBySpark, DataSource):
    """The source: a listing of files as a stream."""

    @classmethod
    def name(cls) -> str:
        """Return what `format` takes."""
        return NAME

    def schema(self) -> str:
        """Return the columns."""
        return SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Return what Spark asks for offsets and rows; what is not implemented, it does itself."""
        if Prefetching is None:
            return super().streamReader(schema)
        return _of_driver(FileNamesReader(self.options))

    def simpleStreamReader(  # noqa: N802 - Spark's name
        self,
        schema: Any,  # noqa: ARG002
    ) -> SimpleDataSourceStreamReader:
        """Return what lists files."""
        return FileNamesReader(self.options)


class FileNamesReader(SentBySpark, SupportsTriggerAvailableNow, SimpleDataSourceStreamReader):
    """Lists files; it lives as long as the query, in a process of the driver's machine."""

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
        self._named: tuple[dict[str, str], NDArray[np.uint64]] | None = None  # offset, digests
        self._last: Listing | None = None  # files that come behind it are for the next query

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Return the offset of a query that begins: no file was named yet."""
        return Listing().offset

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """List the files once for all batches of a query that ends; Spark 4.2 and newer ask.

        The first batch may repeat one that a kill interrupted; the next one names what came since.
        """
        self._last = self._list()

    def read(self, start: dict[str, str]) -> tuple[Iterator[Row], dict[str, str]]:
        """List the files; return those that are new since an offset, and the next offset."""
        listing, named = self._last or self._list(), self._named
        end = listing.offset
        if end == start:
            return iter(()), end
        if named is not None and named[0] == start:
            rows = listing.names(~np.isin(listing.digests, named[1]))
        else:
            rows = _between(start, end, listing)
        self._named = (end, listing.digests)
        return rows, end

    def readBetweenOffsets(  # noqa: N802 - Spark's name
        self, start: dict[str, str], end: dict[str, str]
    ) -> Iterator[Row]:
        """Return the files of a batch that is repeated after a restart.

        The listing of ``end`` is gone, and the files of now are named instead: those that came
        since are named by the next batch once more.
        """
        return _between(start, end, self._last or self._list())

    def _list(self) -> Listing:
        return Listing(list_files(self._path, self._access))

    def commit(self, end: dict[str, str]) -> None:
        """Take note of nothing: the checkpoint has the offset."""


def _of_driver(reader: FileNamesReader) -> DataSourceStreamReader:
    """Return what hands over all rows with the plan of a batch, of one that is repeated too.

    By itself Spark lets an executor list the files for that one.
    """

    class OfDriver(Prefetching):
        """Spark's own, which knows the rows that `read` returned since the query began."""

        def latestOffset(self, *asked: Any) -> dict[str, str]:  # noqa: N802 - Spark's name
            """List the files. Spark 4.1 and before notes each look of a query that waits."""
            end: dict[str, str] = super().latestOffset(*asked)
            if self.cache and self.cache[-1].start == self.cache[-1].end:
                self.cache.pop()
            return end

        def getCache(  # noqa: N802 - Spark's name
            self, start: dict[str, str], end: dict[str, str]
        ) -> Iterator[Row]:
            """Return the rows of a batch."""
            found: Iterator[Row] | None = super().getCache(start, end)
            return self.simple_reader.readBetweenOffsets(start, end) if found is None else found

    return OfDriver(reader)


def _between(start: Mapping[str, str], end: Mapping[str, str], listing: Listing) -> NamedFiles:
    """Return the files of all shares that differ between two offsets."""
    shares = np.array([*differing(start, end)], np.uint8)
    return listing.names(np.isin(listing.shares, shares))
