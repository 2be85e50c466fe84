"""Let a catalog describe files under the names that they have since they moved.

Only names and checksums change. The rows stay where they are, so that a lookup of either name goes
on to the same tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from icevirt.archive import catalog
from icevirt.archive.scanned import SourceFile
from icevirt.catalog.parquet import encode_table, read_table
from icevirt.storage.protocol import Storage

_KEY = ("url", "size", "etag", "last_modified")


def rename_files(
    storage: Storage, moved: Callable[[str], str], changed: Mapping[SourceFile, SourceFile]
) -> int:
    """Rename the files of a catalog; return how many there were.

    Files that refer to other files are left alone: what they refer to may not have moved.

    Args:
        storage: The catalog.
        moved: Returns the URL of a file now.
        changed: Files whose checksum is another one now, and as they are; both as they are named.

    Raises:
        FormatError: A part is damaged.
    """
    count = 0
    paths = [info.path for info in storage.list("files") if info.path.endswith(".parquet")]
    for path in paths:
        table = read_table(storage, path, [name for name, _ in catalog.FILES])
        columns = {name: table[name] for name in table.column_names}
        rows = [dict(zip(_KEY, row, strict=True)) for row in zip(*_key(columns), strict=True)]
        new = [
            _renamed(SourceFile(**row), moved, changed) if not places else SourceFile(**row)
            for row, places in zip(rows, table["places"].to_pylist(), strict=True)
        ]
        here = sum(each.url != row["url"] for each, row in zip(new, rows, strict=True))
        if here:
            columns |= {name: pa.array([getattr(each, name) for each in new]) for name in _KEY}
            run = catalog.run_of(path.removeprefix("files/").removesuffix(".parquet"))
            storage.put(path, encode_table(columns, catalog.FILES, run))
            count += here
    return count


def _key(columns: Mapping[str, Any]) -> list[list[Any]]:
    return [columns[name].to_pylist() for name in _KEY]


def _renamed(
    file: SourceFile, moved: Callable[[str], str], changed: Mapping[SourceFile, SourceFile]
) -> SourceFile:
    if file in changed:
        return changed[file]
    url = moved(file.url)
    if url == file.url:
        return file
    return SourceFile(url=url, size=file.size, etag=file.etag, last_modified=file.last_modified)
