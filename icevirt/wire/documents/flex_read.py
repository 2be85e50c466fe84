"""Read FlexBuffers as JSON values, checking every offset and bounding depth and sharing.

Only what JSON has is accepted: null, booleans, numbers, strings, vectors (typed ones too), maps.
"""

from __future__ import annotations

import math
import struct

from icevirt.model.json import JSON
from icevirt.wire.documents.flex_write import MAX_DEPTH, FlexType
from icevirt.wire.flatbuffer.reader import MAX_SHARING, Damage

_FLOATS = {2: "<e", 4: "<f", 8: "<d"}
_ELEMENTS = {
    FlexType.vector_int: FlexType.int,
    FlexType.vector_uint: FlexType.uint,
    FlexType.vector_float: FlexType.float,
    FlexType.vector_key: FlexType.key,
    FlexType.vector_string: FlexType.string,
    FlexType.vector_bool: FlexType.bool,
}
_INDIRECT = {
    FlexType.indirect_int: FlexType.int,
    FlexType.indirect_uint: FlexType.uint,
    FlexType.indirect_float: FlexType.float,
}
# vectors of two, three and four numbers carry their length in their type
_FIRST_FIXED, _LAST_FIXED = 16, 24


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
        width, packed = self._raw[-1], self._raw[-2]
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
            self._keys[at] = self._new_key(at)
        return self._keys[at]

    def _new_key(self, at: int) -> str:
        end = self._raw.find(b"\0", at) if at >= 0 else -1
        if end < 0:
            raise Damage("a key of a FlexBuffer does not end", at)
        return _text(self._bytes(at, end - at), at)

    def _container(self, kind: int, at: int, width: int, depth: int) -> JSON:
        if kind == FlexType.map:
            return self._map(at, width, depth)
        if kind == FlexType.vector:
            return self._vector(at, width, depth)
        if _FIRST_FIXED <= kind <= _LAST_FIXED:
            size, which = divmod(kind - _FIRST_FIXED, 3)
            return self._typed(
                (FlexType.int, FlexType.uint, FlexType.float)[which], at, width, size + 2
            )
        if kind in set(_ELEMENTS):
            size = self._size(at, width)
            return self._typed(_ELEMENTS[FlexType(kind)], at, width, size)
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

    def _typed(self, kind: FlexType, at: int, width: int, size: int) -> list[JSON]:
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
