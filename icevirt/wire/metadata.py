"""Encode the metadata of snapshots and repositories: named JSON values, each on its own.

Spec: "Common Types", MetadataItem. V2 files hold FlexBuffers, V1 files MessagePack; which one
follows from the spec byte of the file, since upgraded repositories hold files of both. MessagePack
that others wrote is read strictly: no binary, no extension types, string keys only and none twice,
nothing after the value, no deeper than `MAX_DEPTH`.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from icevirt.wire.flatbuffer.schema import Damage, Values

if TYPE_CHECKING:
    from icevirt.model.json import JSON, JSONObject


def to_items(metadata: JSONObject, spec_version: int = 2) -> list[Values]:
    """Return the items of a file of this spec version, ascending by the bytes of their names."""
    from icevirt.wire import flexbuffers

    dumps = write_message_pack if spec_version == 1 else flexbuffers.dumps
    names = sorted(metadata, key=lambda name: name.encode())
    return [{"name": name, "value": dumps(metadata[name])} for name in names]


def from_items(items: list[Values], spec_version: int) -> dict[str, JSON]:
    """Read items of a file of this spec version. Raises ``Damage``."""
    found: dict[str, JSON] = {}
    for row, item in enumerate(items):
        try:
            found[_new_name(item["name"], found)] = _load(item["value"], spec_version)
        except Damage as damage:
            damage.trail += [f"[{row}]", "metadata"]
            raise
    return found


def _load(raw: bytes, spec_version: int) -> JSON:
    if spec_version == 1:
        return read_message_pack(raw)
    from icevirt.wire import flexbuffers

    return flexbuffers.loads(raw)


def _new_name(name: str, found: Collection[str]) -> str:
    if name in found:
        raise Damage("a name occurs twice", 0)
    return name


def read_message_pack(raw: bytes) -> JSON:
    """Return the one value in ``raw``; NaN and infinity are None. Raises ``Damage``."""
    import msgpack

    try:
        check_counts(raw)
        found = msgpack.unpackb(raw, object_pairs_hook=unique_keys)
    except (ValueError, msgpack.UnpackException) as error:  # some of the library's have no text
        cause = str(error) or type(error).__name__
        raise Damage(f"a MessagePack value is damaged: {cause}", 0) from error
    return as_json(found)


def write_message_pack(value: JSON) -> bytes:
    """Return a JSON value as MessagePack, in its shortest form.

    Raises:
        ValueError: It holds an integer of more than 64 bits.
        TypeError: It is no JSON.
    """
    import msgpack

    try:
        raw: bytes = msgpack.packb(value)
    except OverflowError as error:
        raise ValueError("an integer of more than 64 bits") from error
    return raw


def check_counts(raw: bytes) -> int:
    """Walk over the first value, allocate nothing, and return where it ends.

    The library allocates lists of the length that their first bytes claim, on many levels at once.
    Afterwards each claimed element is known to be there.
    """
    import msgpack

    walker = msgpack.Unpacker(max_buffer_size=max(len(raw), 1))
    walker.feed(raw)
    walker.skip()
    return int(walker.tell())


def unique_keys(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return a map. Raises ``ValueError`` for a key that occurs twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a map has a key twice")
    return found


def as_json(value: Any, depth: int = 0) -> JSON:
    """Return a value of MessagePack as JSON; NaN and infinity are None. Raises ``Damage``."""
    from icevirt.model.json import MAX_DEPTH

    if depth > MAX_DEPTH:
        raise Damage("a MessagePack value is nested too deeply", 0)
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None  # as the official client reads them
        case list() | tuple():
            return [as_json(each, depth + 1) for each in value]
        case dict() if all(isinstance(key, str) for key in value):
            return {key: as_json(each, depth + 1) for key, each in value.items()}
        case _:
            raise Damage(f"a value of MessagePack that JSON has not: {type(value).__name__}", 0)
