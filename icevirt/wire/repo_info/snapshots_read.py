"""Read the list of snapshots in the repo info: bytes to columns, and a mapping over them.

Spec: "Repo Info File", SnapshotInfo. Snapshots are sorted by id and referred to by their row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from icevirt.ids import ObjectId12
from icevirt.model.repo_info import Lazy, SnapshotSummary
from icevirt.wire.documents import metadata
from icevirt.wire.flatbuffer.columns_read import Tables
from icevirt.wire.flatbuffer.payload import Payload
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
from icevirt.wire.manifests.locations_read import text
from icevirt.wire.repo_info.snapshot_columns import EMPTY, NO_PARENT, Items, Lists, SnapshotColumns
from icevirt.wire.row_order import Bytes, Places, gather

_MANY_CHANGES = 64
_FEW = 32  # snapshots that are asked for one by one
_PRUNED = "pruned_ancestor_tx_logs"


class _Facts(NamedTuple):
    """Columns of which single numbers are asked for: arrays, or lists, which are faster at it."""

    parent: Sequence[int] | NDArray[np.integer]
    flushed_at: Sequence[int] | NDArray[np.integer]
    items: Sequence[int] | NDArray[np.integer]
    pruned: Sequence[int] | NDArray[np.integer]


class SnapshotInfos(Lazy[ObjectId12, SnapshotSummary]):
    """The snapshots of a repository by id; a value is made when it is asked for."""

    def __init__(
        self,
        columns: SnapshotColumns,
        spec_version: int,
        changed: Mapping[ObjectId12, SnapshotSummary | None] | None = None,
        rows: dict[bytes, int] | None = None,
    ) -> None:
        """Make the mapping.

        Args:
            columns: What was read.
            spec_version: Of the file, which says how metadata is encoded.
            changed: Values in the place of those that were read; None says that there is none.
            rows: The row of each id.
        """
        super().__init__(self._info, self._ids, changed)
        self._columns = columns
        self._spec_version = spec_version
        self._rows = columns.rows() if rows is None else rows
        self._facts = _Facts(
            columns.parent, columns.flushed_at, columns.items_of.first, columns.pruned_of.first
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
    def listed(self) -> int:
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
        if self._left == 0:  # somebody walks the history
            self._facts = _Facts(*(np.asarray(column).tolist() for column in self._facts))
        columns, facts = self._columns, self._facts
        parent, low, high = int(facts.parent[row]), facts.pruned[row], facts.pruned[row + 1]
        return SnapshotSummary(
            id=key,
            parent_id=None if parent == NO_PARENT else columns.key(parent),
            flushed_at=int(facts.flushed_at[row]),
            message=columns.message[row],
            metadata=self._metadata(facts.items[row], facts.items[row + 1]),
            pruned_ancestor_tx_logs=None if low == high else tuple(_keys(columns.pruned[low:high])),
        )

    def _metadata(self, low: int, high: int) -> dict[str, Any]:
        if low == high:
            return {}
        items, starts = self._columns.items, self._columns.items.starts
        values = [
            {"name": items.names[at], "value": items.values[starts[at] : starts[at + 1]].tobytes()}
            for at in range(low, high)
        ]
        with reading(FileKind.repo_info.name):
            return metadata.from_items(values, self._spec_version)


def _keys(ids: Bytes) -> Iterator[ObjectId12]:
    return (ObjectId12(each.tobytes()) for each in ids)


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
    if tables.stores_from(SNAPSHOT_INFO.slots[_PRUNED] + 1):
        newer.add(SNAPSHOT_INFO.name)
    parent = tables.numbers("parent_offset", 4).view("<i4").astype(np.int64)
    if int(parent.min()) < NO_PARENT or int(parent.max()) >= len(tables):
        raise Damage("the parent of a snapshot is not in the list", 0)
    items_of, items = _items(payload, tables, newer)
    pruned_of, pruned = _elements(payload, tables, _PRUNED, ObjectId12.SIZE)
    columns = SnapshotColumns(
        ids=tables.structs("id"),
        parent=parent,
        flushed_at=tables.numbers("flushed_at", 8).astype(np.uint64),
        message=text(*_strings(payload, tables, "message")),
        items_of=items_of,
        items=items,
        pruned_of=pruned_of,
        pruned=payload.bytes[pruned[:, None] + np.arange(ObjectId12.SIZE)],
    )
    found = SnapshotInfos(columns, spec_version)
    if len(found) != len(tables):
        raise Damage("a snapshot is listed twice", 0)
    return found


def _items(payload: Payload, tables: Tables, newer: set[str]) -> tuple[Lists, Items]:
    items_of, slots = _elements(payload, tables, "metadata", 4, cost=TABLE_COST)
    if not len(slots):
        return items_of, Items.of([])
    items = Tables(payload, slots, METADATA_ITEM)
    if items.stores_from(METADATA_ITEM.slots["value"] + 1):
        newer.add(METADATA_ITEM.name)
    values, starts = _strings(payload, items, "value")
    names = text(*_strings(payload, items, "name"))
    return items_of, Items(names=names, values=values, starts=starts)


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
