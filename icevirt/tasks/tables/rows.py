"""Show the share of a table that a task has, as Arrow record batches.

Counts by file and by array are sums over a task's own manifests; the caller adds up those of all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from enum import Enum
from itertools import batched
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from icevirt.access.references import places_of
from icevirt.errors import UnsupportedError
from icevirt.escaping import escape_json
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.metadata import chunk_shape, document_of
from icevirt.model.strings import Strings
from icevirt.planning import containers
from icevirt.repo.history.types import Update
from icevirt.repo.repository import Repository
from icevirt.tasks.tables.query import COUNTED, TIME, batch, lists, schema
from icevirt.tasks.tables.shares import TableShare
from icevirt.versioning import chunk_tables


def snapshot_rows(share: TableShare) -> Iterator[pa.RecordBatch]:
    """Yield a row for each snapshot from a version back to the first, newest first."""
    repo = Repository.open(share.assets.storage)
    rows = (
        {
            "snapshot_id": info.id,
            "parent_id": info.parent_id,
            "written_at": info.written_at,
            "message": info.message,
            "metadata": escape_json(dict(info.metadata)),
        }
        for info in repo.ancestry(snapshot_id=str(share.version))
    )
    return _batches("snapshots", rows)


def operation_rows(share: TableShare) -> Iterator[pa.RecordBatch]:
    """Yield a row for each operation on the repository, newest first."""
    return _batches("ops_log", map(_operation, Repository.open(share.assets.storage).ops_log()))


def _operation(update: Update) -> dict[str, Any]:
    return {
        "updated_at": update.updated_at,
        "kind": type(update.kind).__name__,
        "details": escape_json(asdict(update.kind), default=_named_text),
        "backup_path": update.backup_path,
    }


def _named_text(value: Any) -> str:
    """Return what JSON has no type for: times and words."""
    return value.name if isinstance(value, Enum) else str(value)


def _batches(table: str, rows: Iterator[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    names = schema(table).names
    for some in batched(rows, 4096):
        yield batch(table, {name: [row[name] for row in some] for name in names})


_HELD = 1 << 20  # rows that are gathered before they are added up
_LOW = np.uint64(0xFFFFFFFF)


def counted_rows(share: TableShare) -> Iterator[pa.RecordBatch]:
    """Yield a row for each file, with its virtual references and their bytes in the share."""
    totals = _Totals(share.table)
    for piece, manifest in share.manifests():
        for array in piece.arrays:
            table = share.wanted(array, manifest)
            if table is not None and table.count(ChunkType.virtual):
                totals.add(_counted(share, table))
    yield from totals.batches()


class _Totals:
    """Adds up rows with equal keys."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._held: list[pa.RecordBatch] = []
        self._rows = self._left = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Take over more rows."""
        self._held.append(rows)
        self._rows += rows.num_rows
        if self._rows > self._left + _HELD and len(self._held) > 1:
            self._held = self._added_up().to_batches()
            self._rows = self._left = sum(each.num_rows for each in self._held)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield what came, each key once."""
        if self._held:
            yield from self._added_up().to_batches(max_chunksize=ROWS)

    def _added_up(self) -> pa.Table:
        keys = COUNTED[self._table]
        wanted = schema(self._table)
        grouped: Any = pa.Table.from_batches(self._held).group_by([*keys], use_threads=False)
        found = grouped.aggregate([("references", "sum"), ("bytes", "sum")])
        columns = [found[key] for key in keys] + [found["references_sum"], found["bytes_sum"]]
        return pa.table(columns, schema=wanted)


def _counted(share: TableShare, table: ChunkTable) -> pa.RecordBatch:
    """Return the objects that a table refers to, each of its locations once."""
    virtual = table.kind == ChunkType.virtual
    source, length = table.source, table.length
    if not virtual.all():
        source, length = source[virtual], length[virtual]
    count = np.bincount(source, minlength=len(table.locations))
    used = np.flatnonzero(count)
    size = _sums(source, length, len(table.locations))[used]
    places = table.locations if len(used) == len(count) else table.locations.take(used)
    columns: dict[str, Any] = {
        "location": strings(containers.absolute(places.url, share.named)),
        "references": pa.array(count[used]),
        "bytes": pa.array(size),
    }
    if share.table == "files":
        rows = np.arange(len(places))
        missing = places.etag.lengths == 0
        columns["etag"] = strings(places.etag).take(pa.array(rows, mask=missing))
        columns["last_modified"] = times(places.last_modified)
    return batch(share.table, columns)


def _sums(source: NDArray[np.uint32], length: NDArray[np.uint64], most: int) -> NDArray[np.int64]:
    """Return the bytes of each source; halves of 32 bits add up exactly as floats."""
    low = np.bincount(source, weights=(length & _LOW).astype(np.float64), minlength=most)
    high = np.bincount(source, weights=(length >> np.uint64(32)).astype(np.float64), minlength=most)
    total: NDArray[np.int64] = low.astype(np.int64) + (high.astype(np.int64) << 32)
    return total


_COUNTS = (ChunkType.virtual, ChunkType.native, ChunkType.inline)


def array_rows(share: TableShare) -> Iterator[pa.RecordBatch]:
    """Yield a row for each array that the share describes or counts references of.

    One that it only counts has no more columns than its path.
    """
    counts: dict[str, list[int]] = defaultdict(lambda: [0] * (len(_COUNTS) + 1))
    for piece, manifest in share.manifests():
        for array in piece.arrays:
            table = share.wanted(array, manifest)
            if table is not None:
                own = counts[array.path]
                for at, kind in enumerate(_COUNTS):
                    own[at] += table.count(kind)
                own[-1] += int(table.length.sum())
    facts = {node.path: _facts(node) for node in share.described}
    rows = [
        {"path": path}
        | facts.get(path, {})
        | {kind.name: number for kind, number in zip(_COUNTS, counts[path], strict=False)}
        | {"bytes": counts[path][-1]}
        for path in {**facts, **counts}
    ]
    if rows:
        names = schema("arrays").names
        yield batch("arrays", {name: [row.get(name) for row in rows] for name in names})


def _facts(node: Any) -> dict[str, Any]:
    document = document_of(node)
    names = node.dimension_names
    return {
        "shape": list(node.shape),
        "chunk_shape": chunk_shape(node),
        "dimension_names": None if names is None else list(names),
        "data_type": _text(document["data_type"]),
        "attributes": escape_json(document.get("attributes") or {}),
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else escape_json(value)


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


_ROWS: Mapping[str, Callable[[TableShare], Iterator[pa.RecordBatch]]] = {
    "references": reference_rows,
    "locations": counted_rows,
    "files": counted_rows,
    "arrays": array_rows,
    "snapshots": snapshot_rows,
    "ops_log": operation_rows,
}


def rows_of(share: TableShare) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a share.

    Raises:
        FormatError: A manifest, or the metadata of an array, is damaged.
        StorageError: The repository cannot be read.
    """
    return _ROWS[share.table](share)
