"""Look up single chunk references without building arrays, for lone requests.

`Session.references` answers many chunks at once, at the fixed cost of a dozen array operations.
This module does the same for one chunk, straight from the columns of its manifest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.snapshot import ArrayNode, Snapshot
from icevirt.repo.assets import Assets
from icevirt.versioning.chunk_tables import RowFinder
from icevirt.versioning.manifest_splitting import Boxes

type Row = tuple[ChunkTable, int]


class Lookup:
    """Finds single references of one snapshot."""

    def __init__(self, assets: Assets, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._assets = assets
        self._arrays: dict[str, _ArrayLookup | None] = {}

    def find(self, path: str, index: Sequence[int]) -> Row | None:
        """Return the table and row of a chunk; None where none was written, or there is no array.

        Raises:
            StorageError: A manifest cannot be fetched.
        """
        if path not in self._arrays:
            node = self.snapshot.find(path)
            array = _ArrayLookup(self._assets, node) if isinstance(node, ArrayNode) else None
            self._arrays[path] = array
        known = self._arrays[path]
        return None if known is None else known.find(index)


class _ArrayLookup:
    def __init__(self, assets: Assets, node: ArrayNode) -> None:
        self._assets = assets
        self._node = node
        self._ndim = len(node.num_chunks)
        self._boxes = Boxes.of(node.manifests, self._ndim)

    def find(self, index: Sequence[int]) -> Row | None:
        number = self._manifest(index)
        if number < 0:
            return None
        held = self._assets.manifest(self._node.manifests[number].object_id).get(self._node.id)
        if held is None or (row := row_of(held.rows, index)) < 0:
            return None
        return None if held.table.kind[row] == ChunkType.uninitialized else (held.table, row)

    def _manifest(self, index: Sequence[int]) -> int:
        if len(index) != self._ndim or not self._node.manifests:
            return -1
        if len(self._node.manifests) > 1:
            return int(self._boxes.first_containing(np.array([index], np.int64))[0])
        extents = self._node.manifests[0].extents
        if not extents:
            return 0
        held = zip(index, extents, strict=True)
        return 0 if all(low <= at < high for at, (low, high) in held) else -1


def row_of(rows: RowFinder, index: Sequence[int]) -> int:
    """Return the row of one chunk, as `RowFinder.find` does for many; -1 where there is none."""
    if rows.packed is not None or not rows.rows:
        return int(rows.find(np.array([index], np.int64))[0])
    key = 0
    columns = (rows.low.tolist(), rows.high.tolist(), rows.strides.tolist())
    for at, low, high, stride in zip(index, *columns, strict=True):
        if not low <= at < high:
            return -1
        key += (at - low) * stride
    if rows.keys is None:
        return key
    row = int(rows.keys.searchsorted(key))
    # a corner of the box may lie beyond the last chunk
    return row if row < rows.rows and int(rows.keys[row]) == key else -1
