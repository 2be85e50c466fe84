"""Read the list of snapshots in the repo info, and map ids to snapshots.

Spec: "Repo Info File", SnapshotInfo. Snapshots are sorted by id and referred to by their row.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from icevirt.ids import ObjectId12
from icevirt.model.repo_info import Lazy, SnapshotSummary
from icevirt.model.strings import Bytes, Places, Strings, gather
from icevirt.wire.flatbuffer.reader import (
    ALWAYS_ALLOWED,
    TABLE_COST,
    Payload,
    Span,
    Tables,
    reading,
    text,
)
from icevirt.wire.flatbuffer.schema import MAX_SHARING, METADATA_ITEM, SNAPSHOT_INFO, Damage
from icevirt.wire.header import FileKind
from icevirt.wire.repo_info.snapshot_columns import NO_PARENT, Lists, SnapshotColumns

if TYPE_CHECKING:
    from icevirt.wire.repo_info.snapshot_records import SnapshotRecords

_MANY_CHANGES = 64
_FEW = 32  # snapshots that are read one by one
_PRUNED = "pruned_ancestor_tx_logs"


class RowIndex:
    """Finds the rows of ids in columns: by bisection if ids ascend, else in a dictionary."""

    def __init__(self, columns: SnapshotColumns, *, is_sorted: bool = False) -> None:
        self.columns = columns
        self.is_sorted = is_sorted or columns.is_sorted()
        self._keys = columns.ids.tobytes()
        self._rows: dict[bytes, int] | None = None
        if not self.is_sorted:
            self.expect_many()

    def __len__(self) -> int:
        """Return the number of different ids."""
        return len(self.columns) if self._rows is None else len(self._rows)

    def expect_many(self) -> None:
        """Make the dictionary, which is faster from some dozens of look-ups on."""
        self._rows = self._rows or {key: row for row, key in enumerate(self.columns.keys())}

    def row(self, key: bytes) -> int | None:
        """Return the row of an id; None if there is none."""
        if self._rows is not None:
            return self._rows.get(key)
        row = self.place(key)
        at = row * ObjectId12.SIZE
        return row if self._keys[at : at + ObjectId12.SIZE] == key else None

    def place(self, key: bytes) -> int:
        """Return the row that an id has, or would have, among ascending ones."""
        keys, size = self._keys, ObjectId12.SIZE
        rows = range(len(self.columns))
        return bisect_left(rows, key, key=lambda row: keys[row * size : row * size + size])


class SnapshotInfos(Lazy[ObjectId12, SnapshotSummary]):
    """The snapshots of a repository by id; a value is made on access."""

    def __init__(
        self,
        index: RowIndex,
        spec_version: int,
        changed: Mapping[ObjectId12, SnapshotSummary | None] | None = None,
        records: SnapshotRecords | None = None,
    ) -> None:
        """Take over columns of a file, and values that replace them (None: removed).

        Args:
            index: The columns, their ids in any order.
            spec_version: Of the file: it says how metadata is encoded.
            changed: The values.
            records: The columns as they are written, if they were.
        """
        super().__init__(self._info, self._ids, changed)
        self._columns = columns = index.columns
        self._index = index
        self._spec_version = spec_version
        self._records = records
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
        return isinstance(key, bytes) and self._index.row(key) is not None

    def __len__(self) -> int:
        gone = sum(1 for key in self._changed if self._index.row(key) is not None)
        added = sum(info is not None for info in self._changed.values())
        return len(self._index) - gone + added

    @property
    def size(self) -> int:
        """How many snapshots the file lists."""
        return len(self._columns)

    def id_at(self, row: int) -> ObjectId12:
        """Return the id of a row of the file's list."""
        return self._columns.key(row)

    def __reduce__(self) -> tuple[Any, ...]:
        return _infos, (self._columns, self._spec_version, self._changed)

    def with_changed(self, key: ObjectId12, value: SnapshotSummary | None) -> SnapshotInfos:
        """Return the mapping with another value of a key; None removes it."""
        changed = {**self._changed, key: value}
        if len(changed) > _MANY_CHANGES and self._spec_version > 1:
            return _infos(self._columns.with_changed(self._index.row, changed), 2)
        return SnapshotInfos(self._index, self._spec_version, changed, self._records)

    def fold(self) -> SnapshotInfos:
        """Return the same mapping as columns of ascending ids, with nothing on top.

        Raises:
            InvalidInputError: The parent of a snapshot is not among them.
        """
        if self._spec_version == 1:  # its metadata is encoded in another way
            return infos_of(dict(self))
        if self._index.is_sorted and not self._changed:
            return self
        return self._with_few() or _infos(
            self._columns.with_changed(self._index.row, self._changed), 2
        )

    def _with_few(self) -> SnapshotInfos | None:
        """Add new snapshots to the records of the file; None if more than that changed."""
        index, records = self._index, self._records
        if not index.is_sorted:
            return None
        for key, info in self._changed.items():
            above = None if info is None else info.parent_id
            parent = None if above is None else index.row(above)
            if info is None or parent is None or index.row(key) is not None:
                return None
            row, one = index.place(key), SnapshotColumns.of([info])
            columns = index.columns.with_one(one, row=row, parent=parent)
            records = records and records.with_one(one, row, columns)
            index = RowIndex(columns, is_sorted=True)
        return SnapshotInfos(index, 2, records=records)

    def prepare_records(self) -> tuple[RowIndex, SnapshotRecords]:
        """Return what is written of a mapping that is `folded`."""
        from icevirt.wire.repo_info.snapshot_records import SnapshotRecords

        assert not self._changed
        self._records = records = self._records or SnapshotRecords.of(self._columns)
        return self._index, records

    def _ids(self) -> Iterator[ObjectId12]:
        return map(ObjectId12, self._columns.keys())

    def _info(self, key: ObjectId12) -> SnapshotSummary | None:
        if (row := self._index.row(key)) is None:
            return None
        self._left -= 1
        if self._left == 0:  # a walk through the history
            self._facts = tuple(np.asarray(column).tolist() for column in self._facts)
            self._index.expect_many()
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
        from icevirt.wire import metadata

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


