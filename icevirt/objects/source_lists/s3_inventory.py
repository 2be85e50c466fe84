"""Read the S3 Inventory of a bucket, the daily listing that AWS makes."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote_plus

import pyarrow.parquet as pq
from pyarrow import orc

from icevirt.connect.urls import as_local_path, is_url
from icevirt.errors import InvalidInputError, NotFoundError
from icevirt.objects.opening import open_source
from icevirt.objects.source_lists.names import SUFFIXES
from icevirt.objects.source_lists.rows import Row, bad_row, plain_values, row

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


def rows_of_inventory(manifest: Mapping[str, Any], source: str) -> Iterator[Row]:
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
        for values in zip(*map(plain_values, batch.columns), strict=True):
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
