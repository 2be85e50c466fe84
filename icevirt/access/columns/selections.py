"""Plan selections: which chunks they touch, and where the values of each chunk go.

Axes are planned by themselves, so that a plan is as long as the grid's edges, not as its volume.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from icevirt.access.columns.grid import GridAxis, Numbers

type Index = int | np.integer[Any] | slice | NDArray[np.integer[Any]]
"""What selects elements of one axis; slices have positive steps."""

type Place = slice | NDArray[np.int64]


class _Segment(NamedTuple):
    """Chunks of one axis that are put in their place together."""

    rows: slice  # of the box
    inner: slice  # which elements of each chunk
    outer: slice  # where they go


class _Slices(NamedTuple):
    """Elements with a constant step."""

    length: int  # elements that are selected
    chunk: Numbers
    first: Numbers  # in the chunk
    last: Numbers
    is_whole: NDArray[np.bool_]  # whether all of the chunk is selected
    low: Numbers  # in the result
    high: Numbers
    step: int = 1
    is_kept: bool = True
    is_turned: bool = False  # whether the last one goes to the front of the result

    def segments(self, begin: int, end: int) -> list[_Segment]:
        """Return runs of chunks that are selected as a whole, and each other one by itself."""
        bounds = [0, end - begin]
        is_whole = self.is_whole[begin:end]
        if end - begin > 1 and not is_whole.all():
            starts = np.flatnonzero(~(is_whole[1:] & is_whole[:-1])) + 1
            bounds = [0, *starts.tolist(), end - begin]
        return [
            _Segment(
                rows=slice(low, high),
                inner=slice(
                    int(self.first[begin + low]), int(self.last[begin + low]) + 1, self.step
                ),
                outer=slice(int(self.low[begin + low]), int(self.high[begin + high - 1])),
            )
            for low, high in itertools.pairwise(bounds)
        ]

    def places(self, at: Numbers) -> tuple[list[Place], list[Place]]:
        rows, which = np.unique(at, return_inverse=True)
        first, last = self.first[rows].tolist(), self.last[rows].tolist()
        low, high = self.low[rows].tolist(), self.high[rows].tolist()
        inner = [slice(a, b + 1, self.step) for a, b in zip(first, last, strict=True)]
        outer = [slice(a, b) for a, b in zip(low, high, strict=True)]
        numbers = which.tolist()
        return [inner[number] for number in numbers], [outer[number] for number in numbers]


class _Elements(NamedTuple):
    """Elements in any order, sorted by their chunks."""

    length: int
    chunk: Numbers
    starts: Numbers  # (chunks + 1,) of the elements of each chunk
    inner: Numbers  # (length,)
    order: Numbers | None  # (length,) where each goes; None: in this order
    is_kept: bool = True

    def places(self, at: Numbers) -> tuple[list[Place], list[Place]]:
        bounds = zip(self.starts[at].tolist(), self.starts[at + 1].tolist(), strict=True)
        parts = [slice(low, high) for low, high in bounds]
        inner: list[Place] = [self.inner[part] for part in parts]
        if self.order is None:
            return inner, list(parts)
        return inner, [self.order[part] for part in parts]


type _Axis = _Slices | _Elements
"""One axis of an orthogonal selection: a row for each chunk that it touches."""


def _places_of(
    axes: Sequence[_Axis], at: Sequence[Numbers], count: int
) -> list[tuple[tuple[Place, ...], tuple[Place, ...]]]:
    """Return which elements of each chunk are selected along some axes, and where they go."""
    if not axes:
        return [((), ())] * count
    pairs = [axis.places(rows) for axis, rows in zip(axes, at, strict=True)]
    inner, outer = (list(zip(*each, strict=True)) for each in zip(*pairs, strict=True))
    return list(zip(inner, outer, strict=True))


class OrthogonalSelection:
    """An index along each axis by itself, as of numpy's basic indexing and of ``oindex``."""

    def __init__(self, grid: Sequence[GridAxis], key: Sequence[Index]) -> None:
        self._axes = [_axis_of(axis, index) for axis, index in zip(grid, key, strict=True)]
        self.shape = tuple(axis.length for axis in self._axes if axis.is_kept)
        self.canvas_shape = tuple(axis.length for axis in self._axes)
        self.count = math.prod(len(axis.chunk) for axis in self._axes)

    def window(self, begin: int, end: int) -> ChunkWindow:
        """Return the chunks from ``begin`` to ``end``."""
        return _Box(self._axes, begin, end)

    def result_of(self, canvas: NDArray[Any]) -> NDArray[Any]:
        """Return what windows wrote to, as the result."""
        return canvas.reshape(self.shape)


