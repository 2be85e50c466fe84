"""Write JSON values as FlexBuffers: configuration and V2 metadata values.

As the official client does: maps have sorted keys, and non-negative integers are stored as
unsigned. Children come before parents, and every container takes the narrowest width (1, 2, 4 or 8
bytes an element) that holds its values and reaches its children.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from icevirt.errors import InvalidInputError
from icevirt.model.json import JSON

MAX_DEPTH = 100


class FlexType(IntEnum):
    """Types of FlexBuffers that JSON values come in; numbers are the format's."""

    null = 0
    int = 1
    uint = 2
    float = 3
    key = 4
    string = 5
    indirect_int = 6
    indirect_uint = 7
    indirect_float = 8
    map = 9
    vector = 10
    vector_int = 11
    vector_uint = 12
    vector_float = 13
    vector_key = 14
    vector_string = 15
    bool = 26
    vector_bool = 36


_FLOATS = {4: "<f", 8: "<d"}
_OFFSETS = frozenset({FlexType.key, FlexType.string, FlexType.map, FlexType.vector})


@dataclass(frozen=True, slots=True)
class _Value:
    """A value on its way into a container: a number itself, or the position of what was written."""

    type: FlexType
    value: float
    width: int = 1  # of the thing written, for offsets

    def needs(self, slot: int) -> int:
        """Return the narrowest width in which this fits when stored at ``slot``."""
        if self.type == FlexType.float:
            return 4 if math.isfinite(self.value) and _is_single(self.value) else 8
        if self.type == FlexType.int:
            number = int(self.value)
            return _width(2 * (number if number >= 0 else ~number))
        return _width(slot - self.value if self.type in _OFFSETS else self.value)

    def packed(self, slot: int, width: int) -> bytes:
        """Return the bytes to store at ``slot``."""
        if self.type == FlexType.float:
            return struct.pack(_FLOATS[width], self.value)
        number = int(slot - self.value if self.type in _OFFSETS else self.value)
        return number.to_bytes(width, "little", signed=number < 0)

    def type_byte(self, width: int) -> int:
        """Return the byte that tells the type, and the width of what an offset leads to."""
        stored = self.width if self.type in _OFFSETS else width
        return self.type << 2 | stored.bit_length() - 1


def dumps(value: JSON) -> bytes:
    """Return the FlexBuffer of a JSON value.

    Raises:
        InvalidInputError: The value is not JSON: NaN, an integer over 64 bits, another type, a key
            with a zero byte, or more than 100 levels deep.
    """
    writer = _Writer()
    root = writer.write(value, 0)
    width = max(_fitting([root], len(writer.out)), 1)
    writer.pad(width)
    slot = len(writer.out)
    writer.out += root.packed(slot, width) + bytes((root.type_byte(width), width))
    return bytes(writer.out)


class _Writer:
    def __init__(self) -> None:
        self.out = bytearray()
        self._keys: dict[bytes, int] = {}

    def pad(self, width: int) -> None:
        self.out += bytes(-len(self.out) % width)

    def write(self, value: JSON, depth: int) -> _Value:
        """Write what does not fit inside a container and return what does."""
        if depth > MAX_DEPTH:
            raise InvalidInputError("nested too deeply", do=f"Use at most {MAX_DEPTH} levels.")
        match value:
            case None | bool() | int() | float():
                return _inside(value)
            case str():
                return self._string(value.encode())
            case Mapping():
                return self._map(value, depth)
            case Sequence() if not isinstance(value, bytes | bytearray | memoryview):
                return self._vector([self.write(item, depth + 1) for item in value])
            case _:
                raise InvalidInputError(
                    "not a JSON value",
                    do="Use strings, numbers, true, false, null, lists and mappings of these.",
                    type=type(value).__name__,
                )

    def _string(self, raw: bytes) -> _Value:
        width = _width(len(raw))
        self.pad(width)
        self.out += len(raw).to_bytes(width, "little")
        start = len(self.out)
        self.out += raw + b"\0"
        return _Value(FlexType.string, start, width)

    def _key(self, key: object) -> _Value:
        if not isinstance(key, str) or "\0" in key:
            raise InvalidInputError("not a key of a JSON object that can be stored", key=key)
        raw = key.encode()
        if raw not in self._keys:
            self._keys[raw] = len(self.out)
            self.out += raw + b"\0"
        return _Value(FlexType.key, self._keys[raw])

    def _map(self, items: Mapping[str, JSON], depth: int) -> _Value:
        # the key itself is checked where it is written, so sorting must not stumble over it
        order = sorted(items, key=lambda key: str(key).encode())
        values = [self.write(items[key], depth + 1) for key in order]
        keys = [self._key(key) for key in order]
        key_width = _fitting(keys, len(self.out), before=1)
        self.pad(key_width)
        self.out += len(keys).to_bytes(key_width, "little")
        key_vector = _Value(FlexType.vector, len(self.out), key_width)
        for key in keys:
            self.out += key.packed(len(self.out), key_width)
        return self._vector(values, key_vector)

    def _vector(self, values: list[_Value], keys: _Value | None = None) -> _Value:
        """Write [keys, their width,] count, elements, types; return where the elements begin."""
        before = 1 if keys is None else 3
        width = _fitting(values, len(self.out), before=before, first=keys)
        self.pad(width)
        if keys is not None:
            self.out += keys.packed(len(self.out), width) + keys.width.to_bytes(width, "little")
        self.out += len(values).to_bytes(width, "little")
        start = len(self.out)
        for value in values:
            self.out += value.packed(len(self.out), width)
        self.out += bytes(value.type_byte(width) for value in values)
        return _Value(FlexType.vector if keys is None else FlexType.map, start, width)


def _fitting(
    values: list[_Value], end: int, *, before: int = 0, first: _Value | None = None
) -> int:
    """Return the width of a container that begins after ``end`` with ``before`` extra words."""
    for width in (1, 2, 4):
        start = end + -end % width
        slot = start + before * width
        needs = [_width(len(values))] + ([first.needs(start)] if first else [])
        needs += [value.needs(slot + at * width) for at, value in enumerate(values)]
        if max(needs) <= width:
            return width
    return 8


def _inside(value: float | None) -> _Value:
    """Return a value that is stored in its container."""
    if value is None:
        return _Value(FlexType.null, 0)
    if isinstance(value, bool):
        return _Value(FlexType.bool, int(value))
    if isinstance(value, int):
        return _whole(value)
    if not math.isfinite(value):
        raise InvalidInputError("not a JSON number", do="Use a string.", value=value)
    return _Value(FlexType.float, value)


def _whole(value: int) -> _Value:
    if not -(2**63) <= value < 2**64:
        raise InvalidInputError("an integer of more than 64 bits", do="Use a string.", value=value)
    return _Value(FlexType.uint if value >= 0 else FlexType.int, value)


def _width(number: float) -> int:
    """Return the bytes (1, 2, 4, 8) of an unsigned number."""
    return 1 << max(0, (int(number).bit_length() - 1) // 8).bit_length()


def _is_single(value: float) -> bool:
    try:
        return bool(struct.unpack("<f", struct.pack("<f", value))[0] == value)
    except OverflowError:
        return False
