"""Count references by file and by array, manifest by manifest, as columns.

What a task returns are sums over its own manifests; the caller adds up those of all tasks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from icevirt.escaping import escape_json
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.metadata import chunk_shape, document_of
from icevirt.planning import containers
from icevirt.tasks.tables.reference_rows import ROWS, strings, times
from icevirt.tasks.tables.schemas import COUNTED, batch, schema
from icevirt.tasks.tables.shares import TableShare

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
