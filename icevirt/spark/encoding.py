"""Values to zarr chunks and back, for the few arrays whose values were read at scan time.

zarr itself encodes, so that chunks are what its readers expect for every data type.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import MemoryStore

from icevirt.archive.schema import ArraySchema
from icevirt.errors import FormatError
from icevirt.model.chunks import ChunkTable


def decode_whole(schema: ArraySchema, shape: tuple[int, ...], raw: bytes) -> NDArray[Any]:
    """Return the values that a scanner stored as one chunk covering the array."""
    edges = [max(1, length) for length in shape]
    store = _store(_document(schema, list(shape), edges))
    key = "/".join(["c", *("0" for _ in shape)])
    sync(store.set(key, default_buffer_prototype().buffer.from_bytes(raw)))
    values: NDArray[Any] = np.asarray(_open(store)[...])
    return values


def encode_chunks(
    zarr_json: bytes, values: NDArray[Any], at: tuple[int, ...], expected: int
) -> ChunkTable:
    """Encode ``values``, which begin at element ``at`` of an array, as inline chunks.

    Every chunk the values touch is stored, also where it holds nothing but fill values: what was
    written in the file is never left to a reader's idea of "missing".

    Raises:
        FormatError: zarr made another number of chunks than expected.
    """
    store = _store(json.loads(zarr_json))
    region = tuple(slice(a, a + n) for a, n in zip(at, values.shape, strict=True))
    with zarr.config.set({"array.write_empty_chunks": True}):
        _open(store)[region or ...] = values
    chunks = {
        tuple(int(part) for part in key.split("/")[1:]): buffer.to_bytes()
        for key, buffer in store._store_dict.items()  # noqa: SLF001  # the dict we made below
        if key != "zarr.json"
    }
    if len(chunks) != expected:
        raise FormatError("zarr encoded a wrong number of chunks", found=len(chunks), want=expected)
    index = np.array(list(chunks), np.uint32).reshape(len(chunks), values.ndim)
    return ChunkTable.inlined(index=index, chunks=list(chunks.values()))


def _document(schema: ArraySchema, shape: list[int], edges: list[int]) -> dict[str, Any]:
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": schema.data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": edges}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": schema.fill_value,
        "codecs": list(schema.codecs),
        "attributes": {},
    }


def _store(document: dict[str, Any]) -> MemoryStore:
    store = MemoryStore({})
    raw = json.dumps(document).encode()
    sync(store.set("zarr.json", default_buffer_prototype().buffer.from_bytes(raw)))
    return store


def _open(store: MemoryStore) -> zarr.Array[Any]:
    array: zarr.Array[Any] = zarr.open_array(store, mode="r+", zarr_format=3)
    return array
