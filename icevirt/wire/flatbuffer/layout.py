"""Compute where the fields of a table lie: its vtable and the offsets inside it.

A layout depends only on which fields are present, so records of one kind share it; the builder of
small files and the numpy writers of large ones both take theirs from here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from icevirt.wire.flatbuffer.schema import Field, Scalar, Struct, Table, Union

OFFSET = 4  # bytes of a reference to something outside the table


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


@cache
def inline_size(field: Field) -> tuple[int, int]:
    """Return the bytes a field takes inside its table, and their alignment."""
    kind = field.kind
    if isinstance(kind, Struct):
        return kind.size, kind.align
    if isinstance(kind, Scalar):
        return kind.size, kind.size
    return OFFSET, OFFSET


def _parts(table: Table, present: frozenset[str]) -> Iterable[tuple[str, int, int, int]]:
    """Yield (name, slot, size, alignment) of what the present fields store inside the table."""
    for field in table.fields:
        if field.name in present:
            slot = table.slots[field.name]
            if isinstance(field.kind, Union):
                yield field.name + "_type", slot - 1, 1, 1
            yield field.name, slot, *inline_size(field)
