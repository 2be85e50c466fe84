"""Find the chunks in which two tables of references of one array differ."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from icevirt.ids import ObjectId8
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.strings import gather
from icevirt.versioning.chunk_tables import RowFinder


def changed(before: ChunkTable, after: ChunkTable) -> NDArray[np.uint32]:
    """Return the indices that one of the tables lacks or that refer to other bytes, ascending."""
    rows = RowFinder.of(after).find(before.index)
    there = np.flatnonzero(rows >= 0)
    same = same_bytes(before.take(there), after.take(rows[there]))
    kept = np.zeros(len(after), np.bool_)
    kept[rows[there]] = True
    parts = [before.index[rows < 0], before.index[there[~same]], after.index[~kept]]
    found = np.concatenate(parts)
    return found[np.lexsort(found.T[::-1])] if found.shape[1] else found[:1]


def same_bytes(one: ChunkTable, other: ChunkTable) -> NDArray[np.bool_]:
    """Say, row by row of two tables of one length, whether they refer to the same bytes."""
    same: NDArray[np.bool_] = (one.kind == other.kind) & (one.length == other.length)
    same &= (one.offset == other.offset) | (one.kind == ChunkType.inline)
    same &= _names(one) == _names(other)
    return same


def _names(table: ChunkTable) -> NDArray[np.void]:
    """Return 12 bytes for each row that stand for the object it refers to, or for its content."""
    names = np.zeros((len(table), 12), np.uint8)
    native, virtual, inline = (
        np.flatnonzero(table.kind == kind)
        for kind in (ChunkType.native, ChunkType.virtual, ChunkType.inline)
    )
    names[native] = table.chunk_ids[table.source[native]]
    places = table.locations
    seals = [
        ObjectId8.of_content(places.url[n].encode(), places.etag[n].encode()) + seconds.to_bytes(4)
        for n, seconds in enumerate(places.last_modified.tolist())
    ]
    of_places = np.frombuffer(b"".join(seals), np.uint8).reshape(-1, 12)
    names[virtual] = of_places[table.source[virtual]]
    length = table.length[inline].astype(np.int64)
    body, start = gather(table.inline, table.offset[inline].astype(np.int64), length)
    raw, begins = body.tobytes(), start.tolist()
    for row, begin, size in zip(inline.tolist(), begins, length.tolist(), strict=False):
        digest = ObjectId8.of_content(raw[begin : begin + size])
        names[row, :8] = np.frombuffer(digest, np.uint8)
    return np.ascontiguousarray(names).view("V12").reshape(-1)
