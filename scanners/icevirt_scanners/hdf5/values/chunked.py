"""Reference the chunks of a dataset, or read and store them: all, or the few that are odd.

libhdf5 itself encodes odd chunks (a filter skipped) again, with the dataset's own filters in a file
in memory, so that they decode like their neighbors.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5s
from numpy.typing import NDArray

from icevirt.archive.scanned import ScannedArray
from icevirt.model.chunks import ChunkTable
from icevirt.model.json import JSON
from icevirt_scanners import blocks
from icevirt_scanners.context import Budget
from icevirt_scanners.hdf5.files import REMEDY, FileContext
from icevirt_scanners.hdf5.index.entries import ChunkEntries
from icevirt_scanners.hdf5.raw.header import LAYOUT, only
from icevirt_scanners.hdf5.raw.space import NotUnderstoodError, number
from icevirt_scanners.hdf5.values.chunk_references import STORED
from icevirt_scanners.hdf5.values.libhdf5_values import encode, read, squeezed
from icevirt_scanners.hdf5.variable import HDF5Variable

_FLAGGED, _NEWEST = 4, 5  # versions of layout messages that have flags
_LEFT = 1  # partial edge chunks are not filtered


def reference_chunks(
    variable: HDF5Variable, found: ChunkEntries, context: FileContext
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
        raise context.refusal(
            variable.path,
            "chunks that must be read together, in an array that is scanned in runs",
            do="Scan the file in one task.",
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


def odd_chunks(variable: HDF5Variable, found: ChunkEntries) -> np.ndarray[Any, np.dtype[np.bool_]]:
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
        message = only(variable.header.messages, LAYOUT)
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
        raise context.refusal(
            variable.path,
            "neither zarr nor this libhdf5 supports a filter",
            do=REMEDY,
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


def store_chunks(
    variable: HDF5Variable,
    chunk: tuple[int, ...],
    index: NDArray[np.int64],
    *,
    budget: Budget,
    cause: str,
) -> ChunkTable:
    """Read the chunks at ``index`` and return them encoded as little-endian bytes, gzipped."""
    size = variable.element.dtype.itemsize * prod(chunk)
    budget.spend(size * len(index), variable=variable.path, cause=cause)
    encoded = [
        squeezed(encode(values, variable.element)) for values in _boxes(variable, chunk, index)
    ]
    return ChunkTable.inlined(index=index, chunks=encoded)


def store_some(
    variable: HDF5Variable, index: NDArray[np.int64], *, budget: Budget, cause: str
) -> ChunkTable | None:
    """Read the chunks at ``index`` and encode them with the dataset's own filters.

    Returns None where libhdf5 would skip a filter again.
    """
    assert variable.chunk is not None
    size = variable.element.dtype.itemsize * prod(variable.chunk)
    budget.spend(size * len(index), variable=variable.path, cause=cause)
    encoded: list[bytes] = []
    with h5py.File("memory", "w", driver="core", backing_store=False) as file:
        twin = _twin(variable, file)
        corner = (0,) * len(variable.own_shape)
        for values in _boxes(variable, variable.chunk, index):
            held = values.astype(variable.element.read_as or values.dtype)
            twin.write(h5s.ALL, h5s.ALL, np.ascontiguousarray(held), variable.element.memory)
            twin.flush() if hasattr(twin, "flush") else None
            mask, data = twin.read_direct_chunk(corner)
            if mask:
                return None
            encoded.append(bytes(data))
    return ChunkTable.inlined(index=index, chunks=encoded)


def _twin(variable: HDF5Variable, file: h5py.File) -> Any:
    """Make a dataset of one chunk with the filters of the variable."""
    plist = variable.plist
    own = plist.get_chunk()
    return h5d.create(
        file.id, b"twin", variable.dsid.get_type().copy(), h5s.create_simple(own), plist
    )


def _boxes(
    variable: HDF5Variable, chunk: tuple[int, ...], index: NDArray[np.int64]
) -> Iterator[np.ndarray[Any, Any]]:
    """Read chunks one by one, those at the edge filled up to full size."""
    own = variable.own_shape
    for row in index.tolist():
        start = tuple(n * edge for n, edge in zip(row[: len(own)], chunk, strict=False))
        count = tuple(
            min(edge, length - at) for at, edge, length in zip(start, chunk, own, strict=False)
        )
        values = read(variable.dsid, variable.element, start, count)
        if values.shape == chunk:
            yield values
            continue
        full = np.full(chunk, variable.fill, variable.element.dtype)
        full[tuple(slice(length) for length in values.shape)] = values
        yield full
