"""Read lists of source files: text, JSON lines, CSV, Parquet, and what catalogs of others save.

The suffix decides the format. A list may give size and checksum of its files, so that a million
files need no requests. Errors name the line.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from icevirt.connect.urls import as_local_path, is_url, spell
from icevirt.errors import InvalidInputError, NotFoundError, StorageError
from icevirt.model.json import loads
from icevirt.objects.opening import open_source
from icevirt.objects.source import OpenedSource
from icevirt.objects.source_lists.items import addresses_in, items_in, resolve, row_of_item
from icevirt.objects.source_lists.rows import (
    Row,
    bad_row,
    choose_columns,
    plain_values,
    row,
    row_of,
)
from icevirt.objects.source_lists.s3_inventory import rows_of_inventory

_AT_ONCE = 1 << 16  # rows
LONGEST_LINE = 16 << 20  # bytes; a STAC item with all its assets takes a hundredth
LARGEST_DOCUMENT = 512 << 20  # bytes of JSON, or of Parquet on stdin
_BUFFER = 8 << 20
_DAMAGED = (pa.ArrowException, EOFError, gzip.BadGzipFile, zlib.error, csv.Error)


def rows_of(source: str, asset: str | None = None) -> Iterator[Row]:
    """Yield the files that a list names, in its order.

    Args:
        source: Path or URL of the list, ``-`` for stdin. It is text with a path, URL or JSON object
            a line unless its suffix says otherwise; all but Parquet may be compressed (``.gz``).
        asset: Which asset of STAC items is meant; by default the one with the role "data", or the
            only one of a type that NetCDF or HDF5 files have.

    Raises:
        InvalidInputError: It is no list, or a row of it is wrong.
        NotFoundError: There is no such list.
        StorageError: It cannot be read.
    """
    source = spell(source)
    name = "stdin" if source == "-" else source
    kind = source.lower().removesuffix(".gz")
    with _open(source) as stream, _explaining(name):
        if kind.endswith((".parquet", ".pq", ".csv", ".tsv")):
            yield from _table(stream, name)
        elif kind.endswith((".json", ".geojson")):
            yield from _document(stream, source, asset)
        else:
            yield from _lines(stream, source, asset)


def rows_of_arrow(table: Any) -> Iterator[Row]:
    """Yield the files of anything that gives itself as an Arrow stream: a table, a data frame."""
    name = type(table).__name__
    with _explaining(name):
        batches = pa.RecordBatchReader.from_stream(table)
        yield from _rows_of_batches(batches, batches.schema, name)


def rows_of_items(found: Any, asset: str | None = None) -> Iterator[Row]:
    """Yield the files of items of catalogs, as their clients return them.

    Raises:
        InvalidInputError: One is no item, or names no file.
    """
    for number, each in enumerate(found, 1):
        if (items := items_in(each)) is None:
            raise bad_row("a source is neither an item of STAC nor a granule", "items", number)
        for item in items:
            yield row_of_item(item, asset, "-", number)


@contextmanager
def _open(source: str) -> Iterator[IO[bytes]]:
    """Open a list for reading from front to back."""
    if source == "-":
        yield sys.stdin.buffer
        return
    with ExitStack() as stack:
        if is_url(source) and not source.startswith("file://"):
            remote = RemoteStream(stack.enter_context(open_source(source)))
            raw: IO[bytes] = io.BufferedReader(remote, _BUFFER)
        else:
            raw = _open_local(source)
        stack.enter_context(raw)
        if source.lower().endswith(".gz"):
            yield stack.enter_context(gzip.GzipFile(fileobj=raw))  # type: ignore[arg-type]
        else:
            yield raw


def _open_local(source: str) -> IO[bytes]:
    path = as_local_path(source)
    try:
        return open(path, "rb")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFoundError(
            "no such list of sources",
            do="Check the path; write a file name that begins with @ as ./@name.",
            list=source,
        ) from error
    except OSError as error:
        raise _unreadable(source, error) from error


def _unreadable(name: str, error: OSError) -> StorageError:
    return StorageError(
        "a list of sources cannot be read",
        do="Check that you may read this file, and check the disk that holds it.",
        list=name,
        cause=error.strerror,
    )


@contextmanager
def _explaining(name: str) -> Iterator[None]:
    try:
        yield
    except _DAMAGED as error:
        raise InvalidInputError(
            "a list of sources is damaged, or does not match its suffix",
            do="Check the file; files without a known suffix are read as text.",
            list=name,
            cause=str(error).partition("\n")[0],
        ) from error
    except OSError as error:
        raise _unreadable(name, error) from error


def _texts(stream: IO[bytes], name: str) -> Iterator[str]:
    """Yield the lines of a list. Raises `InvalidInputError`: one is too long, or not UTF-8."""
    number = 0
    while raw := stream.readline(LONGEST_LINE + 1):
        number += 1
        if len(raw) > LONGEST_LINE:
            raise bad_row(
                f"a line of a list of sources is longer than {LONGEST_LINE >> 20} MiB", name, number
            )
        try:
            yield raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise bad_row("a line of a list of sources is not UTF-8", name, number) from error


def _lines(stream: IO[bytes], source: str, asset: str | None) -> Iterator[Row]:
    """Read a path, a URL or a JSON object a line; empty lines and ``#`` comments say nothing."""
    name = "stdin" if source == "-" else source
    for number, line in enumerate(_texts(stream, name), 1):
        text = line.rstrip("\r\n")
        if not text.strip() or text.startswith("#"):
            continue
        if not text.startswith("{"):
            yield row((text, None, None, None), name, number)
            continue
        found = _json(text, name, number)
        if (items := items_in(found)) is not None:
            for item in items:
                yield row_of_item(item, asset, source, number)
        else:
            yield row_of(found, name, number)


