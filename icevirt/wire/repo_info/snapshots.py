"""Read and write the list of snapshots in the repo info, and map ids to snapshots.

Spec: "Repo Info File", SnapshotInfo. Snapshots are sorted by id and referred to by their row. Each
record is followed by its message: the distance to the message is then constant, and so is the
distance to an empty list of metadata, which zstd compresses to almost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.ids import ObjectId12
from icevirt.model.lazy import Lazy
from icevirt.model.ranges import Bytes, Places, copy_ranges, gather
from icevirt.model.repo_info import SnapshotSummary
from icevirt.model.strings import Strings
from icevirt.wire.documents import metadata
from icevirt.wire.flatbuffer.columns_read import Payload, Tables, text
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
from icevirt.wire.flatbuffer.reader import (
    ALWAYS_ALLOWED,
    MAX_SHARING,
    TABLE_COST,
    Damage,
    Span,
    reading,
)
from icevirt.wire.flatbuffer.schema import METADATA_ITEM, SNAPSHOT_INFO
from icevirt.wire.header import FileKind
from icevirt.wire.repo_info.snapshot_columns import EMPTY, NO_PARENT, Lists, SnapshotColumns

_MANY_CHANGES = 64
_FEW = 32  # snapshots that are read one by one
_PRUNED = "pruned_ancestor_tx_logs"
_FIELDS = frozenset({"id", "parent_offset", "flushed_at", "message", "metadata"})
_ITEM = frozenset({"name", "value"})
_ALIGN = 8
_KINDS: tuple[tuple[str, ...], ...] = ((), ("metadata",), (_PRUNED,), ("metadata", _PRUNED))
"""What the records of each kind refer to, beside their message."""


class SnapshotInfos(Lazy[ObjectId12, SnapshotSummary]):
    """The snapshots of a repository by id; a value is made on access."""

    def __init__(
        self,
        columns: SnapshotColumns,
        spec_version: int,
        changed: Mapping[ObjectId12, SnapshotSummary | None] | None = None,
        rows: dict[bytes, int] | None = None,
    ) -> None:
        """Take over columns of a file, values that replace them (None: removed), and rows by id."""
        super().__init__(self._info, self._ids, changed)
        self._columns = columns
        self._spec_version = spec_version
        self._rows = columns.rows() if rows is None else rows
        # columns of which single numbers are read: arrays, or lists, which are faster at it
        self._facts: tuple[Sequence[int] | NDArray[np.integer], ...] = (
            columns.parent,
            columns.flushed_at,
            columns.items_of.first,
            columns.pruned_of.first,
        )
        self._left = _FEW

    def __contains__(self, key: object) -> bool:
        if key in self._changed:
            return self._changed[key] is not None
        return key in self._rows

    def __len__(self) -> int:
        gone = sum(1 for key in self._changed if key in self._rows)
        return len(self._rows) - gone + sum(info is not None for info in self._changed.values())

    @property
    def size(self) -> int:
        """How many snapshots the file lists."""
        return len(self._columns)

    def id_at(self, row: int) -> ObjectId12:
        """Return the id of a row of the file's list."""
        return self._columns.key(row)

    def __reduce__(self) -> tuple[Any, ...]:
        return SnapshotInfos, (self._columns, self._spec_version, self._changed)

    def with_changed(self, key: ObjectId12, value: SnapshotSummary | None) -> SnapshotInfos:
        """Return the mapping with another value of a key; None removes it."""
        changed = {**self._changed, key: value}
        if len(changed) > _MANY_CHANGES and self._spec_version > 1:
            return SnapshotInfos(self._columns.with_changed(self._rows, changed), 2)
        return SnapshotInfos(self._columns, self._spec_version, changed, self._rows)

    def columns(self) -> SnapshotColumns:
        """Return all of it as columns that can be written.

        Raises:
            InvalidInputError: The parent of a snapshot is not among them.
        """
        if self._spec_version == 1:  # its metadata is encoded in another way
            return EMPTY.with_changed({}, dict(self))
        return self._columns.with_changed(self._rows, self._changed)

    def _ids(self) -> Iterator[ObjectId12]:
        return map(ObjectId12, self._rows)

    def _info(self, key: ObjectId12) -> SnapshotSummary | None:
        if (row := self._rows.get(key)) is None:
            return None
        self._left -= 1
        if self._left == 0:  # a walk through the history
            self._facts = tuple(np.asarray(column).tolist() for column in self._facts)
        columns = self._columns
        parents, flushed_at, items, pruned_of = self._facts
        parent, pruned = int(parents[row]), columns.pruned[pruned_of[row] : pruned_of[row + 1]]
        return SnapshotSummary(
            id=key,
            parent_id=None if parent == NO_PARENT else columns.key(parent),
            flushed_at=int(flushed_at[row]),
            message=columns.message[row],
            metadata=self._metadata(items[row], items[row + 1]),
            pruned_ancestor_tx_logs=tuple(ObjectId12(each.tobytes()) for each in pruned) or None,
        )

    def _metadata(self, low: int, high: int) -> dict[str, Any]:
        if low == high:
            return {}
        names, encoded = self._columns.names, self._columns.values
        data, starts = encoded.data, encoded.starts
        values = [
            {"name": names[at], "value": data[starts[at] : starts[at + 1]].tobytes()}
            for at in range(low, high)
        ]
        with reading(FileKind.repo_info.name):
            return metadata.from_items(values, self._spec_version)


def columns_of(snapshots: Mapping[ObjectId12, SnapshotSummary]) -> SnapshotColumns:
    """Return snapshots as columns that can be written; raises as `SnapshotInfos.columns`."""
    if isinstance(snapshots, SnapshotInfos):
        return snapshots.columns()
    return EMPTY.with_changed({}, snapshots)


