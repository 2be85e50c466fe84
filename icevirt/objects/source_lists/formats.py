"""Read lists of source files: text, JSON lines, CSV, Parquet, STAC items, S3 Inventory.

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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from icevirt.connect.urls import as_local_path, is_url, spelled
from icevirt.errors import InvalidInputError, NotFoundError, StorageError
from icevirt.model.json import loads
from icevirt.objects.opened import OpenedSource
from icevirt.objects.source import open_source
from icevirt.objects.source_lists.rows import (
    MODIFIED,
    URL,
    Row,
    bad_row,
    column_of,
    is_stac,
    items_in,
    no_urls,
    row,
    row_of,
    row_of_item,
)
from icevirt.objects.source_lists.s3_inventory import inventory_rows, is_inventory, plain

_PARQUET = (".parquet", ".pq")
_CSV = (".csv", ".tsv")
_DOCUMENT = (".json", ".geojson")
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
    source = spelled(source)
    name = "stdin" if source == "-" else source
    kind = source.lower().removesuffix(".gz")
    with _opened(source) as stream, _explaining(name):
        if kind.endswith(_PARQUET):
            yield from _parquet(stream, name)
        elif kind.endswith(_CSV):
            yield from _csv(stream, name, delimiter="\t" if kind.endswith(".tsv") else ",")
        elif kind.endswith(_DOCUMENT):
            yield from _document(stream, source, asset)
        else:
            yield from _lines(stream, source, asset)


def rows_of_arrow(table: Any) -> Iterator[Row]:
    """Yield the files of anything that gives itself as an Arrow stream: a table, a data frame."""
    name = type(table).__name__
    with _explaining(name):
        yield from _batches(pa.RecordBatchReader.from_stream(table), name)


@contextmanager
def _opened(source: str) -> Iterator[IO[bytes]]:
    """Open a list for reading from front to back."""
    if source == "-":
        yield sys.stdin.buffer
        return
    with ExitStack() as stack:
        if is_url(source) and not source.startswith("file://"):
            raw: IO[bytes] = RemoteStream.buffered(stack.enter_context(open_source(source)))
        else:
            raw = _local(source)
        stack.enter_context(raw)
        if source.lower().endswith(".gz"):
            yield stack.enter_context(gzip.GzipFile(fileobj=raw))  # type: ignore[arg-type]
        else:
            yield raw


def _local(source: str) -> IO[bytes]:
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


def _decoded(stream: IO[bytes], name: str) -> Iterator[str]:
    for number, raw in enumerate(lines_of(stream, name), 1):
        try:
            yield raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise bad_row("a line of a list of sources is not UTF-8", name, number) from error


def _lines(stream: IO[bytes], source: str, asset: str | None) -> Iterator[Row]:
    """Read a path, a URL or a JSON object a line; empty lines and ``#`` comments say nothing."""
    name = "stdin" if source == "-" else source
    for number, line in enumerate(_decoded(stream, name), 1):
        text = line.rstrip("\r\n")
        if not text.strip() or text.startswith("#"):
            continue
        if not text.startswith("{"):
            yield row((text, None, None, None), name, number)
            continue
        found = _json(text, name, number)
        if is_stac(found):
            for item in items_in(found):
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
    """Read one JSON document: STAC items, or the manifest of an S3 Inventory."""
    text = "".join(_decoded(io.BytesIO(whole(stream, source)), source))
    found = _json(text, source, 1)
    if is_inventory(found):
        yield from inventory_rows(found, source)
    elif is_stac(found):
        for number, item in enumerate(items_in(found), 1):
            yield row_of_item(item, asset, source, number)
    else:
        raise InvalidInputError(
            "a JSON document is neither a collection of STAC items nor the manifest of an S3"
            " Inventory",
            do="A file of references is itself a source: pass it without @. One JSON object per "
            "line needs the suffix .jsonl.",
            list=source,
        )


def _csv(stream: IO[bytes], name: str, *, delimiter: str) -> Iterator[Row]:
    reader = csv.reader(_decoded(stream, name), delimiter=delimiter, strict=True)
    header = next(reader, [])
    url = column_of(URL, header)
    if url is None:
        raise no_urls(name, header)
    wanted = (url, *(column_of(names, header) for names in (("size",), ("etag",), MODIFIED)))
    at = [header.index(each) if each is not None else len(header) for each in wanted]
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
        a, b, c, d = (values[place] for place in at)
        yield row((a, b, c, d), name, reader.line_num)


def _parquet(stream: IO[bytes], name: str) -> Iterator[Row]:
    is_pipe = stream is sys.stdin.buffer
    file = pq.ParquetFile(io.BytesIO(whole(stream, name)) if is_pipe else stream)
    yield from _batches(file.iter_batches(_AT_ONCE), name, file.schema_arrow)


def _batches(batches: Any, name: str, schema: Any = None) -> Iterator[Row]:
    there = list((schema if schema is not None else batches.schema).names)
    wanted = [column_of(names, there) for names in (URL, ("size",), ("etag",), MODIFIED)]
    if wanted[0] is None:
        raise no_urls(name, there)
    line = 0
    for batch in batches:
        columns = [
            [None] * len(batch) if each is None else plain(batch.column(each)) for each in wanted
        ]
        for values in zip(*columns, strict=True):
            line += 1
            yield row(values, name, line)


class RemoteStream(io.RawIOBase):
    """A file on a server, read by ranges."""

    def __init__(self, source: OpenedSource) -> None:
        super().__init__()
        self._source, self._at = source, 0

    @classmethod
    def buffered(cls, source: OpenedSource) -> io.BufferedReader:
        """Return a stream that asks for large ranges."""
        return io.BufferedReader(cls(source), _BUFFER)

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


def lines_of(stream: IO[bytes], name: str) -> Iterator[bytes]:
    """Yield the lines of a list.

    Raises:
        InvalidInputError: One is longer than any line of a list.
    """
    number = 0
    while raw := stream.readline(LONGEST_LINE + 1):
        number += 1
        if len(raw) > LONGEST_LINE:
            raise bad_row(
                f"a line of a list of sources is longer than {LONGEST_LINE >> 20} MiB", name, number
            )
        yield raw


def whole(stream: IO[bytes], name: str) -> bytes:
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