def _infos(
    columns: SnapshotColumns,
    spec_version: int,
    changed: Mapping[ObjectId12, SnapshotSummary | None] | None = None,
) -> SnapshotInfos:
    return SnapshotInfos(RowIndex(columns), spec_version, changed)


def infos_of(snapshots: Mapping[ObjectId12, SnapshotSummary]) -> SnapshotInfos:
    """Return snapshots as columns that can be written.

    Raises:
        InvalidInputError: The parent of a snapshot is not among them.
    """
    if isinstance(snapshots, SnapshotInfos):
        return snapshots.fold()
    return _infos(SnapshotColumns.of(()).with_changed(lambda _: None, snapshots), 2)


# -- reading --------------------------------------------------------------------------------------


def read(payload: Payload, span: Span, spec_version: int, newer: set[str]) -> SnapshotInfos:
    """Read the list; add tables with fields of a newer schema to ``newer``. Raises ``Damage``."""
    if not span.count:
        return _infos(SnapshotColumns.of(()), spec_version)
    tables = Tables(payload, span, SNAPSHOT_INFO)
    tables.look_beyond(newer)
    parent = tables.numbers("parent_offset", 4).view("<i4").astype(np.int64)
    if int(parent.min()) < NO_PARENT or int(parent.max()) >= len(tables):
        raise Damage("the parent of a snapshot is not in the list", 0)
    items_of, slots = _elements(payload, tables, "metadata", 4, cost=TABLE_COST)
    items = Tables(payload, slots, METADATA_ITEM)
    items.look_beyond(newer)
    values = Strings(*_strings(payload, items, "value"))
    names = text(*_strings(payload, items, "name"))
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
    found = _infos(columns, spec_version)
    if len(found) != len(tables):
        raise Damage("a snapshot is listed twice", 0)
    return found


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
