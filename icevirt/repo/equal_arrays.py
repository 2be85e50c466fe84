"""Compare the values of two small arrays by how their chunks are stored."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from icevirt.archive.schema import DECODING
from icevirt.ids import ObjectId8
from icevirt.model.chunks import ChunkTable, ChunkType, Locations
from icevirt.model.snapshot import ArrayNode, ManifestRef, Node
from icevirt.model.strings import gather
from icevirt.repo.assets import Assets
from icevirt.versioning.merge.build_merge import BuiltArray

_DECIDES = ("shape", "data_type", "chunk_grid", "codecs", "fill_value")


def has_same_values(assets: Assets, there: Node, built: BuiltArray) -> bool:
    """Say whether a coordinate that was built holds what the one that is there holds.

    Chunks are compared by name: builds name those that they store by their content, and references
    into files carry checksums. Values that are equal but stored otherwise count as others.
    """
    if not isinstance(there, ArrayNode) or _facts(there.user_data) != _facts(built.zarr_json):
        return False
    before = _table(assets, there.id, there.manifests, len(there.shape))
    after = _table(assets, built.node_id, built.manifests, len(there.shape))
    return _chunks(before) == _chunks(after)


def _facts(zarr_json: bytes) -> str:
    """Return what of an array's metadata decides about its values."""
    document = json.loads(zarr_json)
    attributes = document.get("attributes") or {}
    told = [document.get(key) for key in _DECIDES], [attributes.get(name) for name in DECODING]
    return json.dumps(told, sort_keys=True)


def _table(
    assets: Assets, node: ObjectId8, manifests: Sequence[ManifestRef], ndim: int
) -> ChunkTable:
    found = (assets.read_manifest(ref.object_id).arrays.get(node) for ref in manifests)
    tables = [table for table in found if table is not None]
    return ChunkTable.concatenate(tables).sorted() if tables else ChunkTable.empty(ndim)


def _chunks(table: ChunkTable) -> tuple[list[bytes], Locations]:
    """Return what says which bytes the chunks are."""
    inline, virtual, native = (
        table.kind == kind for kind in (ChunkType.inline, ChunkType.virtual, ChunkType.native)
    )
    at, length = (column[inline].astype(np.int64) for column in (table.offset, table.length))
    columns = [
        table.index,
        table.kind,
        table.length,
        table.offset[~inline],
        table.chunk_ids[table.source[native]],
        gather(table.inline, at, length)[0],
    ]
    return [column.tobytes() for column in columns], table.locations.take(table.source[virtual])
