"""Declare generation E0, the first specification, which no release wrote.

No file of it is known. The document leaves open how values become bytes, so MessagePack and JSON
are read, structs by name and by position, and ids as numbers, bytes or text.
"""

from __future__ import annotations

from typing import Any

from icevirt.ids import ObjectId12, unbase32
from icevirt.model.generation import FormatGeneration
from icevirt.wire.flatbuffer.reader import Damage
from icevirt.wire.legacy import e1
from icevirt.wire.legacy.encoding import HISTORY, Encoding, Framing, number_id

_SIZE = 16


def renamed_id(value: Any) -> bytes:
    """Return the id of 12 bytes that stands for one of 16."""
    match value:
        case str():
            raw = unbase32(value, _SIZE)
        case bytes():
            raw = value
        case list() | tuple() if all(type(each) is int and 0 <= each < 256 for each in value):
            raw = bytes(value)
        case _:
            raw = b""
    if len(raw) != _SIZE:
        raise Damage(f"an id is not {_SIZE} bytes", 0)
    return ObjectId12.of_content(raw)


ENCODING = Encoding(
    generation=FormatGeneration(
        name="E0",
        writers="the first specification, of no release",
        written="September and October 2024",
        lacks=(
            e1.OLD_HISTORY,
            "transaction logs (computed here)",
            e1.NO_CHECKSUMS,
            "certainty about what its document leaves open",
        ),
    ),
    framing=Framing.document,
    snapshot=(HISTORY,),
    manifest_file=(("id",),),
    manifest_ref=(("object_id", "flags", "extents"),),
    manifest=(("chunks",),),
    object_id=renamed_id,
    node_id=number_id,
    ref_id=renamed_id,
    numbers_nodes=True,
    renames_root=True,
    short=True,
)
