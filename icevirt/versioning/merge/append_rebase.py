"""Rebase an append behind another append to the same array, without copying chunks.

It needs whole chunks at both seams, and metadata that differs only in length. Values are not
compared: two writers that append the same data append it twice.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from icevirt.ids import ObjectId8
from icevirt.model.chunks import ChunkTable
from icevirt.model.metadata import document_of, node_of
from icevirt.model.snapshot import ArrayNode, Snapshot
from icevirt.model.transaction_log import TransactionLog
from icevirt.versioning.merge.conflict_detection import Ours
from icevirt.versioning.merge.conflicts import Conflict, ConflictType


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendBehind:
    """How our append to one array follows theirs."""

    node: ArrayNode  # as long as both appends make it
    axis: int
    edge: int  # the first chunk that is ours, before
    by: int  # chunks that theirs added

    def moved(self, table: ChunkTable) -> ChunkTable:
        """Return our staged references, those of the append behind theirs."""
        index = table.index.astype(np.int64)
        index[:, self.axis] += np.where(index[:, self.axis] >= self.edge, self.by, 0)
        return table.reindexed(index)

    def left_of(self, conflict: Conflict) -> Conflict | None:
        """Return what is left of a conflict about the array."""
        if conflict.conflict_type is not ConflictType.ChunkDoubleUpdate:
            return None
        assert conflict.conflicted_chunks is not None
        before = conflict.conflicted_chunks[:, self.axis] < self.edge
        chunks = conflict.conflicted_chunks[before]
        return replace(conflict, conflicted_chunks=chunks) if len(chunks) else None


def reconciled(
    ours: Ours, log: TransactionLog, theirs: Snapshot, dimension: str
) -> dict[ObjectId8, AppendBehind]:
    """Return how our appends along a dimension follow theirs, for each array that both extended."""
    both = ours.log.updated_arrays & log.updated_arrays
    versions = [
        {node.id: node for node in snapshot.arrays() if node.id in both}
        for snapshot in (ours.before, ours.after, theirs)
    ]
    found = {}
    for key in versions[1]:
        before, mine, other = (version.get(key) for version in versions)
        if before is not None and mine is not None and other is not None:
            behind = _behind(before, mine, other, dimension)
            if behind is not None:
                found[key] = behind
    return found


def _behind(
    before: ArrayNode, ours: ArrayNode, theirs: ArrayNode, dimension: str
) -> AppendBehind | None:
    names = before.dimension_names or ()
    documents = [document_of(node) for node in (before, ours, theirs)]
    if names.count(dimension) != 1 or not _differ_in_length(documents):
        return None
    axis, grid = names.index(dimension), documents[0]["chunk_grid"]
    if grid["name"] != "regular":
        return None
    edge = int(grid["configuration"]["chunk_shape"][axis])
    start, mine, other = (node.shape[axis] for node in (before, ours, theirs))
    others = {node.shape[:axis] + node.shape[axis + 1 :] for node in (before, ours, theirs)}
    if min(mine, other) <= start or start % edge or other % edge or len(others) > 1:
        return None
    shape = [*theirs.shape]
    shape[axis] = other + mine - start
    document = json.dumps({**documents[1], "shape": shape}, indent=2, allow_nan=False)
    node = node_of(ours.path, document.encode(), ours.id, theirs.manifests)
    assert isinstance(node, ArrayNode)
    return AppendBehind(node=node, axis=axis, edge=start // edge, by=(other - start) // edge)


def _differ_in_length(documents: list[dict[str, Any]]) -> bool:
    rest = [{k: v for k, v in document.items() if k != "shape"} for document in documents]
    return all(each == rest[0] for each in rest)
