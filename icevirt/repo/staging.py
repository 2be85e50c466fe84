"""What a session changed and has not committed: nodes, and chunk references by node.

It holds the state after the changes, not a list of them; the transaction log is derived from it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import InvalidInputError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.logic import changes, nodes, tables
from icevirt.logic.detection import Ours
from icevirt.logic.rebase import Replayed
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.metadata import node_of
from icevirt.model.snapshot import ArrayNode, Node, Snapshot
from icevirt.model.transaction_log import TransactionLog


class Staging:
    """Uncommitted changes on top of one snapshot."""

    def __init__(self, base: Snapshot) -> None:
        self.base = base
        self.nodes: dict[str, Node] = nodes.by_path(base.nodes)
        self._tables: dict[ObjectId8, list[ChunkTable]] = {}

    # -- asking ------------------------------------------------------------------------------

    def is_empty(self) -> bool:
        """Say whether nothing differs from the base."""
        alive = {node.id for node in self.nodes.values()}
        return alive.isdisjoint(self._tables) and self.snapshot().nodes == self.base.nodes

    def snapshot(self) -> Snapshot:
        """Return the nodes as changed so far, as a snapshot."""
        return Snapshot(
            id=self.base.id,
            nodes=tuple(self.nodes.values()),
            flushed_at=self.base.flushed_at,
            message=self.base.message,
            metadata=self.base.metadata,
            manifest_files=self.base.manifest_files,
        )

    def table(self, node: ObjectId8) -> ChunkTable | None:
        """Return the staged references of an array; kind 0 says "deleted". None: there are none."""
        parts = self._tables.get(node)
        if not parts:
            return None
        whole = tables.overlaid(parts)
        self._tables[node] = [whole]
        return whole

    def tables(self) -> Mapping[ObjectId8, ChunkTable]:
        """Return all staged references of arrays that still exist."""
        alive = {node.id for node in self.nodes.values()}
        found = {key: self.table(key) for key in self._tables if key in alive}
        return {key: table for key, table in found.items() if table is not None}

    def ours(self) -> Ours:
        """Return the changes as conflict detection wants them."""
        return Ours(before=self.base, after=self.snapshot(), log=self.log(self.base.id))

    def log(self, key: ObjectId12) -> TransactionLog:
        """Return the transaction log of committing this as snapshot ``key``."""
        chunks = {node: table.index for node, table in self.tables().items()}
        return changes.log_of(key, self.base.nodes, self.nodes.values(), chunks)

    # -- changing ----------------------------------------------------------------------------

    def add_group(self, path: str, zarr_json: bytes) -> None:
        """Add a group; see `icevirt.logic.nodes.add_group`."""
        nodes.add_group(self.nodes, path, zarr_json, ObjectId8.random)

    def add_array(self, path: str, zarr_json: bytes, chunks: ChunkTable) -> None:
        """Add an array and its references."""
        node = node_of(path, zarr_json, ObjectId8.random())
        assert isinstance(node, ArrayNode)
        check_grid(node, chunks.index)
        nodes.add_array(self.nodes, node, ObjectId8.random)
        self._stage(node, chunks)

    def put(self, node: ArrayNode, chunks: ChunkTable) -> None:
        """Write references over those that are there."""
        check_grid(node, chunks.index)
        self._stage(node, chunks)

    def forget(self, node: ArrayNode, index: NDArray[np.integer]) -> None:
        """Make chunks unwritten again; they may lie outside a grid that is about to shrink."""
        n = len(index)
        self._stage(
            node,
            ChunkTable(
                index=np.ascontiguousarray(index, np.uint32),
                kind=np.full(n, ChunkType.uninitialized, np.uint8),
                source=np.zeros(n, np.uint32),
                offset=np.zeros(n, np.uint64),
                length=np.zeros(n, np.uint64),
            ).sorted(),
        )

    def replayed(self, base: Snapshot, replayed: Replayed) -> Staging:
        """Return the same changes on top of another snapshot, as a rebase decided."""
        staging = Staging(base)
        staging.nodes = dict(replayed.nodes)
        for key, table in self.tables().items():
            lost = replayed.dropped.get(key)
            kept = table if lost is None else tables.without(table, lost)
            if len(kept):
                staging._tables[key] = [kept]
        return staging

    def remove(self, path: str) -> None:
        """Remove a node and all below it."""
        nodes.remove(self.nodes, path)

    def _stage(self, node: ArrayNode, chunks: ChunkTable) -> None:
        if len(chunks):
            self._tables.setdefault(node.id, []).append(chunks)


def check_grid(node: ArrayNode, index: NDArray[np.integer]) -> None:
    """Check that chunk indices, shape (k, ndim), lie in the array's grid.

    Raises:
        InvalidInputError: One does not; the first is named.
    """
    if index.ndim != 2 or index.shape[1] != len(node.num_chunks):
        raise InvalidInputError(
            "chunk indices do not have the array's number of dimensions",
            do=f"Pass an integer array of shape (n, {len(node.num_chunks)}).",
            path=node.path,
            shape=index.shape,
        )
    outside = np.any((index < 0) | (index >= np.array(node.num_chunks, np.int64)), axis=1)
    if outside.any():
        raise InvalidInputError(
            "a chunk lies outside the array's chunk grid",
            do="Resize the array first.",
            path=node.path,
            chunk=tuple(index[int(outside.argmax())].tolist()),
            num_chunks=node.num_chunks,
        )