class _Box:
    """Chunks of an orthogonal selection: a run in the order of the grid."""

    def __init__(self, axes: Sequence[_Axis], begin: int, end: int) -> None:
        self._axes = axes
        self._begin = begin
        self._lengths = tuple(len(axis.chunk) for axis in axes)
        rows = np.arange(begin, end)
        self._at = np.unravel_index(rows, self._lengths) if axes else ()
        columns = [axis.chunk[at] for axis, at in zip(axes, self._at, strict=True)]
        self.chunks = np.stack(columns, axis=1) if axes else np.zeros((end - begin, 0), np.int64)

    @cached_property
    def _places(self) -> list[tuple[tuple[Place, ...], tuple[Place, ...]]]:
        return _places_of(self._axes, self._at, len(self.chunks))

    def place(self, canvas: NDArray[Any], row: int, values: Any) -> None:
        """Put what is selected of a chunk where it belongs; a scalar stands for all values."""
        inner, outer = self._places[row]
        if isinstance(values, np.ndarray):
            values = values[_together(inner, values.shape)]
        canvas[_together(outer, canvas.shape)] = values

    def place_run(self, canvas: NDArray[Any], row: int, values: NDArray[Any]) -> None:
        """Do the same with chunks of one shape from a row on, shape (n, *shape)."""
        axes = [axis for axis in self._axes if isinstance(axis, _Slices)]
        if len(axes) < len(self._axes):
            for at, each in enumerate(values):
                self.place(canvas, row + at, each)
            return
        done = 0
        for index, extent in _boxes(self._begin + row, len(values), self._lengths):
            count = math.prod(extent)
            part = values[done : done + count].reshape((*extent, *values.shape[1:]))
            _place_box(canvas, axes, index, part)
            done += count


