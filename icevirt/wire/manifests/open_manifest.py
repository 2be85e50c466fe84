"""Find references in a decompressed manifest, and decode only those that are found.

Spec: "Chunk Manifest Files". References are ordered by index, so bisection finds them. That they
are in order is checked once, for all references of an array; everything else about a reference is
checked when it is decoded. So a lookup answers what decoding the whole manifest would, or raises;
damage of references that are not asked for may stay unseen.

The references of one kind that icevirt writes are records of one stride. Their indices are read
where they stand. References of other layouts, as the official client writes them, are followed one
field of all rows at a time; their indices are copied.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.chunks import ChunkTable, Manifest
from icevirt.model.indices import ascends
from icevirt.model.strings import Places
from icevirt.wire import header
from icevirt.wire.flatbuffer.columns_read import Payload, Tables, moved
from icevirt.wire.flatbuffer.reader import Damage, FlatBufferReader, Span, reading
from icevirt.wire.flatbuffer.schema import ARRAY_MANIFEST, CHUNK_REF, MANIFEST
from icevirt.wire.header import FileKind
from icevirt.wire.manifests.references_read import (
    LocationReader,
    check_order,
    read_rows,
    read_table,
)

type Index = NDArray[np.uint32]

_BLOCK = 1 << 13  # records that stay in the processor's cache
_FILE = FileKind.manifest.name


class OpenManifest:
    """A manifest whose small tables were read, and whose references were not.

    Raises:
        FormatError: It is damaged.
    """

    def __init__(self, raw: bytes) -> None:
        data, size = header.unpack_array(raw, FileKind.manifest)
        del raw  # which is let go of, unless the caller keeps it
        data.flags.writeable = False
        with reading(_FILE):
            reader = FlatBufferReader(memoryview(data)[:size])
            values = reader.root(MANIFEST)
            self.id = ObjectId12(values["id"])
            self._payload = Payload(data, size)
            self._locator = LocationReader(
                self._payload, values["compression_algorithm"], values["location_dictionary"]
            )
            # comparing few locations takes longer than reading them
            self._few = replace(self._locator, compares=False)
            self._unkept = {
                *reader.newer,
                *([MANIFEST.name] if values["extra"] is not None else []),
            }
            self._spans: dict[ObjectId8, Span] = {}
            left = size // 4
            for each in values["arrays"]:
                node, span = ObjectId8(each["node_id"]), each["refs"]
                left -= span.count
                if left < 0 or node in self._spans:
                    raise Damage("an array is listed twice, or its references are", span.start)
                self._spans[node] = span
                if each["extra"] is not None:
                    self._unkept.add(ARRAY_MANIFEST.name)
        self._indices: dict[ObjectId8, Index] = {}

    @property
    def num_chunk_refs(self) -> int:
        """References of all arrays together."""
        return sum(span.count for span in self._spans.values())

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return self._payload.size + sum(
            index.nbytes for index in self._indices.values() if index.flags.owndata
        )

    def decoded(self) -> Manifest:
        """Decode all references. Raises ``FormatError``."""
        found: dict[ObjectId8, ChunkTable] = {}
        unkept = set(self._unkept)
        with reading(_FILE):
            for node, span in self._spans.items():
                found[node], whole = read_table(self._locator, span)
                if not whole:
                    unkept.add(CHUNK_REF.name)
            return Manifest(id=self.id, arrays=found, unkept=tuple(sorted(unkept)))

    def compressed_locations(self) -> tuple[int | None, int]:
        """Return the bytes of the dictionary of locations, and how many references use it.

        Raises:
            FormatError: The manifest is damaged.
        """
        with reading(_FILE):
            refs = [
                Tables(self._payload, each, CHUNK_REF)
                for each in self._spans.values()
                if each.count
            ]
            found = [tables.vectors("compressed_location", 1) for tables in refs]
        used = sum(len(start) for _, start, _ in (each for each in found if each is not None))
        trained = self._locator.trained
        return None if trained is None else len(trained), used

    def find(self, node: ObjectId8, wanted: NDArray[np.int64]) -> tuple[Places, ChunkTable]:
        """Look chunks of an array up by their indices, shape (k, ndim).

        Returns:
            Which of the k were found, and a table with a row for each of those.

        Raises:
            FormatError: The references are not in order, or one that was found is damaged.
        """
        span = self._spans.get(node)
        if span is None or not span.count or not len(wanted):
            return np.zeros(0, np.int64), ChunkTable.empty(wanted.shape[1])
        with reading(_FILE):
            if node not in self._indices:
                self._indices[node] = _sorted_index(self._payload, span)
            row = _bisect(self._indices[node], wanted)
            there = np.flatnonzero(row >= 0)
            if not len(there):
                return there, ChunkTable.empty(wanted.shape[1])
            found = _in_order_of(row[there], lambda rows: read_rows(self._few, span, rows))
            if not np.array_equal(found.index, wanted[there]):
                raise Damage("a reference has another number of dimensions than the others", 0)
            return there, found


def _in_order_of(rows: Places, read: Callable[[Places], ChunkTable]) -> ChunkTable:
    """Return a table with these rows, of what ``read`` makes of them in order and each once."""
    if bool((rows[1:] > rows[:-1]).all()):
        return read(rows)
    distinct, number = np.unique(rows, return_inverse=True)
    return read(distinct).take(number)


def _sorted_index(payload: Payload, span: Span) -> Index:
    """Return the indices of all references, in ascending order. Raises ``Damage``."""
    index = None
    with suppress(Damage):  # of the first record, perhaps
        index = _in_records(payload, span)
    if index is None:
        index = Tables(payload, span, CHUNK_REF).coordinates("index")
        check_order(index)
    return index


def _in_records(payload: Payload, span: Span) -> Index | None:
    """Return the indices of records of one stride; None if they are others, or not in order.

    The first record is read as any table is. In the others, the numbers that lead to the index are
    those of the first: a record that can be read at all has its index where the first has it.
    """
    tables = payload.targets(range(span.start, span.start + 4 * span.count, 4))
    if not isinstance(tables, range):
        return None
    first = Tables(payload, Span(span.start, 1), CHUNK_REF)
    place, vector = first.places("index"), first.vectors("index", 4)
    assert place is not None
    assert vector is not None
    _, start, count = vector
    ndim = int(count[0])
    if 4 * span.count * ndim > payload.size:
        return None
    to_vtable = payload.numbers(tables, 4)
    vtable = moved(tables, -int(to_vtable[:1].view("<i4")[0]))
    leads = (
        to_vtable,
        payload.numbers(moved(vtable, 4 + 2 * CHUNK_REF.slots["index"]), 2),
        payload.numbers(moved(tables, int(place[0]) - tables[0]), 4),
    )
    index = payload.vectors(moved(tables, int(start[0]) - tables[0]), ndim)
    for low in range(0, span.count, _BLOCK):
        rows = slice(low, low + _BLOCK)
        if not all(bool((column[rows] == column[0]).all()) for column in leads):
            return None
        if not ascends(index[low : low + _BLOCK + 1]):
            return None
    return index


def _bisect(index: Index, wanted: NDArray[np.int64]) -> Places:
    """Return the row of each wanted index, shape (k, ndim); -1 where there is none."""
    if index.shape[1] != wanted.shape[1]:
        raise Damage("chunk indices have another number of dimensions than their array", 0)
    count = len(index)
    guess = _rows_of_full_box(index, wanted)
    if guess is not None and bool((index[guess] == wanted).all()):
        return guess
    before = np.zeros(len(wanted), np.int64)  # rows known to come before the wanted one
    for step in (1 << bit for bit in reversed(range(count.bit_length()))):
        further = before + step
        row = index[np.minimum(further, count) - 1]
        before = np.where((further <= count) & _precedes(row, wanted), further, before)
    at = np.minimum(before, count - 1)
    found: Places = np.where((index[at] == wanted).all(axis=1), at, -1)
    return found


def _rows_of_full_box(index: Index, wanted: NDArray[np.int64]) -> Places | None:
    """Return the rows if the references fill the box between the first and the last, else None."""
    low, size = index[0].astype(np.int64), index[-1].astype(np.int64) - index[0] + 1
    sides = size.tolist()
    if min(sides, default=1) < 1 or math.prod(sides) != len(index):
        return None
    row: Places = np.zeros(len(wanted), np.int64)
    for axis, side in enumerate(sides):
        row = row * side + np.clip(wanted[:, axis] - low[axis], 0, side - 1)
    return row


def _precedes(one: NDArray[np.integer], other: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Say of each row whether it comes before that of the other, in lexicographic order."""
    found = np.zeros(len(one), np.bool_)
    for axis in reversed(range(one.shape[1])):
        here, there = one[:, axis], other[:, axis]
        found = (here < there) | ((here == there) & found)
    return found
