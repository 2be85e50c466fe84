"""Read a snapshot file's facts about itself, without its nodes.

The history of a V1 repository is in its snapshot files, so a walk through it reads them all.
"""

from __future__ import annotations

from icevirt.ids import ObjectId12
from icevirt.model.repo_info import SnapshotSummary
from icevirt.wire import header
from icevirt.wire.documents import metadata
from icevirt.wire.flatbuffer.reader import FlatBufferReader, reading
from icevirt.wire.flatbuffer.schema import NODE_SNAPSHOT, SNAPSHOT, Field, Table, Vector
from icevirt.wire.header import FileKind

_UNREAD = Field("nodes", Vector(NODE_SNAPSHOT, columnar=True), required=True)
_SUMMARY = Table(
    SNAPSHOT.name,
    tuple(_UNREAD if field.name == _UNREAD.name else field for field in SNAPSHOT.fields),
)


def decode(raw: bytes) -> SnapshotSummary:
    """Read id, parent, time, message and metadata of a V1 snapshot. Raises ``FormatError``."""
    spec_version, payload = header.unpack(raw, FileKind.snapshot)
    with reading(FileKind.snapshot.name):
        values = FlatBufferReader(payload).root(_SUMMARY)
        return SnapshotSummary(
            id=ObjectId12(values["id"]),
            parent_id=ObjectId12(values["parent_id"]) if values["parent_id"] else None,
            flushed_at=values["flushed_at"],
            message=values["message"],
            metadata=metadata.from_items(values["metadata"], spec_version),
        )
