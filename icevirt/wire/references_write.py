"""Writes the references of one array: a block of records for every kind, then what they share.

Spec: "ChunkRef". Locations, etags and inline chunks stand behind the records, because references
point forward; each distinct location is written once and shared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import InvalidInputError
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.wire.columns_write import Records, Tail, pool, references, vector_slots
from icevirt.wire.locations_write import Packed
from icevirt.wire.ranges import Bytes, Places
from icevirt.wire.schema import CHUNK_REF

type Rows = NDArray[np.int64]
type Mask = NDArray[np.bool_]

_RANGE = frozenset({"index", "offset", "length"})
NATIVE = _RANGE | {"chunk_id"}
INLINE = frozenset({"index", "inline"})
_SHARED = ("location", "compressed_location", "checksum_etag", "inline")


def write_table(tail: Tail, table: ChunkTable, locations: Packed) -> int:
    """Append an array's references and return where their vector stands."""
    count = len(table)
    vector = np.empty(count + 1, "<u4")
    vector[0] = count
    start = tail.add(vector, align=4)  # the tail keeps the array: it is filled in below
    slots = vector_slots(start, count)
    blocks = []
    for present, rows in _kinds(table, locations):
        block = _block(tail, table, present, rows)
        blocks.append(block)
        places = block.records.places(block.at, len(rows))
        vector[1:][rows] = references(slots[rows], places)
    for name in _SHARED:
        _link(tail, name, [block for block in blocks if name in block.records.shape.at], locations)
    return start


@dataclass(frozen=True, slots=True)
class _Block:
    """The records of one kind, and where they stand."""

    records: Records
    bytes: Bytes
    part: ChunkTable
    at: int

    @property
    def shared_rows(self) -> Rows:
        """Return the row of the shared column that each record refers to."""
        if "inline" in self.records.shape.at:
            return np.arange(len(self.part), dtype=np.int64)
        return self.part.source.astype(np.int64)


def _kinds(table: ChunkTable, locations: Packed) -> Iterator[tuple[frozenset[str], Rows]]:
    """Yield each kind that occurs: the fields its records store, and its rows."""
    virtual = table.kind == ChunkType.virtual
    of_row = np.where(virtual, table.source, 0)
    count = len(table.locations)
    if virtual.any() and int(of_row.max()) >= count:
        raise InvalidInputError("a reference points to no location", source=int(of_row.max()))
    masks = [(NATIVE, table.kind == ChunkType.native), (INLINE, table.kind == ChunkType.inline)]
    if virtual.any():
        for present, mask in _virtual_kinds(table, locations):
            if mask.any():
                masks.append((present, virtual if mask.all() else virtual & mask[of_row]))
    told = 0
    for present, mask in masks:
        if len(rows := np.flatnonzero(mask)):
            told += len(rows)
            yield present, rows
    if told != len(table):
        raise InvalidInputError("a reference is neither native nor virtual nor inline")


def _virtual_kinds(table: ChunkTable, locations: Packed) -> Iterator[tuple[frozenset[str], Mask]]:
    """Yield the fields of each kind of virtual reference, and the locations that are of it."""
    etag = table.locations.etag.lengths > 0
    time = (table.locations.last_modified > 0) & ~etag  # one checksum is enough, an etag is better
    hidden = locations.hidden
    for name, how in (("location", ~hidden), ("compressed_location", hidden)):
        yield _RANGE | {name, "checksum_etag"}, etag & how
        yield _RANGE | {name, "checksum_last_modified"}, time & how
        yield _RANGE | {name}, ~(etag | time) & how


def _block(tail: Tail, table: ChunkTable, present: frozenset[str], rows: Rows) -> _Block:
    """Append the records of one kind, all but their references filled in."""
    part = table if len(rows) == len(table) else table.take(rows)
    records = Records.of(CHUNK_REF, present, "index", table.ndim)
    raw = records.rows(part.index)
    for name in ("offset", "length"):
        if name in present:
            records.fill(raw, name, getattr(part, name))
    if "chunk_id" in present:
        if int(part.source.max()) >= len(part.chunk_ids):
            raise InvalidInputError("a reference points to no chunk", source=int(part.source.max()))
        records.fill(raw, "chunk_id", part.chunk_ids[part.source])
    if "checksum_last_modified" in present:
        records.fill(raw, "checksum_last_modified", part.locations.last_modified[part.source])
    return _Block(records, raw, part, tail.add(raw))


def _link(tail: Tail, name: str, blocks: list[_Block], locations: Packed) -> None:
    """Append the rows of a shared column that are used, by first use, and link the records."""
    if not blocks:
        return
    used, numbers = _by_first_use([block.shared_rows for block in blocks])
    data, starts = pool(*_column(name, blocks, used, locations))
    targets = tail.add(data, align=4) + starts
    for block, number in zip(blocks, numbers, strict=True):
        places = block.records.places(block.at, len(block.part)) + block.records.shape.at[name]
        block.records.fill(block.bytes, name, references(places, targets[number]))


def _column(
    name: str, blocks: list[_Block], used: Rows, locations: Packed
) -> tuple[Bytes, Places, Places]:
    """Return a shared column: its bytes, and starts and lengths of the used rows."""
    part = blocks[0].part
    match name:
        case "inline":
            start, length = part.offset.astype(np.int64), part.length.astype(np.int64)
            if int(start.min()) < 0 or int((start + length).max()) > len(part.inline):
                raise InvalidInputError("an inline reference lies outside the inline bytes")
            return part.inline, start, length
        case "compressed_location":
            data, starts = locations.frames
        case "location":
            data, starts = locations.plain.data, locations.plain.starts
        case _:
            data, starts = part.locations.etag.data, part.locations.etag.starts
    return data, starts[used], starts[used + 1] - starts[used]


def _by_first_use(sources: list[Rows]) -> tuple[Rows, list[Rows]]:
    """Number rows in the order they are used first: the used rows, and each source's numbers."""
    flat = sources[0] if len(sources) == 1 else np.concatenate(sources)
    first = np.full(int(flat.max()) + 1, len(flat), np.int64)
    first[flat[::-1]] = np.arange(len(flat) - 1, -1, -1)  # the earliest is assigned last
    used = np.argsort(first, kind="stable")[: int(np.count_nonzero(first < len(flat)))]
    number = np.zeros(len(first), np.int64)
    number[used] = np.arange(len(used))
    return used, [number[source] for source in sources]
