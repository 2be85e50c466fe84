"""Read FlatBuffers by schema, checking every offset, count and string before use.

The schemas do not recurse, so depth is bounded. Sharing is bounded by a budget: bytes visited,
counted again at every visit, may not be much more than the file. Damage raises ``FormatError`` with
the file, the field and the position.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from icevirt.errors import FormatError
from icevirt.wire.flatbuffer.schema import (
    BYTES,
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

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")

# A builder may share equal strings and vtables; a file visited many times over is an attack.
# Rows cost more than their bytes, because each becomes a dict: many that share one are refused
# before the first is read.
MAX_SHARING = 16
TABLE_COST = 80
ALWAYS_ALLOWED = 1 << 20


@dataclass(frozen=True, slots=True)
class Span:
    """A columnar vector that was not read: where its elements begin and how many there are."""

    start: int
    count: int

    def __init__(self, start: int, count: int) -> None:  # of every vector of each file
        object.__setattr__(self, "start", start)
        object.__setattr__(self, "count", count)


class Damage(Exception):  # noqa: N818 - it never leaves the package, see ``reading``
    """Something in the file cannot be; the fields passed on the way out are collected."""

    def __init__(self, what: str, at: int) -> None:
        super().__init__(what)
        self.what = what
        self.at = at
        self.trail: list[str] = []

    def as_error(self, file: str) -> FormatError:
        """Return the error for the user."""
        field = ".".join(reversed(self.trail)).replace(".[", "[")
        return FormatError(
            self.what,
            do="The file is damaged or was not written by an Icechunk client: restore it from a"
            " copy of the repository.",
            file=file,
            **({"field": field, "at": self.at} if field or self.at else {}),
        )


@contextmanager
def reading(file: str) -> Iterator[None]:
    """Turn what goes wrong inside into a ``FormatError`` about this kind of file."""
    try:
        yield
    except Damage as damage:
        raise damage.as_error(file) from None
    except ValueError as error:  # values of the model refuse to exist wrongly
        raise Damage(str(error), 0).as_error(file) from error


def _overused(at: int) -> Damage:
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

    def referred(self, table: Table, place: int) -> Values:
        """Read the table that the reference at ``place`` points to. Raises ``Damage``."""
        return self._table(table, self._target(place))

    # -- the ground: nothing below reads a byte that was not checked here --------------------------

    def _check(self, at: int, size: int) -> int:
        """Make sure that ``size`` bytes at ``at`` are in the file and paid for."""
        if at < 0 or at + size > self._size:
            raise Damage("something points outside the file", at)
        self._budget -= size
        if self._budget < 0:
            raise _overused(at)
        return at

    def _pay(self, cost: int, at: int) -> None:
        self._budget -= cost
        if self._budget < 0:
            raise _overused(at)

    def _u16(self, at: int) -> int:
        return int(_U16.unpack_from(self._raw, self._check(at, 2))[0])

    def _target(self, place: int) -> int:
        """Follow the reference at ``place``."""
        return place + int(_U32.unpack_from(self._raw, self._check(place, 4))[0])

    def _counted(self, at: int, size: int) -> Span:
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
                return self._text(self._target(place))
            case Vector():
                return self._vector(kind, self._target(place))
            case _:
                raise TypeError(kind)

    def _text(self, at: int) -> str:
        span = self._counted(at, 1)
        try:
            return bytes(self._raw[span.start : span.start + span.count]).decode()
        except UnicodeDecodeError:
            raise Damage("a string is not UTF-8", at) from None

    def _vector(self, kind: Vector, at: int) -> Any:
        element = kind.of
        if kind.columnar:
            return self._counted(at, 4)
        if isinstance(element, Scalar | Struct):
            span = self._counted(at, element.size)
            end = span.start + span.count * element.size
            if kind is BYTES:
                return bytes(self._raw[span.start : end])
            if isinstance(element, Scalar):
                code = f"<{span.count}{element.code}"
                return list(struct.unpack_from(code, self._raw, span.start))
            return [
                bytes(self._raw[p : p + element.size]) for p in range(span.start, end, element.size)
            ]
        span = self._counted(at, 4)
        self._pay(span.count * TABLE_COST, at)
        found = []
        for row in range(span.count):
            try:
                found.append(self._inside(element, span.start + 4 * row))
            except Damage as damage:
                damage.trail.append(f"[{row}]")
                raise
        return found
