"""Match the chunks of a source with the chunk grid of a virtual dataset. Pure.

A box of one and a box of the other hold the same elements in C order. They are paired axis by axis,
ignoring axes of length 1 if the ranks differ; then whole chunks must meet whole chunks. A chunk may
only be cut where the virtual dataset ends: zarr never reads beyond that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod

import numpy as np
from numpy.typing import NDArray

from icevirt_scanners import blocks
from icevirt_scanners.hdf5.virtual.mappings import Box

type Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A box of a virtual dataset, the box of its source, and which axes of them are paired."""

    here: Box
    there: Box
    pairs: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, here: Box, there: Box) -> Fit | None:
        """Pair the axes; None where the same elements make boxes of different forms."""
        if here.count == there.count:
            pairs = [(n, n) for n in range(len(here.count))]
        else:
            mine = [n for n, count in enumerate(here.count) if count != 1]
            theirs = [n for n, count in enumerate(there.count) if count != 1]
            if [here.count[n] for n in mine] != [there.count[n] for n in theirs]:
                return None
            pairs = list(zip(mine, theirs, strict=True))
        return cls(here=here, there=there, pairs=tuple(pairs))

    def grid_here(self, chunk: Shape) -> Shape | None:
        """Return the chunk grid that chunks of the source make in the virtual dataset."""
        edges = [1] * len(self.here.start)
        paired = {m: n for n, m in self.pairs}
        for axis, edge in enumerate(chunk):
            if axis in paired:
                edges[paired[axis]] = edge
            elif edge != 1:
                return None
        return tuple(edges)

    def grid_there(self, chunk: Shape) -> Shape:
        """Return the edges in the source of chunks of the virtual dataset."""
        edges = [1] * len(self.there.start)
        for n, m in self.pairs:
            edges[m] = chunk[n]
        return tuple(edges)

    def meets(self, grid: Shape, shape: Shape, *, whole: bool = False) -> bool:
        """Say whether whole chunks of the source stand on the grid of an array of this shape.

        ``whole``: none may be cut by the end of the array either, because nothing fills it up.
        """
        paired = {n for n, _ in self.pairs}
        return all(edge == 1 for n, edge in enumerate(grid) if n not in paired) and all(
            not self.here.start[n] % grid[n]
            and not self.there.start[m] % grid[n]
            and (
                not self.here.count[n] % grid[n]
                or (not whole and self.here.start[n] + self.here.count[n] == shape[n])
            )
            for n, m in self.pairs
        )

    def counts(self, grid: Shape) -> Shape:
        """Return how many chunks the box has along each axis of the virtual dataset."""
        return tuple(-(-count // edge) for count, edge in zip(self.here.count, grid, strict=True))

    def first(self, grid: Shape) -> Shape:
        """Return the first chunk of the box in the virtual dataset."""
        return tuple(at // edge for at, edge in zip(self.here.start, grid, strict=True))

    def chunks(self, grid: Shape) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the chunks of the box: their indices in the virtual dataset, and in the source."""
        counts = self.counts(grid)
        within = np.indices(counts, np.int64).reshape(len(counts), prod(counts)).T
        edges = self.grid_there(grid)
        first = [at // edge for at, edge in zip(self.there.start, edges, strict=True)]
        theirs = np.tile(np.array(first, np.int64), (len(within), 1))
        for n, m in self.pairs:
            theirs[:, m] += within[:, n]
        return within + np.array(self.first(grid), np.int64), theirs


def grid_of_runs(fits: Sequence[tuple[Fit, Shape]], itemsize: int) -> Shape:
    """Return the grid into which contiguous sources of the given shapes are split.

    Its chunks are runs of every source as far as one grid can make them; `is_run` tells.
    """
    ndim = len(fits[0][0].here.start)
    common, full = [0] * ndim, [True] * ndim
    for fit, _ in fits:
        paired = dict(fit.pairs)
        for axis in range(ndim):
            if axis not in paired:
                common[axis] = 1
                continue
            for number in (fit.here.count[axis], fit.here.start[axis]):
                common[axis] = gcd(common[axis], number)
            common[axis] = gcd(common[axis], fit.there.start[paired[axis]])
    for fit, shape in fits:
        paired = dict(fit.pairs)
        for axis in range(ndim):
            length = shape[paired[axis]] if axis in paired else 1
            full[axis] &= length == common[axis]
    cut = next((axis for axis in reversed(range(ndim)) if not full[axis]), 0)
    lengths = (*(1 for _ in range(cut)), *common[cut:])
    return blocks.grid_of_block(lengths, itemsize)


def is_run(edges: Shape, shape: Shape) -> bool:
    """Say whether a box with these edges is one run of an array of this shape in C order."""
    axis = 0
    while axis < len(edges) and edges[axis] == 1:
        axis += 1
    return edges[axis + 1 :] == shape[axis + 1 :]


def overlap(boxes: Sequence[tuple[Shape, Shape]], counts: Shape) -> bool:
    """Say whether boxes of chunks (first, counts) meet in a grid of this many chunks."""
    there = np.zeros(counts, bool)
    for first, size in boxes:
        part = there[tuple(slice(at, at + n) for at, n in zip(first, size, strict=True))]
        if part.any():
            return True
        part[...] = True
    return False
