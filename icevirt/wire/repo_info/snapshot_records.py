"""Write the list of snapshots in the repo info.

Spec: "Repo Info File", SnapshotInfo. Each record is followed by its message: the distance to the
message is then constant, and so is the distance to an empty list of metadata, which zstd compresses
to almost nothing. A commit adds one record to the bytes of the file before (`SnapshotRecords`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from icevirt.ids import ObjectId12
from icevirt.model.strings import Bytes, Places, copy_ranges
from icevirt.wire.flatbuffer.builder import (
    BLOCK,
    Pool,
    Records,
    Rows,
    Tail,
    append_pool,
    references,
    vector_blocks,
)
from icevirt.wire.flatbuffer.schema import METADATA_ITEM, SNAPSHOT_INFO
from icevirt.wire.repo_info.snapshot_columns import SnapshotColumns

_PRUNED = "pruned_ancestor_tx_logs"
_FIELDS = frozenset({"id", "parent_offset", "flushed_at", "message", "metadata"})
_ITEM = frozenset({"name", "value"})
_ALIGN = 8
_FEW = 64  # references that are written one by one
_KINDS: tuple[tuple[str, ...], ...] = ((), ("metadata",), (_PRUNED,), ("metadata", _PRUNED))
"""What the records of each kind refer to, beside their message."""


@cache
def _records() -> tuple[Records, ...]:
    """Return how records of each kind look; metadata that is empty is part of them."""
    return tuple(
        Records.of(
            SNAPSHOT_INFO,
            _FIELDS | set(referred),
            vector=None if "metadata" in referred else "metadata",
            align=_ALIGN,
        )
        for referred in _KINDS
    )


def _by_kind(kind: NDArray[np.int64], field: str | None = None) -> Places:
    """Return where a field, or the table, stands in the record of each row."""
    at = [each.table_at + each.shape.at.get(field or "", 0) for each in _records()]
    return np.array(at)[kind]


@dataclass(frozen=True, slots=True)
class PackedMetadata:
    """The lists of metadata of snapshots, with all that they refer to, as they stand in a file."""

    raw: Bytes  # references are relative, so it may stand at any multiple of 8
    at: Places  # (n,) where each row's list stands in it; anything for an empty list

    @classmethod
    def of(cls, columns: SnapshotColumns) -> PackedMetadata:
        """Pack the metadata of all snapshots."""
        if not len(columns.names):
            return cls(np.zeros(0, np.uint8), np.zeros(len(columns), np.int64))
        whole = Tail(0)
        at = _write_items(whole, columns)
        return cls(whole.payload(bytearray()), at)

    def with_none(self, row: int) -> PackedMetadata:
        """Return the same with a snapshot that has no metadata, which becomes that row."""
        return PackedMetadata(self.raw, np.concatenate([self.at[:row], [0], self.at[row:]]))


@dataclass(frozen=True, slots=True)
class SnapshotRecords:
    """The records of snapshots, with their messages, as they stand in a file one after the other.

    What they refer to elsewhere in a file is blank.
    """

    raw: Bytes
    starts: Places  # (n + 1,) where each begins, and the last one ends
    kind: NDArray[np.int64]  # (n,) in ``_KINDS``
    metadata: PackedMetadata

    @classmethod
    def of(cls, columns: SnapshotColumns) -> SnapshotRecords:
        """Make the records of all snapshots."""
        kind = (columns.items_of.counts > 0) + 2 * (columns.pruned_of.counts > 0)
        stride = np.array([each.stride for each in _records()])[kind]
        message = 4 + columns.message.lengths + 1
        starts = np.zeros(len(columns) + 1, np.int64)
        np.cumsum(stride + message + -message % _ALIGN, out=starts[1:])
        text_at = starts[:-1] + stride
        raw = np.zeros(int(starts[-1]), np.uint8)
        for number, records in enumerate(_records()):
            if len(rows := np.flatnonzero(kind == number)):
                at = starts[rows]
                part = Rows(
                    count=len(rows),
                    columns={
                        "id": columns.ids[rows],
                        "parent_offset": columns.parent[rows].astype("<i4"),
                        "flushed_at": columns.flushed_at[rows],
                    },
                    targets={"message": text_at[rows]},
                )
                made = records.scatter(at, part).reshape(-1)
                begin = records.stride * np.arange(len(rows))
                copy_ranges(made, begin, raw, at, stride[rows])
        raw.view("<u4")[text_at // 4] = columns.message.lengths
        text, begin = columns.message.data, columns.message.starts[:-1]
        copy_ranges(text, begin, raw, text_at + 4, columns.message.lengths)
        return cls(raw, starts, kind, PackedMetadata.of(columns))

    def with_one(
        self, snapshot: SnapshotColumns, row: int, columns: SnapshotColumns
    ) -> SnapshotRecords:
        """Return the records with one more, which becomes that row of ``columns``."""
        number, one = _record(snapshot)
        begin = self.starts[row]
        starts = np.concatenate([self.starts[: row + 1], self.starts[row:] + len(one)])
        raw = np.concatenate([self.raw[:begin], one, self.raw[begin:]])
        kind = np.concatenate([self.kind[:row], [number], self.kind[row:]])
        at = starts[:-1] + _by_kind(kind, "parent_offset")
        raw.view("<i4")[at // 4] = columns.parent
        if len(snapshot.names):
            metadata = PackedMetadata.of(columns)
        else:
            metadata = self.metadata.with_none(row)
        return SnapshotRecords(raw, starts, kind, metadata)

    def link(self, start: int, targets: dict[str, Places]) -> Iterator[Bytes]:
        """Yield the bytes as they stand at ``start``, with references to ``targets`` of rows."""
        slots, words = np.zeros(0, np.int64), np.zeros(0, np.uint32)
        for name, places in targets.items():
            refers = [name in names for names in _KINDS]
            rows = np.flatnonzero(np.array(refers)[self.kind])
            at = self.starts[rows] + _by_kind(self.kind[rows], name)
            slots = np.concatenate([slots, at])
            words = np.concatenate([words, references(start + at, places[rows])])
        if len(slots) > _FEW:
            raw = self.raw.copy()
            raw.view("<u4")[slots // 4] = words
            yield raw
            return
        end = 0
        for place in np.argsort(slots).tolist():  # without a copy of all
            yield self.raw[end : slots[place]]
            yield words[place : place + 1].view(np.uint8)
            end = slots[place] + words.itemsize
        yield self.raw[end:]


def _record(snapshot: SnapshotColumns) -> tuple[int, Bytes]:
    """Return the kind and the record of a single snapshot, its parent blank; see `of`."""
    number = (len(snapshot.names) > 0) + 2 * (len(snapshot.pruned) > 0)
    records, message = _records()[number], snapshot.message.data.tobytes()
    at = {name: records.table_at + place for name, place in records.shape.at.items()}
    made = bytearray(records.template.tobytes())
    made[at["id"] : at["id"] + ObjectId12.SIZE] = snapshot.ids.tobytes()
    struct.pack_into("<Q", made, at["flushed_at"], int(snapshot.flushed_at[0]))
    struct.pack_into("<I", made, at["message"], records.stride - at["message"])
    made += struct.pack("<I", len(message)) + message + b"\0"
    made += bytes(-len(made) % _ALIGN)
    return number, np.frombuffer(made, np.uint8)


def write(tail: Tail, columns: SnapshotColumns, records: SnapshotRecords) -> int:
    """Append the list and return where it stands; its bytes are made with the file."""

    def vector() -> Iterator[Bytes]:
        tables = block + records.starts[:-1] + _by_kind(records.kind)
        return vector_blocks(start, len(columns), [tables])

    def parts() -> Iterator[Bytes]:
        return records.link(block, targets)

    start = tail.add(4 + 4 * len(columns), vector, align=4)
    block = tail.add(len(records.raw), parts, align=_ALIGN)
    targets = {}
    if len(columns.names):
        packed = records.metadata
        begin = tail.add(len(packed.raw), lambda: [packed.raw], align=_ALIGN)
        targets["metadata"] = begin + packed.at
    if len(columns.pruned):
        targets[_PRUNED] = _write_pruned(tail, columns)
    return start


def _write_pruned(tail: Tail, columns: SnapshotColumns) -> Places:
    """Append the lists of pruned logs that are not empty, and return where each row's stands."""
    ids, lists = columns.pruned, columns.pruned_of
    rows, size = np.flatnonzero(lists.counts), ids.shape[1]
    pool = Pool.of(
        ids.reshape(-1), size * lists.first[rows], size * lists.counts[rows], element=size
    )
    places = np.zeros(len(columns), np.int64)
    places[rows] = append_pool(tail, pool)
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
        "name": append_pool(tail, Pool.of_strings(columns.names)),
        "value": append_pool(tail, Pool.of_strings(columns.values)),
    }
    return start + at
