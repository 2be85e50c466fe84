"""Reads vectors of tables column by column: one field of all rows at a time, all rows checked.

Numbers must stand at multiples of their size, as FlatBuffers has it and the official reader
verifies; so a payload can be looked at as an array of numbers and rows picked out of it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from icevirt.wire.layout import inline_size
from icevirt.wire.ranges import Bytes, Places
from icevirt.wire.read import Damage, Span
from icevirt.wire.schema import Table, Union

_DTYPES = {size: np.dtype(f"<u{size}") for size in (1, 2, 4, 8)}


class Payload:
    """The bytes of a FlatBuffer as numbers of every size."""

    def __init__(self, raw: bytes) -> None:
        self.bytes: Bytes = np.frombuffer(raw, np.uint8)
        self.size = len(raw)
        # up to three zeros behind the end, for those who read whole words of a string
        self.padded = self.bytes if self.size % 4 == 0 else np.pad(self.bytes, (0, -self.size % 4))
        self._views = {
            size: self.bytes[: self.size // size * size].view(dtype)
            for size, dtype in _DTYPES.items()
        }

    def numbers(self, at: Places, size: int) -> NDArray[np.unsignedinteger]:
        """Return the unsigned numbers of ``size`` bytes at the places ``at``."""
        self.check(at, size)
        if size > 1 and bool(np.bitwise_or.reduce(at, axis=None) & (size - 1)):
            raise Damage("a number is not aligned", int(at[at % size != 0][0]))
        return self._views[size][at >> (size.bit_length() - 1)]

    def check(self, at: Places, size: int | Places) -> None:
        """Make sure that ``size`` bytes at each place are in the file."""
        if at.size and (int(at.min()) < 0 or int((at + size).max()) > self.size):
            bad = at[(at < 0) | (at + size > self.size)]
            raise Damage("something points outside the file", int(bad.flat[0]))

    def targets(self, places: Places) -> Places:
        """Follow the references at ``places``."""
        return places + self.numbers(places, 4)

    def tables(self, span: Span, table: Table) -> Tables:
        """Return the tables that the elements of a vector refer to."""
        places = span.start + 4 * np.arange(span.count, dtype=np.int64)
        return Tables(self, self.targets(places), table)


class Tables:
    """Tables of one schema, a row each."""

    def __init__(self, payload: Payload, at: Places, table: Table) -> None:
        self._payload = payload
        self._at = at
        self._table = table
        distance = payload.numbers(at, 4).view("<i4")
        self._vtable = at - distance
        self._one: list[int] | None = None
        self._read_sizes()

    def __len__(self) -> int:
        return len(self._at)

    def _read_sizes(self) -> None:
        """Check vtables and tables, and find out whether one vtable speaks for all rows."""
        if not len(self):
            self._one = [4, 4]
            return
        read = self._payload.numbers
        shared = bool((self._vtable == self._vtable[0]).all())
        vtable = self._vtable[:1] if shared else self._vtable
        self._entries = read(vtable, 2).astype(np.int64)
        self._size = read(vtable + 2, 2).astype(np.int64)
        if int(self._entries.min()) < 4 or int(self._size.min()) < 4:
            raise Damage("not a vtable", int(self._vtable[0]))
        self._payload.check(vtable, self._entries)
        self._payload.check(self._at, self._size)
        if shared or self._all_equal():
            first, count = int(self._vtable[0]), int(self._entries[0]) // 2
            words = read(first + 2 * np.arange(count, dtype=np.int64), 2)
            self._one = [int(word) for word in words]

    def _all_equal(self) -> bool:
        entries, size = int(self._entries[0]), int(self._size[0])
        if not bool((self._entries == entries).all() and (self._size == size).all()):
            return False
        words = (self._payload.numbers(self._vtable + at, 2) for at in range(4, entries - 1, 2))
        return all(bool((word == word[0]).all()) for word in words)

    def places(self, name: str) -> Places | None:
        """Return where a field of every row stands, 0 where it is absent; None if it always is."""
        field = self._table[name]
        slot, (size, _) = self._table.slots[name], inline_size(field)
        assert not isinstance(field.kind, Union)
        offset = self._offsets(slot)
        if isinstance(offset, int):
            if offset == 0:
                return self._absent(name, field.required)
            if offset < 4 or offset + size > self._one_size():
                raise Damage(f"the field {name} lies outside its table", int(self._at[0]))
            return self._at + offset
        present = offset != 0
        if bool((present & ((offset < 4) | (offset + size > self._size))).any()):
            raise Damage(f"the field {name} lies outside its table", int(self._at[0]))
        if field.required and not present.all():
            return self._absent(name, required=True)
        return np.where(present, self._at + offset, 0) if present.any() else None

    def _one_size(self) -> int:
        assert self._one is not None
        return self._one[1]

    def _absent(self, name: str, required: bool) -> None:
        if required and len(self):
            raise Damage(f"the required field {name} is missing", int(self._at[0]))

    def _offsets(self, slot: int) -> int | Places:
        """Return a field's offset inside the table, one for all rows where that is possible."""
        if self._one is not None:
            return self._one[slot + 2] if slot + 2 < len(self._one) else 0
        listed = self._entries >= 2 * (slot + 3)
        at = np.where(listed, self._vtable + 4 + 2 * slot, self._vtable)
        return np.where(listed, self._payload.numbers(at, 2), 0).astype(np.int64)

    # -- columns -----------------------------------------------------------------------------------

    def numbers(self, name: str, size: int) -> NDArray[np.unsignedinteger]:
        """Return a field of unsigned numbers whose default is 0."""
        places = self.places(name)
        if places is None:
            return np.zeros(len(self), _DTYPES[size])
        absent = places == 0
        if not absent.any():
            return self._payload.numbers(places, size)
        values = self._payload.numbers(np.where(absent, 0, places), size)
        values[absent] = 0
        return values

    def vectors(self, name: str, size: int) -> tuple[Places, Places, Places] | None:
        """Return rows that have this vector of elements of ``size`` bytes, their starts and counts.

        None: no row has it.
        """
        places = self.places(name)
        if places is None:
            return None
        rows = np.flatnonzero(places)
        if len(rows) != len(places):
            places = places[rows]
        at = self._payload.targets(places)
        count = self._payload.numbers(at, 4).astype(np.int64)
        self._payload.check(at + 4, count * size)
        return rows, at + 4, count

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
        at = start[:, None] + 4 * np.arange(ndim, dtype=np.int64)
        return self._payload.numbers(at, 4).astype(np.uint32)
