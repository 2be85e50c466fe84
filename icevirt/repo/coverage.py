"""Say which steps of a dimension the chunks of a version cover, and where their bytes lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

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
from icevirt.model.snapshot import ArrayNode, document_of
from icevirt.repo.assets import Assets

_TYPES = {"virtual": ChunkType.virtual, "native": ChunkType.native, "inline": ChunkType.inline}
_GROUPS = 1_000_000  # of chunks along an axis, each of which is counted as a whole


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
    """Return what the chunks of one array cover along an axis.

    Along an axis of more than a million chunks, neighbors are counted together.
    """
    count = node.num_chunks[axis]
    every = -(-count // _GROUPS) or 1
    first = np.arange(0, count, every)
    numbers = np.zeros((len(KINDS), len(first)), np.int64)
    for ref in node.manifests:
        table = assets.read_manifest(ref.object_id).arrays.get(node.id)
        if table is None:
            continue
        for row, kind in enumerate(KINDS):
            at = table.index[table.kind == _TYPES[kind], axis] // np.uint32(every)
            numbers[row] += np.bincount(at, minlength=len(first))[: len(first)]
    beside = math.prod(node.num_chunks) // max(count, 1)
    bounds = _bounds(node, axis, np.append(first, count))
    together = np.diff(first, append=count) * max(beside, 1)
    steps = node.shape[axis]
    return ArrayCoverage(
        path=node.path,
        steps=steps,
        shares={
            kind: shares(bounds[:-1], np.diff(bounds), numbers[row] / together, steps)
            for row, kind in enumerate(KINDS)
            if numbers[row].any()
        },
    )


def _bounds(node: ArrayNode, axis: int, chunks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where some chunks along an axis begin; one behind the last begins at the end."""
    configuration = document_of(node)["chunk_grid"]["configuration"]
    edges = configuration.get("chunk_shape", configuration.get("chunk_shapes"))[axis]
    found: NDArray[np.int64] = chunks * edges if isinstance(edges, int) else _of_runs(edges, chunks)
    return np.minimum(found, node.shape[axis])


def _of_runs(edges: Sequence[Any], chunks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where chunks begin whose lengths are listed, or how often each length comes."""
    if not edges:
        return np.zeros_like(chunks)
    runs = np.array([each if isinstance(each, list) else [each, 1] for each in edges], np.int64)
    size, times = runs.reshape(-1, 2).T
    begins, first = np.cumsum(size * times) - size * times, np.cumsum(times) - times
    run = np.searchsorted(first, chunks, side="right") - 1
    found: NDArray[np.int64] = begins[run] + (chunks - first[run]) * size[run]
    return found