# -- reading --------------------------------------------------------------------------------------


def read(payload: Payload, span: Span, spec_version: int, newer: set[str]) -> SnapshotInfos:
    """Read the list; add tables with fields of a newer schema to ``newer``. Raises ``Damage``."""
    if not span.count:
        return SnapshotInfos(EMPTY, spec_version)
    tables = Tables(payload, span, SNAPSHOT_INFO)
    tables.look_beyond(newer)
    parent = tables.numbers("parent_offset", 4).view("<i4").astype(np.int64)
    if int(parent.min()) < NO_PARENT or int(parent.max()) >= len(tables):
        raise Damage("the parent of a snapshot is not in the list", 0)
    items_of, names, values = _items(payload, tables, newer)
    pruned_of, pruned = _elements(payload, tables, _PRUNED, ObjectId12.SIZE)
    columns = SnapshotColumns(
        ids=tables.structs("id"),
        parent=parent,
        flushed_at=tables.numbers("flushed_at", 8).astype(np.uint64),
        message=text(*_strings(payload, tables, "message")),
        items_of=items_of,
        names=names,
        values=values,
        pruned_of=pruned_of,
        pruned=payload.bytes[pruned[:, None] + np.arange(ObjectId12.SIZE)],
    )
    found = SnapshotInfos(columns, spec_version)
    if len(found) != len(tables):
        raise Damage("a snapshot is listed twice", 0)
    return found


def _items(payload: Payload, tables: Tables, newer: set[str]) -> tuple[Lists, Strings, Strings]:
    """Return how many items of metadata each row has, their names and their encoded values."""
    items_of, slots = _elements(payload, tables, "metadata", 4, cost=TABLE_COST)
    items = Tables(payload, slots, METADATA_ITEM)
    items.look_beyond(newer)
    values = Strings(*_strings(payload, items, "value"))
    return items_of, text(*_strings(payload, items, "name")), values


def _elements(
    payload: Payload, tables: Tables, name: str, size: int, *, cost: int | None = None
) -> tuple[Lists, Places]:
    """Return how many elements the vectors of a field have, and where each element stands."""
    start, count = tables.spans(name, size)
    _check_sharing(payload, int(count.sum()) * (cost or size))
    lists = Lists.of(count)
    total = int(lists.first[-1])
    return lists, np.repeat(start - size * lists.first[:-1], count) + size * np.arange(total)


def _strings(payload: Payload, tables: Tables, name: str) -> tuple[Bytes, Places]:
    """Return the bytes of a field of every row, end to end, and where each begins."""
    start, count = tables.spans(name, 1)
    _check_sharing(payload, int(count.sum()))
    return gather(payload.bytes, start, count)


def _check_sharing(payload: Payload, cost: int) -> None:
    if cost > MAX_SHARING * payload.size + ALWAYS_ALLOWED:
        raise Damage("parts of the file are referenced too many times", 0)


# -- writing --------------------------------------------------------------------------------------


def write(tail: Tail, columns: SnapshotColumns) -> int:
    """Append the list and return where it stands; its bytes are made with the file."""
    kind = (columns.items_of.counts > 0) + 2 * (columns.pruned_of.counts > 0)
    records = [  # metadata that is empty is part of them
        Records.of(
            SNAPSHOT_INFO,
            _FIELDS | set(referred),
            vector=None if "metadata" in referred else "metadata",
            align=_ALIGN,
        )
        for referred in _KINDS
    ]
    strides, tables = np.array([(each.stride, each.table_at) for each in records]).T
    stride = strides[kind]
    message = 4 + columns.message.lengths + 1
    ends = np.cumsum(stride + message + -message % _ALIGN)
    at = np.concatenate([[0], ends])[:-1]  # in the block

    def vector() -> Iterator[Bytes]:
        return vector_blocks(start, len(columns), [block + at + tables[kind]])

    def parts() -> Iterator[Bytes]:
        made = np.zeros(int(ends.max(initial=0)), np.uint8)
        for number in np.unique(kind).tolist():
            each, rows = records[number], np.flatnonzero(kind == number)
            part = Rows(
                count=len(rows),
                columns={
                    "id": columns.ids[rows],
                    "parent_offset": columns.parent[rows].astype("<i4"),
                    "flushed_at": columns.flushed_at[rows],
                },
                targets={
                    "message": block + at[rows] + stride[rows],
                    **{name: targets[name][rows] for name in _KINDS[number]},
                },
            )
            raw = each.scattered(block + at[rows], part).reshape(-1)
            begin = each.stride * np.arange(len(rows))
            copy_ranges(raw, begin, made, at[rows], stride[rows])
        text_at = at + stride
        made.view("<u4")[text_at // 4] = columns.message.lengths
        copy_ranges(
            columns.message.data,
            columns.message.starts[:-1],
            made,
            text_at + 4,
            columns.message.lengths,
        )
        yield made

    start = tail.add(4 + 4 * len(columns), vector, align=4)
    block = tail.add(int(ends.max(initial=0)), parts, align=_ALIGN)
    targets = {"metadata": _write_items(tail, columns), _PRUNED: _write_pruned(tail, columns)}
    return start


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
    counts, first = columns.items_of.counts, columns.items_of.first
    sizes = np.where(counts > 0, 4 + 4 * counts, 0)
    at = np.cumsum(sizes) - sizes
    number = np.arange(len(columns.names))

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
        "name": pooled(tail, Pool.of_strings(columns.names)),
        "value": pooled(tail, Pool.of_strings(columns.values)),
    }
    return start + at
