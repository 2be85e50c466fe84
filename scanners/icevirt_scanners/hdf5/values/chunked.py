"""Reference the chunks of a dataset, storing the few that decode differently."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from icevirt.archive.scanned import ScannedArray
from icevirt.errors import UnsupportedError
from icevirt.model.chunks import ChunkTable
from icevirt.model.json import JSON
from icevirt_scanners import blocks
from icevirt_scanners.hdf5.files import REMEDY, FileContext
from icevirt_scanners.hdf5.raw.header import layout_message
from icevirt_scanners.hdf5.raw.space import NotUnderstoodError, number
from icevirt_scanners.hdf5.values.chunk_references import STORED, Stored
from icevirt_scanners.hdf5.values.stored import store_some
from icevirt_scanners.hdf5.variable import HDF5Variable

_FLAGGED, _NEWEST = 4, 5  # versions of layout messages that have flags
_LEFT = 1  # partial edge chunks are not filtered


def reference_chunks(
    variable: HDF5Variable, found: Stored, context: FileContext
) -> ScannedArray | None:
    """Return the array, or None where libhdf5 skips a filter whenever it encodes.

    Raises:
        UnsupportedError: Chunks must be stored, and cannot be decoded or are too many.
    """
    assert variable.chunk is not None
    chunk = variable.chunk
    index = with_inner(found.index, len(variable.shape))
    odd = odd_chunks(variable, found)
    codecs: tuple[JSON, ...] = (variable.element.codec(), *variable.pipeline.kept())
    if not odd.any():
        table = blocks.virtual(variable.path, index, found.offset, found.length, context)
        return variable.array(chunk, codecs, table)
    if context.options.run_of(variable.path) is not None:
        raise UnsupportedError(
            "chunks that must be read together, in an array that is scanned in runs",
            do="Scan the file in one task.",
            file=context.source.file.url,
            variable=variable.path,
        )
    mask = int(found.mask[0])
    size = int(np.count_nonzero(odd)) * variable.element.dtype.itemsize * prod(chunk)
    alike = 0 < mask < STORED and bool((found.mask == mask).all())
    if alike and (size > context.budget.left or variable.pipeline.undecodable):
        # every chunk skipped the same filters, so the array simply does not have them
        table = blocks.virtual(variable.path, index, found.offset, found.length, context)
        context.tell(variable.path, "filters-skipped", "all chunks skip a filter; left out")
        return variable.array(
            chunk, (variable.element.codec(), *variable.pipeline.kept(mask)), table
        )
    why = "are followed by netCDF's filling" if variable.unfilled else "skip a filter"
    cause = f"{np.count_nonzero(odd)} of {len(odd)} chunks {why}"
    check_decodable(variable, context, cause)
    stored = store_some(variable, index[odd], budget=context.budget, cause=cause)
    if stored is None:
        return None
    context.tell(variable.path, "chunks-stored", cause)
    plain = ~odd
    virtual = blocks.virtual(
        variable.path, index[plain], found.offset[plain], found.length[plain], context
    )
    return variable.array(chunk, codecs, ChunkTable.concatenate([virtual, stored]))


def odd_chunks(variable: HDF5Variable, found: Stored) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which chunks do not, or may not, decode by the pipeline.

    Newer files may leave partial edge chunks unfiltered without saying so in the chunk's mask. Such
    a chunk has the size of a full one; in doubt it is stored, which is always right.
    """
    odd: np.ndarray[Any, np.dtype[np.bool_]] = found.mask != 0
    own, shape = variable.own_chunk, variable.own_shape
    cut = any(n % edge for n, edge in zip(shape, own, strict=True))
    if cut and variable.pipeline.codecs and _may_leave_edges(variable):
        full = found.length == prod(own) * variable.stored_size
        if full.any():
            partial = ((found.index + 1) * np.array(own) > np.array(shape)).any(axis=1)
            odd = odd | (partial & full)
    return odd


def _may_leave_edges(variable: HDF5Variable) -> bool:
    """Say whether partial edge chunks may lie there unfiltered.

    The layout message says so by a flag, which it has since version 4 (HDF5 1.10).
    """
    if variable.header is None:
        return True
    try:
        message = layout_message(variable.header.messages)
        version, flags = number(message, 0, 1), number(message, 2, 1)
    except NotUnderstoodError:
        return True
    return version > _NEWEST or (version >= _FLAGGED and bool(flags & _LEFT))


def with_inner(index: np.ndarray[Any, Any], ndim: int) -> np.ndarray[Any, Any]:
    """Add zeros for the axes of an array type."""
    missing = ndim - index.shape[1]
    return np.pad(index, ((0, 0), (0, missing))) if missing else index


def check_decodable(variable: HDF5Variable, context: FileContext, cause: str) -> None:
    """Refuse values that must be read and cannot be decoded.

    Raises:
        UnsupportedError: They cannot.
    """
    if variable.pipeline.undecodable:
        raise UnsupportedError(
            "neither zarr nor this libhdf5 supports a filter",
            do=REMEDY,
            file=context.source.file.url,
            variable=variable.path,
            filter=variable.pipeline.undecodable,
            cause=cause,
        )


def offset_of(variable: HDF5Variable, context: FileContext) -> int | None:
    """Return where in the file a contiguous dataset begins, None where it was never written."""
    placed = variable.placed
    if placed is None or context.raw is None:
        # behind a user block libhdf5 gives a place even to what was never written
        offset: int | None = variable.dsid.get_offset()
        return offset if variable.dsid.get_storage_size() else None
    return None if placed.address is None else placed.address + context.raw.space.base
