"""Writes JSON values as MessagePack: the metadata values of V1 files. `msgpack` reads them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

_CONSTANTS = {None: b"\xc0", False: b"\xc2", True: b"\xc3"}
_INTEGERS = (
    (0, 0x7F, b"", ">B"),
    (-32, -1, b"", ">b"),
    (0, 0xFF, b"\xcc", ">B"),
    (0, 0xFFFF, b"\xcd", ">H"),
    (0, 0xFFFF_FFFF, b"\xce", ">I"),
    (0, 0xFFFF_FFFF_FFFF_FFFF, b"\xcf", ">Q"),
    (-0x80, -1, b"\xd0", ">b"),
    (-0x8000, -1, b"\xd1", ">h"),
    (-0x8000_0000, -1, b"\xd2", ">i"),
    (-0x8000_0000_0000_0000, -1, b"\xd3", ">q"),
)  # lowest and highest number, first byte, rest: the shortest form comes first
_TEXT = ((0x1F, 0xA0, ""), (0xFF, 0xD9, ">B"), (0xFFFF, 0xDA, ">H"), (0xFFFF_FFFF, 0xDB, ">I"))
_ARRAY = ((0x0F, 0x90, ""), (0xFFFF, 0xDC, ">H"), (0xFFFF_FFFF, 0xDD, ">I"))
_MAP = ((0x0F, 0x80, ""), (0xFFFF, 0xDE, ">H"), (0xFFFF_FFFF, 0xDF, ">I"))


def dumps(value: Any) -> bytes:
    """Return a JSON value as MessagePack.

    Raises:
        ValueError: It holds an integer of more than 64 bits.
        TypeError: It is no JSON.
    """
    match value:
        case None | bool():
            return _CONSTANTS[value]
        case int():
            return _integer(value)
        case float():
            return b"\xcb" + struct.pack(">d", value)
        case str():
            return _count(_TEXT, len(raw := value.encode())) + raw
        case list() | tuple():
            return _count(_ARRAY, len(value)) + b"".join(map(dumps, value))
        case Mapping():
            pairs = (dumps(str(key)) + dumps(item) for key, item in value.items())
            return _count(_MAP, len(value)) + b"".join(pairs)
        case _:
            raise TypeError(f"not a JSON value: {value!r}")


def _integer(value: int) -> bytes:
    for low, high, first, rest in _INTEGERS:
        if low <= value <= high:
            return first + struct.pack(rest, value)
    raise ValueError(f"an integer of more than 64 bits: {value}")


def _count(forms: tuple[tuple[int, int, str], ...], count: int) -> bytes:
    for most, first, rest in forms:
        if count <= most:
            return bytes((first,)) + struct.pack(rest, count) if rest else bytes((first | count,))
    raise ValueError(f"too long for MessagePack: {count}")
