"""Read and write JSON values as FlexBuffers: configuration and V2 metadata values.

Reading checks every offset and bounds depth and sharing. Only what JSON has is accepted: null,
booleans, numbers, strings, vectors (typed ones too), maps. Values are written as by the official
client: maps have sorted keys, and non-negative integers are stored as unsigned. Children come
before parents, and every container takes the narrowest width (1, 2, 4 or 8 bytes an element) that
holds its values and reaches its children.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum

from icevirt.errors import InvalidInputError
from icevirt.model.json import JSON, MAX_DEPTH
from icevirt.wire.flatbuffer.schema import MAX_SHARING, Damage


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


_FLOATS = {2: "<e", 4: "<f", 8: "<d"}
_NUMBERS = ("int", "uint", "float")
_INDIRECT = {FlexType[f"indirect_{name}"]: FlexType[name] for name in _NUMBERS}
_ELEMENTS = {
    FlexType[f"vector_{name}"]: FlexType[name] for name in (*_NUMBERS, "key", "string", "bool")
}
# vectors of two, three and four numbers carry their length in their type
_FIRST_FIXED, _LAST_FIXED = 16, 24
_OFFSETS = frozenset({FlexType.key, FlexType.string, FlexType.map, FlexType.vector})


# -- reading --------------------------------------------------------------------------------------


def loads(raw: bytes) -> JSON:
    """Return the value of a FlexBuffer. Raises ``Damage``."""
    return _Flex(raw).root()


class _Flex:
    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._budget = MAX_SHARING * len(raw) + 1024
        self._keys: dict[int, str] = {}  # writers share them, so each is read and paid for once

    def root(self) -> JSON:
        size = len(self._raw)
        if size < 3:
            raise Damage("a FlexBuffer has at least three bytes", 0)
        packed, width = self._raw[-2:]
        if width not in (1, 2, 4, 8):
            raise Damage("not a width", size - 1)
        return self._value(size - 2 - width, width, packed, 0)

    def _bytes(self, at: int, size: int) -> bytes:
        self._budget -= size + 1
        if at < 0 or at + size > len(self._raw):
            raise Damage("a FlexBuffer points outside itself", at)
        if self._budget < 0:
            raise Damage("parts of a FlexBuffer are referenced too many times", at)
        return self._raw[at : at + size]

    def _uint(self, at: int, width: int) -> int:
        return int.from_bytes(self._bytes(at, width), "little")

    def _value(self, at: int, width: int, packed: int, depth: int) -> JSON:
        """Read the value of type ``packed`` that is stored, or referred to, at ``at``."""
        if depth > MAX_DEPTH:
            raise Damage("a FlexBuffer is nested too deeply", at)
        kind, child = packed >> 2, 1 << (packed & 3)
        if kind == FlexType.null:
            return None
        if kind in (FlexType.bool, FlexType.int, FlexType.uint, FlexType.float):
            return self._number(kind, at, width)
        target = at - self._uint(at, width)
        if kind in _INDIRECT:
            return self._number(_INDIRECT[FlexType(kind)], target, child)
        if kind == FlexType.key:
            return self._key(target)
        if kind == FlexType.string:
            size = self._uint(target - child, child)
            return _text(self._bytes(target, size), target)
        return self._container(kind, target, child, depth)

    def _number(self, kind: int, at: int, width: int) -> JSON:
        raw = self._bytes(at, width)
        if kind == FlexType.float:
            if width not in _FLOATS:
                raise Damage("a float of one byte", at)
            value = float(struct.unpack(_FLOATS[width], raw)[0])
            return value if math.isfinite(value) else None  # as the official client reads them
        number = int.from_bytes(raw, "little", signed=kind == FlexType.int)
        return bool(number) if kind == FlexType.bool else number

    def _key(self, at: int) -> str:
        if at not in self._keys:
            end = self._raw.find(b"\0", at) if at >= 0 else -1
            if end < 0:
                raise Damage("a key of a FlexBuffer does not end", at)
            self._keys[at] = _text(self._bytes(at, end - at), at)
        return self._keys[at]

    def _container(self, kind: int, at: int, width: int, depth: int) -> JSON:
        if kind == FlexType.map:
            return self._map(at, width, depth)
        if kind == FlexType.vector:
            return self._vector(at, width, depth)
        if _FIRST_FIXED <= kind <= _LAST_FIXED:
            size, which = divmod(kind - _FIRST_FIXED, 3)
            return self._read_typed(FlexType[_NUMBERS[which]], at, width, size + 2)
        if kind in _ELEMENTS:
            return self._read_typed(_ELEMENTS[FlexType(kind)], at, width, self._size(at, width))
        raise Damage("a FlexBuffers type that JSON lacks", at)

    def _size(self, at: int, width: int) -> int:
        """Return the count before a vector, made sure that as many elements follow."""
        size = self._uint(at - width, width)
        self._bytes(at, size * width)
        return size

    def _vector(self, at: int, width: int, depth: int) -> list[JSON]:
        size = self._size(at, width)
        types = self._bytes(at + size * width, size)
        return [self._value(at + n * width, width, types[n], depth + 1) for n in range(size)]

    def _read_typed(self, kind: FlexType, at: int, width: int, size: int) -> list[JSON]:
        packed = kind << 2  # strings of a typed vector have one-byte sizes
        return [self._value(at + n * width, width, packed, MAX_DEPTH) for n in range(size)]

    def _map(self, at: int, width: int, depth: int) -> dict[str, JSON]:
        keys_at = at - 3 * width
        key_width = self._uint(at - 2 * width, width)
        if key_width not in (1, 2, 4, 8):
            raise Damage("not a width", at - 2 * width)
        target = keys_at - self._uint(keys_at, width)
        values = self._vector(at, width, depth)
        if self._size(target, key_width) != len(values):
            raise Damage("a map has different numbers of keys and values", at)
        places = (target + n * key_width for n in range(len(values)))
        keys = [self._key(place - self._uint(place, key_width)) for place in places]
        found = dict(zip(keys, values, strict=True))
        if len(found) != len(keys):
            raise Damage("a map has a key twice", at)
        return found


def _text(raw: bytes, at: int) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Damage("a string of a FlexBuffer is not UTF-8", at) from None


# -- writing --------------------------------------------------------------------------------------


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
    writer.out += root.pack(slot, width) + bytes((root.type_byte(width), width))
    return bytes(writer.out)


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

    def pack(self, slot: int, width: int) -> bytes:
        """Return the bytes to store at ``slot``."""
        if self.type == FlexType.float:
            return struct.pack(_FLOATS[width], self.value)
        number = int(slot - self.value if self.type in _OFFSETS else self.value)
        return number.to_bytes(width, "little", signed=number < 0)

    def type_byte(self, width: int) -> int:
        """Return the byte with the type, and the width of what an offset leads to."""
        stored = self.width if self.type in _OFFSETS else width
        return self.type << 2 | stored.bit_length() - 1


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
                raw = value.encode()
                width = _width(len(raw))
                self.pad(width)
                self.out += len(raw).to_bytes(width, "little")
                start = len(self.out)
                self.out += raw + b"\0"
                return _Value(FlexType.string, start, width)
            case Mapping():
                return self._map(value, depth)
            case Sequence() if not isinstance(value, bytes | bytearray | memoryview):
                return self._vector([self.write(item, depth + 1) for item in value])
            case _:
                do = "Use strings, numbers, true, false, null, lists and mappings of these."
                raise InvalidInputError("not a JSON value", do=do, type=type(value).__name__)

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
            self.out += key.pack(len(self.out), key_width)
        return self._vector(values, key_vector)

    def _vector(self, values: list[_Value], keys: _Value | None = None) -> _Value:
        """Write [keys, their width,] count, elements, types; return where the elements begin."""
        before = 1 if keys is None else 3
        width = _fitting(values, len(self.out), before=before, first=keys)
        self.pad(width)
        if keys is not None:
            self.out += keys.pack(len(self.out), width) + keys.width.to_bytes(width, "little")
        self.out += len(values).to_bytes(width, "little")
        start = len(self.out)
        for value in values:
            self.out += value.pack(len(self.out), width)
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
    if value is None or isinstance(value, bool):
        return _Value(FlexType.null if value is None else FlexType.bool, int(value or 0))
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise InvalidInputError("an integer of more than 64 bits", do="Use a string.", value=value)
    if isinstance(value, int):
        return _Value(FlexType.uint if value >= 0 else FlexType.int, value)
    if not math.isfinite(value):
        raise InvalidInputError("not a JSON number", do="Use a string.", value=value)
    return _Value(FlexType.float, value)


def _width(number: float) -> int:
    """Return the bytes (1, 2, 4, 8) of an unsigned number."""
    return 1 if number < 1 << 8 else 2 if number < 1 << 16 else 4 if number < 1 << 32 else 8


def _is_single(value: float) -> bool:
    with suppress(OverflowError):
        return bool(struct.unpack("<f", struct.pack("<f", value))[0] == value)
    return False
