"""Write tables as FlatBuffers, front to back: a table, then what it refers to.

References of FlatBuffers point forward, so this order needs no second pass. The layout of a table
depends only on which fields are present, so records of one kind share it. Columnar vectors are left
open: their positions are returned, and the owner of the columns appends and links them.

These vectors are records of one stride: a vtable, a table and its vector of coordinates. Each
record carries its own copy of the vtable: the distance to it is then constant, and zstd makes that
smaller than a shared vtable would be. Sizes are known before bytes are made, so bytes are made
block by block while the file is compressed: the file never exists uncompressed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import InvalidInputError
from icevirt.model.strings import Bytes, Places, Strings, copy_ranges
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
from icevirt.wire.header import MAX_PAYLOAD

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
        stored = _select_stored(table, values)
        form = _pack(table, tuple(stored))
        found = self._vtables.get(form.vtable)
        if found is None:
            found = self._vtables[form.vtable] = self.align(2)
            self.out += form.vtable
        vtable = found
        start = self.align(form.align)
        inside: list[Any] = []
        for name, size in form.inside:
            value = stored[name]
            if size is not None:
                value = _exactly(value, size) if size else value[0]  # the tag of a union
            inside.append(value)
        self.out += form.packed.pack(start - vtable, *inside)
        for name, at, write in form.outside:
            write(self, start + at, stored[name])
        return start

    def write_counted(self, raw: bytes | memoryview, size: int, align: int = 4) -> int:
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
        return lambda to, place, value: to.link(
            place, to.write_counted(memoryview(bytes(value)), 1)
        )
    if isinstance(element, Scalar):
        return partial(_write_scalars, element)
    if isinstance(element, Struct):
        return partial(_write_structs, element)
    return partial(_write_items, _write_of(element))


def _write_text(to: Builder, place: int, value: str) -> None:
    to.link(place, to.write_counted(value.encode(), 1))
    to.out += b"\0"


def _write_scalars(element: Scalar, to: Builder, place: int, value: Sequence[Any]) -> None:
    raw = struct.pack(f"<{len(value)}{element.code}", *value)
    to.link(place, to.write_counted(raw, element.size, element.size))


def _write_structs(element: Struct, to: Builder, place: int, value: Sequence[bytes]) -> None:
    raw = b"".join([_exactly(item, element.size) for item in value])
    to.link(place, to.write_counted(raw, element.size, element.align))


def _write_items(write: _Write, to: Builder, place: int, value: Sequence[Any]) -> None:
    start = to.write_counted(bytes(4 * len(value)), 4)
    to.link(place, start)
    for at, item in enumerate(value):
        write(to, start + 4 + 4 * at, item)


# -- what stands in a table -----------------------------------------------------------------------


@cache
def _rules(table: Table) -> list[tuple[str, int | None, bool]]:
    """Return the fields: name, default of a scalar, whether it must be there."""
    pairs = ((field, isinstance(field.kind, Scalar)) for field in table.fields)
    return [(f.name, f.default if s else None, f.required and not s) for f, s in pairs]


def _select_stored(table: Table, values: Values) -> Values:
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
def _pack(table: Table, present: tuple[str, ...]) -> _PackedTable:
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
    inside.sort()
    code, end = "<i", OFFSET
    for at, size, each, _, _ in inside:
        code += f"{at - end}x{each}"
        end = at + size
    return _PackedTable(
        shape.vtable,
        shape.align,
        struct.Struct(f"{code}{shape.size - end}x"),
        tuple((name, size) for _, _, _, name, size in inside),
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
    for each in table.fields:
        if each.name in present:
            slot = table.slots[each.name]
            if isinstance(each.kind, Union):
                yield each.name + "_type", slot - 1, 1, 1
            yield each.name, slot, *inline_size(each)


BLOCK = 1 << 13  # rows made at once
_POOL_BLOCK = 1 << 19  # bytes
_RECORD_FORMS = 256  # kinds of records that are remembered

type Blocks = Callable[[], Iterable[Bytes]]
"""Makes the bytes of a part; each block is valid until the next one is made."""


class Tail:
    """The parts behind the small tables of a file, and the end of the file so far."""

    def __init__(self, start: int) -> None:
        self.end = start
        self._parts: list[tuple[int, Blocks]] = []  # (zeros before it, what makes it)

    def add(self, size: int, blocks: Blocks, *, align: int = 8) -> int:
        """Append a part of ``size`` bytes, to be made later, and return where it stands.

        Raises:
            InvalidInputError: The file grows beyond what FlatBuffers can address.
        """
        padding = -self.end % align
        self._parts.append((padding, blocks))
        start = self.end + padding
        self.end = start + size
        if self.end > MAX_PAYLOAD:
            raise InvalidInputError(
                "too large for one file", do="Split it: write fewer references.", bytes=self.end
            )
        return start

    def blocks(self) -> Iterator[Bytes]:
        """Make all parts, in order."""
        for padding, blocks in self._parts:
            if padding:
                yield np.zeros(padding, np.uint8)
            yield from blocks()

    def payload(self, small: bytearray) -> Bytes:
        """Return the whole payload, which begins with the small tables."""
        made, at = np.empty(self.end, np.uint8), len(small)
        made[:at] = small
        for part in self.blocks():
            made[at : at + len(part)] = part
            at += len(part)
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Up to ``BLOCK`` rows to be written as records."""

    count: int
    index: NDArray[np.uint32] | None = None  # (count, ndim)
    columns: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)  # (k,), (k, bytes)
    targets: Mapping[str, NDArray[np.integer]] = field(default_factory=dict)
    """Where references are to lead."""


