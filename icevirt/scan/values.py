"""Read the values of a scanned array as a zarr reader would, from references and metadata.

For scanners that get references and need values (labels, digests), and for tests. One run of chunks
is in memory at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.scanned import ScannedArray
from icevirt.errors import ScanError
from icevirt.model.chunks import ChunkTable, ChunkType

_CHUNKS = 1024  # in a run, unless a row of chunks has more
_BYTES = 64 * 1024 * 1024  # encoded, of a run, unless a row of chunks has more

type Fetch = Callable[[str, int, int], bytes]
"""Returns bytes of a URL: offset, length."""


def read(array: ScannedArray, fetch: Fetch) -> NDArray[Any]:
    """Return all values in native byte order. Raises as `pieces`."""
    found = list(pieces(array, fetch))
    return found[0] if len(found) == 1 else np.concatenate(found)


def pieces(array: ScannedArray, fetch: Fetch) -> Iterator[NDArray[Any]]:
    """Yield the values in runs along the first axis, some rows of chunks each.

    Raises:
        ScanError: A chunk cannot be read or decoded.
    """
    if not array.shape or not array.shape[0]:
        yield _decoded(array, fetch)
        return
    edge, length = array.chunk_shape[0], array.shape[0]
    table = array.references
    column = table.index[:, 0]
    step = _rows_at_once(array)
    for first in range(0, -(-length // edge), step):
        low, high = np.searchsorted(column, [first, first + step]).tolist()
        part = table.take(np.arange(low, high)).shifted([-first, *[0] * (table.ndim - 1)])
        shape = (min(edge * step, length - edge * first), *array.shape[1:])
        yield _decoded(replace(array, shape=shape, references=part), fetch)


def _rows_at_once(array: ScannedArray) -> int:
    """Return how many rows of chunks make a run that is worth the opening of an array."""
    edges = zip(array.shape[1:], array.chunk_shape[1:], strict=True)
    chunks = max(1, prod(-(-length // edge) for length, edge in edges))
    largest = int(array.references.length.max(initial=1))
    return max(1, min(_CHUNKS, _BYTES // max(largest, 1)) // chunks)


def _decoded(array: ScannedArray, fetch: Fetch) -> NDArray[Any]:
    import zarr
    from zarr.core.buffer import default_buffer_prototype
    from zarr.core.metadata import ArrayV3Metadata
    from zarr.core.sync import sync
    from zarr.storage import MemoryStore, StorePath

    from icevirt.wire.bounded import bounded_array

    store = MemoryStore({})
    make = default_buffer_prototype().buffer.from_bytes
    for index, data in _chunks(array.references, fetch):
        sync(store.set("/".join(["c", *map(str, index)]), make(data)))
    try:
        metadata = ArrayV3Metadata.from_dict(json.loads(array.zarr_json()))
        opened: Any = zarr.Array(bounded_array(metadata, StorePath(store)))
        values = opened[...]
    except Exception as error:
        raise ScanError(
            "a chunk does not decode to the shape and type of its array",
            do="Leave the variable out with drop_variables.",
            variable=array.path,
            codecs=json.dumps(array.codecs),
            cause=f"{type(error).__name__}: {error}",
        ) from error
    # of a 0-d array a scalar comes back, and numpy's S and U forget their length in it
    return np.asarray(values, opened.dtype if opened.dtype.kind in "SUV" else None)


def _chunks(table: ChunkTable, fetch: Fetch) -> Iterator[tuple[list[int], bytes]]:
    for row in range(len(table)):
        at, length = int(table.offset[row]), int(table.length[row])
        if table.kind[row] == ChunkType.inline:
            data = table.inline[at : at + length].tobytes()
        else:
            url = table.locations.url[int(table.source[row])]
            data = fetch(url, at, length)
            if len(data) != length:
                raise ScanError("a chunk lies outside its file", file=url, offset=at, length=length)
        yield table.index[row].tolist(), data
