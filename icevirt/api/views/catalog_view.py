"""Implement `icevirt.catalog_view`: what scans found, for Spark, DuckDB, pandas and polars."""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from icevirt.amounts import plural
from icevirt.archive.catalog_view import TABLES
from icevirt.archive.reports.build import BadFile, ReferenceCounts
from icevirt.archive.reports.scan import CatalogSummary
from icevirt.catalog.parts import check_mark, read_scans
from icevirt.catalog.view import PartView, ddl, newest, schema
from icevirt.connect.urls import as_local_path
from icevirt.errors import InvalidInputError, StorageError
from icevirt.escaping import Pictured, escape_line
from icevirt.execution.spark_executor import SparkExecutor
from icevirt.model import paths
from icevirt.remedy_notation import load_remedy
from icevirt.storage.constructors import StorageLike, storage_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TASKS_PER_SLOT = 4


def catalog_view(catalog: StorageLike, *, scan: str | None = None) -> CatalogView:
    """Look at a catalog as tables with one row a file, array, attribute and reference.

    Of a file that was scanned again, because it changed or was bad, the newest scan counts. One
    that was scanned with several options counts once for each of them; ``view.scans`` says which.

    Args:
        catalog: The directory or URL of the catalog.
        scan: Only what this scan found, by its key in ``view.scans``.

    Raises:
        NotFoundError: There is no catalog.
        InvalidInputError: There is no such scan in it.
        AlreadyExistsError: The path holds something else.
        FormatError: The catalog is of another version.

    Examples:
        >>> view = icevirt.catalog_view("scans")  # of `icevirt.scan_files`
        >>> view.files().read_pandas()["status"].unique().tolist()
        ['ok']
    """
    storage = storage_of(catalog)
    check_mark(storage)
    return CatalogView(storage.url, newest(storage, scan), read_scans(storage), scan)


class CatalogView(Pictured):
    """A catalog as it was when the view was made. Made by `catalog_view`.

    Its tables are Arrow streams: a part of the catalog, at most 256 files, is in memory at a time.
    ``duckdb.from_arrow(view.references())`` queries one, ``view.files().read_pandas()`` makes a
    data frame.
    """

    def __init__(
        self, url: str, parts: list[PartView], scans: dict[str, Any], scan: str | None
    ) -> None:
        self._url = url
        self._scan = scan
        self._parts = parts
        found = dict.fromkeys(part.scan for part in parts)
        if scan is not None and scan not in found:
            raise InvalidInputError(
                "the catalog has no such scan",
                do="Name a key of `icevirt.catalog_view(...).scans`.",
                catalog=url,
                scan=scan,
                there=sorted(scans),
            )
        self.scans = {each: scans.get(each, {}) for each in sorted(found)}
        """The options of each scan, and the versions of its scanners."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what a pickle may hold: where the catalog is, which is looked at again there."""
        return partial(catalog_view, self._url, scan=self._scan), ()

    def __repr__(self) -> str:
        files = sum(len(part.rows) for part in self._parts)
        counted = f"{plural(files, 'file')}, {plural(len(self.scans), 'scan')}"
        return f"<icevirt.CatalogView {escape_line(self._url)} {counted}>"

    def files(self) -> pa.RecordBatchReader:
        """Return a row for each file: what it was, and how scanning it went."""
        return self._stream("files")

    def arrays(self, path: str | None = None) -> pa.RecordBatchReader:
        """Return a row for each array of each file, or only for arrays at ``path``."""
        return self._stream("arrays", path)

    def attributes(self) -> pa.RecordBatchReader:
        """Return a row for each attribute of each group; global attributes belong to "/"."""
        return self._stream("attributes")

    def references(self, path: str | None = None) -> pa.RecordBatchReader:
        """Return a row for each chunk reference, or only for the array at ``path``."""
        return self._stream("references", path)

    def dataframe(self, spark: SparkSession, table: str, path: str | None = None) -> DataFrame:
        """Return a table as a Spark data frame, whose rows are made by the executors.

        Args:
            spark: The session.
            table: ``files``, ``arrays``, ``attributes`` or ``references``.
            path: Only arrays or references at this path.

        Raises:
            InvalidInputError: There is no such table.
        """
        _check(table)
        wanted = None if path is None else paths.canonical(path)
        executor = SparkExecutor(spark)
        tasks = min(len(self._parts), executor.parallelism * _TASKS_PER_SLOT)
        shares = [pickle.dumps(self._parts[at::tasks]) for at in range(tasks)]
        numbers = spark.range(0, tasks, 1, max(1, tasks))
        work = executor.guard(_explode(table, wanted, shares))
        return numbers.mapInArrow(work, ddl(table))

    def summary(self) -> CatalogSummary:
        """Count what the catalog holds."""
        files = size = 0
        bad: list[BadFile] = []
        for batch in self.files():
            files += batch.num_rows
            size += int(pc.sum(batch["size"]).as_py())
            rows = batch.select(["status", "url", "code", "error"]).to_pylist()
            bad += [
                BadFile(url=row["url"], code=row["code"], error=load_remedy(row["error"]))
                for row in rows
                if row["status"] != "ok"
            ]
        counts = ReferenceCounts()
        for batch in self.arrays():
            virtual, inline, there, here = (
                int(pc.sum(batch[name]).as_py() or 0)
                for name in ("virtual", "inline", "virtual_bytes", "inline_bytes")
            )
            counts += ReferenceCounts(
                virtual=virtual, inline=inline, bytes_referenced=there, bytes_stored=here
            )
        return CatalogSummary(
            catalog=self._url,
            scans=self.scans,
            files=files,
            bytes=size,
            bad_files=tuple(bad),
            references=counts,
        )

    def write_parquet(self, table: str, path: str | os.PathLike[str]) -> int:
        """Write a table to a local Parquet file; return how many rows it has.

        Raises:
            InvalidInputError: There is no such table.
            StorageError: The file cannot be written.
        """
        _check(table)
        stream = self._stream(table)
        there = as_local_path(path)
        unfinished = f"{there}.unfinished"
        rows = 0
        try:
            with pq.ParquetWriter(unfinished, stream.schema, compression="zstd") as writer:
                for batch in stream:
                    writer.write_batch(batch)
                    rows += batch.num_rows
            os.replace(unfinished, there)
        except OSError as error:
            raise StorageError(
                "a table of a catalog cannot be written",
                do="Name a file in a directory that can be written.",
                path=os.fspath(path),
                cause=error.strerror or str(error),
            ) from error
        finally:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                os.remove(unfinished)
        return rows

    def _stream(self, table: str, path: str | None = None) -> pa.RecordBatchReader:
        wanted = None if path is None else paths.canonical(path)
        batches = (batch for part in self._parts for batch in part.batches(table, wanted))
        return pa.RecordBatchReader.from_batches(schema(table), batches)


def _check(table: str) -> None:
    if table not in TABLES:
        raise InvalidInputError(
            "unknown table of a catalog", do=f"Name one of {', '.join(TABLES)}.", table=table
        )


def _explode(table: str, path: str | None, shares: Sequence[bytes]) -> Any:
    """Return the function that Spark runs over the numbers of shares: pickled lists of parts."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (
            each for batch in batches for each in map(int, batch.column("id").to_numpy())
        ):
            held: Sequence[PartView] = pickle.loads(shares[number])  # noqa: S301  # made here
            for part in held:
                yield from part.batches(table, path)

    return run
