"""Read the mappings of a virtual dataset, and match the chunks of sources with its chunk grid.

HDF5 pairs the elements of two selections in C order (H5Pset_virtual). Selections that are boxes can
be resolved to chunks; others (strided, points, unions) are only named. An unlimited selection ends
with its source, and `%b` in a name stands for the number of a block along the unlimited axis.

A box of the dataset and a box of a source hold the same elements in C order. They are paired axis
by axis, ignoring axes of length 1 if the ranks differ; then whole chunks must meet whole chunks. A
chunk may only be cut where the virtual dataset ends: zarr never reads beyond that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import Any

import numpy as np
from h5py import h5s
from numpy.typing import NDArray

from icevirt_scanners import blocks

type Shape = tuple[int, ...]

UNLIMITED = -1  # a count that the source decides
_PERCENT = re.compile(r"%(.?)", re.DOTALL)
_HUGE = 1 << 62  # H5S_UNLIMITED and whatever no dataset reaches


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A box of elements; a count may be `UNLIMITED`."""

    start: tuple[int, ...]
    count: tuple[int, ...]

    @property
    def end(self) -> tuple[int, ...]:
        """One more than the last element along each axis."""
        return tuple(at + n for at, n in zip(self.start, self.count, strict=True))

    def inside(self, shape: tuple[int, ...]) -> bool:
        """Say whether it lies in an array of this shape."""
        return len(shape) == len(self.start) and all(
            end <= length for end, length in zip(self.end, shape, strict=True)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """One mapping. A box is None where the selection is none."""

    file: str  # "." is the file of the virtual dataset
    dataset: str
    here: Box | None  # in the virtual dataset
    there: Box | None  # in its source
    whole: bool = False  # all of the source, however large
    reach: tuple[int, ...] = ()  # how far the source must extend, box or not

    def fit(self, shape: tuple[int, ...], source: tuple[int, ...]) -> Mapping:
        """Let unlimited boxes, and whole sources, end where both arrays do."""
        there = Box(start=(0,) * len(source), count=source) if self.whole else self.there
        if self.here is None or there is None or len(there.start) != len(source):
            return replace(self, there=there)
        open_here = [n for n, count in enumerate(self.here.count) if count == UNLIMITED]
        open_there = [n for n, count in enumerate(there.count) if count == UNLIMITED]
        if len(open_here) != len(open_there):
            return replace(self, here=None)
        counts, sources = list(self.here.count), list(there.count)
        for n, m in zip(open_here, open_there, strict=True):
            left = min(shape[n] - self.here.start[n], source[m] - there.start[m])
            counts[n] = sources[m] = max(left, 0)
        return replace(
            self,
            here=Box(start=self.here.start, count=tuple(counts)),
            there=Box(start=there.start, count=tuple(sources)),
        )


class OddNameError(Exception):
    """The name of a source has a format that HDF5 does not know."""


def mappings_of(plist: Any, shape: tuple[int, ...]) -> Iterator[Mapping]:
    """Yield the mappings of a virtual dataset of this shape; numbered sources one by one.

    Raises:
        OddNameError: A name is neither plain nor numbered.
    """
    for number in range(plist.get_virtual_count()):
        space, source = plist.get_virtual_vspace(number), plist.get_virtual_srcspace(number)
        file, dataset = plist.get_virtual_filename(number), plist.get_virtual_dsetname(number)
        kind = source.get_select_type()
        if space.get_select_type() == h5s.SEL_NONE or kind == h5s.SEL_NONE:
            continue
        whole = kind == h5s.SEL_ALL
        there, reach = (None, ()) if whole else (_box(source), _reach(source))
        if not (_is_numbered(file) | _is_numbered(dataset)):
            everything = Box(start=(0,) * len(shape), count=shape)
            here = everything if space.get_select_type() == h5s.SEL_ALL else _box(space)
            yield Mapping(
                file=file, dataset=dataset, here=here, there=there, whole=whole, reach=reach
            )
            continue
        for block, here in enumerate(_blocks(space, shape)):
            yield Mapping(
                file=file.replace("%b", str(block)),
                dataset=dataset.replace("%b", str(block)),
                here=here,
                there=there,
                whole=whole,
                reach=reach,
            )


def _is_numbered(name: str) -> bool:
    found = _PERCENT.findall(name)
    if any(letter != "b" for letter in found):
        raise OddNameError(name)
    return bool(found)


def _blocks(space: Any, shape: tuple[int, ...]) -> Iterator[Box | None]:
    """Yield the blocks of an unlimited selection, as far as they lie in the shape."""
    start, stride, count, block = space.get_regular_hyperslab()
    axes = [n for n, times in enumerate(count) if times >= _HUGE]
    if len(axes) != 1:
        return
    (axis,) = axes
    sizes = tuple(_extent(*each) for each in zip(stride, count, block, strict=True))
    for at in range(start[axis], shape[axis], max(stride[axis], 1)):
        corner = (*start[:axis], at, *start[axis + 1 :])
        size = (*sizes[:axis], min(block[axis], shape[axis] - at), *sizes[axis + 1 :])
        known = tuple(n for n in size if n is not None)
        yield Box(start=corner, count=known) if len(known) == len(size) else None


def _box(space: Any) -> Box | None:
    """Return a selection as a box, None where it is none."""
    if space.get_select_type() != h5s.SEL_HYPERSLABS:
        return None
    if space.is_regular_hyperslab():
        start, *sizes = space.get_regular_hyperslab()
        found = [_extent(*each) for each in zip(*sizes, strict=True)]
        known = tuple(n for n in found if n is not None)
        return Box(start=tuple(start), count=known) if len(known) == len(found) else None
    low, high = space.get_select_bounds()
    count = tuple(last - first + 1 for first, last in zip(low, high, strict=True))
    is_box = space.get_select_npoints() == prod(count)
    return Box(start=tuple(low), count=count) if is_box else None


def _reach(space: Any) -> tuple[int, ...]:
    if space.is_regular_hyperslab():
        _, _, counts, blocks = space.get_regular_hyperslab()
        if max(*counts, *blocks) >= _HUGE:
            return ()
    return tuple(last + 1 for last in space.get_select_bounds()[1])


def _extent(stride: int, count: int, block: int) -> int | None:
    """Return how many elements a selection takes along an axis without a gap, None with gaps."""
    if block >= _HUGE:
        return UNLIMITED
    if count == 1:
        return block
    if stride != block:
        return None
    return UNLIMITED if count >= _HUGE else count * block


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
        within = blocks.all_chunks(counts)
        edges = self.grid_there(grid)
        first = [at // edge for at, edge in zip(self.there.start, edges, strict=True)]
        theirs = np.tile(np.array(first, np.int64), (len(within), 1))
        for n, m in self.pairs:
            theirs[:, m] += within[:, n]
        return within + np.array(self.first(grid), np.int64), theirs


def grid_of_runs(fits: Sequence[tuple[Fit, Shape]], itemsize: int) -> Shape:
    """Return the grid into which contiguous sources of the given shapes are split.

    Its chunks are runs of every source as far as one grid can make them; see `is_run`.
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
