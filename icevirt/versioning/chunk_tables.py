"""Compute on chunk tables: find rows, overlay and compare tables, drop unused rows.

All of it is over columns; nothing loops over references.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import ChunkIndexError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.indices import counts_up
from icevirt.model.strings import gather


class RowFinder(NamedTuple):
    """Finds rows of a table by chunk index; prepared once for many lookups.

    Rows are found by scalar keys: C-order numbers within the bounding box. A box of more chunks
    than 63 bits can number (a few chunks far apart in many dimensions) is packed axis by axis.
    """

    low: NDArray[np.int64]  # (ndim,) first corner of the bounding box
    high: NDArray[np.int64]  # (ndim,) corner after the last
    strides: NDArray[np.int64]  # (ndim,) of keys within the box
    keys: NDArray[np.int64] | None  # (n,) ascending; None: the box is full, a key is its row
    packed: _Packed | None  # for boxes that are too large for keys
    rows: int

    @classmethod
    def of(cls, table: ChunkTable) -> RowFinder:
        """Prepare a table."""
        box = np.array(table.extents(), np.int64).reshape(-1, 2)
        low, high = box[:, 0], box[:, 1]
        size = (high - low).tolist()
        if math.prod(size) >= _MOST_KEYS:
            packed = _Packed.of(table.index)
            return cls(low, high, np.zeros(len(size), np.int64), None, packed, len(table))
        strides = np.array([math.prod(size[axis + 1 :]) for axis in range(len(size))], np.int64)
        full = len(table) == math.prod(size)
        keys = None if full else (table.index.astype(np.int64) - low) @ strides
        return cls(low, high, strides, keys, None, len(table))

    def find(self, index: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the row of each index, shape (k, ndim); -1 where there is none."""
        if not self.rows:
            return np.full(len(index), -1, np.int64)
        wanted = np.asarray(index, np.int64).reshape(len(index), len(self.low))
        if self.packed is not None:
            return self.packed.find(wanted)
        inside = ((wanted >= self.low) & (wanted < self.high)).all(axis=1)
        key = (wanted - self.low) @ self.strides
        if self.keys is None:
            return np.where(inside, key, -1)
        from icevirt.versioning.id_columns import places

        return np.where(inside, places(self.keys, key), -1)

    @property
    def nbytes(self) -> int:
        """Memory held."""
        if self.packed is not None:
            return self.packed.nbytes
        return 0 if self.keys is None else self.keys.nbytes


