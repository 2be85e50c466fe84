"""Read and write snapshot files: the nodes of one version, and their manifests.

Spec: "Snapshot Files". Both V2 and V1 files are read and written; upgraded repositories hold both.
Twin fields distinguish them: ``shape`` or ``shape_v2``, ``manifest_files`` or
``manifest_files_v2``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from icevirt.errors import FormatError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.snapshot import ArrayNode, GroupNode, ManifestFile, ManifestRef, Node, Snapshot
from icevirt.wire import header
from icevirt.wire.flatbuffer.reader import FlatBufferReader, reading
from icevirt.wire.flatbuffer.schema import (
    CHUNK_INDEX_RANGE_LAYOUT,
    DIMENSION_SHAPE_LAYOUT,
    MANIFEST_FILE_INFO_LAYOUT,
    MANIFEST_FILE_INFO_V2,
    NODE_SNAPSHOT,
    SNAPSHOT,
    Damage,
    Field,
    Table,
    Values,
    Vector,
)
from icevirt.wire.header import FileKind

if TYPE_CHECKING:
    from icevirt.model.repo_info import SnapshotSummary

_ARRAY, _GROUP = 1, 2  # tags of the union NodeData
_UNREAD = Field("nodes", Vector(NODE_SNAPSHOT, columnar=True), required=True)
_SUMMARY = Table(
    SNAPSHOT.name,
    tuple(_UNREAD if field.name == _UNREAD.name else field for field in SNAPSHOT.fields),
)


def encode(snapshot: Snapshot, *, level: int = 3, spec_version: int = header.SPEC_VERSION) -> bytes:
    """Return the file of a snapshot.

    Raises:
        FormatError: It comes from a newer client's file and would lose something, or it holds
            something that V1 cannot express.
    """
    from icevirt.wire.flatbuffer.builder import build

    snapshot.refuse_loss()
    payload = build(SNAPSHOT, _values(snapshot, spec_version))
    return header.pack(FileKind.snapshot, payload, level=level, spec_version=spec_version)


def decode(raw: bytes) -> Snapshot:
    """Read a snapshot file. Raises ``FormatError``."""
    spec_version, payload = header.unpack(raw, FileKind.snapshot)
    with reading(FileKind.snapshot.name):
        reader = FlatBufferReader(payload)
        values = reader.root(SNAPSHOT)
        nodes = tuple(_node(row, each) for row, each in enumerate(values["nodes"]))
        if len({node.path for node in nodes}) != len(nodes):
            raise Damage("two nodes have one path", 0)
        return Snapshot(
            **_common(values, spec_version),
            nodes=nodes,
            manifest_files=_manifest_files(values),
            extra=values["extra"],
            newer_tables=tuple(sorted(reader.newer)),
        )


def decode_summary(raw: bytes) -> SnapshotSummary:
    """Read id, parent, time, message and metadata of a V1 snapshot. Raises ``FormatError``."""
    from icevirt.model.repo_info import SnapshotSummary

    spec_version, payload = header.unpack(raw, FileKind.snapshot)
    with reading(FileKind.snapshot.name):
        values = FlatBufferReader(payload).root(_SUMMARY)
        return SnapshotSummary(**_common(values, spec_version))


def _common(values: Values, spec_version: int) -> dict[str, Any]:
    """Return what a summary of a snapshot has too."""
    from icevirt.wire import metadata

    return {
        "id": ObjectId12(values["id"]),
        "parent_id": ObjectId12(values["parent_id"]) if values["parent_id"] else None,
        "flushed_at": values["flushed_at"],
        "message": values["message"],
        "metadata": metadata.from_items(values["metadata"], spec_version),
    }


# -- writing --------------------------------------------------------------------------------------


def _values(snapshot: Snapshot, spec_version: int) -> Values:
    from icevirt.wire import metadata

    files = snapshot.manifest_files
    values = {
        "id": snapshot.id,
        "nodes": [_node_values(node, spec_version) for node in snapshot.nodes],
        "flushed_at": snapshot.flushed_at,
        "message": snapshot.message,
        "metadata": metadata.to_items(snapshot.metadata, spec_version),
    }
    if spec_version == 1:
        packed = MANIFEST_FILE_INFO_LAYOUT.pack
        return values | {
            "parent_id": snapshot.parent_id,  # V2 keeps parents in the repo info
            "manifest_files": [packed(f.id, f.size_bytes, f.num_chunk_refs) for f in files],
        }
    names = [each.name for each in MANIFEST_FILE_INFO_V2.fields]
    return values | {
        "manifest_files": [],
        "manifest_files_v2": [{name: getattr(f, name) for name in names} for f in files],
        "extra": snapshot.extra,
    }


def _node_values(node: Node, spec_version: int) -> Values:
    data: tuple[int, Values] = (_GROUP, {})
    if isinstance(node, ArrayNode):
        data = _ARRAY, _array_values(node, spec_version)
    common = {name: getattr(node, name) for name in ("id", "path", "user_data", "extra")}
    return common | {"node_data": data}


def _array_values(node: ArrayNode, spec_version: int) -> Values:
    from icevirt.model.snapshot import chunk_shape

    names = node.dimension_names
    values = {
        "dimension_names": None if names is None else [{"name": name} for name in names],
        "manifests": [
            {
                "object_id": ref.object_id,
                "extents": [CHUNK_INDEX_RANGE_LAYOUT.pack(*extent) for extent in ref.extents],
            }
            for ref in node.manifests
        ],
    }
    if spec_version > 1:
        return values | {
            "shape": [],
            # present even when empty: its presence means V2
            "shape_v2": [
                {"array_length": length, "num_chunks": count}
                for length, count in zip(node.shape, node.num_chunks, strict=True)
            ],
        }
    if (edges := chunk_shape(node)) is None:
        raise FormatError(
            "the V1 format supports only regular chunk grids",
            do="Upgrade the repository: icevirt.upgrade_icechunk_repository(repo, dry_run=False).",
            path=node.path,
        )
    pairs = zip(node.shape, edges, strict=True)
    return values | {"shape": [DIMENSION_SHAPE_LAYOUT.pack(*pair) for pair in pairs]}


# -- reading --------------------------------------------------------------------------------------


def _node(row: int, values: Values) -> Node:
    tag, data = values["node_data"]
    common: dict[str, Any] = {name: values[name] for name in ("path", "user_data", "extra")}
    common["id"] = ObjectId8(values["id"])
    if not values["path"].startswith("/"):
        damage = Damage("a node's path does not begin with '/'", 0)
        damage.trail = ["path", f"[{row}]", "nodes", "Snapshot"]
        raise damage
    if tag == _GROUP:
        return GroupNode(**common)
    shape, num_chunks = _shape(data)
    names, extent = data["dimension_names"], CHUNK_INDEX_RANGE_LAYOUT.unpack
    return ArrayNode(
        **common,
        shape=shape,
        num_chunks=num_chunks,
        dimension_names=None if names is None else tuple(each["name"] for each in names),
        manifests=tuple(
            ManifestRef(
                object_id=ObjectId12(each["object_id"]), extents=tuple(map(extent, each["extents"]))
            )
            for each in data["manifests"]
        ),
    )


def _shape(data: Values) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return array lengths and chunk counts; V1 has chunk lengths instead of counts."""
    if (dims := data["shape_v2"]) is not None:
        return tuple(d["array_length"] for d in dims), tuple(d["num_chunks"] for d in dims)
    pairs = [DIMENSION_SHAPE_LAYOUT.unpack(raw) for raw in data["shape"]]
    counts = tuple(-(-length // chunk) if chunk else 0 for length, chunk in pairs)
    return tuple(length for length, _ in pairs), counts


def _manifest_files(values: Values) -> tuple[ManifestFile, ...]:
    if (rows := values["manifest_files_v2"]) is None:
        found = [MANIFEST_FILE_INFO_LAYOUT.unpack(raw) for raw in values["manifest_files"]]
        return tuple(
            ManifestFile(id=ObjectId12(i), size_bytes=size, num_chunk_refs=count)
            for i, size, count in found
        )
    if any(row["id"] is None for row in rows):
        raise Damage("a manifest has no id", 0)
    return tuple(ManifestFile(**{**row, "id": ObjectId12(row["id"])}) for row in rows)
