"""Read lists of source files: text, JSON lines, CSV, Parquet, STAC items, S3 Inventory.

The suffix decides the format. A list may give size and checksum of its files, so that a million
files need no requests. Errors name the line.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import os
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import IO, Any
from urllib.parse import quote, unquote_plus

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from icevirt.connect.urls import as_local_path, is_url, spell
from icevirt.errors import InvalidInputError, NotFoundError, StorageError
from icevirt.model.json import loads
from icevirt.objects.source import OpenedSource, open_source
from icevirt.objects.source_lists.listing import SUFFIXES
from icevirt.objects.source_lists.rows import (
    Row,
    bad_row,
    choose_columns,
    is_stac,
    items_in,
    row,
    row_of,
    row_of_item,
)

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
        if kind.endswith((".parquet", ".pq")):
            is_pipe = stream is sys.stdin.buffer
            file = pq.ParquetFile(io.BytesIO(_whole(stream, name)) if is_pipe else stream)
            yield from _rows_of_batches(file.iter_batches(_AT_ONCE), file.schema_arrow, name)
        elif kind.endswith((".csv", ".tsv")):
            yield from _csv(stream, name, delimiter="\t" if kind.endswith(".tsv") else ",")
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
    text = "".join(_texts(io.BytesIO(_whole(stream, source)), source))
    found = _json(text, source, 1)
    is_mapping = isinstance(found, Mapping)
    if is_mapping and {"sourceBucket", "fileFormat", "files"} <= found.keys():
        yield from _rows_of_inventory(found, source)
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
    reader = csv.reader(_texts(stream, name), delimiter=delimiter, strict=True)
    header = next(reader, [])
    wanted = choose_columns(header, name)
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


def _rows_of_batches(batches: Any, schema: Any, name: str) -> Iterator[Row]:
    wanted = choose_columns(schema.names, name)
    line = 0
    for batch in batches:
        columns = [
            [None] * len(batch) if each is None else _plain(batch.column(each)) for each in wanted
        ]
        for values in zip(*columns, strict=True):
            line += 1
            yield row(values, name, line)


def _plain(column: Any) -> list[Any]:
    """Return Python values; moments as microseconds, for which pandas is not needed."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    values: list[Any] = column.to_pylist()
    return values


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


# -- S3 Inventory, the daily listing of a bucket that AWS makes ------------------------------------

_SAFE = "/!$&'()*+,;=:@[]|~"
_COLUMNS = {  # as the CSV calls them
    "bucket": "Bucket",
    "key": "Key",
    "size": "Size",
    "last_modified_date": "LastModifiedDate",
    "e_tag": "ETag",
    "is_latest": "IsLatest",
    "is_delete_marker": "IsDeleteMarker",
}

type _Values = Iterator[tuple[int, Mapping[str, Any]]]  # line and values by the names of the CSV


def _rows_of_inventory(manifest: Mapping[str, Any], source: str) -> Iterator[Row]:
    """Yield the newest versions of NetCDF and HDF5 files in the data files of a manifest.

    Raises:
        InvalidInputError: It is of a format that is not read, incomplete, or damaged.
        NotFoundError: A data file is not there.
    """
    read = {"csv": _from_csv, "orc": _from_orc, "parquet": _from_parquet}.get(
        str(manifest["fileFormat"]).lower()
    )
    if read is None:
        raise InvalidInputError(
            "this format of S3 Inventory is not supported",
            do="Configure it to be written as CSV, ORC or Parquet.",
            list=source,
            format=manifest["fileFormat"],
        )
    for listed in manifest["files"]:
        name, raw = _data(listed, manifest, source)
        for line, values in read(raw, manifest, name):
            key, bucket = values.get("Key"), values.get("Bucket")
            if not key or not bucket:
                raise bad_row("a row of an S3 Inventory does not name an object", name, line)
            is_past = values.get("IsLatest") in (False, "false")
            is_deletion = values.get("IsDeleteMarker") in (True, "true")
            if str(key).lower().endswith(SUFFIXES) and not is_past and not is_deletion:
                url = f"s3://{bucket}/{quote(str(key), safe=_SAFE)}"
                facts = (values.get(each) for each in ("Size", "ETag", "LastModifiedDate"))
                yield row((url, *facts), name, line)


