"""Read a scanned array as a zarr reader would: zarr.json, and each chunk's bytes from the file."""

import json
from pathlib import Path

import numpy as np
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore

from icevirt.archive.scanned import ScannedArray, ScannedFile
from icevirt.connect.urls import local_path
from icevirt.model.chunks import ChunkType

_make = default_buffer_prototype().buffer.from_bytes


def store_of(scanned: ScannedFile) -> MemoryStore:
    """Return a zarr store that holds a whole scanned file."""
    held = {f"{group.path}/zarr.json".lstrip("/"): group.zarr_json() for group in scanned.groups}
    for array in scanned.arrays:
        name = array.path.lstrip("/")
        held[f"{name}/zarr.json"] = array.zarr_json()
        held |= {f"{name}/{key}": data for key, data in chunks(array)}
    return MemoryStore({key: _make(data) for key, data in held.items()})


def materialise(array: ScannedArray) -> np.ndarray:
    """Return all values of a scanned array, by way of zarr."""
    held = {"zarr.json": array.zarr_json(), **dict(chunks(array))}
    store = MemoryStore({key: _make(data) for key, data in held.items()})
    opened = zarr.open_array(store, mode="r", zarr_format=3)
    assert json.loads(array.zarr_json())["codecs"] == [dict(codec) for codec in array.codecs]
    values = opened[...]  # of a 0-d array a scalar, and numpy's S and U forget their length
    return np.asarray(values, opened.dtype if opened.dtype.kind in "SU" else None)


class Materialised:
    """Values of the arrays of one file, which scans with other options describe again.

    What is described as before, by references that are the same, is not read again.
    """

    def __init__(self) -> None:
        self._known = {}

    def __call__(self, array: ScannedArray) -> np.ndarray:
        """Return all values of an array."""
        described = array.zarr_json(), array.references
        before, values = self._known.get(array.path, (None, None))
        if before != described:
            values = materialise(array)
            self._known[array.path] = described, values
        return values


def chunks(array: ScannedArray):
    """Yield zarr's key and the bytes of every reference."""
    table = array.references
    grid = [-(-n // edge) for n, edge in zip(array.shape, array.chunk_shape, strict=True)]
    assert (table.index < np.array(grid, "u4")).all(), "a chunk outside the array"
    files = [Path(local_path(url)) for url in table.locations.url]
    held = {}
    columns = table.index, table.kind, table.source, table.offset, table.length
    for index, kind, source, offset, length in zip(*(c.tolist() for c in columns), strict=True):
        if kind == ChunkType.inline:
            data = table.inline[offset : offset + length].tobytes()
        else:
            if source not in held:
                held[source] = files[source].read_bytes()
            data = held[source][offset : offset + length]
        assert len(data) == length
        yield "/".join(["c", *map(str, index)]), data