def _json(text: str, name: str, number: int) -> Any:
    try:
        return loads(text)
    except ValueError as error:
        raise bad_row(
            "a line of a list of sources is not a JSON object", name, number, cause=str(error)
        ) from error


def _document(stream: IO[bytes], source: str, asset: str | None) -> Iterator[Row]:
    """Read one JSON document: items, granules, or what says where the lists are."""
    text = "".join(_texts(io.BytesIO(_whole(stream, source)), source))
    found = _json(text, source, 1)
    keys = found.keys() if isinstance(found, Mapping) else set()
    if {"sourceBucket", "fileFormat", "files"} <= keys:
        yield from rows_of_inventory(found, source)
    elif {"esmcat_version", "assets"} <= keys:
        yield from _rows_of_esm_catalog(found, source)
    elif (items := items_in(found)) is not None:
        for number, item in enumerate(items, 1):
            yield row_of_item(item, asset, source, number)
    elif (addresses := addresses_in(found)) is not None:
        for number, address in enumerate(addresses, 1):
            yield row((address, None, None, None), source, number)
    else:
        raise InvalidInputError(
            "a JSON document is none of the lists that are read: addresses, STAC items, granules of"
            " CMR, the manifest of an S3 Inventory, a catalog of intake-ESM",
            do="A file of references is itself a source: pass it without @. One JSON object per "
            "line needs the suffix .jsonl.",
            list=source,
        )


def _rows_of_esm_catalog(catalog: Mapping[str, Any], source: str) -> Iterator[Row]:
    """Yield the files of a catalog of intake-ESM, from the table inside it or beside it."""
    assets = catalog["assets"] if isinstance(catalog["assets"], Mapping) else {}
    column = str(assets.get("column_name"))
    if assets.get("format") == "opendap":
        raise InvalidInputError(
            "a catalog of intake-ESM names addresses of OPeNDAP, which serves arrays and not files",
            do="Make a catalog of the files themselves, at their paths or at https:// addresses.",
            list=source,
        )
    rows = catalog.get("catalog_dict")
    if isinstance(rows, list):
        for number, each in enumerate(rows, 1):
            url = each.get(column) if isinstance(each, Mapping) else None
            yield row((url, None, None, None), source, number)
        return
    where = _table_of(catalog.get("catalog_file"), source)
    with _open(where) as stream, _explaining(where):
        yield from _table(stream, where, column)


