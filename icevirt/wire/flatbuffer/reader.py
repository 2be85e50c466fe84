"""Read FlatBuffers by schema, checking every offset, count and string before use.

The schemas do not recurse, so depth is bounded. Sharing is bounded by a budget: bytes visited,
counted again at every visit, may not be much more than the file. Damage raises ``FormatError`` with
the file, the field and the position.

Vectors of tables are read column by column, one field of all rows at a time. If all rows share one
vtable, or all vtables agree, a field lies at one distance from every table; otherwise each row's
vtable is read. Numbers must lie at multiples of their size, as FlatBuffers requires and the
official reader verifies; so rows can be picked out of a payload viewed as an array of numbers.
Equally spaced positions are a ``range``: those need no index, and only their two ends are checked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.model.indices import ascends
from icevirt.model.strings import Bytes, Places, Strings, gather
from icevirt.wire.flatbuffer.schema import (
    BYTES,
    MAX_SHARING,
    Damage,
    Field,
    Kind,
    Scalar,
    Struct,
    Table,
    Text,
    Union,
    Values,
    Vector,
    inline_size,
)

_U16, _U32, _I32 = (struct.Struct(code) for code in ("<H", "<I", "<i"))
# rows cost more than their bytes, because each becomes a dict: many that share one are refused
# before the first is read
TABLE_COST = 80
ALWAYS_ALLOWED = 1 << 20


class Span:
    """A columnar vector that was not read: where its elements begin and how many there are."""

    __slots__ = ("count", "start")

    def __init__(self, start: int, count: int) -> None:
        self.start, self.count = start, count


@contextmanager
def reading(file: str) -> Iterator[None]:
    """Turn what goes wrong inside into a ``FormatError`` about this kind of file."""
    try:
        yield
    except Damage as damage:
        raise damage.as_error(file) from None
    except ValueError as error:  # values of the model refuse to exist wrongly
        raise Damage(str(error), 0).as_error(file) from error


def _reuse_error(at: int) -> Damage:
    return Damage("parts of the file are referenced too many times", at)


class FlatBufferReader:
    """Reads one FlatBuffer."""

    def __init__(self, payload: bytes | memoryview) -> None:
        self._raw = payload
        self._size = len(payload)
        self._budget = MAX_SHARING * self._size + ALWAYS_ALLOWED
        self.newer: set[str] = set()  # tables that hold fields of a newer schema

    def root(self, table: Table) -> Values:
        """Read the root table. Raises ``Damage``."""
        try:
            return self._table(table, self._target(0))
        except Damage as damage:
            damage.trail.append(table.name)
            raise

    def read_reference(self, table: Table, place: int) -> Values:
        """Read the table that the reference at ``place`` points to. Raises ``Damage``."""
        return self._table(table, self._target(place))

    # -- the ground: nothing below reads a byte that was not checked here --------------------------

    def _check(self, at: int, size: int) -> int:
        """Make sure that ``size`` bytes at ``at`` are in the file and paid for."""
        if at < 0 or at + size > self._size:
            raise Damage("something points outside the file", at)
        self._budget -= size
        if self._budget < 0:
            raise _reuse_error(at)
        return at

    def _u16(self, at: int) -> int:
        return int(_U16.unpack_from(self._raw, self._check(at, 2))[0])

    def _target(self, place: int) -> int:
        """Follow the reference at ``place``."""
        return place + int(_U32.unpack_from(self._raw, self._check(place, 4))[0])

    def _read_span(self, at: int, size: int) -> Span:
        """Return the elements of the vector at ``at``, all inside the file."""
        count = int(_U32.unpack_from(self._raw, self._check(at, 4))[0])
        self._check(at + 4, count * size)
        return Span(at + 4, count)

    # -- the kinds ---------------------------------------------------------------------------------

    def _table(self, table: Table, at: int) -> Values:
        vtable = self._check(at - int(_I32.unpack_from(self._raw, self._check(at, 4))[0]), 4)
        entries, size = self._u16(vtable), self._u16(vtable + 2)
        if entries < 4 or entries % 2 or size < 4:
            raise Damage("not a vtable", vtable)
        self._check(vtable, entries)
        self._check(at, size)
        if entries > table.vtable_size:
            self._look_beyond(table, vtable, entries)
        values: Values = {}
        for field, slot in table.places:
            try:
                values[field.name] = self._field(field, at, vtable + slot, slot < entries, size)
            except Damage as damage:
                damage.trail.append(field.name)
                raise
        return values

    def _look_beyond(self, table: Table, vtable: int, entries: int) -> None:
        """Note a table that stores fields which this schema has not."""
        if any(self._u16(vtable + slot) for slot in range(table.vtable_size, entries, 2)):
            self.newer.add(table.name)

    def _field(self, field: Field, table: int, entry: int, listed: bool, size: int) -> Any:
        offset = _U16.unpack_from(self._raw, entry)[0] if listed else 0
        kind = field.kind
        if not offset:
            if field.required:
                raise Damage("a required field is missing", table)
            if isinstance(kind, Scalar):
                return bool(field.default) if kind.code == "?" else field.default
            return None
        place = table + offset
        if offset < 4 or offset + inline_size(field)[0] > size:
            raise Damage("a field lies outside its table", place)
        if isinstance(kind, Union):
            return self._union(kind, table, entry - 2, place)
        return self._inside(kind, place)

    def _union(self, kind: Union, table: int, entry: int, place: int) -> tuple[int, Values]:
        type_at = _U16.unpack_from(self._raw, entry)[0]
        tag = self._raw[self._check(table + type_at, 1)] if type_at else 0
        if not 1 <= tag <= len(kind.members):
            raise Damage("this icevirt does not know a member of a union", place)
        return tag, self._table(kind.members[tag - 1], self._target(place))

    def _inside(self, kind: Kind, place: int) -> Any:
        """Read what a table or a vector of tables holds at ``place``: a value or a reference."""
        match kind:
            case Scalar(code=code):
                return struct.unpack_from("<" + code, self._raw, place)[0]
            case Struct(size=size):
                return bytes(self._raw[place : place + size])
            case Table():
                return self._table(kind, self._target(place))
            case Text():
                at = self._target(place)
                span = self._read_span(at, 1)
                try:
                    return bytes(self._raw[span.start : span.start + span.count]).decode()
                except UnicodeDecodeError:
                    raise Damage("a string is not UTF-8", at) from None
            case Vector():
                return self._vector(kind, self._target(place))
            case _:
                raise TypeError(kind)

    def _vector(self, kind: Vector, at: int) -> Any:
        element = kind.of
        if kind.columnar:
            return self._read_span(at, 4)
        if isinstance(element, Scalar | Struct):
            span = self._read_span(at, element.size)
            end = span.start + span.count * element.size
            if kind is BYTES:
                return bytes(self._raw[span.start : end])
            if isinstance(element, Scalar):
                code = f"<{span.count}{element.code}"
                return list(struct.unpack_from(code, self._raw, span.start))
            return [
                bytes(self._raw[p : p + element.size]) for p in range(span.start, end, element.size)
            ]
        span = self._read_span(at, 4)
        cost = span.count * TABLE_COST
        self._budget -= cost
        if self._budget < 0:
            raise _reuse_error(at)
        found = []
        for row in range(span.count):
            try:
                found.append(self._inside(element, span.start + 4 * row))
            except Damage as damage:
                damage.trail.append(f"[{row}]")
                raise
        return found


type Where = Places | range

_EMPTY = (4, 4)  # the vtable of a table without fields
_ROWS_AT_ONCE = 1 << 14
_ROWS_IN_CACHE = 1 << 13  # whose tables stay in the processor's cache
_DTYPES = {size: np.dtype(f"<u{size}") for size in (1, 2, 4, 8)}


class Tables:
    """Tables of one schema, a row each."""

    def __init__(self, payload: Payload, where: Span | Places, table: Table) -> None:
        """Check the tables of a vector, or at places of references. Raises ``Damage``."""
        slots: Where = (
            range(where.start, where.start + 4 * where.count, 4)
            if isinstance(where, Span)
            else where
        )
        self._payload = payload
        self._table = table
        self._at = payload.targets(slots)
        self._vtable = self._vtables()
        self._one: tuple[int, ...] | None = _EMPTY
        self._places: dict[str, Where | None] = {}
        if len(slots):
            self._read_sizes()

    def __len__(self) -> int:
        return len(self._at)

    def _vtables(self) -> Where:
        back = self._payload.numbers(self._at, 4).view("<i4")
        if len(back) and bool((back == back[0]).all()):
            return shift_places(self._at, -int(back[0]))
        return np.asarray(array(self._at) - back)

    def _read_sizes(self) -> None:
        """Check vtables and tables, and find out whether one vtable speaks for all rows."""
        vtable, read = self._vtable, self._payload.numbers
        shared = not isinstance(vtable, range) and bool((vtable == vtable[0]).all())
        if shared:
            vtable = array(vtable)[:1]
        self._entries = _condense(read(vtable, 2))
        self._size = _condense(read(shift_places(vtable, 2), 2))
        odd = np.bitwise_or.reduce(_one_or_all(self._entries), axis=None) & 1
        if odd or int(self._entries.min()) < 4 or int(self._size.min()) < 4:
            raise Damage("not a vtable", int(vtable[0]))
        self._payload.check(vtable, _one_or_all(self._entries))
        self._payload.check(self._at, _one_or_all(self._size))
        self._one = self._words(int(vtable[0])) if shared or self._all_equal() else None

    def _words(self, at: int) -> tuple[int, ...]:
        """Return the numbers of the vtable at ``at``."""
        end = at + int(self._entries[0]) // 2 * 2
        return tuple(int(word) for word in self._payload.numbers(range(at, end, 2), 2))

    def _all_equal(self) -> bool:
        entries, rows = int(self._entries[0]), range(0, len(self), _ROWS_IN_CACHE)
        if entries * len(self) > self._payload.size:
            return False  # they lie inside one another, which costs more than asking each row
        if not all(isinstance(_one_or_all(each), int) for each in (self._entries, self._size)):
            return False
        words = self._payload.vectors(shift_places(self._vtable, 4), entries // 2 - 2, size=2)
        parts = (np.ascontiguousarray(words[low : low + _ROWS_IN_CACHE].T) for low in rows)
        return all(bool((part == words[0][:, None]).all()) for part in parts)

    def places(self, name: str) -> Where | None:
        """Return where a field of every row stands, 0 where it is absent; None if it always is."""
        if name not in self._places:
            field, slot = self._table.by_name[name], self._table.slots[name]
            size, _ = inline_size(field)
            found = self._common(slot, size) if self._one is not None else self._each(slot, size)
            if field.required and len(self) and (found is None or 0 in found):
                raise Damage(f"the required field {name} is missing", int(self._at[0]))
            self._places[name] = found
        return self._places[name]

    def _common(self, slot: int, size: int) -> Where | None:
        assert self._one is not None
        offset = self._one[slot + 2] if slot + 2 < len(self._one) else 0
        if offset == 0:
            return None
        if offset < 4 or offset + size > self._one[1]:
            raise Damage("a field lies outside its table", int(self._at[0]))
        return shift_places(self._at, offset)

    def _each(self, slot: int, size: int) -> Where | None:
        listed = self._entries >= 2 * (slot + 3)
        vtable = array(self._vtable)
        entry = self._payload.numbers(np.where(listed, vtable + 4 + 2 * slot, vtable), 2)
        offset = np.where(listed, entry, 0).astype(np.int64)
        present = offset != 0
        if bool((present & ((offset < 4) | (offset + size > self._size))).any()):
            raise Damage("a field lies outside its table", int(self._at[0]))
        return np.where(present, array(self._at) + offset, 0) if present.any() else None

    def tags(self, name: str) -> NDArray[np.unsignedinteger]:
        """Return which member of its union each row has, 0 for none."""
        slot = self._table.slots[name] - 1
        found = self._common(slot, 1) if self._one is not None else self._each(slot, 1)
        if found is None:
            return np.zeros(len(self), np.uint8)
        present = np.array([True]) if isinstance(found, range) else found != 0
        return np.where(present, self._payload.numbers(found, 1), 0)

    def stores_from(self, slot: int) -> bool:
        """Say whether any row stores something in this slot or one that comes after it."""
        known = 4 + 2 * slot
        if not len(self):
            return False
        if self._one is not None:
            return any(self._one[known // 2 :])
        long = np.flatnonzero(self._entries > known)
        vtable, row = np.unique(array(self._vtable)[long], return_index=True)
        count = self._entries[long][row] - known
        if int(count.sum()) > self._payload.size:
            return True  # vtables inside one another: no writer that we know makes them
        return bool(gather(self._payload.bytes, vtable + known, count)[0].any())

    def look_beyond(self, newer: set[str]) -> None:
        """Add the table's name to ``newer`` if a row stores fields that its schema has not."""
        if self.stores_from(self._table.vtable_size // 2 - 2):
            newer.add(self._table.name)

    # -- columns -----------------------------------------------------------------------------------

    def numbers(self, name: str, size: int) -> NDArray[np.unsignedinteger]:
        """Return a field of unsigned numbers whose default is 0."""
        places = self.places(name)
        if places is None:
            return np.zeros(len(self), f"<u{size}")
        if self._one is not None:
            return self._payload.numbers(places, size)
        values = self._payload.numbers(array(places), size)  # at 0 where it is absent
        values[array(places) == 0] = 0
        return values

    def vectors(self, name: str, size: int) -> tuple[Places | None, Where, Places] | None:
        """Return rows that have this vector of elements of ``size`` bytes, their starts and counts.

        Rows are None where all have it; all is None where no row does.
        """
        places = self.places(name)
        if places is None:
            return None
        rows = None if self._one is not None else np.flatnonzero(array(places))
        if rows is not None and len(rows) != len(self):
            places = array(places)[rows]
        at = self._payload.targets(places)
        count = _condense(self._payload.numbers(at, 4))
        start = shift_places(at, 4)
        self._payload.check(start, _one_or_all(count) * size)
        return rows, start, count

    def spans(self, name: str, size: int) -> tuple[Places, Places]:
        """Return where this vector of each row starts and how many elements it has; or 0 and 0."""
        starts, counts = np.zeros((2, len(self)), np.int64)
        if (found := self.vectors(name, size)) is not None:
            rows, start, count = found
            if rows is None:
                return array(start), count
            starts[rows], counts[rows] = array(start), count
        return starts, counts

    def structs(self, name: str) -> Bytes:
        """Return a required field of bytes of one size, shape (n, size)."""
        places = self.places(name)
        assert places is not None
        size, _ = inline_size(self._table.by_name[name])
        found: Bytes = self._payload.bytes[array(places)[:, None] + np.arange(size)]
        return found

    def coordinates(self, name: str) -> NDArray[np.uint32]:
        """Return a required vector of u32 that is equally long in every row, shape (n, ndim)."""
        found = self.vectors(name, 4)
        if found is None:
            return np.zeros((0, 0), np.uint32)
        _, start, count = found
        ndim = int(count[0])
        if bool((count != ndim).any()):
            raise Damage("chunk indices of one array differ in length", int(start[0]))
        if len(self) * ndim * 4 > self._payload.size:
            raise Damage("chunk indices of one array overlap", int(start[0]))
        return self._payload.vectors(start, ndim)

    def coordinates_by_run(self, name: str, counts: Places) -> list[NDArray[np.uint32]]:
        """Return `coordinates` of each run of so many rows; runs may differ in their length."""
        found = self.vectors(name, 4)
        assert found is not None
        _, start, ndim = found
        of_run = ndim[np.cumsum(counts) - counts]
        if bool((ndim != np.repeat(of_run, counts)).any()):
            raise Damage("chunk indices of one array differ in length", int(start[0]))
        if int(ndim.sum()) * 4 > self._payload.size:
            raise Damage("chunk indices of one array overlap", int(start[0]))
        data, _ = gather(self._payload.bytes, array(start), 4 * ndim)
        runs = np.split(data.view("<u4").astype(np.uint32), np.cumsum(counts * of_run)[:-1])
        shapes = zip(counts.tolist(), of_run.tolist(), strict=True)
        return [run.reshape(shape) for run, shape in zip(runs, shapes, strict=True)]


class Payload:
    """A FlatBuffer that numbers and bytes can be fetched from; all of it checked."""

    def __init__(self, raw: bytes | Bytes, size: int | None = None) -> None:
        """Take over a FlatBuffer; what follows its ``size`` are zeros up to a whole word."""
        data = np.frombuffer(raw, np.uint8)
        self.size = len(data) if size is None else size
        self.bytes: Bytes = data[: self.size]
        # for those who read whole words of a string
        self.padded = data if len(data) % 4 == 0 else np.pad(data, (0, -len(data) % 4))
        self._views: dict[int, NDArray[np.unsignedinteger]] = {
            size: self.bytes[: self.size // size * size].view(dtype)
            for size, dtype in _DTYPES.items()
        }

    def numbers(self, at: Where, size: int) -> NDArray[np.unsignedinteger]:
        """Return the unsigned numbers of ``size`` bytes at the places ``at``."""
        self.check(at, size)
        self._check_aligned(at, size)
        if isinstance(at, range):
            if not at:
                return np.zeros(0, _DTYPES[size])
            return np.ndarray((len(at),), _DTYPES[size], self.bytes, at.start, (at.step,))
        return np.asarray(self._views[size][at >> (size.bit_length() - 1)])

    def vectors(self, at: Where, count: int, *, size: int = 4) -> NDArray[np.unsignedinteger]:
        """Return ``count`` numbers of ``size`` bytes at each place, shape (n, count).

        Places that are a range are not copied.
        """
        self.check(at, size * count)
        self._check_aligned(at, size)
        dtype = _DTYPES[size]
        if isinstance(at, range):
            shape, strides = (len(at), count), (at.step, size)
            if not len(at):
                return np.zeros(shape, dtype)
            return np.ndarray(shape, dtype, self.bytes, at.start, strides)
        shift = size.bit_length() - 1
        return np.asarray(self._views[size][(at >> shift)[:, None] + np.arange(count)])

    def check(self, at: Where, size: int | Places) -> None:
        """Make sure that ``size`` bytes at each place are in the file."""
        if not len(at):
            return
        if isinstance(at, range) and isinstance(size, int):
            low, high = min(at[0], at[-1]), max(at[0], at[-1]) + size
        else:
            places = array(at)
            low, high = int(places.min()), int((places + size).max())
        if low < 0 or high > self.size:
            raise Damage("something points outside the file", low if low < 0 else high)

    def _check_aligned(self, at: Where, size: int) -> None:
        if not len(at):
            return
        if isinstance(at, range):
            odd = at.start % size or (len(at) > 1 and at.step % size)
        else:
            odd = size > 1 and int(np.bitwise_or.reduce(at, axis=None)) & (size - 1)
        if odd:
            raise Damage("a number is not aligned", int(at[0]))

    def targets(self, places: Where) -> Where:
        """Follow the references at ``places``."""
        distance = self.numbers(places, 4)
        if isinstance(places, range) and len(places) > 1 and bool((distance == distance[0]).all()):
            return shift_places(places, int(distance[0]))
        found = np.empty(len(places), np.int64)
        for low in range(0, len(places), _ROWS_AT_ONCE):
            rows = slice(low, low + _ROWS_AT_ONCE)
            np.add(array(places[rows]), distance[rows], out=found[rows])
        return condense(found)


def shift_places(at: Where, by: int) -> Where:
    """Return all places ``by`` bytes further on."""
    if isinstance(at, range):
        return range(at.start + by, at.stop + by, at.step)
    return at + by


def array(at: Where) -> Places:
    """Return the places as an array."""
    if isinstance(at, range):
        return np.arange(at.start, at.stop, at.step, dtype=np.int64)
    return at


def condense(at: Places) -> Where:
    """Return a range if the places are one."""
    if len(at) < 2 or (step := int(at[1] - at[0])) == 0:
        return at
    even = range(int(at[0]), int(at[0]) + step * len(at), step)
    # the last one rules out most other cases without a look at every place
    return even if at[-1] == even[-1] and bool((np.diff(at) == step).all()) else at


def _condense(column: NDArray[np.unsignedinteger]) -> Places:
    """Return a column as whole numbers; where all are the same, one of them stands for all."""
    if len(column) and bool((column == column[0]).all()):
        same = np.ndarray((len(column),), np.int64, column[:1].astype(np.int64), 0, (0,))
        same.flags.writeable = False
        return same
    return column.astype(np.int64)


def _one_or_all(column: Places) -> Places | int:
    """Return the number that all of a condensed column are, or the column."""
    return int(column[0]) if len(column) == 1 or not column.strides[0] else column


def text(data: Bytes, starts: Places) -> Strings:
    """Return strings after a check that each is UTF-8 by itself. Raises ``Damage``."""
    if int(data.max(initial=0)) < 0x80:
        return Strings(data, starts)
    try:
        data.tobytes().decode()
    except UnicodeDecodeError as error:
        raise Damage("a string is not UTF-8", error.start) from None
    begins = starts[:-1][np.diff(starts) > 0]
    if bool((data[begins] & 0xC0 == 0x80).any()):  # a character cut in two
        raise Damage("a string is not UTF-8", 0)
    return Strings(data, starts)


def check_order(index: NDArray[np.uint32]) -> None:
    """Make sure that bisection finds every reference, given by its index. Raises ``Damage``."""
    if not ascends(index):
        raise Damage("references are not in ascending order of their index", 0)
