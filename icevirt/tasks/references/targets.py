"""Describe the arrays into which references are written, and the rows that come.

Each array is cut into cells, regular boxes of chunks; the references of a cell are one manifest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from icevirt.ids import ObjectId12
from icevirt.model.config.document import RepositoryConfig
from icevirt.model.snapshot import ArrayNode, Boxes, Extents, ManifestRef
from icevirt.planning.schedule.manifest_units import MAX_REFERENCES, window_of
from icevirt.versioning.manifest_splitting import SplitGrid, grid_of

COLUMNS: dict[str, str] = {
    "path": "string",
    "index": "array<bigint>",
    "location": "string",
    "offset": "bigint",
    "length": "bigint",
}
"""Columns that rows must have, and their types as Spark writes them."""

OPTIONAL: dict[str, str] = {"kind": "string", "etag": "string", "last_modified": "timestamp"}
"""Columns that rows may have."""


def cut_of(
    config: RepositoryConfig,
    path: str,
    num_chunks: Sequence[int],
    dimension_names: tuple[str | None, ...] | None,
) -> tuple[SplitGrid, bool]:
    """Return how an array's references are divided into manifests, and whether that is a new rule.

    Raises:
        InvalidInputError: A rule of the repository is not understood.
    """
    grid = grid_of(
        config.splitting_document,
        path=path,
        num_chunks=tuple(num_chunks),
        dimension_names=dimension_names,
    )
    if all(count <= 1 for count in grid.counts):
        steps = window_of(tuple(num_chunks), 0, MAX_REFERENCES)
        cut = SplitGrid(tuple(num_chunks), tuple(max(step, 1) for step in steps))
        if any(count > 1 for count in cut.counts):
            return cut, True
    return grid, False


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetArray:
    """An array, and how its references are divided into manifests."""

    node: ArrayNode
    grid: SplitGrid
    is_cut: bool  # here, so that the repository has to know

    @classmethod
    def of(cls, node: ArrayNode, config: RepositoryConfig) -> TargetArray:
        """Cut an array as the repository says; where it says nothing, so that manifests are small.

        Raises:
            InvalidInputError: A rule of the repository is not understood.
        """
        grid, is_cut = cut_of(config, node.path, node.num_chunks, node.dimension_names)
        return cls(node=node, grid=grid, is_cut=is_cut)

    def reaching(self, ref: ManifestRef) -> NDArray[np.int64]:
        """Return the cells in which a manifest can have references."""
        box = Boxes.of((ref,), len(self.node.num_chunks))
        return self.grid.cells_under(box.low[0].tolist(), box.high[0].tolist())

    def in_cell(self, cell: int) -> tuple[ManifestRef, ...]:
        """Return the manifests that can have references in a cell."""
        counts = self.grid.counts
        steps = np.array(self.grid.steps, np.int64)
        low = np.array(np.unravel_index(cell, counts), np.int64).reshape(len(counts)) * steps
        boxes = Boxes.of(self.node.manifests, len(counts))
        meets = np.all((boxes.low < low + steps) & (boxes.high > low), axis=1)
        return tuple(self.node.manifests[at] for at in np.flatnonzero(meets).tolist())

    def rewritten(self, cells: Iterable[int]) -> tuple[frozenset[int], frozenset[ObjectId12]]:
        """Return the cells that have to be written where some are, and manifests that then go.

        A manifest that reaches into several cells, because the array was cut otherwise, is taken
        apart in all of them.
        """
        under = [
            (ref.object_id, frozenset(self.reaching(ref).tolist())) for ref in self.node.manifests
        ]
        done: frozenset[int] = frozenset(cells)
        while True:
            gone = [(key, reach) for key, reach in under if not done.isdisjoint(reach)]
            now = done.union(*(reach for _, reach in gone))
            if now == done:
                return done, frozenset(key for key, _ in gone)
            done = now


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCell:
    """What became of a cell."""

    path: str
    cell: int
    written: int = 0  # references that came
    manifest_id: ObjectId12 | None = None  # None: nothing is in the cell
    size_bytes: int = 0
    num_chunk_refs: int = 0
    extents: Extents = ()
