"""Read values to store during a scan: whole datasets chunk by chunk, or only odd chunks.

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

from icevirt.model.chunks import ChunkTable
from icevirt_scanners.context import Budget
from icevirt_scanners.hdf5.values.libhdf5_values import encode, read, squeezed
from icevirt_scanners.hdf5.variable import HDF5Variable


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
