"""Find the chunks of an array that lie in one file, on that file's grid.

All of it is arithmetic over columns with one row per file; only chunks that are to be stored have a
row each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.plan import AxisGrid
from icevirt.model.snapshot import Extents

SLAB_BYTES = 64 << 20
"""Values that are assembled at once: several chunks share the decoding of what they overlap."""

MANY = 20_000_000
"""Most chunks that are counted; a build never stores as many."""


_ROWS = 1 << 16  # files that are looked at together


class TooManyError(ValueError):
    """So many chunks would have to be stored that counting them is of no use."""


def lines_up(
    grids: Sequence[AxisGrid], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Say which files begin where a chunk begins, on every axis.

    Args:
        grids: Of the n axes along which files are concatenated.
        starts: Where each file's share begins, in elements, shape (k, n).
        lengths: How many elements it has, shape (k, n).
    """
    good = (lengths > 0).all(axis=1)
    for low in range(0, len(starts), _ROWS):
        some = slice(low, low + _ROWS)
        for at, grid in enumerate(grids):
            begin = starts[some, at]
            good[some] &= grid.begins(np.minimum(grid.chunk_at(begin), len(grid))) == begin
    return good


def any_native(
    grids: Sequence[AxisGrid],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    plain: NDArray[np.bool_],
    rows: NDArray[np.int64],
) -> bool:
    """Say whether some of the files have chunks that no reference can stand for.

    Each file has its own, so that a few are looked at together; see `native_chunks`.
    """
    blocks = (rows[low : low + _ROWS] for low in range(0, len(rows), _ROWS))
    return any(
        len(native_chunks(grids, starts[some], lengths[some], plain[some])) for some in blocks
    )