class _Packed(NamedTuple):
    """Indices as keys made axis by axis: each step numbers the distinct beginnings so far."""

    values: tuple[NDArray[np.int64], ...]  # distinct values of each axis, ascending
    beginnings: tuple[NDArray[np.int64], ...]  # distinct keys after each axis, ascending

    @classmethod
    def of(cls, index: NDArray[np.integer]) -> _Packed:
        values, beginnings = [], []
        key = np.zeros(len(index), np.int64)
        for column in index.T.astype(np.int64):
            distinct, number = np.unique(column, return_inverse=True)
            known, key = np.unique(key * len(distinct) + number, return_inverse=True)
            values.append(distinct)
            beginnings.append(known)
        return cls(tuple(values), tuple(beginnings))

    def find(self, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return rows, -1 where there is none; the last key is the row, as rows are in order."""
        from icevirt.versioning.id_columns import places

        key = np.zeros(len(wanted), np.int64)
        there = np.ones(len(wanted), np.bool_)
        for column, distinct, known in zip(wanted.T, self.values, self.beginnings, strict=True):
            number = places(distinct, column)
            there &= number >= 0
            key = places(known, key * len(distinct) + number)
            there &= key >= 0
        return np.where(there, key, -1)

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return sum(column.nbytes for column in self.values + self.beginnings)


_MOST_KEYS = 1 << 62
_FEW = 16  # where sorting the references is cheaper than a look at all they could refer to


def overlay(base: ChunkTable, over: ChunkTable) -> ChunkTable:
    """Return the rows of both; where both have a chunk, that of ``over``."""
    if not len(base):
        return over
    if not len(over):
        return base
    kept = RowFinder.of(over).find(base.index) < 0
    return ChunkTable.concatenate([base.take(kept), over])


def overlay_all(layers: Sequence[ChunkTable]) -> ChunkTable:
    """Return the rows of one layer or more; where several have a chunk, that of the last.

    The work grows with the rows and the layers, not with their product.
    """
    if len(layers) < 3:
        return reduce(overlay, layers)
    ends = np.cumsum([len(layer) for layer in layers])
    last = np.split(_is_last(np.concatenate([layer.index for layer in layers])), ends[:-1])
    kept = [
        layer if bool(rows.all()) else layer.take(rows)
        for layer, rows in zip(layers, last, strict=True)
    ]
    return ChunkTable.concatenate([layer for layer in kept if len(layer)] or [layers[-1]])


def without(table: ChunkTable, index: NDArray[np.uint32]) -> ChunkTable:
    """Return the table without the chunks at these indices, shape (k, ndim)."""
    there = _is_last(np.concatenate([table.index, index]))[: len(table)]
    return table if bool(there.all()) else table.take(there)


def common(one: NDArray[np.uint32], other: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the rows of ``one``, shape (n, ndim), that ``other`` has too."""
    return one[~_is_last(np.concatenate([one, other]))[: len(one)]]


def _is_last(index: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Say of each row, shape (n, ndim), whether no later row equals it."""
    last = np.ones(len(index), np.bool_)
    if not index.shape[1]:
        last[:-1] = False
        return last
    order = np.lexsort(index.T[::-1])  # stable: equal rows keep their order
    last[order[:-1]] = np.any(index[order[1:]] != index[order[:-1]], axis=1)
    return last


def mark_deleted(index: NDArray[np.integer]) -> ChunkTable:
    """Return the table that says "deleted" of the chunks at these indices, shape (k, ndim)."""
    n = len(index)
    return ChunkTable(
        index=np.ascontiguousarray(index, np.uint32),
        kind=np.full(n, ChunkType.uninitialized, np.uint8),
        source=np.zeros(n, np.uint32),
        offset=np.zeros(n, np.uint64),
        length=np.zeros(n, np.uint64),
    ).sort()


def native(index: NDArray[np.integer], key: ObjectId12, length: int) -> ChunkTable:
    """Return the reference to a chunk of the repository, by its index, shape (1, ndim)."""
    return ChunkTable(
        index=index.astype(np.uint32),
        kind=np.full(1, ChunkType.native, np.uint8),
        source=np.zeros(1, np.uint32),
        offset=np.zeros(1, np.uint64),
        length=np.full(1, length, np.uint64),
        chunk_ids=np.frombuffer(key, np.uint8).reshape(1, 12).copy(),
    )


def drop_deleted(table: ChunkTable) -> ChunkTable:
    """Return the table without rows that say "deleted"."""
    there = table.kind != ChunkType.uninitialized
    return table if bool(there.all()) else table.take(there)


def compact(table: ChunkTable) -> ChunkTable:
    """Return the same references, with only the locations, ids and inline bytes they use."""
    changed: dict[str, Any] = {}
    for kind, name in ((ChunkType.virtual, "locations"), (ChunkType.native, "chunk_ids")):
        shared = getattr(table, name)
        if not len(shared):
            continue
        rows = table.kind == kind
        every = bool(rows.all())
        used, numbers = _find_used(table.source if every else table.source[rows], len(shared))
        if used is None:
            continue
        if not every:
            source = changed["source"] if changed else table.source.copy()
            source[rows] = numbers
            numbers = source
        changed |= {
            "source": numbers,
            name: shared.take(used) if kind is ChunkType.virtual else shared[used],
        }
    if len(table.inline):
        inline = np.flatnonzero(table.kind == ChunkType.inline)
        length = table.length[inline].astype(np.int64)
        if int(length.sum()) != len(table.inline):
            at = table.offset[inline].astype(np.int64)
            body, start = gather(table.inline, at, length)
            offset = table.offset.copy()
            offset[inline] = start[:-1].astype(np.uint64)
            changed |= {"offset": offset, "inline": body}
    return replace(table, **changed) if changed else table


def _find_used(
    source: NDArray[np.uint32], available: int
) -> tuple[NDArray[np.int64] | None, NDArray[np.uint32]]:
    """Return which entries are used (None: all) and the renumbered references to them."""
    if len(source) < available // _FEW:
        used, number = np.unique(source, return_inverse=True)
        return used.astype(np.int64), number.astype(np.uint32)
    if counts_up(source, available - 1):
        return None, source
    present = np.zeros(available, np.bool_)
    present[source] = True
    if bool(present.all()):
        return None, source
    renumbered = np.cumsum(present, dtype=np.int64) - 1
    return np.flatnonzero(present), renumbered[source].astype(np.uint32)


def nbytes(table: ChunkTable) -> int:
    """Return the memory a table holds."""
    columns = (table.index, table.kind, table.source, table.offset, table.length)
    shared = (table.chunk_ids, table.inline, table.locations.last_modified)
    strings = (table.locations.url, table.locations.etag)
    return sum([column.nbytes for column in columns + shared + strings])


def find_changed(before: ChunkTable, after: ChunkTable) -> NDArray[np.uint32]:
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


def same_content(one: ChunkTable, other: ChunkTable) -> NDArray[np.bool_]:
    """Say, row by row, whether `same_bytes`, or chunk objects whose ids cover the same content."""
    same = same_bytes(one, other)
    rows = np.flatnonzero((one.kind == ChunkType.native) & (other.kind == ChunkType.native))
    tails = [table.chunk_ids[table.source[rows], 6:] for table in (one, other)]
    whole = (one.offset[rows] == other.offset[rows]) & (one.length[rows] == other.length[rows])
    same[rows] |= whole & np.all(tails[0] == tails[1], axis=1)
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


def index_row(name: str, value: Sequence[int], ndim: int, path: str) -> NDArray[np.int64]:
    """Return one number for each dimension of an array as a row, shape (1, ndim).

    Raises:
        InvalidInputError: There are more or fewer, or something else.
    """
    try:
        row = np.asarray(value)
    except ValueError:
        row = np.empty(0, np.object_)
    is_integer = row.dtype.kind in "iu" or not row.size
    if row.shape != (ndim,) or not is_integer:
        raise ChunkIndexError(
            f"{name} must have one integer per dimension",
            do=f"Pass {ndim} numbers.",
            path=path,
            found=value,
        )
    return row.astype(np.int64).reshape(1, ndim)
