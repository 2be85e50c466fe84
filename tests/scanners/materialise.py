"""Read a scanned array as a zarr reader would: zarr.json, and each chunk's bytes from the file."""

import json

import numpy as np
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import MemoryStore

from icevirt.archive.scanned import ScannedArray, ScannedFile
from icevirt.connect.urls import local_path
from icevirt.model.chunks import ChunkType


def store_of(scanned: ScannedFile) -> MemoryStore:
    """Return a zarr store that holds a whole scanned file."""
    store = MemoryStore()
    make = default_buffer_prototype().buffer.from_bytes
    for group in scanned.groups:
        sync(store.set(f"{group.path}/zarr.json".lstrip("/"), make(group.zarr_json())))
    for array in scanned.arrays:
        name = array.path.lstrip("/")
        sync(store.set(f"{name}/zarr.json", make(array.zarr_json())))
        for key, data in chunks(array):
            sync(store.set(f"{name}/{key}", make(data)))
    return store


def materialise(array: ScannedArray) -> np.ndarray:
    """Return all values of a scanned array, by way of zarr."""
    store = MemoryStore()
    make = default_buffer_prototype().buffer.from_bytes
    sync(store.set("zarr.json", make(array.zarr_json())))
    for key, data in chunks(array):
        sync(store.set(key, make(data)))
    opened = zarr.open_array(store, mode="r", zarr_format=3)
    assert json.loads(array.zarr_json())["codecs"] == [dict(codec) for codec in array.codecs]
    values = opened[...]  # of a 0-d array a scalar, and numpy's S and U forget their length
    return np.asarray(values, opened.dtype if opened.dtype.kind in "SU" else None)


def chunks(array: ScannedArray):
    """Yield zarr's key and the bytes of every reference."""
    table = array.references
    for row in range(len(table)):
        index = table.index[row].tolist()
        assert all(
            n * edge < length
            for n, edge, length in zip(index, array.chunk_shape, array.shape, strict=True)
        ), "a chunk outside the array"
        offset, length = int(table.offset[row]), int(table.length[row])
        if table.kind[row] == ChunkType.inline:
            data = table.inline[offset : offset + length].tobytes()
        else:
            with open(local_path(table.locations.url[int(table.source[row])]), "rb") as file:
                file.seek(offset)
                data = file.read(length)
        assert len(data) == length
        yield "/".join(["c", *map(str, index)]), data