def _from_parquet(raw: bytes, _manifest: Mapping[str, Any], _name: str) -> _Values:
    file = pq.ParquetFile(io.BytesIO(raw))
    return _values_of_batches(file.iter_batches(columns=_filter_known(file.schema_arrow)))


def _from_orc(raw: bytes, _manifest: Mapping[str, Any], name: str) -> _Values:
    try:
        file = orc.ORCFile(io.BytesIO(raw))
        columns = _filter_known(file.schema)
        stripes = (file.read_stripe(number, columns) for number in range(file.nstripes))
        yield from _values_of_batches(stripes)
    except OSError as error:  # what the library raises for damage too
        raise InvalidInputError(
            "a data file of an S3 Inventory cannot be read as ORC",
            do="Name another manifest, or configure it to be written as CSV or Parquet.",
            file=name,
            cause=str(error).partition("\n")[0],
        ) from error


def _filter_known(schema: Any) -> list[str]:
    return [name for name in schema.names if name in _COLUMNS]


def _values_of_batches(batches: Iterable[Any]) -> _Values:
    line = 0
    for batch in batches:
        names = [_COLUMNS[name] for name in batch.schema.names]
        for values in zip(*map(_plain, batch.columns), strict=True):
            line += 1
            yield line, dict(zip(names, values, strict=True))


def _from_csv(raw: bytes, manifest: Mapping[str, Any], name: str) -> _Values:
    names = [each.strip() for each in str(manifest.get("fileSchema", "")).split(",")]
    text = gzip.decompress(raw).decode() if raw[:2] == b"\x1f\x8b" else raw.decode()
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    for values in reader:
        if len(values) != len(names):
            raise bad_row(
                "a row of an S3 Inventory has a different number of columns than its schema",
                name,
                reader.line_num,
                schema=names,
                found=len(values),
            )
        columns = dict(zip(names, values, strict=True))
        yield reader.line_num, columns | {"Key": unquote_plus(columns.get("Key", ""))}


def _data(entry: Any, manifest: Mapping[str, Any], source: str) -> tuple[str, bytes]:
    """Return the name and bytes of a data file, compared with what the manifest says of it."""
    key = entry.get("key") if isinstance(entry, Mapping) else None
    if not isinstance(key, str):
        raise InvalidInputError(
            "the manifest of an S3 Inventory lists no data file", do="Check it.", list=source
        )
    where = _place(key, manifest, source)
    with open_source(where) as opened:
        raw = opened.read(0, opened.file.size)
    digest = hashlib.md5(raw, usedforsecurity=False).hexdigest()
    if entry.get("MD5checksum", digest) != digest:
        raise InvalidInputError(
            "a data file of an S3 Inventory does not match its manifest",
            do="Copy it again, or name a newer manifest.",
            list=source,
            file=where,
        )
    return where, raw


def _place(key: str, manifest: Mapping[str, Any], source: str) -> str:
    """Find a data file: in the report's bucket, or around a copy of the manifest."""
    if is_url(source) and not source.startswith("file://"):
        bucket = str(manifest.get("destinationBucket", "")).removeprefix("arn:aws:s3:::")
        return f"s3://{bucket}/{quote(key, safe=_SAFE)}"
    folder, name = os.path.dirname(as_local_path(source)), key.rpartition("/")[2]
    around = [os.path.join(folder, *way, name) for way in ((), ("data",), ("..", "data"))]
    found = next((path for path in around if os.path.isfile(path)), None)
    if found is None:
        raise NotFoundError(
            "a data file of an S3 Inventory is not beside its manifest",
            do="Copy it into the same directory, or name the manifest in its bucket.",
            list=source,
            key=key,
        )
    return found
