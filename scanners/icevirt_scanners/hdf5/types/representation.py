"""Choose how a variable is represented.

In this order: stored whole (coordinates, strings, scalars, compact layout, short odd lengths),
referenced, referenced except for a few stored chunks, stored chunk by chunk.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from h5py import h5d

from icevirt.archive.scanned import ScannedArray
from icevirt.errors import UnsupportedError
from icevirt.model.chunks import ChunkTable
from icevirt.scan.policy import Policy
from icevirt_scanners import blocks
from icevirt_scanners.given import digest_of
from icevirt_scanners.hdf5.context import FileContext
from icevirt_scanners.hdf5.types.datatypes import bytes_codec
from icevirt_scanners.hdf5.values import libhdf5_values
from icevirt_scanners.hdf5.values.chunk_references import Stored, stored_chunks
from icevirt_scanners.hdf5.values.chunked import (
    check_decodable,
    offset_of,
    reference_chunks,
    with_inner,
)
from icevirt_scanners.hdf5.values.digests import digest_of_dataset, wants_digest
from icevirt_scanners.hdf5.values.stored import store_chunks
from icevirt_scanners.hdf5.values.whole import stored_whole, wants_whole
from icevirt_scanners.hdf5.variable import HDF5Variable
from icevirt_scanners.hdf5.virtual.resolve import Resolved, resolve

_ASKED = "its policy is native"


def represent(variable: HDF5Variable, context: FileContext) -> ScannedArray:
    """Return the scanned array.

    Raises:
        UnsupportedError: The values can neither be referenced nor read and stored.
    """
    if variable.layout == h5d.VIRTUAL:
        return _virtual(variable, context)
    if wants_whole(variable, context):
        return stored_whole(variable, context)
    more: dict[str, Any] = {}
    found = stored_chunks(variable, context) if variable.chunk is not None else None
    if wants_digest(variable, context):
        more["digest"] = digest_of_dataset(variable, found, context)
    if variable.not_plain or context.options.policy_of(variable.path) is Policy.native:
        return _natively(variable, found, context, more, cause=_ASKED)
    if found is None:
        return _block(variable, context, more)
    array = reference_chunks(variable, found, context, more)
    return array or _natively(variable, found, context, more)


def _virtual(variable: HDF5Variable, context: FileContext) -> ScannedArray:
    """Reference the chunks of the sources of a virtual dataset, or store its values."""
    resolved = resolve(variable, context)
    if context.options.policy_of(variable.path) is Policy.native:
        resolved = replace(resolved, array=None, reason=resolved.reason or _ASKED)
    if resolved.missing:
        message = f"{len(resolved.missing)} source files are missing, first {resolved.missing[0]}:"
        context.warn(
            variable.path, "virtual-source-missing", f"{message} it reads as its fill value there"
        )
    array = resolved.array
    why = "" if array is not None else f"{variable.elsewhere}: {resolved.reason}"
    variable = replace(variable, elsewhere=why)
    if wants_whole(variable, context):
        _check_here(variable, resolved, context)
        return stored_whole(variable, context)
    more: dict[str, Any] = {}
    hashed = wants_digest(variable, context)
    if array is None:
        _check_here(variable, resolved, context)
        if hashed:
            more["digest"] = digest_of_dataset(variable, None, context)
        return _natively(variable, None, context, more)
    if hashed:
        more["digest"] = digest_of(array, variable.element.dtype, context.elsewhere)
    message = f"its chunks are those of datasets in {resolved.files} files"
    context.tell(variable.path, "virtual-dataset", message)
    return replace(array, **more)


def _check_here(variable: HDF5Variable, resolved: Resolved, context: FileContext) -> None:
    """Refuse to read a virtual dataset through libhdf5 where that would open the wrong file."""
    remote = context.source.local_path is None
    if not remote and not resolved.by_own_name:
        return
    cause = variable.elsewhere or "its values are needed while scanning"
    raise UnsupportedError(
        "values of a virtual dataset in a remote file must be read"
        if remote
        else "values of a virtual dataset over its own file, by that file's name, must be read",
        do="Copy it and its sources to local disk, or leave it out with drop_variables."
        if remote
        else 'Name the file "." in the virtual dataset, or leave it out with drop_variables.',
        file=context.source.file.url,
        variable=variable.path,
        cause=cause,
    )


def _block(variable: HDF5Variable, context: FileContext, more: dict[str, Any]) -> ScannedArray:
    """Reference a contiguous dataset, split into chunks of a readable size."""
    itemsize = variable.element.dtype.itemsize
    chunk = _block_grid(variable, context)
    offset = offset_of(variable, context)
    table = ChunkTable.empty(len(variable.shape))
    if offset is not None and variable.nbytes:
        index, offsets, length = blocks.block_chunks(variable.shape, chunk, itemsize, offset)
        table = blocks.virtual(variable.path, index, offsets, length, context)
    return variable.array(chunk, (variable.element.codec(),), table, **more)


def _block_grid(variable: HDF5Variable, context: FileContext) -> tuple[int, ...]:
    return blocks.grid_of_block(
        variable.shape,
        variable.element.dtype.itemsize,
        concat_axis=min(context.options.joined_axes(variable.dimensions), default=None),
    )


def _natively(
    variable: HDF5Variable,
    found: Stored | None,
    context: FileContext,
    more: dict[str, Any],
    *,
    cause: str = "filters that libhdf5 skips",
) -> ScannedArray:
    """Read and store all chunks."""
    cause = variable.not_plain or cause
    check_decodable(variable, context, cause)
    if variable.chunk is not None and found is not None:
        chunk = variable.chunk
        index = with_inner(found.index, len(variable.shape))
    else:
        chunk = _block_grid(variable, context)
        index = _all_chunks(variable.shape, chunk)
    table = store_chunks(variable, chunk, index, budget=context.budget, cause=cause)
    context.tell(variable.path, "stored-natively", cause)
    codecs = (bytes_codec(variable.element), libhdf5_values.GZIP)
    return variable.array(chunk, codecs, table, **more)


def _all_chunks(shape: tuple[int, ...], chunk: tuple[int, ...]) -> np.ndarray[Any, Any]:
    counts = tuple(-(-length // edge) for length, edge in zip(shape, chunk, strict=True))
    return np.indices(counts, np.int64).reshape(len(counts), -1).T
