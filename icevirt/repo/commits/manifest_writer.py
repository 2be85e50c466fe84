"""Write staged references to manifests, rewriting only the splitting cells that they touch.

A manifest is kept when it lies in one untouched cell. Manifests that span several cells, or the
edge of a grid that shrank, are divided: a changed splitting applies lazily.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from icevirt.ids import ObjectId12
from icevirt.model.chunks import ChunkTable
from icevirt.model.config.document import RepositoryConfig
from icevirt.model.indices import all_inside, inside
from icevirt.model.snapshot import ArrayNode, Boxes, ManifestFile, ManifestRef, Node
from icevirt.repo.assets import Assets, HeldObjects
from icevirt.repo.commits.change_set import ChangeSet
from icevirt.repo.reader import ArrayReader
from icevirt.versioning import chunk_tables
from icevirt.versioning.manifest_splitting import SplitGrid, grid_of


def write_manifests(
    assets: Assets,
    staging: ChangeSet,
    config: RepositoryConfig,
    *,
    held: HeldObjects | None = None,
    rewrite: bool = False,
) -> tuple[tuple[Node, ...], dict[ObjectId12, ManifestFile]]:
    """Store the staged references; return the nodes of the new snapshot and what was written.

    With ``held``, manifests are held in it. With ``rewrite`` all manifests are written anew, those
    that nothing touches too.

    Raises:
        FormatError: The base, or a manifest to be taken apart, holds what would be lost.
    """
    staging.base.refuse_loss()
    staged = staging.tables()
    old = {node.id: node for node in staging.base.arrays()}
    written: dict[ObjectId12, ManifestFile] = {}
    result: list[Node] = []
    for node in staging.nodes.values():
        if isinstance(node, ArrayNode):
            before = old.get(node.id)
            resized = before is not None and before.num_chunks != node.num_chunks
            if node.id in staged or resized or rewrite:
                over = staged.get(node.id, ChunkTable.empty(len(node.num_chunks)))
                node, infos = _rewritten(  # noqa: PLW2901
                    assets, node, over, config, held, rewrite=rewrite
                )
                written |= {info.id: info for info in infos}
        result.append(node)
    return tuple(result), written


def _rewritten(
    assets: Assets,
    node: ArrayNode,
    over: ChunkTable,
    config: RepositoryConfig,
    held: HeldObjects | None,
    *,
    rewrite: bool,
) -> tuple[ArrayNode, list[ManifestFile]]:
    grid = grid_of(
        config.splitting_document,
        path=node.path,
        num_chunks=node.num_chunks,
        dimension_names=node.dimension_names,
    )
    over = _inside(over, grid)
    kept, taken = _sorted_out(node, grid, over)
    if rewrite:
        kept, taken = (), node.manifests
    merged = chunk_tables.overlay(ArrayReader(assets, node).table_to_rewrite(taken), over)
    merged = _inside(chunk_tables.stored(merged), grid)
    refs, infos = list(kept), []
    for part in by_cell(merged, grid):
        info = assets.put_manifest({node.id: chunk_tables.compact(part)}, held)
        refs.append(ManifestRef(object_id=info.id, extents=part.extents()))
        infos.append(info)
    refs.sort(key=lambda ref: tuple(low for low, _ in ref.extents))
    return replace(node, manifests=tuple(refs)), infos


def _sorted_out(
    node: ArrayNode, grid: SplitGrid, over: ChunkTable
) -> tuple[tuple[ManifestRef, ...], tuple[ManifestRef, ...]]:
    """Return the manifests to keep and those to take apart."""
    if math.prod(grid.counts) == 1 and len(over):  # the only cell is touched
        return (), node.manifests
    if not node.manifests:
        return (), ()
    boxes = Boxes.of(node.manifests, len(node.num_chunks))
    contained = np.all(boxes.high <= np.array(node.num_chunks, np.int64), axis=1)
    first, last = boxes.low, np.minimum(boxes.high, np.array(node.num_chunks, np.int64)) - 1
    steps = np.array(grid.steps, np.int64)
    contained &= np.all(first // steps == last // steps, axis=1)
    reaching = [
        grid.cells_under(low.tolist(), high.tolist())
        for low, high in zip(boxes.low[~contained], boxes.high[~contained], strict=True)
    ]
    rewritten = np.unique(np.concatenate([grid.cells_of(over.index), *reaching]))
    own = grid.cells_of(first)
    keep = contained & ~np.isin(own, rewritten)
    return (
        tuple(ref for ref, kept in zip(node.manifests, keep, strict=True) if kept),
        tuple(ref for ref, kept in zip(node.manifests, keep, strict=True) if not kept),
    )


def _inside(table: ChunkTable, grid: SplitGrid) -> ChunkTable:
    if all_inside(table.index, grid.num_chunks):
        return table
    return table.take(inside(table.index, grid.num_chunks))


def by_cell(table: ChunkTable, grid: SplitGrid) -> list[ChunkTable]:
    """Return the rows of each cell as a table, in the order of the cells."""
    if not len(table):
        return []
    if math.prod(grid.counts) == 1:
        return [table]
    cell = grid.cells_of(table.index)
    order = np.argsort(cell, kind="stable")
    ends = np.flatnonzero(np.diff(cell[order])) + 1
    return [table.take(rows) for rows in np.split(order, ends)]