@dataclass(frozen=True, slots=True)
class Records:
    """How the rows of one kind look: the row before its columns are filled in, and its places."""

    template: Bytes
    table_at: int
    vector_at: int
    shape: TableLayout

    @staticmethod
    @lru_cache(_RECORD_FORMS)
    def of(
        table: Table,
        present: frozenset[str],
        vector: str | None = None,
        ndim: int = 0,
        *,
        align: int = 1,
    ) -> Records:
        """Lay out records of ``table``; the field ``vector`` holds ``ndim`` numbers of 4 bytes."""
        shape = layout(table, present)
        table_at = len(shape.vtable) + -len(shape.vtable) % shape.align
        vector_at = table_at + shape.size + -shape.size % 4
        stride = vector_at if vector is None else vector_at + 4 + 4 * ndim
        template = np.zeros(stride + -stride % max(shape.align, align), np.uint8)
        template[: len(shape.vtable)] = np.frombuffer(shape.vtable, np.uint8)
        words = template.view("<u4")
        words[table_at // 4] = table_at
        if vector is not None:
            place = table_at + shape.at[vector]
            words[place // 4] = vector_at - place
            words[vector_at // 4] = ndim
        template.flags.writeable = False
        return Records(template, table_at, vector_at, shape)

    @property
    def stride(self) -> int:
        """Bytes from one record to the next."""
        return len(self.template)

    def places(self, start: int, count: int) -> Places:
        """Return where the tables stand when the records stand at ``start``."""
        return start + self.table_at + self.stride * np.arange(count, dtype=np.int64)

    def blocks(self, start: int, count: int, parts: Iterable[Rows]) -> Iterator[Bytes]:
        """Yield the bytes of ``count`` records that are to stand at ``start``."""
        size = min(count, BLOCK)
        buffer = np.empty((size, self.stride), np.uint8)
        buffer[:] = self.template
        places = self.places(start, size).astype(np.uint32)  # which no payload exceeds
        for part in parts:
            rows = buffer[: part.count]
            self._write(rows, places[: part.count], part)
            yield rows.reshape(-1)
            places += np.uint32(self.stride * part.count)

    def scatter(self, starts: Places, part: Rows) -> Bytes:
        """Return the records that are to stand at ``starts``, shape (n, stride)."""
        rows = np.empty((part.count, self.stride), np.uint8)
        rows[:] = self.template
        self._write(rows, starts + self.table_at, part)
        return rows

    def _write(self, rows: Bytes, tables: NDArray[np.integer], part: Rows) -> None:
        """Put columns into copies of the template; ``tables`` is where the tables are to stand."""
        if part.index is not None:
            low = self.vector_at + 4
            vectors = rows[:, low : low + 4 * part.index.shape[1]].view("<u4")
            for axis, column in enumerate(part.index.T):  # a third of the time of rows of three
                vectors[:, axis] = column
        for name, column in part.columns.items():
            self._fill(rows, name, column)
        for name, target in part.targets.items():
            self._fill(rows, name, references(tables + self.shape.at[name], target))

    def _fill(self, rows: Bytes, name: str, column: NDArray[np.generic]) -> None:
        """Set a field of every row: numbers of its size, or (k, size) bytes."""
        low = self.table_at + self.shape.at[name]
        raw = column.reshape(len(rows), -1)
        width = raw.shape[1] * raw.itemsize
        rows[:, low : low + width].view(raw.dtype)[:] = raw


def references(
    slots: NDArray[np.integer] | int, targets: NDArray[np.integer]
) -> NDArray[np.uint32]:
    """Return the references stored at ``slots`` that lead to ``targets``."""
    return (targets - slots).astype("<u4", copy=False)


def vector_blocks(start: int, count: int, targets: Iterable[Places]) -> Iterator[Bytes]:
    """Yield the bytes of a vector of ``count`` references that is to stand at ``start``."""
    yield np.array([count], "<u4").view(np.uint8)
    slot = start + 4
    for part in targets:
        slots = slot + 4 * np.arange(len(part), dtype=np.int64)
        yield references(slots, part).view(np.uint8)
        slot += 4 * len(part)


@dataclass(frozen=True, slots=True)
class Pool:
    """Byte vectors (or strings: a zero follows each), to be copied out of ``source``."""

    source: Bytes
    start: Places
    length: Places  # in bytes
    at: Places  # where each stands in the pool, and at last the pool's size
    element: int = 1  # bytes of what the vectors count

    @classmethod
    def of(cls, source: Bytes, start: Places, length: Places, *, element: int = 1) -> Pool:
        """Lay them out one after the other."""
        at = np.zeros(len(length) + 1, np.int64)
        sizes = at[1:]  # in place: there may be millions
        np.add(length, 4 + 1 + 3, out=sizes)  # what says the length, a zero, and up to 3 more
        sizes &= ~3
        np.cumsum(sizes, out=sizes)
        return cls(source, start, length, at, element)

    @classmethod
    def of_strings(cls, strings: Strings) -> Pool:
        """Lay out a column of strings."""
        return cls.of(strings.data, strings.starts[:-1], strings.lengths)

    @property
    def size(self) -> int:
        """Bytes of the pool."""
        return int(self.at[-1])

    def blocks(self) -> Iterator[Bytes]:
        """Yield the bytes of the pool."""
        bounds = [0, len(self.length)]
        if self.size > _POOL_BLOCK:
            cuts = np.searchsorted(self.at, np.arange(_POOL_BLOCK, self.size, _POOL_BLOCK))
            bounds = np.unique(np.concatenate([[0], cuts, [len(self.length)]])).tolist()
        sizes = np.diff(self.at[bounds])
        buffer = np.empty(int(sizes.max(initial=0)), np.uint8)
        for low, high in pairwise(bounds):
            at, length = self.at[low:high] - self.at[low], self.length[low:high]
            out = buffer[: int(self.at[high] - self.at[low])]
            out.fill(0)
            out.view("<u4")[at >> 2] = length // self.element if self.element > 1 else length
            copy_ranges(self.source, self.start[low:high], out, at + 4, length)
            yield out


def append_pool(tail: Tail, pool: Pool) -> Places:
    """Append a pool and return where each of its vectors stands."""
    return tail.add(pool.size, pool.blocks, align=4) + pool.at[:-1]