def _boxes(
    row: int, count: int, lengths: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield first index and extent of the boxes that a run of a grid consists of, in order."""
    while count:
        size, axis = 1, len(lengths)  # of the part of trailing axes that is taken as a whole
        while axis and not row % (size * lengths[axis - 1]) and count >= size * lengths[axis - 1]:
            axis -= 1
            size *= lengths[axis]
        index: list[int] = []
        rest = row
        for length in reversed(lengths):
            rest, at = divmod(rest, length)
            index.insert(0, at)
        taken = min(count // size, lengths[axis - 1] - index[axis - 1]) if axis else 1
        ones = (1,) * max(axis - 1, 0)
        yield tuple(index), (*ones, *((taken,) if axis else ()), *lengths[axis:])
        row += taken * size
        count -= taken * size


def _place_box(
    canvas: NDArray[Any], axes: Sequence[_Slices], index: Sequence[int], values: NDArray[Any]
) -> None:
    """Put chunks of a box of the grid where they belong; shape (*extent, *chunk)."""
    ndim = len(axes)
    pairs = zip(axes, index, values.shape[:ndim], strict=True)
    segments = [axis.segments(at, at + extent) for axis, at, extent in pairs]
    order = [each for axis in range(ndim) for each in (axis, ndim + axis)]
    for chosen in itertools.product(*segments):
        part = values[tuple(each.rows for each in chosen) + tuple(each.inner for each in chosen)]
        where: tuple[Any, ...] = (*(each.outer for each in chosen), ...)
        target = canvas[where]  # a view, also of no axis
        part = part.transpose(order)
        target.reshape(part.shape, copy=False)[...] = part


def _together(places: tuple[Place, ...], shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Return what numpy selects a box of elements by, where several axes have arrays."""
    if sum(isinstance(each, np.ndarray) for each in places) <= 1:
        return places
    return np.ix_(
        *(
            np.arange(*each.indices(length)) if isinstance(each, slice) else each
            for each, length in zip(places, shape, strict=True)
        )
    )


def _axis_of(axis: GridAxis, index: Index) -> _Axis:
    if isinstance(index, np.ndarray):
        return _elements_of(axis, index)
    if isinstance(index, slice):
        return _slices_of(axis, index.indices(axis.length))
    at = int(_wrap(np.array([index]), axis.length)[0])
    return _slices_of(axis, (at, at + 1, 1), is_kept=False)


def _slices_of(axis: GridAxis, index: tuple[int, int, int], *, is_kept: bool = True) -> _Slices:
    start, _, step = index
    count = len(range(*index))
    ends = axis.chunk_of(np.array([start, start + max(count - 1, 0) * step]))
    chunk = np.arange(ends[0], ends[1] + 1) if count else np.zeros(0, np.int64)
    begin = axis.begin_of(chunk)
    # how many selected elements come before each chunk, and before the end of it
    low = np.clip(-((start - begin) // step), 0, count)
    high = np.clip(-((start - begin - axis.size_of(chunk)) // step), 0, count)
    touched = high > low
    chunk, begin, low, high = chunk[touched], begin[touched], low[touched], high[touched]
    first, last = start + low * step - begin, start + (high - 1) * step - begin
    return _Slices(
        length=count,
        chunk=chunk,
        first=first,
        last=last,
        is_whole=(last - first == axis.size_of(chunk) - 1) & (step == 1),
        low=low,
        high=high,
        step=step,
        is_kept=is_kept,
    )


def _elements_of(axis: GridAxis, index: NDArray[np.integer[Any]]) -> _Elements:
    at = _wrap(index, axis.length)
    chunks = axis.chunk_of(at)
    is_sorted = bool(np.all(chunks[1:] >= chunks[:-1]))
    order = None if is_sorted else np.argsort(chunks, kind="stable")
    if order is not None:
        at, chunks = at[order], chunks[order]
    starts = np.flatnonzero(np.diff(chunks, prepend=-1))
    return _Elements(
        length=len(at),
        chunk=chunks[starts],
        starts=np.append(starts, len(at)),
        inner=at - axis.begin_of(chunks),
        order=order,
    )


def _wrap(index: NDArray[np.integer[Any]], length: int) -> Numbers:
    """Return indices counted from the front. Raises ``IndexError``."""
    at = index.astype(np.int64, copy=False)
    if (at < 0).any():
        at = np.where(at < 0, at + length, at)
    if len(at) and (at.min() < 0 or at.max() >= length):
        wrong = index[(at < 0) | (at >= length)][0]
        raise IndexError(f"index {wrong} is out of bounds for an axis of length {length}")
    return at


class PointSelection:
    """Single elements of some axes, given by arrays that numpy broadcasts, as of ``vindex``.

    Slices select along the other axes, for each point. As in xarray, they are the last axes of the
    result; their steps may be negative.
    """

    def __init__(self, grid: Sequence[GridAxis], key: Sequence[Index]) -> None:
        key, self._dims = _find_slices(grid, key)
        slices = {at: each for at, each in enumerate(key) if isinstance(each, slice)}
        self._slices = [_turned_slices_of(grid[at], each) for at, each in slices.items()]
        self._points = _points_of(grid, key, [*slices])
        lengths = [each.length for each in self._slices]
        self._shape = (*self._points.shape, *lengths)
        self.canvas_shape = (math.prod(self._points.shape), *lengths)
        self.count = len(self._points.chunks) * math.prod(len(each.chunk) for each in self._slices)

    def window(self, begin: int, end: int) -> ChunkWindow:
        """Return the chunks from ``begin`` to ``end``."""
        return _PointsBox(self._points, self._slices, begin, end)

    def result_of(self, canvas: NDArray[Any]) -> NDArray[Any]:
        """Return what windows wrote to, as the result."""
        return np.moveaxis(canvas.reshape(self._shape), range(len(self._dims)), self._dims)


def _find_slices(
    grid: Sequence[GridAxis], key: Sequence[Index]
) -> tuple[Sequence[Index], Sequence[int]]:
    """Return a key with slices for arrays that count along an axis of the result of their own.

    xarray selects points by an array for each axis, as large as the result, also where slices were
    given beside them.

    Returns:
        The key, and where the axes of its result belong.
    """
    if any(isinstance(each, slice) for each in key):
        return key, ()
    given: Sequence[Any] = key
    arrays = np.broadcast_arrays(*given)
    ndim = arrays[0].ndim
    if ndim < 2 or not arrays[0].size:
        return key, ()
    varies = np.array([[_varies(each, dim) for dim in range(ndim)] for each in arrays])
    slices: dict[int, tuple[int, slice]] = {}  # by axis of the array: that of the result
    for axis in np.flatnonzero(varies.sum(axis=1) == 1).tolist():
        dim = int(np.argmax(varies[axis]))
        index = _slice_of(_corner(arrays[axis], dim), grid[axis].length)
        if index is not None and varies[:, dim].sum() == 1:
            slices[axis] = dim, index
    if len(slices) == len(arrays):
        slices.popitem()
    of_slices = [dim for dim, _ in slices.values()]
    corner = tuple(0 if dim in of_slices else slice(None) for dim in range(ndim))
    found: list[Index] = [
        slices[axis][1] if axis in slices else each[corner] for axis, each in enumerate(arrays)
    ]
    return found, [*(dim for dim in range(ndim) if dim not in of_slices), *of_slices]


class _Points(NamedTuple):
    """Points, and their order by chunks."""

    shape: tuple[int, ...]  # in which they are given
    axes: Sequence[int]  # of the array: those of the points, then the others
    chunks: Numbers  # (chunks, axes of the points)
    begins: Sequence[Numbers]  # for each axis: (chunks,) the first element
    starts: Numbers  # (chunks + 1,) in the order of the points
    order: Numbers  # (points,)
    at: Sequence[Numbers]  # for each axis: (points,)


def _points_of(grid: Sequence[GridAxis], key: Sequence[Any], others: list[int]) -> _Points:
    axes = [at for at in range(len(grid)) if at not in others]
    given = np.broadcast_arrays(*(key[at] for at in axes))
    at = [_wrap(each.ravel(), grid[axis].length) for axis, each in zip(axes, given, strict=True)]
    counts = [grid[axis].chunk_count for axis in axes]
    number = np.zeros(len(at[0]), np.int64)  # of the chunk of each point, in the order of the grid
    for axis, count, each in zip(axes, counts, at, strict=True):
        number *= count
        number += grid[axis].chunk_of(each)
    order = np.argsort(number, kind="stable")
    number = number[order]
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    chunks = np.stack(np.unravel_index(number[starts], counts), axis=1)
    return _Points(
        shape=given[0].shape,
        axes=axes + others,
        chunks=chunks,
        begins=[grid[axis].begin_of(each) for axis, each in zip(axes, chunks.T, strict=True)],
        starts=np.append(starts, len(order)),
        order=order,
        at=at,
    )


def _varies(array: NDArray[Any], dim: int) -> bool:
    """Say whether the values of an array differ along an axis."""
    line = _corner(array, dim)
    if (line != line[0]).any():
        return True
    lines = np.moveaxis(array, dim, 0)
    return any(bool((each != lines[0]).any()) for each in lines[1:])


def _corner(array: NDArray[Any], dim: int) -> NDArray[Any]:
    """Return the first values along an axis."""
    return array[tuple(slice(None) if each == dim else 0 for each in range(array.ndim))]


def _slice_of(index: NDArray[Any], length: int) -> slice | None:
    """Return the slice that selects what an index of different numbers does, if one does."""
    first, step, last = int(index[0]), int(index[1]) - int(index[0]), int(index[-1])
    if min(first, last) < 0 or max(first, last) >= length or not step:
        return None
    if (np.diff(index) != step).any():
        return None
    end = last + (1 if step > 0 else -1)
    return slice(first, None if end < 0 else end, step)


def _turned_slices_of(axis: GridAxis, index: slice) -> _Slices:
    """Return what a slice selects, from its other end where its step is negative."""
    chosen = range(*index.indices(axis.length))
    ahead = chosen if chosen.step > 0 else chosen[::-1]
    slices = _slices_of(axis, (ahead.start, ahead.stop, ahead.step))
    return slices._replace(is_turned=chosen.step < 0)


class _PointsBox:
    """Chunks of a selection of points."""

    def __init__(self, points: _Points, slices: Sequence[_Slices], begin: int, end: int) -> None:
        self._points, self._slices = points, slices
        lengths = (len(points.chunks), *(len(axis.chunk) for axis in slices))
        self._at, *self._rows = np.unravel_index(np.arange(begin, end), lengths)
        columns = [axis.chunk[rows] for axis, rows in zip(slices, self._rows, strict=True)]
        self.chunks = np.empty((end - begin, len(points.axes)), np.int64)
        self.chunks[:, points.axes] = np.column_stack([points.chunks[self._at], *columns])
        turned = (slice(None, None, -1 if axis.is_turned else 1) for axis in slices)
        self._turned = (slice(None), *turned)  # the canvas, whose axes may be written from the end

    @cached_property
    def _places(self) -> list[tuple[tuple[Place, ...], tuple[Place, ...]]]:
        return _places_of(self._slices, self._rows, len(self.chunks))

    def place(self, canvas: NDArray[Any], row: int, values: Any) -> None:
        """Put the points of a chunk where they belong; a scalar stands for all values."""
        at = self._at[row]
        points = slice(self._points.starts[at], self._points.starts[at + 1])
        which = self._points.order[points]
        inner, outer = self._places[row]
        if isinstance(values, np.ndarray):
            columns = zip(self._points.at, self._points.begins, strict=True)
            chosen = *(each[which] - begin[at] for each, begin in columns), *inner
            values = values.transpose(self._points.axes)[chosen]
        canvas[self._turned][which, *outer] = values

    def place_run(self, canvas: NDArray[Any], row: int, values: NDArray[Any]) -> None:
        """Do the same with chunks of one shape from a row on, shape (n, *shape)."""
        for at, each in enumerate(values):
            self.place(canvas, row + at, each)


type Selection = OrthogonalSelection | PointSelection
"""Some elements of an array, chunk by chunk.

``canvas_shape`` is that of what windows write to, of which `result_of` makes the result; ``count``
is the number of chunks.
"""

type ChunkWindow = _Box | _PointsBox
"""Some of the chunks that a selection touches; ``chunks`` are their indices, (n, ndim)."""
