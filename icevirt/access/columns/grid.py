"""Say where the chunks of an array lie along each axis."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import zarr
from numpy.typing import NDArray

type Numbers = NDArray[np.int64]

_MOST = 1 << 62


class GridAxis(NamedTuple):
    """The chunks of one axis; ``edges`` are given where they differ in length."""

    length: int  # of the axis
    size: int  # of a chunk, also of the last one, which may end beyond the axis
    edges: Numbers | None = None  # (chunks + 1,)

    @property
    def chunk_count(self) -> int:
        """How many chunks there are; one along an axis without elements."""
        return -(-max(self.length, 1) // self.size) if self.edges is None else len(self.edges) - 1

    def chunk_of(self, at: Numbers) -> Numbers:
        """Return the chunks that elements lie in."""
        if self.edges is None:
            return at // self.size
        return np.searchsorted(self.edges, at, side="right") - 1

    def begin_of(self, chunk: Numbers) -> Numbers:
        """Return the first element of each chunk."""
        return chunk * self.size if self.edges is None else self.edges[chunk]

    def size_of(self, chunk: Numbers) -> Numbers:
        """Return the length of each chunk as it is stored."""
        if self.edges is None:
            return np.full(len(chunk), self.size, np.int64)
        return self.edges[chunk + 1] - self.edges[chunk]


def _sizes_of(array: zarr.Array[Any]) -> tuple[int | tuple[int, ...], ...]:
    try:
        return tuple(array.chunks)
    except NotImplementedError:  # a rectilinear grid; its chunks, too, may end beyond the array
        metadata: Any = array.metadata  # of Zarr v3
        return tuple(metadata.chunk_grid.chunk_shapes)


def is_countable(array: zarr.Array[Any]) -> bool:
    """Say whether 64 bits hold all positions in the grid of an array; others wrote its metadata."""
    sizes = [size if isinstance(size, int) else sum(size) for size in _sizes_of(array)]
    most = max((*array.shape, *sizes), default=0)
    return most < _MOST and prod(axis.chunk_count for axis in grid_of(array)) < _MOST


def grid_of(array: zarr.Array[Any]) -> tuple[GridAxis, ...]:
    """Return the grid of an array that `is_countable`."""
    return tuple(
        GridAxis(length=length, size=max(size, 1))
        if isinstance(size, int)
        else GridAxis(length=length, size=0, edges=np.cumsum([0, *size], dtype=np.int64))
        for length, size in zip(array.shape, _sizes_of(array), strict=True)
    )


def shapes_of(grid: Sequence[GridAxis], chunks: Numbers) -> Sequence[tuple[int, ...]]:
    """Return the shape of each of some chunks, whose indices have the shape (n, ndim)."""
    if all(axis.edges is None for axis in grid):
        return [tuple(axis.size for axis in grid)] * len(chunks)
    columns = [axis.size_of(at).tolist() for axis, at in zip(grid, chunks.T, strict=True)]
    return list(zip(*columns, strict=True))
