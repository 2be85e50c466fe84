"""Write tables as FlatBuffers, front to back: a table, then what it refers to.

References of FlatBuffers point forward, so this order needs no second pass. Columnar vectors are
left open: their positions are returned, and the owner of the columns appends and links them. The
layout of a table depends only on which fields are present, so records of one kind share it, also
those that numpy writes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any

from icevirt.wire.flatbuffer.schema import (
    OFFSET,
    U8,
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

FILE_IDENTIFIER = b"Ichk"
_U32 = struct.Struct("<I")
_FORMS = 512  # sets of fields that are remembered


def build(table: Table, values: Values) -> bytes:
    """Return the FlatBuffer whose root is ``table`` with these values."""
    return bytes(Builder().root(table, values).out)


class Builder:
    """Grows one FlatBuffer."""

    def __init__(self) -> None:
        self.out = bytearray(4) + FILE_IDENTIFIER
        self.open: list[tuple[int, Any]] = []  # (place of a reference, its columnar value)
        self._vtables: dict[bytes, int] = {}

    def root(self, table: Table, values: Values) -> Builder:
        """Write the root table and everything below it."""
        self.link(0, self.table(table, values))
        return self

    def root_field(self, table: Table, name: str) -> int:
        """Return where a field of the root table stands, which must have been written."""
        (start,) = struct.unpack_from("<I", self.out, 0)
        (back,) = struct.unpack_from("<i", self.out, start)
        entry = start - back + 4 + 2 * table.slots[name]
        return int(start + struct.unpack_from("<H", self.out, entry)[0])

    def align(self, to: int) -> int:
        """Pad to a multiple of ``to``; return the end."""
        if padding := -len(self.out) % to:
            self.out += bytes(padding)
        return len(self.out)

    def link(self, place: int, target: int) -> None:
        """Make the reference at ``place`` point to ``target``."""
        _U32.pack_into(self.out, place, target - place)

    def table(self, table: Table, values: Values) -> int:
        """Write a table and everything below it; return where it stands."""
        stored = _stored(table, values)
        form = _packed(table, tuple(stored))
        vtable = self._vtable(form.vtable)
        start = self.align(form.align)
        inside: list[Any] = []
        for name, size in form.inside:
            value = stored[name]
            if size is None:
                inside.append(value)
            elif size:
                inside.append(_exactly(value, size))
            else:
                inside.append(value[0])  # the tag of a union
        self.out += form.packed.pack(start - vtable, *inside)
        for name, at, write in form.outside:
            write(self, start + at, stored[name])
        return start

    def _vtable(self, raw: bytes) -> int:
        """Return the position of this vtable, written once per file."""
        found = self._vtables.get(raw)
        if found is None:
            found = self._vtables[raw] = self.align(2)
            self.out += raw
        return found

    def counted(self, raw: bytes | memoryview, size: int, align: int = 4) -> int:
        """Write a count of elements of ``size`` bytes and the elements; return where."""
        out = self.out
        if padding := -(len(out) + 4) % max(4, align):
            out += bytes(padding)
        start = len(out)
        out += _U32.pack(len(raw) // size)
        out += raw
        return start


# -- what references lead to ----------------------------------------------------------------------

type _Write = Callable[[Builder, int, Any], None]
"""Writes a value behind everything, and links it to the reference at a place."""


def _write_of(kind: Kind) -> _Write:
    """Return what writes values of a kind, which is looked at once and not for each value."""
    if isinstance(kind, Union):
        members = [_write_of(member) for member in kind.members]
        return lambda to, place, value: members[value[0] - 1](to, place, value[1])
    if isinstance(kind, Table):
        return lambda to, place, value: to.link(place, to.table(kind, value))
    if isinstance(kind, Text):
        return _write_text
    if isinstance(kind, Vector):
        return _write_of_vector(kind)
    raise TypeError(kind)


def _write_of_vector(kind: Vector) -> _Write:
    if kind.columnar:
        return lambda to, place, value: to.open.append((place, value))
    element = kind.of
    if element is U8:
        return lambda to, place, value: to.link(place, to.counted(memoryview(bytes(value)), 1))
    if isinstance(element, Scalar):
        return partial(_write_scalars, element)
    if isinstance(element, Struct):
        return partial(_write_structs, element)
    return partial(_write_items, _write_of(element))


def _write_text(to: Builder, place: int, value: str) -> None:
    to.link(place, to.counted(value.encode(), 1))
    to.out += b"\0"


def _write_scalars(element: Scalar, to: Builder, place: int, value: Sequence[Any]) -> None:
    raw = struct.pack(f"<{len(value)}{element.code}", *value)
    to.link(place, to.counted(raw, element.size, element.size))


def _write_structs(element: Struct, to: Builder, place: int, value: Sequence[bytes]) -> None:
    raw = b"".join([_exactly(item, element.size) for item in value])
    to.link(place, to.counted(raw, element.size, element.align))


def _write_items(write: _Write, to: Builder, place: int, value: Sequence[Any]) -> None:
    start = to.counted(bytes(4 * len(value)), 4)
    to.link(place, start)
    for at, item in enumerate(value):
        write(to, start + 4 + 4 * at, item)


# -- what stands in a table -----------------------------------------------------------------------


@cache
def _rules(table: Table) -> list[tuple[str, int | None, bool]]:
    """Return the fields: name, default of a scalar, whether it must be there."""
    return [
        (field.name, field.default, False)
        if isinstance(field.kind, Scalar)
        else (field.name, None, field.required)
        for field in table.fields
    ]


def _stored(table: Table, values: Values) -> Values:
    """Return the fields that are written: scalars unless at their default, others unless None."""
    found = {}
    for name, default, is_required in _rules(table):
        value = values.get(name)
        if value is None:
            if is_required:
                raise ValueError(f"{table.name}.{name} is required")
        elif default is None or int(value) != default:
            found[name] = value
    return found


def _exactly(value: bytes, size: int) -> bytes:
    if len(value) != size:
        raise ValueError(f"a struct of {size} bytes, not {len(value)}")
    return value


@dataclass(frozen=True, slots=True)
class _PackedTable:
    """How tables with the same fields are written."""

    vtable: bytes
    align: int
    packed: struct.Struct  # the whole table: distance of the vtable, `inside`, and zeros
    inside: tuple[tuple[str, int | None], ...]  # (field, size of a struct, 0 of a tag), as packed
    outside: tuple[tuple[str, int, _Write], ...]  # references: field, where it stands


@lru_cache(_FORMS)
def _packed(table: Table, present: tuple[str, ...]) -> _PackedTable:
    shape = layout(table, frozenset(present))
    inside: list[tuple[int, int, str, str, int | None]] = []
    outside = []
    for name in present:
        kind, at = table.by_name[name].kind, shape.at[name]
        if isinstance(kind, Scalar):
            inside.append((at, kind.size, kind.code, name, None))
        elif isinstance(kind, Struct):
            inside.append((at, kind.size, f"{kind.size}s", name, kind.size))
        else:
            if isinstance(kind, Union):
                inside.append((shape.at[name + "_type"], 1, "B", name, 0))
            outside.append((name, at, _write_of(kind)))
    code, end = "<i", OFFSET
    for at, size, each, _, _ in sorted(inside):
        code += f"{at - end}x{each}"
        end = at + size
    return _PackedTable(
        shape.vtable,
        shape.align,
        struct.Struct(f"{code}{shape.size - end}x"),
        tuple((name, size) for _, _, _, name, size in sorted(inside)),
        tuple(outside),
    )


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The inside of a table with a given set of fields."""

    vtable: bytes
    size: int
    align: int
    at: dict[str, int]  # byte offset of each present field; a union also has "<name>_type"


