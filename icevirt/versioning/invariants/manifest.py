"""Check a manifest: one array's table against its node and the configuration."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from icevirt.errors import InvalidInputError
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.config import document
from icevirt.model.config.document import RepositoryConfig
from icevirt.model.snapshot import ArrayNode, ManifestRef
from icevirt.versioning.invariants.problem import Problem
from icevirt.versioning.manifest_splitting import grid_of


def of_window(
    node: ArrayNode, ref: ManifestRef, table: ChunkTable | None, config: RepositoryConfig
) -> Iterator[Problem]:
    """Check one array's table in one manifest against the node and the configuration."""
    file = f"manifests/{ref.object_id}"
    found = (
        [("missing-array", f"it has no references of {node.path}")]
        if table is None
        else [*_table(node, ref, table), *_window(node, table, config), *_rows(node, table, config)]
    )
    for code, what in found:
        yield Problem(file=file, code=code, what=what, advice=code == "window")


def _table(node: ArrayNode, ref: ManifestRef, table: ChunkTable) -> Iterator[tuple[str, str]]:
    if table.ndim != len(node.num_chunks):
        yield "dimensions", f"references of {node.path} have {table.ndim} dimensions"
        return
    if not len(table):
        yield "empty", f"it holds an empty table of {node.path}"
    elif ref.extents != table.extents():
        yield "extents", f"extents of {node.path} are {ref.extents}, not {table.extents()}"
    outside = (table.index >= np.array(node.num_chunks, np.int64)).any(axis=1)
    if outside.any():
        index = tuple(table.index[int(outside.argmax())].tolist())
        yield "outside", f"chunk {index} of {node.path} lies outside the grid {node.num_chunks}"
    try:
        same = table.sorted() == table
    except ValueError as error:
        yield "twice", f"{error} in {node.path}"
        return
    if not same:
        yield "order", f"references of {node.path} are not in ascending order"


def _window(
    node: ArrayNode, table: ChunkTable, config: RepositoryConfig
) -> Iterator[tuple[str, str]]:
    """A manifest that spans cells of the splitting is torn up by its next writer."""
    if not len(table) or table.ndim != len(node.num_chunks):
        return
    try:
        grid = grid_of(
            config.splitting_document,
            path=node.path,
            num_chunks=node.num_chunks,
            dimension_names=node.dimension_names,
        )
    except InvalidInputError as error:
        yield "splitting", str(error)
        return
    box = table.extents()
    cells = zip(box, grid.steps, strict=True)
    if any(low // step != (high - 1) // step for (low, high), step in cells):
        yield "window", f"{box} of {node.path} spans cells of {grid.steps} chunks"


def _rows(
    node: ArrayNode, table: ChunkTable, config: RepositoryConfig
) -> Iterator[tuple[str, str]]:
    if bool((table.length == 0).any()):
        yield "zero-length", f"a reference of {node.path} has no bytes"
    virtual = table.kind == ChunkType.virtual
    if not virtual.any():
        return
    used = table.locations.url[np.unique(table.source[virtual])]
    bad = document.first_uncovered(
        used, document.prefixes_of(config.virtual_chunk_containers.values())
    )
    if bad is not None:
        yield "no-container", f"no virtual chunk container covers {bad} of {node.path}"
