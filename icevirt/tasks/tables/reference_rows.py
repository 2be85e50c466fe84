"""Show references of manifests, a row each, as Arrow record batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from icevirt.access.references import places_of
from icevirt.errors import UnsupportedError
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.strings import Strings
from icevirt.tasks.tables.schemas import TIME, batch, lists
from icevirt.tasks.tables.shares import TableShare
from icevirt.versioning import chunk_tables

ROWS = 1 << 15
"""Of a batch; a location has up to a KiB."""

_MOST = (1 << 31) - 1
_NAMES: Any = pa.array([kind.name for kind in ChunkType])


def reference_rows(share: TableShare) -> Iterator[pa.RecordBatch]:
    """Yield a row for each reference, by manifest and array in the order of the chunks."""
    for piece, manifest in share.manifests():
        for array in piece.arrays:
            table = share.wanted(array, manifest)
            if table is not None:
                yield from _rows(share, array.path, str(piece.manifest), table)


def _rows(
    share: TableShare, path: str, manifest: str, table: ChunkTable
) -> Iterator[pa.RecordBatch]:
    if len(table) and int(table.index.max(initial=0)) > _MOST:
        raise UnsupportedError(
            "a chunk index is too large for Spark's type int",
            do="Read the references of this array with `session.refs_table(path)`.",
            path=path,
            largest=int(table.index.max()),
        )
    table = chunk_tables.compact(table)
    places, source = places_of(table, share.assets, share.named)
    url, etag = strings(places.url), strings(places.etag)
    no_etag = places.etag.lengths == 0
    modified = places.last_modified
    for low in range(0, len(table), ROWS):
        part = slice(low, min(low + ROWS, len(table)))
        at, kind = source[part], table.kind[part]
        inline = kind == ChunkType.inline
        count = len(at)
        steps = np.arange(count + 1, dtype=np.int32) * table.ndim
        yield batch(
            "references",
            {
                "path": repeated(path, count),
                "index": lists(pa.array(table.index[part].reshape(-1).astype(np.int32)), steps),
                "kind": _NAMES.take(pa.array(kind)),
                "location": url.take(pa.array(at, mask=inline)),
                "offset": pa.array(table.offset[part].astype(np.int64), mask=inline),
                "length": pa.array(table.length[part].astype(np.int64)),
                "etag": etag.take(pa.array(at, mask=no_etag[at])),
                "last_modified": times(modified[at]),
                "manifest_id": repeated(manifest, count),
            },
        )


def strings(column: Strings) -> Any:
    """Return a column of strings as Arrow has it."""
    buffers = pa.py_buffer(column.starts), pa.py_buffer(column.data)
    large = pa.LargeStringArray.from_buffers(len(column), *buffers)
    return large.cast(pa.string()) if len(column.data) <= _MOST else large


def times(seconds: NDArray[np.integer]) -> Any:
    """Return times in whole seconds since 1970 as Arrow has them; 0 is none."""
    micros = seconds.astype(np.int64) * 1_000_000
    return pa.array(micros.astype("M8[us]"), mask=seconds == 0).cast(TIME)


def repeated(text: str, count: int) -> Any:
    """Return a column of equal strings."""
    one: Any = pa.array([text])
    return one.take(pa.array(np.zeros(count, np.int8)))