@cache
def layout(table: Table, present: frozenset[str]) -> TableLayout:
    """Lay out a table: widest fields first, as far as they are aligned to their own size."""
    parts = list(_parts(table, present))
    at: dict[str, int] = {}
    end = OFFSET  # the signed offset to the vtable comes first
    left = sorted(parts, key=lambda part: -part[3])
    while left:
        # a narrow field goes into the gap before a wide one
        fitting = next((part for part in left if end % part[3] == 0), left[0])
        left.remove(fitting)
        name, _, size, align = fitting
        at[name] = end + -end % align
        end = at[name] + size
    slots = {slot: at[name] for name, slot, _, _ in parts}
    count = max(slots, default=-1) + 1
    entries = (slots.get(slot, 0) for slot in range(count))
    vtable = struct.pack(f"<{count + 2}H", 2 * (count + 2), end, *entries)
    return TableLayout(vtable, end, max([OFFSET, *(part[3] for part in parts)]), at)


def _parts(table: Table, present: frozenset[str]) -> Iterable[tuple[str, int, int, int]]:
    """Yield (name, slot, size, alignment) of what the present fields store inside the table."""
    for field in table.fields:
        if field.name in present:
            slot = table.slots[field.name]
            if isinstance(field.kind, Union):
                yield field.name + "_type", slot - 1, 1, 1
            yield field.name, slot, *inline_size(field)
