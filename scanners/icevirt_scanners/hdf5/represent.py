"""Choose how a variable is represented.

In this order: stored whole (coordinates, strings, scalars, compact layout, short odd lengths),
referenced, referenced but for a few stored chunks, stored chunk by chunk.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from icevirt.archive.scanned import ScannedArray
from icevirt.errors import UnsupportedError
from icevirt.model.chunks import ChunkTable
from icevirt.model.json import JSON
from icevirt_scanners import blocks
from icevirt_scanners.hdf5 import values
from icevirt_scanners.hdf5.context import FileContext
from icevirt_scanners.hdf5.datatypes import bytes_codec
from icevirt_scanners.hdf5.digests import digest_of_dataset
from icevirt_scanners.hdf5.plugins import REMEDY
from icevirt_scanners.hdf5.references import STORED, Stored, stored_chunks
from icevirt_scanners.hdf5.stored import store_chunks, store_some
from icevirt_scanners.hdf5.variable import Variable
from icevirt_scanners.hdf5.whole import stored_whole, wants_whole


def represent(variable: Variable, context: FileContext) -> ScannedArray:
    """Return the scanned array.

    Raises:
        UnsupportedError: The values can neither be referenced nor read and stored.
    """
    if wants_whole(variable, context):
        return stored_whole(variable, context)
    more: dict[str, Any] = {}
    found = stored_chunks(variable, context) if variable.chunk is not None else None
    if context.options.wants_digest(
        variable.dimensions, is_coordinate=variable.is_coordinate, nbytes=variable.nbytes
    ):
        more["digest"] = digest_of_dataset(variable, found, context)
    if variable.not_plain:
        return _natively(variable, found, context, more)
    if found is not None:
        return _chunked(variable, found, context, more)
    return _block(variable, context, more)


def _block(variable: Variable, context: FileContext, more: dict[str, Any]) -> ScannedArray:
    """Reference a contiguous dataset, split into chunks of a readable size."""
    itemsize = variable.element.dtype.itemsize
    chunk = _block_grid(variable, context)
    offset = _offset(variable, context)
    table = ChunkTable.empty(len(variable.shape))
    if offset is not None and variable.nbytes:
        index, offsets, length = blocks.block_chunks(variable.shape, chunk, itemsize, offset)
        table = blocks.virtual(variable.path, index, offsets, length, context)
    return variable.array(chunk, (variable.element.codec(),), table, **more)


def _offset(variable: Variable, context: FileContext) -> int | None:
    """Return where in the file a contiguous dataset begins, None where it was never written."""
    placed = variable.placed
    if placed is None or context.raw is None:
        # behind a user block libhdf5 gives a place even to what was never written
        offset: int | None = variable.dsid.get_offset()
        return offset if variable.dsid.get_storage_size() else None
    return None if placed.address is None else placed.address + context.raw.space.base


def _block_grid(variable: Variable, context: FileContext) -> tuple[int, ...]:
    return blocks.grid_of_block(
        variable.shape,
        variable.element.dtype.itemsize,
        concat_axis=min(context.options.joined_axes(variable.dimensions), default=None),
    )


def _chunked(
    variable: Variable, found: Stored, context: FileContext, more: dict[str, Any]
) -> ScannedArray:
    """Reference the chunks of a dataset; those that decode differently are stored."""
    assert variable.chunk is not None
    chunk = variable.chunk
    index = _with_inner(found.index, len(variable.shape))
    odd = _odd(variable, found)
    codecs: tuple[JSON, ...] = (variable.element.codec(), *variable.pipeline.kept())
    if not odd.any():
        table = blocks.virtual(variable.path, index, found.offset, found.length, context)
        return variable.array(chunk, codecs, table, **more)
    mask = int(found.mask[0])
    size = int(np.count_nonzero(odd)) * variable.element.dtype.itemsize * prod(chunk)
    alike = 0 < mask < STORED and bool((found.mask == mask).all())
    if alike and (size > context.budget.left or variable.pipeline.undecodable):
        # every chunk skipped the same filters, so the array simply does not have them
        table = blocks.virtual(variable.path, index, found.offset, found.length, context)
        context.tell(variable.path, "filters-skipped", "all chunks skip a filter; left out")
        return variable.array(
            chunk, (variable.element.codec(), *variable.pipeline.kept(mask)), table, **more
        )
    why = "are followed by netCDF's filling" if variable.unfilled else "skip a filter"
    cause = f"{np.count_nonzero(odd)} of {len(odd)} chunks {why}"
    _check_decodable(variable, context, cause)
    stored = store_some(variable, index[odd], budget=context.budget, cause=cause)
    if stored is None:
        return _natively(variable, found, context, more)
    context.tell(variable.path, "chunks-stored", cause)
    plain = ~odd
    virtual = blocks.virtual(
        variable.path, index[plain], found.offset[plain], found.length[plain], context
    )
    return variable.array(chunk, codecs, ChunkTable.concatenate([virtual, stored]), **more)


def _odd(variable: Variable, found: Stored) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which chunks do not, or may not, decode by the pipeline.

    Newer files may leave partial edge chunks unfiltered without saying so in the chunk's mask. Such
    a chunk has the size of a full one; in doubt it is stored, which is always right.
    """
    odd: np.ndarray[Any, np.dtype[np.bool_]] = found.mask != 0
    own, shape = variable.own_chunk, variable.own_shape
    if variable.pipeline.codecs and any(n % edge for n, edge in zip(shape, own, strict=True)):
        full = found.length == prod(own) * variable.stored_size
        if full.any():
            partial = ((found.index + 1) * np.array(own) > np.array(shape)).any(axis=1)
            odd = odd | (partial & full)
    return odd


def _with_inner(index: np.ndarray[Any, Any], ndim: int) -> np.ndarray[Any, Any]:
    """Add zeros for the axes of an array type."""
    missing = ndim - index.shape[1]
    return np.pad(index, ((0, 0), (0, missing))) if missing else index


def _natively(
    variable: Variable, found: Stored | None, context: FileContext, more: dict[str, Any]
) -> ScannedArray:
    """Read and store all chunks."""
    cause = variable.not_plain or "filters that libhdf5 skips"
    _check_decodable(variable, context, cause)
    if variable.chunk is not None and found is not None:
        chunk = variable.chunk
        index = _with_inner(found.index, len(variable.shape))
    else:
        chunk = _block_grid(variable, context)
        index = _all_chunks(variable.shape, chunk)
    table = store_chunks(variable, chunk, index, budget=context.budget, cause=cause)
    context.tell(variable.path, "stored-natively", cause)
    codecs = (bytes_codec(variable.element), values.GZIP)
    return variable.array(chunk, codecs, table, **more)


def _all_chunks(shape: tuple[int, ...], chunk: tuple[int, ...]) -> np.ndarray[Any, Any]:
    counts = tuple(-(-length // edge) for length, edge in zip(shape, chunk, strict=True))
    return np.indices(counts, np.int64).reshape(len(counts), -1).T


def _check_decodable(variable: Variable, context: FileContext, cause: str) -> None:
    if variable.pipeline.undecodable:
        raise UnsupportedError(
            "a filter that neither zarr nor this libhdf5 can undo",
            do=REMEDY,
            file=context.source.file.url,
            variable=variable.path,
            filter=variable.pipeline.undecodable,
            cause=cause,
        )
