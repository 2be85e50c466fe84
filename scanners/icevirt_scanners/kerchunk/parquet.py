"""Read kerchunk's Parquet directories: ``.zmetadata``, and ``refs.N.parq`` per run of chunks.

The file that is scanned is ``.zmetadata``; the others lie below its directory.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.scanned import SourceFile
from icevirt.scan.elsewhere import Elsewhere
from icevirt_scanners.given import WHOLE, ReferenceColumns, damaged
from icevirt_scanners.kerchunk.document import inline_bytes

_COLUMNS = ("path", "raw", "offset", "size")
_NAME = re.compile(r"refs\.(0|[1-9][0-9]{0,8})\.parq")


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
) -> ReferenceColumns:
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
    total, url = prod(grid), source.url
    there = _records(elsewhere.beside(array))
    expected = -(-total // size)
    found = sum(number < expected for number in there)
    if found < expected:
        tell("records-missing", f"{expected - found} of {expected} files: no chunks in them")
    parts = [_rows(f"{array}/refs.{n}.parq", n * size, elsewhere, url) for n in there]
    linked = _joined([part.linked for part in parts])
    inline = _joined([part.inline for part in parts])
    if max(linked.max(initial=-1), inline.max(initial=-1)) >= total:
        raise damaged(url, variable=array, cause="more references than chunks")
    offset, length = (
        _joined([getattr(part, name) for part in parts]) for name in ("offset", "length")
    )
    names: dict[str, int] = {}
    codes = [
        np.array([names.setdefault(name, len(names)) for name in part.names], np.int64)[part.code]
        for part in parts
    ]
    return ReferenceColumns(
        index=_unravelled(linked, grid, url, array),
        name=_joined(codes),
        names=tuple(names),
        offset=offset,
        length=np.where((offset == 0) & (length == 0), WHOLE, length),
        inline_index=_unravelled(inline, grid, url, array),
        inline=tuple(_inline(body, url, array) for part in parts for body in part.bodies),
    )


def _records(folder: str) -> list[int]:
    """Return the numbers of the files: fsspec writes none where there are no references."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(int(match[1]) for match in map(_NAME.fullmatch, names) if match)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ParquetRows:
    """The references of one file; rows count all chunks of the array."""

    linked: NDArray[np.int64]  # (n,) rows with a path
    code: NDArray[np.int64]  # (n,) in ``names``
    names: tuple[str, ...]
    offset: NDArray[np.int64]  # (n,)
    length: NDArray[np.int64]  # (n,)
    inline: NDArray[np.int64]  # (m,) rows with bytes
    bodies: tuple[str | bytes, ...]  # (m,)


def _rows(name: str, first: int, elsewhere: Elsewhere, url: str) -> _ParquetRows:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    target = elsewhere.targets([elsewhere.beside(name)])
    held = elsewhere.read(target.locations.url[0], 0, int(target.size[0]))
    try:
        table: Any = pq.read_table(io.BytesIO(held))
        columns = {column: _plain(table, column) for column in _COLUMNS}
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise damaged(url, record=name, cause=str(error)) from error
    if not set(_COLUMNS) & set(table.column_names):
        raise damaged(url, record=name, cause="no column of references")
    inline = columns["raw"].is_valid().to_numpy(zero_copy_only=False)
    paths = columns["path"].dictionary_encode()
    code = paths.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    linked = np.flatnonzero((code >= 0) & ~inline)
    offset, length = (
        pc.fill_null(columns[column], 0).to_numpy(zero_copy_only=False)[linked]
        for column in ("offset", "size")
    )
    return _ParquetRows(
        linked=first + linked,
        code=code[linked],
        names=tuple(paths.dictionary.to_pylist()),
        offset=offset,
        length=length,
        inline=first + np.flatnonzero(inline),
        bodies=tuple(columns["raw"].drop_null().to_pylist()),
    )


def _plain(table: Any, name: str) -> Any:
    """Return a column in its plain type; one that pandas had only NaN for holds nothing."""
    import pyarrow as pa

    kind: Any = {"path": pa.string(), "raw": pa.binary()}.get(name, pa.int64())
    if name not in table.column_names:
        return pa.nulls(len(table), kind)
    column = table[name].combine_chunks()
    if pa.types.is_floating(column.type) and name in {"path", "raw"}:
        return pa.nulls(len(table), kind)
    return column.cast(kind)


def _joined(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)


def _inline(value: str | bytes, url: str, array: str) -> bytes:
    if isinstance(value, bytes) and not value.startswith(b"base64:"):
        return value
    text = value if isinstance(value, str) else value.decode("ascii", "replace")
    return inline_bytes(text, url, array)


def _unravelled(
    rows: NDArray[np.int64], grid: Sequence[int], url: str, array: str
) -> NDArray[np.int64]:
    if not grid or not len(rows):
        return np.zeros((len(rows), len(grid)), np.int64)
    try:
        return np.stack(np.unravel_index(rows, tuple(grid)), axis=1).astype(np.int64)
    except ValueError as error:  # more chunks than can be numbered
        raise damaged(url, variable=array, cause=str(error)) from error
