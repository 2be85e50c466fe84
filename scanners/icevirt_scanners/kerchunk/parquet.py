"""Kerchunk's parquet directories: ``.zmetadata``, and ``refs.N.parq`` for every run of chunks.

The file that is scanned is ``.zmetadata``; the others lie below its directory.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.scanned import SourceFile
from icevirt.scan.elsewhere import Elsewhere
from icevirt_scanners.kerchunk.columns import WHOLE, Columns
from icevirt_scanners.kerchunk.document import damaged, inline_bytes

_COLUMNS: dict[str, int | None] = {"path": None, "raw": None, "offset": 0, "size": 0}


def record_size(document: Any, url: str) -> int:
    """Return how many references a file holds.

    Raises:
        ScanError: The document does not say, as that of a zarr store does not.
    """
    size = document.get("record_size")
    if not isinstance(size, int) or size < 1:
        raise damaged(url, cause="no 'record_size': this is the metadata of a zarr store")
    return size


def of_parquet(  # noqa: PLR0917 - one caller
    array: str,
    grid: Sequence[int],
    size: int,
    source: SourceFile,
    elsewhere: Elsewhere,
    tell: Callable[[str, str], None],
) -> Columns:
    """Read the references of an array.

    Args:
        array: Its path as the metadata has it, without a leading slash.
        grid: How many chunks it has along each axis.
        size: References in a file.
        source: The ``.zmetadata``.
        elsewhere: Of it.
        tell: Takes the code and message of a warning.

    Raises:
        ScanError: A file is damaged.
    """
    total = prod(grid)
    url = source.url
    names = [f"{array}/refs.{number}.parq" for number in range(-(-total // size))]
    tables = [_record(name, elsewhere, url) for name in names]
    if lacking := [name for name, table in zip(names, tables, strict=True) if table is None]:
        tell("records-missing", f"no {lacking[0]}, and {len(lacking)} missing in all: no chunks")
    path, raw, offset, length = (_column(tables, name, size, total) for name in _COLUMNS)
    # what is not there is null or NaN, as pandas likes it
    inline = np.array([isinstance(value, str | bytes) for value in raw.tolist()], np.bool_)
    linked = np.array([isinstance(name, str) and bool(name) for name in path.tolist()], np.bool_)
    linked &= ~inline
    used, codes = np.unique(path[linked].astype(str), return_inverse=True)
    whole = (offset[linked] == 0) & (length[linked] == 0)
    return Columns(
        index=_unravelled(np.flatnonzero(linked), grid),
        name=codes.astype(np.int64),
        names=tuple(used.tolist()),
        offset=offset[linked],
        length=np.where(whole, WHOLE, length[linked]),
        inline_index=_unravelled(np.flatnonzero(inline), grid),
        inline=tuple(_inline(value, url, array) for value in raw[inline].tolist()),
    )


def _inline(value: str | bytes, url: str, array: str) -> bytes:
    if isinstance(value, bytes) and not value.startswith(b"base64:"):
        return value
    return inline_bytes(value if isinstance(value, str) else value.decode(), url, array)


def _unravelled(rows: NDArray[np.int64], grid: Sequence[int]) -> NDArray[np.int64]:
    if not grid or not len(rows):
        return np.zeros((len(rows), len(grid)), np.int64)
    return np.stack(np.unravel_index(rows, tuple(grid)), axis=1).astype(np.int64)


def _record(name: str, elsewhere: Elsewhere, url: str) -> Any:
    """Return the table of a file, None where there is no file: fsspec writes none without rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = elsewhere.beside(name)
    if not os.path.lexists(path):
        return None
    target = elsewhere.targets([path])
    held = elsewhere.read(target.locations.url[0], 0, int(target.size[0]))
    try:
        table: Any = pq.read_table(io.BytesIO(held))
    except (pa.ArrowInvalid, OSError) as error:
        raise damaged(url, record=name, cause=str(error)) from error
    if not set(_COLUMNS) & set(table.column_names):
        raise damaged(url, record=name, cause="no column of references")
    return table


def _column(tables: Sequence[Any], name: str, size: int, total: int) -> NDArray[Any]:
    """Return a column of all files, as long as there are chunks; the last file is padded."""
    found = np.full(len(tables) * size, _COLUMNS[name], object if _COLUMNS[name] is None else "i8")
    for number, table in enumerate(tables):
        if table is not None and name in table.column_names:
            values = table[name].to_pylist()[:size]
            if _COLUMNS[name] is not None:
                values = [value or 0 for value in values]
            found[number * size : number * size + len(values)] = values
    return found[:total]
