"""Writes the references of one array: a block of records for every kind, then what they share.

Spec: "ChunkRef". Locations, etags and inline chunks stand behind the records, because references
point forward; each distinct location is written once and shared.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import InvalidInputError
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.strings import Strings
from icevirt.wire.columns_write import Records, Tail, pool, references, vector_slots
from icevirt.wire.ranges import Bytes, Places
from icevirt.wire.schema import CHUNK_REF

type Rows = NDArray[np.int64]

_RANGE = frozenset({"index", "offset", "length"})
NATIVE = _RANGE | {"chunk_id"}
INLINE = frozenset({"index", "inline"})
VIRTUAL = _RANGE | {"location"}
ETAG = VIRTUAL | {"checksum_etag"}
LAST_MODIFIED = VIRTUAL | {"checksum_last_modified"}


def write_table(tail: Tail, table: ChunkTable) -> int:
    """Append an array's references and return where their vector stands."""
    count = len(table)
    vector = np.empty(count + 1, "<u4")
    vector[0] = count
    start = tail.add(vector, align=4)  # filled in below, once the records have their places
    slots = vector_slots(start, count)
    strings = _Shared(table)
    for present, rows in _blocks(table):
        part = table if len(rows) == count else table.take(rows)
        records = Records.of(CHUNK_REF, present, "index", table.ndim)
        block = records.rows(part.index)
        at = tail.add(block)
        _fill(records, block, part)
        strings.wanted(records, block, part, at)
        places = records.places(at, len(part))
        if len(rows) == count:
            vector[1:] = references(slots, places)
        else:
            vector[1:][rows] = references(slots[rows], places)
    strings.write(tail)
    return start


def _blocks(table: ChunkTable) -> Iterator[tuple[frozenset[str], Rows]]:
    """Yield the fields that a kind of reference stores, and its rows; kinds that do not occur not."""
    virtual = table.kind == ChunkType.virtual
    etag = table.locations.etag.lengths > 0
    time = (table.locations.last_modified > 0) & ~etag  # an etag goes first; one is enough
    source = np.where(virtual, table.source, 0)
    if virtual.any() and int(source.max()) >= len(table.locations):
        raise InvalidInputError("a reference points to no location", source=int(source.max()))
    some = len(table.locations) > 0
    kinds = (
        (ETAG, virtual & (etag[source] if some else False)),
        (LAST_MODIFIED, virtual & (time[source] if some else False)),
        (VIRTUAL, virtual & (~(etag | time)[source] if some else False)),
        (NATIVE, table.kind == ChunkType.native),
        (INLINE, table.kind == ChunkType.inline),
    )
    told = 0
    for present, mask in kinds:
        if len(rows := np.flatnonzero(mask)):
            told += len(rows)
            yield present, rows
    if told != len(table):
        raise InvalidInputError("a reference is neither native nor virtual nor inline")


def _fill(records: Records, block: Bytes, part: ChunkTable) -> None:
    """Set the numbers and ids; what stands elsewhere is linked by ``_Shared``."""
    at = records.shape.at
    for name in ("offset", "length"):
        if name in at:
            records.fill(block, name, getattr(part, name))
    if "chunk_id" in at:
        if int(part.source.max()) >= len(part.chunk_ids):
            raise InvalidInputError("a reference points to no chunk", source=int(part.source.max()))
        records.fill(block, "chunk_id", part.chunk_ids[part.source])
    if "checksum_last_modified" in at:
        records.fill(block, "checksum_last_modified", part.locations.last_modified[part.source])


class _Shared:
    """What several records refer to: which fields want which row of which column."""

    def __init__(self, table: ChunkTable) -> None:
        self._table = table
        self._wishes: dict[str, list[tuple[Records, Bytes, Rows, int]]] = {}

    def wanted(self, records: Records, block: Bytes, part: ChunkTable, at: int) -> None:
        """Note the fields of a block that refer to strings or inline chunks."""
        for name in ("location", "checksum_etag"):
            if name in records.shape.at:
                self._wish(name, records, block, part.source.astype(np.int64), at)
        if "inline" in records.shape.at:
            self._inline = part
            self._wish("inline", records, block, np.arange(len(part), dtype=np.int64), at)

    def _wish(self, name: str, records: Records, block: Bytes, rows: Rows, at: int) -> None:
        self._wishes.setdefault(name, []).append((records, block, rows, at))

    def write(self, tail: Tail) -> None:
        """Append the columns' used rows, in the order of first use, and link every record."""
        for name, wishes in self._wishes.items():
            used, ranks = _ranked([rows for _, _, rows, _ in wishes], self._height(name))
            data, starts = pool(*self._column(name, used))
            targets = tail.add(data, align=4) + starts
            for (records, block, rows, at), rank in zip(wishes, ranks, strict=True):
                places = records.places(at, len(rows)) + records.shape.at[name]
                records.fill(block, name, references(places, targets[rank]))

    def _height(self, name: str) -> int:
        return len(self._inline) if name == "inline" else len(self._table.locations)

    def _column(self, name: str, used: Rows) -> tuple[Bytes, Places, Places]:
        if name == "inline":
            part = self._inline
            start, length = part.offset.astype(np.int64), part.length.astype(np.int64)
            if int((start + length).max(initial=0)) > len(part.inline) or int(start.min()) < 0:
                raise InvalidInputError("an inline reference lies outside the inline bytes")
            return part.inline, start, length
        locations = self._table.locations
        column: Strings = locations.url if name == "location" else locations.etag
        return column.data, column.starts[used], column.lengths[used]


def _ranked(sources: list[Rows], height: int) -> tuple[Rows, list[Rows]]:
    """Number rows by first use: return the used rows in that order, and each source's numbers."""
    flat = sources[0] if len(sources) == 1 else np.concatenate(sources)
    first = np.full(height, len(flat), np.int64)
    first[flat[::-1]] = np.arange(len(flat) - 1, -1, -1)
    used = np.argsort(first, kind="stable")[: int(np.count_nonzero(first < len(flat)))]
    rank = np.zeros(height, np.int64)
    rank[used] = np.arange(len(used))
    return used, [rank[source] for source in sources]