def native_chunks(  # noqa: PLR0917 - columns of one table
    grids: Sequence[AxisGrid],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    plain: NDArray[np.bool_],
    box: Sequence[tuple[int, int]] | None = None,
    own_edges: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Return the chunks along the concatenated axes that no reference can stand for.

    A file that is plain has references for the chunks that it fills; at the end of the array, also
    for the one that the array cuts short.

    Args:
        grids: Of the n axes along which files are concatenated.
        starts: Shape (k, n), in elements; plain files begin on the grid.
        lengths: Shape (k, n).
        plain: Shape (k,).
        box: The part of the grid to look at, in chunks of the n axes.
        own_edges: Of each file's chunks along an axis whose chunks differ, shape (k,): the last
            one of a file is longer than its share where that is no multiple of them.

    Returns:
        Chunk numbers, shape (m, n), in their order and each once.

    Raises:
        TooManyError: There are too many.
    """
    count = len(grids)
    there = (lengths > 0).all(axis=1)
    starts, ends, plain = starts[there], (starts + lengths)[there], plain[there]
    low = np.empty((len(starts), count), np.int64)
    high, full = low.copy(), low.copy()
    for at, grid in enumerate(grids):
        low[:, at] = grid.chunk_at(starts[:, at])
        high[:, at] = grid.chunk_at(np.maximum(ends[:, at] - 1, 0)) + 1
        begins = grid.begins(np.minimum(high[:, at], len(grid)))
        # the last chunk is filled, or is the array's last of a grid that goes on beyond it
        whole = begins == ends[:, at]
        if grid.bounds is not None and own_edges is not None:
            whole &= lengths[there, at] % own_edges[there] == 0
        full[:, at] = np.where(whole, high[:, at], high[:, at] - 1)
    full = np.where(plain[:, None], np.maximum(full, low), low)
    if box is not None:
        edges = np.array(box, np.int64).reshape(count, 2)
        low, high, full = (np.clip(each, edges[:, 0], edges[:, 1]) for each in (low, high, full))
    if count == 1:
        return _unite(full[:, 0], high[:, 0])[:, None]
    lows, highs = [], []
    for at in range(count):
        begin = low.copy()
        begin[:, at] = full[:, at]
        lows.append(begin)
        highs.append(high)
    if not plain.any():
        lows, highs = lows[:1], highs[:1]
    return _list_cells(np.concatenate(lows), np.concatenate(highs))


def _unite(low: NDArray[np.int64], high: NDArray[np.int64]) -> NDArray[np.int64]:
    some = low < high
    order = np.argsort(low[some], kind="stable")
    low, high = low[some][order], high[some][order]
    if not len(low):
        return np.zeros(0, np.int64)
    reach = np.maximum.accumulate(high)
    begin = low.copy()
    begin[1:] = np.maximum(low[1:], reach[:-1])  # what an earlier one covers is not repeated
    return _list_ranges(begin, np.maximum(reach, begin))


def _list_ranges(low: NDArray[np.int64], high: NDArray[np.int64]) -> NDArray[np.int64]:
    sizes = high - low
    total = int(sizes.sum())
    if total > MANY:
        raise TooManyError(total)
    ends = np.cumsum(sizes)
    numbers: NDArray[np.int64] = np.arange(total) + np.repeat(low - ends + sizes, sizes)
    return numbers


def _list_cells(low: NDArray[np.int64], high: NDArray[np.int64]) -> NDArray[np.int64]:
    sizes = np.maximum(high - low, 0)
    volume = sizes.prod(axis=1)
    flat = _list_ranges(np.zeros(len(volume), np.int64), volume)
    which = np.repeat(np.arange(len(volume)), volume)
    cells = np.empty((len(flat), low.shape[1]), np.int64)
    for at in range(low.shape[1] - 1, -1, -1):
        flat, rest = np.divmod(flat, sizes[which, at])
        cells[:, at] = low[which, at] + rest
    return np.unique(cells, axis=0)


def values_in(grids: Sequence[AxisGrid], chunks: NDArray[np.int64], others: Sequence[int]) -> int:
    """Return how many elements of the array lie in chunks; ``others`` are the other axes' lengths.

    ``chunks`` has the shape (m, n), for the n axes of ``grids``.
    """
    elements = np.ones(len(chunks), np.int64)
    for at, grid in enumerate(grids):
        elements *= grid.begins(chunks[:, at] + 1) - grid.begins(chunks[:, at])
    return int(elements.sum()) * math.prod(others)


def slabs(
    chunks: NDArray[np.int64],
    axes: Sequence[int],
    box: Extents,
    grids: Sequence[AxisGrid],
    itemsize: int,
) -> Iterator[Extents]:
    """Yield boxes of chunks that are assembled at once, of at most `SLAB_BYTES` where one can.

    Args:
        chunks: Along the concatenated axes, shape (m, n), in their order.
        axes: Which axes these are.
        box: The window, in chunks of all axes; ``chunks`` lie in it.
        grids: Of all axes.
        itemsize: Of a value, in bytes.
    """
    if not len(chunks):
        return
    step = np.diff(chunks, axis=0)
    follows = (step[:, -1] == 1) & (step[:, :-1] == 0).all(axis=1)
    cuts = [0, *(np.flatnonzero(~follows) + 1).tolist(), len(chunks)]
    for first, last in itertools.pairwise(cuts):
        part = list(box)
        for at, axis in enumerate(axes):
            part[axis] = (int(chunks[first, at]), int(chunks[last - 1, at]) + 1)
        yield from _cut(tuple(part), grids, itemsize)


def _cut(box: Extents, grids: Sequence[AxisGrid], itemsize: int) -> Iterator[Extents]:
    sides = [
        int(grid.begins(high) - grid.begins(low))
        for (low, high), grid in zip(box, grids, strict=True)
    ]
    counts = [high - low for low, high in box]
    if math.prod(sides) * itemsize <= SLAB_BYTES or max(counts, default=1) <= 1:
        yield box
        return
    axis = counts.index(max(counts))
    low, high = box[axis]
    middle = (low + high) // 2
    for half in ((low, middle), (middle, high)):
        yield from _cut((*box[:axis], half, *box[axis + 1 :]), grids, itemsize)
