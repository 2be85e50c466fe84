"""Find references of one array by their indices, in the decompressed bytes of their manifest.

References are ordered by index, so bisection finds one in few steps. What it found shows its own
index, so it is right even where other references are out of order. Only the answer that a chunk is
not there needs the order of all references, which is checked once, before the first such answer.

The references of one kind that icevirt writes are records of one stride. Their indices are read
where they stand. References of other layouts, as the official client writes them, are followed, and
once the order is to be checked their indices are copied.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from icevirt.model.indices import ascends
from icevirt.model.strings import Places
from icevirt.wire.flatbuffer.reader import Payload, Span, Tables, array, check_order, shift_places
from icevirt.wire.flatbuffer.schema import CHUNK_REF, Damage

type Index = NDArray[np.uint32]
type Fetch = Callable[[Places], Index]
"""Returns the indices of rows, shape (k, ndim)."""

_BLOCK = 1 << 13  # records that stay in the processor's cache
# what a lookup without the check costs beyond one after it, in references whose order is checked
_LOOKUP = 5_000
_FOLLOWED = 2_000  # and each time that references are followed
_SAMPLE = 16  # tables that show whether others may be records of one stride


class IndexSearch:
    """Where to find the references of one array, of which there is at least one. Safe in threads.

    Raises:
        Damage: From every method.
    """

    def __init__(self, payload: Payload, span: Span) -> None:
        self._payload = payload
        self._span = span
        self._ordered: _Ordered | None = None
        self._likely: _Ordered | None = None
        self._left = span.count  # to be spent on lookups without the check

    @property
    def is_proven(self) -> bool:
        """Whether the order of all references was checked."""
        return self._ordered is not None

    @property
    def nbytes(self) -> int:
        """Memory held beside the payload."""
        return 0 if self._ordered is None else self._ordered.nbytes

    def likely_rows(self, wanted: NDArray[np.int64]) -> Places | None:
        """Return rows that should have the indices wanted, shape (k, ndim); None if one has not.

        The indices of the rows remain to be compared when they are decoded. Also None when such
        lookups have cost as much as checking the order.
        """
        self._left -= _LOOKUP
        if self._left < 0:
            return None
        if self._likely is None:
            self._likely = self._without_proof()
        return self._likely.rows_in_order(wanted)

    def rows(self, wanted: NDArray[np.int64]) -> Places:
        """Return the row of each index wanted, shape (k, ndim); -1 where there is none."""
        if self._ordered is None:
            index = _read_sorted(self._payload, self._span)
            self._ordered = _Ordered(
                index.__getitem__, len(index), index.nbytes * index.flags.owndata
            )
        return self._ordered.rows(wanted)

    def _without_proof(self) -> _Ordered:
        """Return what is right if references are in order, and records where they are all alike."""
        payload, span = self._payload, self._span
        records = _records(payload, span)
        if records is None:
            return _Ordered(self._follow, span.count)
        return _Ordered(_RecordIndex(payload, span, records).index.__getitem__, span.count)

    def _follow(self, rows: Places) -> Index:
        self._left -= _FOLLOWED
        return Tables(self._payload, self._span.start + 4 * rows, CHUNK_REF).coordinates("index")


def _read_sorted(payload: Payload, span: Span) -> Index:
    """Return the indices of all references, in ascending order. Raises ``Damage``."""
    with suppress(Damage):  # of the first record, perhaps
        records = _records(payload, span)
        if records is not None and (found := _RecordIndex(payload, span, records)).is_sorted():
            return found.index
    index = Tables(payload, span, CHUNK_REF).coordinates("index")
    check_order(index)
    return index


def _records(payload: Payload, span: Span) -> range | None:
    """Return where the tables stand if they are records of one stride, judged by a few of them."""
    rows = np.linspace(0, span.count - 1, _SAMPLE).astype(np.int64)
    at = array(payload.targets(span.start + 4 * rows))
    stride = int(at[-1] - at[0]) // max(span.count - 1, 1) or 4
    if stride < 0 or bool((at != at[0] + stride * rows).any()):
        return None
    return range(int(at[0]), int(at[0]) + stride * span.count, stride)


class _RecordIndex:
    """The indices of records of one stride, where they stand.

    The first record is read as any table is. In the others, the numbers that lead to the index
    should be those of the first.
    """

    def __init__(self, payload: Payload, span: Span, records: range) -> None:
        first = Tables(payload, Span(span.start, 1), CHUNK_REF)
        place, vector = first.places("index"), first.vectors("index", 4)
        assert place is not None
        assert vector is not None
        _, start, count = vector
        ndim = int(count[0])
        if 4 * span.count * ndim > payload.size:
            raise Damage("chunk indices of one array overlap", int(start[0]))
        self._payload = payload
        self._slots = range(span.start, span.start + 4 * span.count, 4)
        self._records = records
        self._field = int(place[0]) - records.start
        self.index: Index = payload.vectors(
            shift_places(records, int(start[0]) - records.start), ndim
        )

    def is_sorted(self) -> bool:
        """Say whether all have their index where the first has it, and all are in order.

        A record that can be read at all then has its index there.
        """
        numbers, records = self._payload.numbers, self._records
        to_vtable = numbers(records, 4)
        vtable = shift_places(records, -int(to_vtable[:1].view("<i4")[0]))
        leads = (
            to_vtable,
            numbers(shift_places(vtable, 4 + 2 * CHUNK_REF.slots["index"]), 2),
            numbers(shift_places(records, self._field), 4),
        )
        distance = numbers(self._slots, 4)
        steps = np.arange(_BLOCK) * (records.step - 4)
        for low in range(0, len(records), _BLOCK):
            rows = slice(low, low + _BLOCK)
            expected = steps[: len(records) - low] + (records[low] - self._slots[low])
            is_regular = np.array_equal(distance[rows], expected) and all(
                bool((column[rows] == column[0]).all()) for column in leads
            )
            if not is_regular or not ascends(self.index[low : low + _BLOCK + 1]):
                return False
        return True


class _Ordered:
    """Indices in ascending order, at least one."""

    def __init__(self, fetch: Fetch, count: int, nbytes: int = 0) -> None:
        self.nbytes = nbytes
        self._fetch = fetch
        self._last = count - 1
        ends = fetch(np.array([0, count - 1])).astype(np.int64)
        low, sides = ends[0], ends[1] - ends[0] + 1
        self._ndim = len(low)
        self._box = None
        if min(sides.tolist(), default=1) > 0 and math.prod(sides.tolist()) == count:
            strides = [math.prod(sides[axis + 1 :].tolist()) for axis in range(len(sides))]
            self._box = low, sides - 1, np.array(strides, np.int64)

    def _at(self, rows: Places) -> Index:
        found = self._fetch(rows)
        if found.shape[1] != self._ndim:
            raise Damage("chunk indices of one array differ in length", 0)
        return found

    def rows(self, wanted: NDArray[np.int64]) -> Places:
        """Return the row of each index wanted, shape (k, ndim); -1 where there is none."""
        if wanted.shape[1] != self._ndim:
            raise Damage("chunk indices have another number of dimensions than their array", 0)
        if self._box is not None:
            low, most, strides = self._box
            found: Places = np.minimum(np.maximum(wanted - low, 0), most) @ strides
            guess = found
            if bool((self._at(guess) == wanted).all()):
                return guess
        return self._bisect(wanted)

    def rows_in_order(self, wanted: NDArray[np.int64]) -> Places | None:
        """Return the rows if there are all, and if those beside each precede and follow it."""
        row = self.rows(wanted)
        beside = np.concatenate([np.maximum(row - 1, 0), np.minimum(row + 1, self._last)])
        before, after = np.split(self._at(beside), 2)
        in_order = ((row == 0) | _precedes(before, wanted)) & (
            (row == self._last) | _precedes(wanted, after)
        )
        return row if bool((in_order & (row >= 0)).all()) else None

    def _bisect(self, wanted: NDArray[np.int64]) -> Places:
        count = self._last + 1
        before = np.zeros(len(wanted), np.int64)  # rows known to come before the wanted one
        for step in (1 << bit for bit in reversed(range(count.bit_length()))):
            further = before + step
            row = self._at(np.minimum(further, count) - 1)
            before = np.where((further <= count) & _precedes(row, wanted), further, before)
        at = np.minimum(before, self._last)
        found: Places = np.where((self._at(at) == wanted).all(axis=1), at, -1)
        return found


def _precedes(one: NDArray[np.integer], other: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Say of each row whether it comes before that of the other, in lexicographic order."""
    found = np.zeros(len(one), np.bool_)
    for axis in reversed(range(one.shape[1])):
        here, there = one[:, axis], other[:, axis]
        found = (here < there) | ((here == there) & found)
    return found
