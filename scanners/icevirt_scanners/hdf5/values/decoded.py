"""Decode the values of small chunked datasets from their bytes, without libhdf5.

Opening a file and a dataset with libhdf5 takes longer than the rest of the scan of a small file,
and the coordinate along which files are concatenated is chunked in most files. Anything that is not
plain (unwritten chunks, other filters, damage) is left to libhdf5, for the values or for the error.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.model.json import JSON
from icevirt_scanners.hdf5.files import FileContext
from icevirt_scanners.hdf5.values.chunk_references import Stored, stored_chunks
from icevirt_scanners.hdf5.values.chunked import odd_chunks
from icevirt_scanners.hdf5.variable import HDF5Variable

_LARGE = 1 << 20  # bytes of chunks, from which libhdf5 is worth its start


def decoded(variable: HDF5Variable, context: FileContext) -> np.ndarray[Any, Any] | None:
    """Return all values of a chunked dataset of plain numbers, None where libhdf5 is to read them.

    Raises:
        ValueError: Its chunk index is damaged.
    """
    shape, chunk, element = variable.own_shape, variable.own_chunk, variable.element
    undo = _undoing(variable)
    counts = tuple(-(-n // edge) for n, edge in zip(shape, chunk, strict=True))
    size = prod(chunk) * element.dtype.itemsize
    if undo is None or not 0 < prod(counts) * size <= _LARGE or variable.unfilled:
        return None
    if context.options.run_of(variable.path) is not None:
        return None
    found = stored_chunks(variable, context)
    if not _fills(found, counts) or odd_chunks(variable, found).any():
        return None
    if int(found.length.max()) > _LARGE:
        return None
    padded = np.empty([n * edge for n, edge in zip(counts, chunk, strict=True)], element.stored_as)
    for row, index in enumerate(found.index.tolist()):
        raw = context.source.read(int(found.offset[row]), int(found.length[row]))
        values = undo(raw, size) if len(raw) == found.length[row] else None
        if values is None:
            return None
        box = tuple(
            slice(at * edge, (at + 1) * edge) for at, edge in zip(index, chunk, strict=True)
        )
        padded[box] = np.frombuffer(values, element.stored_as).reshape(chunk)
    return padded[tuple(slice(n) for n in shape)].astype(element.dtype)


def _fills(found: Stored, counts: tuple[int, ...]) -> bool:
    """Say whether each chunk of the grid is there, once."""
    if len(found.index) != prod(counts):
        return False
    places = np.ravel_multi_index(tuple(found.index.T), counts)
    return bool((np.sort(places) == np.arange(len(places))).all())


def _undoing(variable: HDF5Variable) -> Callable[[bytes, int], bytes | None] | None:
    """Return what decodes a chunk to as many bytes, or to None; None where that is not known."""
    if not variable.element.is_number or variable.not_plain or variable.pipeline.undecodable:
        return None
    steps = [_step(codec) for codec in variable.pipeline.codecs if codec is not None]
    if None in steps:
        return None

    def undo(raw: bytes, size: int) -> bytes | None:
        found: bytes | None = raw
        for step in reversed(steps):
            assert step is not None
            found = None if found is None else step(found, size)
        return found if found is not None and len(found) == size else None

    return undo


def _step(codec: JSON) -> Callable[[bytes, int], bytes | None] | None:
    match codec:
        case {"name": "numcodecs.zlib"}:
            return _inflated
        case {"name": "numcodecs.shuffle", "configuration": {"elementsize": int(width)}}:
            return lambda raw, _: _unshuffled(raw, width)
        case _:
            return None


def _inflated(raw: bytes, size: int) -> bytes | None:
    """Undo zlib, as long as it gives no more than it should."""
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(raw, size + 1)
    except zlib.error:
        return None
    return found if stream.eof else None


def _unshuffled(raw: bytes, width: int) -> bytes | None:
    if len(raw) % width:
        return None
    turned: NDArray[np.uint8] = np.frombuffer(raw, np.uint8).reshape(width, -1).T
    return turned.tobytes()
