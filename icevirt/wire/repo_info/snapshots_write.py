"""Write the list of snapshots in the repo info: records, each followed by its message.

Spec: "Repo Info File", SnapshotInfo. With the message behind its record, the distance to it is
constant, and so is the distance to an empty list of metadata: zstd makes them vanish.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from icevirt.wire.flatbuffer.columns_write import (
    BLOCK,
    Pool,
    Records,
    Rows,
    Tail,
    pooled,
    references,
    vector_blocks,
)
from icevirt.wire.flatbuffer.schema import METADATA_ITEM, SNAPSHOT_INFO
from icevirt.wire.repo_info.snapshot_columns import SnapshotColumns
from icevirt.wire.row_order import Bytes, Places, copy_ranges

_FIELDS = frozenset({"id", "parent_offset", "flushed_at", "message", "metadata"})
_PRUNED = "pruned_ancestor_tx_logs"
_ITEM = frozenset({"name", "value"})
_ALIGN = 8
_KINDS: tuple[tuple[str, ...], ...] = ((), ("metadata",), (_PRUNED,), ("metadata", _PRUNED))
"""What the records of each kind refer to, beside their message."""


def write(tail: Tail, columns: SnapshotColumns) -> int:
    """Append the list and return where it stands."""
    return _List(tail, columns).start


class _List:
    """Lays out the list when it is made; its bytes are made with the file."""

    def __init__(self, tail: Tail, columns: SnapshotColumns) -> None:
        self._columns = columns
        self._kind = (columns.items_of.counts > 0) + 2 * (columns.pruned_of.counts > 0)
        self._records = [_records(referred) for referred in _KINDS]
        strides, tables = np.array([(each.stride, each.table_at) for each in self._records]).T
        self._stride = strides[self._kind]
        message = 4 + columns.message.lengths + 1
        ends = np.cumsum(self._stride + message + -message % _ALIGN)
        self._size = int(ends[-1]) if len(ends) else 0
        self._at = np.concatenate([[0], ends[:-1]]) if len(ends) else ends  # in the block
        self.start = tail.add(4 + 4 * len(columns), self._vector, align=4)
        self._block = tail.add(self._size, self._bytes, align=_ALIGN)
        self._tables = self._block + self._at + tables[self._kind]
        self._targets = {
            "metadata": _write_items(tail, columns),
            _PRUNED: _write_pruned(tail, columns),
        }

    def _vector(self) -> Iterator[Bytes]:
        return vector_blocks(self.start, len(self._tables), [self._tables])

    def _bytes(self) -> Iterator[Bytes]:
        """Yield the records with their messages."""
        made = np.zeros(self._size, np.uint8)
        for number in np.unique(self._kind).tolist():
            records, rows = self._records[number], np.flatnonzero(self._kind == number)
            raw = records.scattered(self._block + self._at[rows], self._rows(number, rows))
            stride = np.full(len(rows), records.stride)
            start = records.stride * np.arange(len(rows))
            copy_ranges(raw.reshape(-1), start, made, self._at[rows], stride)
        message, at = self._columns.message, self._at + self._stride
        made.view("<u4")[at // 4] = message.lengths
        copy_ranges(message.data, message.starts[:-1], made, at + 4, message.lengths)
        yield made

    def _rows(self, number: int, rows: Places) -> Rows:
        columns = self._columns
        return Rows(
            count=len(rows),
            columns={
                "id": columns.ids[rows],
                "parent_offset": columns.parent[rows].astype("<i4"),
                "flushed_at": columns.flushed_at[rows],
            },
            targets={
                "message": self._block + self._at[rows] + self._stride[rows],
                **{name: self._targets[name][rows] for name in _KINDS[number]},
            },
        )


def _records(referred: tuple[str, ...]) -> Records:
    """Lay out records of a kind; metadata that is empty is part of them."""
    fields = _FIELDS | set(referred)
    return Records.of(
        SNAPSHOT_INFO, fields, vector=None if "metadata" in referred else "metadata", align=_ALIGN
    )


def _write_pruned(tail: Tail, columns: SnapshotColumns) -> Places:
    """Append the lists of pruned logs that are not empty, and return where each row's stands."""
    ids, lists = columns.pruned, columns.pruned_of
    rows, size = np.flatnonzero(lists.counts), ids.shape[1]
    pool = Pool.of(
        ids.reshape(-1), size * lists.first[rows], size * lists.counts[rows], element=size
    )
    places = np.zeros(len(columns), np.int64)
    places[rows] = pooled(tail, pool)
    return places


def _write_items(tail: Tail, columns: SnapshotColumns) -> Places:
    """Append the lists of metadata that are not empty, and return where each row's stands."""
    counts, first, items = columns.items_of.counts, columns.items_of.first, columns.items
    sizes = np.where(counts > 0, 4 + 4 * counts, 0)
    at = np.cumsum(sizes) - sizes
    number = np.arange(len(items.names))

    def vectors() -> Iterator[Bytes]:
        made = np.zeros(int(sizes.sum()) // 4, "<u4")
        rows = np.flatnonzero(counts)
        made[at[rows] // 4] = counts[rows]
        slots = np.repeat(at + 4 - 4 * first[:-1], counts) + 4 * number
        made[slots // 4] = references(start + slots, records.places(block, len(number)))
        yield made.view(np.uint8)

    def parts() -> Iterator[Rows]:
        for low in range(0, len(number), BLOCK):
            targets = {name: places[low : low + BLOCK] for name, places in held.items()}
            yield Rows(count=len(targets["name"]), targets=targets)

    start = tail.add(int(sizes.sum()), vectors, align=4)
    records = Records.of(METADATA_ITEM, _ITEM)
    block = tail.add(
        len(number) * records.stride, lambda: records.blocks(block, len(number), parts())
    )
    held = {
        "name": pooled(tail, Pool.of_strings(items.names.data, items.names.starts)),
        "value": pooled(tail, Pool.of_strings(items.values, items.starts)),
    }
    return start + at
