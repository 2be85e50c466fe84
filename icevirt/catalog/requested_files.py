"""Record which files the scans of a catalog requested, so builds can start from it alone.

The rows of a catalog show what was scanned. They do not show what remained when a scan was killed,
or what is to be retried; a build over rows alone would silently omit that. So a scan records its
files, all at once, before it scans the first.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from icevirt.archive.catalog import path_of, scan_of
from icevirt.archive.scanned import SourceFile
from icevirt.catalog.parquet import read_table, table_of
from icevirt.storage.protocol import Storage

_FOLDER = "asked"
_COLUMNS: dict[str, pa.DataType] = {
    "url": pa.string(),
    "size": pa.int64(),
    "etag": pa.string(),
    "last_modified": pa.int64(),  # nanoseconds since 1970
}


def note_asked(storage: Storage, identity: str, files: Sequence[SourceFile]) -> None:
    """Write down which files a scan is about to scan, in their order."""
    if not files:
        return
    columns = {name: [getattr(file, name) for file in files] for name in _COLUMNS}
    sink = io.BytesIO()
    table = table_of(columns, pa.schema(_COLUMNS))
    pq.write_table(table, sink, compression="zstd", write_statistics=False)
    note = sink.getvalue()
    name = f"{identity}-{hashlib.blake2b(note, digest_size=16).hexdigest()}"
    storage.put(path_of(_FOLDER, name), note)


def files_asked(storage: Storage, identity: str) -> tuple[SourceFile, ...]:
    """Return the files that scans of an identity were asked for, in the order of their first time.

    Each is told as it was listed the last time that it had to be scanned; it may have
    changed since.

    Raises:
        FormatError: A note is damaged.
    """
    found: dict[str, SourceFile] = {}
    notes = sorted(storage.list(_FOLDER), key=lambda info: (info.last_modified, info.path))
    for info in notes:
        if scan_of(info.path.removeprefix(f"{_FOLDER}/")) != identity:
            continue
        for url, size, etag, time in zip(*_columns(storage, info.path), strict=True):
            found[url] = SourceFile(url=url, size=size, etag=etag, last_modified=time)
    return tuple(found.values())


def _columns(storage: Storage, path: str) -> list[list[Any]]:
    table: Any = read_table(storage, path, list(_COLUMNS), schema=_COLUMNS)
    return [table[name].to_pylist() for name in _COLUMNS]