def _table_of(given: Any, source: str) -> str:
    """Return where the table of a catalog is: on this machine only if the catalog is, too."""
    where = resolve(given, source) if isinstance(given, str) and given else ""
    if not where or (_is_local(where) and not _is_local(source)):
        raise InvalidInputError(
            "a catalog of intake-ESM does not name a table that may be read",
            do='Save it with its table inside: `catalog.serialize(name, catalog_type="dict")`.',
            list=source,
            catalog_file=given,
        )
    return where


def _is_local(source: str) -> bool:
    return not is_url(source) or source.startswith("file://")


def _table(stream: IO[bytes], name: str, url: str | None = None) -> Iterator[Row]:
    """Read a table in the format that its suffix names; `url` is the column of the files."""
    kind = name.lower().removesuffix(".gz")
    if kind.endswith((".parquet", ".pq")):
        is_pipe = stream is sys.stdin.buffer
        file = pq.ParquetFile(io.BytesIO(_whole(stream, name)) if is_pipe else stream)
        yield from _rows_of_batches(file.iter_batches(_AT_ONCE), file.schema_arrow, name, url)
    else:
        yield from _csv(stream, name, url, delimiter="\t" if kind.endswith(".tsv") else ",")


def _csv(stream: IO[bytes], name: str, url: str | None, *, delimiter: str) -> Iterator[Row]:
    reader = csv.reader(_texts(stream, name), delimiter=delimiter, strict=True)
    header = next(reader, [])
    wanted = choose_columns(header, name, url)
    at = [len(header) if each is None else header.index(each) for each in wanted]
    for values in reader:
        if not values:
            continue
        if len(values) != len(header):
            raise bad_row(
                "a line of a list of sources has a different number of columns than its header",
                name,
                reader.line_num,
                header=len(header),
                found=len(values),
            )
        values.append("")
        yield row([values[place] for place in at], name, reader.line_num)


def _rows_of_batches(batches: Any, schema: Any, name: str, url: str | None = None) -> Iterator[Row]:
    wanted = choose_columns(schema.names, name, url)
    line = 0
    for batch in batches:
        columns = [
            [None] * len(batch) if each is None else plain_values(batch.column(each))
            for each in wanted
        ]
        for values in zip(*columns, strict=True):
            line += 1
            yield row(values, name, line)


class RemoteStream(io.RawIOBase):
    """A file on a server, read by ranges."""

    def __init__(self, source: OpenedSource) -> None:
        super().__init__()
        self._source, self._at = source, 0

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def seekable(self) -> bool:
        """Say that it can be read from anywhere, which Parquet needs."""
        return True

    def tell(self) -> int:
        """Return where the next read begins."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Choose where the next read begins."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._source.file.size}
        self._at = max(0, start[whence] + offset)
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read as much as fits, less only at the end."""
        length = min(len(buffer), max(0, self._source.file.size - self._at))
        body = self._source.read(self._at, length) if length else b""
        buffer[: len(body)] = body
        self._at += len(body)
        return len(body)


def _whole(stream: IO[bytes], name: str) -> bytes:
    """Return all of a list that can only be read as a whole.

    Raises:
        InvalidInputError: That is too much.
    """
    size = 0
    if isinstance(stream, io.BufferedReader) and stream.seekable():
        size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
    raw = b"" if size > LARGEST_DOCUMENT else stream.read(LARGEST_DOCUMENT + 1)
    if max(size, len(raw)) > LARGEST_DOCUMENT:
        raise InvalidInputError(
            f"a list of sources is larger than the {LARGEST_DOCUMENT >> 20} MiB that can be read"
            " as one document",
            do="Write one JSON object per line (.jsonl), or pass Parquet as a file (.parquet).",
            list=name,
        )
    return raw
