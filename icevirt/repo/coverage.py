"""Say which steps of a dimension the chunks of a version cover, and where their bytes lie."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.reports.coverage import (
    KINDS,
    ArrayCoverage,
    Coverage,
    by_group,
    main_dimension,
    shares,
)
from icevirt.ids import ObjectId12
from icevirt.model.chunks import ChunkType
from icevirt.model.metadata import document_of
from icevirt.model.snapshot import ArrayNode
from icevirt.repo.assets import Assets

_TYPES = {"virtual": ChunkType.virtual, "native": ChunkType.native, "inline": ChunkType.inline}


def coverage_of(assets: Assets, snapshot_id: ObjectId12) -> Coverage | None:
    """Return what the arrays of a version cover; None where no dimension has a name.

    Every manifest of the version is read, one at a time.

    Args:
        assets: Of the repository.
        snapshot_id: The version.
    """
    nodes = list(assets.snapshot(snapshot_id).arrays())
    dimension = main_dimension([
        {
            name: number
            for name, number in zip(node.dimension_names or (), node.num_chunks, strict=False)
            if name is not None
        }
        for node in nodes
    ])  # fmt: skip
    if not dimension:
        return None
    covered = (
        _covered(assets, node, (node.dimension_names or ()).index(dimension))
        for node in nodes
        if dimension in (node.dimension_names or ())
    )
    return by_group(dimension, covered)


def _covered(assets: Assets, node: ArrayNode, axis: int) -> ArrayCoverage:
    """Return what the chunks of one array cover along an axis."""
    numbers = np.zeros((len(KINDS), node.num_chunks[axis]), np.int64)
    for ref in node.manifests:
        table = assets.read_manifest(ref.object_id).arrays.get(node.id)
        if table is None:
            continue
        for row, kind in enumerate(KINDS):
            at = table.index[table.kind == _TYPES[kind], axis]
            numbers[row] += np.bincount(at, minlength=numbers.shape[1])[: numbers.shape[1]]
    beside = math.prod(node.num_chunks) // max(node.num_chunks[axis], 1)
    bounds = _bounds(node, axis)
    steps = node.shape[axis]
    return ArrayCoverage(
        path=node.path,
        steps=steps,
        shares={
            kind: shares(bounds[:-1], np.diff(bounds), numbers[row] / max(beside, 1), steps)
            for row, kind in enumerate(KINDS)
            if numbers[row].any()
        },
    )


def _bounds(node: ArrayNode, axis: int) -> NDArray[np.int64]:
    """Return where the chunks along an axis begin, and where the last one ends."""
    configuration = document_of(node)["chunk_grid"]["configuration"]
    edges = configuration.get("chunk_shape", configuration.get("chunk_shapes"))[axis]
    if isinstance(edges, int):
        bounds = np.arange(node.num_chunks[axis] + 1, dtype=np.int64) * edges
    else:
        sizes = [each if isinstance(each, list) else [each, 1] for each in edges]
        lengths = np.repeat([size for size, _ in sizes], [times for _, times in sizes])
        bounds = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    return np.minimum(bounds, node.shape[axis])
