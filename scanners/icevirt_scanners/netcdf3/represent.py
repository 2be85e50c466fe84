"""Choose how a variable is represented: stored whole, as a block, or record by record."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.scanned import ScannedArray
from icevirt.model.attributes import Attributes
from icevirt.model.chunks import ChunkTable
from icevirt_scanners import blocks
from icevirt_scanners.context import ScanContext
from icevirt_scanners.encoding import bytes_codec, spelt
from icevirt_scanners.netcdf3 import values
from icevirt_scanners.netcdf3.attributes import fill_of
from icevirt_scanners.netcdf3.layout import PlacedVariable

_REFERENCE = 16  # bytes of a run that is not worth a reference


def represent(placed: PlacedVariable, attributes: Attributes, context: ScanContext) -> ScannedArray:
    """Return the scanned array.

    Raises:
        UnsupportedError: Its values must be stored, and are too large for that.
    """
    chunk = _grid(placed, context)
    whole = _wants_whole(placed, chunk, context)
    represented = _stored if whole else _referenced
    table, more = represented(placed, chunk, context)
    kind = placed.kind
    big = kind.size > 1 and not whole
    return ScannedArray(
        path=placed.path,
        dimension_names=placed.dimensions,
        shape=placed.shape,
        chunk_shape=tuple(max(n, 1) for n in placed.shape) if whole else chunk,
        data_type=kind.data_type,
        codecs=(bytes_codec(kind.dtype, "big" if big else "little"),),
        fill_value=spelt(fill_of(placed.variable.attributes, kind), kind.dtype),
        attributes=attributes,
        references=table,
        whole=whole,
        **more,
    )


def _grid(placed: PlacedVariable, context: ScanContext) -> tuple[int, ...]:
    if placed.contiguous:
        axis = min(context.options.joined_axes(placed.dimensions), default=None)
        return blocks.grid_of_block(placed.shape, placed.kind.size, concat_axis=axis)
    return (1, *blocks.grid_of_block(placed.shape[1:], placed.kind.size))


def _wants_whole(placed: PlacedVariable, chunk: tuple[int, ...], context: ScanContext) -> bool:
    if not placed.shape:
        return True
    axes = context.options.joined_axes(placed.dimensions)
    affordable = placed.nbytes <= context.budget.left
    if placed.is_coordinate:
        return affordable or bool(axes)
    if not placed.contiguous and placed.run < blocks.STEP:
        # a reference to each crumb would take about as much room as the crumbs
        small = placed.nbytes <= blocks.SMALL or placed.run <= _REFERENCE
        return small and affordable
    return any(blocks.joins_badly(placed.shape, chunk, placed.kind.size, axis) for axis in axes)


def _stored(
    placed: PlacedVariable, _: tuple[int, ...], context: ScanContext
) -> tuple[ChunkTable, dict[str, Any]]:
    """Read the values as one chunk; they are labels too where they order the files."""
    context.budget.spend(placed.nbytes, variable=placed.path, cause="stored whole")
    found = values.read(placed, context.source)
    ndim = len(placed.shape)
    table = ChunkTable.empty(ndim)
    if found.size:
        table = ChunkTable.inlined(index=np.zeros((1, ndim), np.int64), chunks=[found.tobytes()])
    if context.options.orders(placed.path, placed.dimensions):
        return table, {"labels": found.tobytes(), "labels_dtype": found.dtype.str}
    if context.options.compares(placed.dimensions):
        return table, {"digest": values.digest_of(found, placed)}
    return table, {}


def _referenced(
    placed: PlacedVariable, chunk: tuple[int, ...], context: ScanContext
) -> tuple[ChunkTable, dict[str, Any]]:
    """Reference the chunks; what does not follow all concatenated dimensions gets a digest."""
    table = blocks.virtual(placed.path, *_references(placed, chunk), context)
    if context.options.wants_digest(
        placed.dimensions,
        is_coordinate=placed.is_coordinate or placed.path in context.equal,
        nbytes=placed.nbytes,
    ):
        return table, {"digest": values.digest(placed, context.source)}
    return table, {}


def _references(
    placed: PlacedVariable, chunk: tuple[int, ...]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return index, offset and length of all chunks."""
    size = placed.kind.size
    if placed.contiguous:
        return blocks.block_chunks(placed.shape, chunk, size, placed.begin)
    inner, offset, length = blocks.block_chunks(placed.shape[1:], chunk[1:], size, placed.begin)
    row = np.arange(placed.rows, dtype=np.int64)
    index = np.column_stack([np.repeat(row, len(inner)), np.tile(inner, (placed.rows, 1))])
    offsets = placed.stride * row[:, None] + offset
    return index, offsets.reshape(-1), np.tile(length, placed.rows)
