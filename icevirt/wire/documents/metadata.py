"""Encode the metadata of snapshots and repositories: named JSON values, each on its own.

Spec: "Common Types", MetadataItem. V2 files hold FlexBuffers, V1 files MessagePack; which one
follows from the spec byte of the file, since upgraded repositories hold files of both.
"""

from __future__ import annotations

from icevirt.model.json import JSON, JSONObject
from icevirt.wire.documents import flex_read, flex_write, message_pack
from icevirt.wire.flatbuffer.reader import Damage
from icevirt.wire.flatbuffer.schema import Values


def to_items(metadata: JSONObject, spec_version: int = 2) -> list[Values]:
    """Return the items of a file of this spec version, ascending by the bytes of their names."""
    dumps = message_pack.dumps if spec_version == 1 else flex_write.dumps
    names = sorted(metadata, key=lambda name: name.encode())
    return [{"name": name, "value": dumps(metadata[name])} for name in names]


def from_items(items: list[Values], spec_version: int) -> dict[str, JSON]:
    """Read items of a file of this spec version. Raises ``Damage``."""
    loads = message_pack.loads if spec_version == 1 else flex_read.loads
    found: dict[str, JSON] = {}
    for row, item in enumerate(items):
        try:
            _add(found, item["name"], loads(item["value"]))
        except Damage as damage:
            damage.trail += [f"[{row}]", "metadata"]
            raise
    return found


def _add(found: dict[str, JSON], name: str, value: JSON) -> None:
    if name in found:
        raise Damage("a name occurs twice", 0)
    found[name] = value
