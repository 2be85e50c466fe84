"""Choose how a variable is represented: stored whole, as a block, or record by record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.joining import SMALL, STEP, Fact
from icevirt.archive.scanned import FactsBeside, ScannedArray
from icevirt.model.attributes import Attributes
from icevirt.model.chunks import ChunkTable
from icevirt_scanners import blocks
from icevirt_scanners.context import ScanContext
from icevirt_scanners.encoding import bytes_codec, spelt
from icevirt_scanners.netcdf3 import values
from icevirt_scanners.netcdf3.layout import PlacedVariable
from icevirt_scanners.netcdf3.values import fill_of

_REFERENCE = 16  # bytes of a run that is not worth a reference


def represent(placed: PlacedVariable, attributes: Attributes, context: ScanContext) -> ScannedArray:
    """Return the scanned array.

    Raises:
        UnsupportedError: Its values must be stored, and are too large for that.
    """
    if _wants_whole(placed, context):
        return _stored(placed, attributes, context)
    array = _referenced(placed, attributes, context)
    wanted = context.wanted(array)
    if Fact.values in wanted:
        return replace(
            array, beside=context.values_of(lambda: _stored(placed, attributes, context))
        )
    if Fact.digest in wanted:
        return replace(array, beside=FactsBeside(digest=values.digest(placed, context.source)))
    return array


def _array(
    placed: PlacedVariable,
    attributes: Attributes,
    chunk: tuple[int, ...],
    table: ChunkTable,
    *,
    whole: bool,
    **more: Any,
) -> ScannedArray:
    kind = placed.kind
    big = kind.size > 1 and not whole
    return ScannedArray(
        path=placed.path,
        dimension_names=placed.dimensions,
        shape=placed.shape,
        chunk_shape=chunk,
        data_type=kind.data_type,
        codecs=(bytes_codec(kind.dtype, "big" if big else "little"),),
        fill_value=spelt(fill_of(placed.variable.attributes, kind), kind.dtype),
        attributes=attributes,
        references=table,
        whole=whole,
        contiguous=not whole,
        **more,
    )


def _grid(placed: PlacedVariable) -> tuple[int, ...]:
    if placed.contiguous:
        return blocks.grid_of_block(placed.shape, placed.kind.size)
    return (1, *blocks.grid_of_block(placed.shape[1:], placed.kind.size))


def _wants_whole(placed: PlacedVariable, context: ScanContext) -> bool:
    if not placed.shape:
        return True
    affordable = placed.nbytes <= context.budget.left
    if placed.is_coordinate:
        return affordable
    if not placed.contiguous and placed.run < STEP:
        # a reference to each crumb would take about as much room as the crumbs
        small = placed.nbytes <= SMALL or placed.run <= _REFERENCE
        return small and affordable
    return False


def _stored(placed: PlacedVariable, attributes: Attributes, context: ScanContext) -> ScannedArray:
    """Read the values as one chunk; those of coordinates, and single ones, are labels too."""
    context.budget.spend(placed.nbytes, variable=placed.path, cause="stored whole")
    found = values.read(placed, context.source)
    ndim = len(placed.shape)
    table = ChunkTable.empty(ndim)
    if found.size:
        table = ChunkTable.inlined(index=np.zeros((1, ndim), np.int64), chunks=[found.tobytes()])
    more: dict[str, Any] = {}
    if placed.is_coordinate or (found.size == 1 and found.dtype.kind in "iuf"):
        more = {"labels": found.tobytes(), "labels_dtype": found.dtype.str}
    chunk = tuple(max(n, 1) for n in placed.shape)
    digest = values.digest_of(found, placed)
    return _array(placed, attributes, chunk, table, whole=True, digest=digest, **more)


def _referenced(
    placed: PlacedVariable, attributes: Attributes, context: ScanContext
) -> ScannedArray:
    """Reference the chunks."""
    chunk = _grid(placed)
    table = blocks.virtual(placed.path, *_references(placed, chunk), context)
    return _array(placed, attributes, chunk, table, whole=False)


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
