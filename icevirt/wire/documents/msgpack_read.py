"""Reads MessagePack as JSON values: the metadata values of V1 files. `msgpack_write` writes them.

Small enough to be strict about: no extension types, no binary, no NaN, string keys only, nothing
behind the value, no deeper than 100 levels.
"""

from __future__ import annotations

import math
import struct

from icevirt.model.json import JSON
from icevirt.wire.documents.flex_write import MAX_DEPTH
from icevirt.wire.flatbuffer.reader import Damage

_CONSTANTS: dict[int, JSON] = {0xC0: None, 0xC2: False, 0xC3: True}
_NUMBERS = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}
_STRINGS = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I"}
_ARRAYS = {0xDC: ">H", 0xDD: ">I"}
_MAPS = {0xDE: ">H", 0xDF: ">I"}


def loads(raw: bytes) -> JSON:
    """Return the one value in ``raw``. Raises ``Damage``."""
    reader = _Pack(raw)
    value = reader.value(0)
    if reader.at != len(raw):
        raise Damage("something follows a MessagePack value", reader.at)
    return value


class _Pack:
    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self.at = 0

    def _take(self, size: int) -> bytes:
        start, self.at = self.at, self.at + size
        if self.at > len(self._raw):
            raise Damage("a MessagePack value is cut short", start)
        return self._raw[start : self.at]

    def _unpack(self, code: str) -> float:
        number: float = struct.unpack(code, self._take(struct.calcsize(code)))[0]
        return number

    def value(self, depth: int) -> JSON:
        """Read the next value."""
        if depth > MAX_DEPTH:
            raise Damage("a MessagePack value is nested too deeply", self.at)
        first = self._take(1)[0]
        if first in _CONSTANTS:
            return _CONSTANTS[first]
        if first in _NUMBERS:
            number = self._unpack(_NUMBERS[first])
            return number if math.isfinite(number) else None
        if first < 0x80 or first >= 0xE0:
            return first if first < 0x80 else first - 0x100
        return self._sized(first, depth)

    def _sized(self, first: int, depth: int) -> JSON:
        if first in _STRINGS or 0xA0 <= first < 0xC0:
            return self._text(self._count(_STRINGS, first, 0x1F))
        if first in _ARRAYS or 0x90 <= first < 0xA0:
            count = self._count(_ARRAYS, first, 0x0F)
            return [self.value(depth + 1) for _ in range(count)]
        if first in _MAPS or 0x80 <= first < 0x90:
            return self._map(self._count(_MAPS, first, 0x0F), depth)
        raise Damage("a type of MessagePack that JSON has not", self.at - 1)

    def _count(self, codes: dict[int, str], first: int, mask: int) -> int:
        count = int(self._unpack(codes[first])) if first in codes else first & mask
        if count > len(self._raw) - self.at:  # every element takes a byte at least
            raise Damage("a MessagePack value is cut short", self.at)
        return count

    def _text(self, size: int) -> str:
        start = self.at
        try:
            return self._take(size).decode()
        except UnicodeDecodeError:
            raise Damage("a string of MessagePack is not UTF-8", start) from None

    def _map(self, count: int, depth: int) -> dict[str, JSON]:
        found: dict[str, JSON] = {}
        for _ in range(count):
            start = self.at
            key = self.value(depth + 1)
            if not isinstance(key, str) or key in found:
                raise Damage("a map has a key twice, or one that is no string", start)
            found[key] = self.value(depth + 1)
        return found
