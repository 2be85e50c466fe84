"""Let a catalog describe files under the names that they have since they moved, too.

A part whose files moved gets a second one beside it, with new names and checksums, which shares the
tables of arrays and references. The first one stays: older versions, and branches that were not
relocated, go by the names before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from icevirt.archive import catalog
from icevirt.archive.scanned import SourceFile
from icevirt.catalog.parquet import encode_table, read_table
from icevirt.catalog.parts import complete_parts
from icevirt.storage.protocol import Storage

_KEY = ("url", "size", "etag", "last_modified")


def rename_files(
    storage: Storage, moved: Callable[[str], str], changed: Mapping[SourceFile, SourceFile]
) -> dict[str, str]:
    """Describe files that moved by their new names; return the new part of each part with some.

    Files that refer to other files are left alone: what they refer to may not have moved.

    Args:
        storage: The catalog.
        moved: Returns the URL of a file now.
        changed: Files whose checksum is another one now, and as they are; both as they are named.

    Raises:
        FormatError: A part is damaged.
    """
    found: dict[str, str] = {}
    there = complete_parts(storage)
    for part in there:
        path = catalog.path_of("files", part)
        table = read_table(storage, path, [name for name, _ in catalog.FILES])
        columns: dict[str, Any] = {name: table[name] for name in table.column_names}
        keys = zip(*(columns[name].to_pylist() for name in _KEY), strict=True)
        files = [SourceFile(**dict(zip(_KEY, key, strict=True))) for key in keys]
        new = [
            file if places else _renamed(file, moved, changed)
            for file, places in zip(files, table["places"].to_pylist(), strict=True)
        ]
        if new == files:
            continue
        name = found[part] = catalog.renamed_part(part, new)
        if name not in there:
            columns |= {key: pa.array([getattr(file, key) for file in new]) for key in _KEY}
            raw = encode_table(columns, catalog.FILES, catalog.run_of(name))
            storage.put(catalog.path_of("files", name), raw)
    return found


def _renamed(
    file: SourceFile, moved: Callable[[str], str], changed: Mapping[SourceFile, SourceFile]
) -> SourceFile:
    if file in changed:
        return changed[file]
    url = moved(file.url)
    if url == file.url:
        return file
    return SourceFile(url=url, size=file.size, etag=file.etag, last_modified=file.last_modified)
