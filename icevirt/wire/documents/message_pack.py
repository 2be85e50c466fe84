"""Read and write MessagePack as JSON values: the metadata values of V1 files.

Bytes that strangers wrote are read strictly: no binary, no extension types, string keys only and
none twice, nothing after the value, no deeper than `MAX_DEPTH`.
"""

from __future__ import annotations

import math
from typing import Any

import msgpack

from icevirt.model.json import JSON, MAX_DEPTH
from icevirt.wire.flatbuffer.reader import Damage


def loads(raw: bytes) -> JSON:
    """Return the one value in ``raw``; NaN and infinity are None. Raises ``Damage``."""
    try:
        _check_counts(raw)
        found = msgpack.unpackb(raw, object_pairs_hook=_map)
    except (ValueError, msgpack.UnpackException) as error:  # some of the library's have no text
        cause = str(error) or type(error).__name__
        raise Damage(f"a MessagePack value is damaged: {cause}", 0) from error
    return _json(found, 0)


def dumps(value: JSON) -> bytes:
    """Return a JSON value as MessagePack, in its shortest form.

    Raises:
        ValueError: It holds an integer of more than 64 bits.
        TypeError: It is no JSON.
    """
    try:
        raw: bytes = msgpack.packb(value)
    except OverflowError as error:
        raise ValueError("an integer of more than 64 bits") from error
    return raw


def _check_counts(raw: bytes) -> None:
    """Walk over the bytes and allocate nothing.

    The library allocates lists of the length that their first bytes claim, on many levels at once.
    Afterwards each claimed element is known to be there.
    """
    walker = msgpack.Unpacker(max_buffer_size=max(len(raw), 1))
    walker.feed(raw)
    walker.skip()


def _map(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a map has a key twice")
    return found


def _json(value: Any, depth: int) -> JSON:
    if depth > MAX_DEPTH:
        raise Damage("a MessagePack value is nested too deeply", 0)
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None  # as the official client reads them
        case list():
            return [_json(each, depth + 1) for each in value]
        case dict() if all(isinstance(key, str) for key in value):
            return {key: _json(each, depth + 1) for key, each in value.items()}
        case _:
            raise Damage(f"a value of MessagePack that JSON has not: {type(value).__name__}", 0)
