"""Read arrays to store as one uncompressed chunk.

They are arrays whose values the plan needs (coordinates), arrays that could not be joined with
other files otherwise (lengths that are no multiple of the chunk), and arrays too small to be worth
a request of their own.

Values of small chunked datasets are decoded from their bytes: opening a file and a dataset with
libhdf5 takes longer than the rest of the scan of a small file, and the coordinate along which files
are concatenated is chunked in most files. Anything that is not plain (unwritten chunks, other
filters, damage) is left to libhdf5, for the values or for the error.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from h5py import h5d
from numpy.typing import NDArray

from icevirt.archive.joining import SMALL
from icevirt.archive.scanned import ScannedArray
from icevirt.model.attributes import Attributes
from icevirt.model.chunks import ChunkTable
from icevirt.model.json import JSON
from icevirt.scan import values as values_by_zarr
from icevirt.scan.contract import Policy
from icevirt_scanners.blocks import virtual
from icevirt_scanners.hdf5 import libhdf5_values
from icevirt_scanners.hdf5.chunked import odd_chunks, read_index, short_chunk
from icevirt_scanners.hdf5.datatypes import Element, bytes_codec
from icevirt_scanners.hdf5.files import LACKS_FILTER, REMEDY, FileContext
from icevirt_scanners.hdf5.raw.arrays import ChunkEntries
from icevirt_scanners.hdf5.variable import HDF5Variable

TINY = 64 * 1024  # stored rather than referenced when there is any reason to


_LARGE = 1 << 20  # bytes of chunks from which libhdf5 is worth its start


def wants_whole(variable: HDF5Variable, context: FileContext) -> bool:
    """Say whether a variable is stored whole."""
    if variable.element.text or variable.layout == h5d.COMPACT:
        return True
    policy = context.options.policy_of(variable.path)
    if policy is Policy.reference:
        return False
    if policy is Policy.inline or not variable.shape:
        return True
    if variable.is_coordinate:
        return variable.nbytes <= context.budget.left
    return bool(variable.not_plain) and variable.nbytes <= TINY


def store_whole(variable: HDF5Variable, context: FileContext) -> ScannedArray:
    """Read a variable and store it as one chunk.

    Raises:
        UnsupportedError: It is too large, or cannot be decoded.
    """
    inline = context.options.policy_of(variable.path) is Policy.inline
    if inline and variable.nbytes > SMALL:
        raise context.refusal(
            variable.path,
            f"a variable with the policy 'inline' has more than {SMALL} bytes",
            do='Use the policy "native", which stores it in chunks.',
            nbytes=variable.nbytes,
        )
    cause = variable.not_plain or "stored whole"
    context.budget.spend(variable.nbytes, variable=variable.path, cause=cause)
    plain = _plain_bytes(variable, context)
    if plain is not None and len(plain) <= _SMALL:
        known = _known.get(_key_of(variable, plain, is_stored=True))
        if known is not None:
            return known[-1]
    found = _read(variable, plain, context)
    if found.shape != variable.shape:  # filled up to netCDF's lengths
        full = np.full(variable.shape, variable.fill, found.dtype)
        full[tuple(slice(length) for length in found.shape)] = found
        found = full
    if variable.element.text and not libhdf5_values.is_utf8(found):
        context.warn(variable.path, "strings-not-utf8", "stored as variable_length_bytes")
        array = _one_chunk(variable, found, ({"name": "vlen-bytes", "configuration": {}},))
        return replace(array, data_type="variable_length_bytes", fill_value="")
    if variable.not_plain and not variable.element.text:
        context.tell(variable.path, "stored-natively", cause)
    return _one_chunk(variable, found, (bytes_codec(variable.element),), plain)


def _plain_bytes(variable: HDF5Variable, context: FileContext) -> bytes | None:
    """Return the bytes of plain numbers that stand in one place, None for all else."""
    placed, element, raw = variable.placed, variable.element, context.raw
    nbytes = element.dtype.itemsize * prod(variable.own_shape)
    if placed is None or raw is None or not element.is_number or placed.nbytes != nbytes:
        return None
    data = placed.inside
    if placed.address is not None:
        data = context.source.read(raw.space.base + placed.address, nbytes)
    return data if data is not None and len(data) == nbytes else None


def _read(
    variable: HDF5Variable, plain: bytes | None, context: FileContext
) -> np.ndarray[Any, Any]:
    """Read all values; plain numbers from the bytes of the file, which ``plain`` are."""
    element = variable.element
    if plain is not None:
        stored = np.frombuffer(plain, element.stored_as).reshape(variable.own_shape)
        return stored.astype(element.dtype)
    if variable.pipeline.undecodable:
        return _by_codecs(variable, context)
    found = _decode(variable, context) if variable.chunk is not None else None
    return libhdf5_values.read(variable.dsid, element) if found is None else found


def _by_codecs(variable: HDF5Variable, context: FileContext) -> np.ndarray[Any, Any]:
    """Read values as a zarr reader does: it has filters that this libhdf5 has not.

    Raises:
        ScanError: A chunk does not decode.
        UnsupportedError: A zarr reader has not got them either, or not for all chunks.
    """
    element, pipeline = variable.element, variable.pipeline
    found = read_index(variable, context) if variable.chunk is not None else None
    plain = element.is_number and not variable.not_plain and not variable.unfilled
    if found is None or not plain or found.mask.any():
        raise context.refusal(
            variable.path,
            LACKS_FILTER,
            do=REMEDY,
            filter=pipeline.undecodable,
        )
    table = virtual(variable.path, found.index, found.offset, found.length, context)
    array = variable.array(variable.chunk or (), (element.codec(), *pipeline.keep()), table)
    values = values_by_zarr.read(
        array, lambda _, offset, length: context.source.read(offset, length)
    )
    own = values[tuple(slice(length) for length in variable.own_shape)]
    return own.astype(element.dtype, copy=False)


_known: dict[Hashable, tuple[Element, Attributes, ScannedArray]] = {}
_REMEMBERED = 128
_SMALL = 16 * 1024  # bytes of values that are remembered


def _key_of(variable: HDF5Variable, raw: bytes, *, is_stored: bool) -> Hashable:
    """Return all on which the array of some numbers depends, given as stored or as read."""
    names = tuple(axis.name for axis in variable.axes)
    ids = id(variable.element), id(variable.attributes)  # what is held leaves its id to no other
    shapes = variable.own_shape, variable.shape
    return variable.path, names, *ids, variable.fill.tobytes(), *shapes, is_stored, raw


def _one_chunk(
    variable: HDF5Variable,
    found: np.ndarray[Any, Any],
    codecs: tuple[Any, ...],
    plain: bytes | None = None,
) -> ScannedArray:
    """Return the array of values that were read; one object for equal arrays of several files."""
    if not variable.element.is_number or found.nbytes > _SMALL:
        return _make_array(variable, found, codecs)
    raw = found.tobytes() if plain is None else plain
    key = _key_of(variable, raw, is_stored=plain is not None)
    known = _known.get(key)
    if known is None:
        if len(_known) >= _REMEMBERED:
            _known.clear()
        made = _make_array(variable, found, codecs)
        known = _known[key] = variable.element, variable.attributes, made
    return known[-1]


def _make_array(
    variable: HDF5Variable, found: np.ndarray[Any, Any], codecs: tuple[Any, ...]
) -> ScannedArray:
    ndim = len(variable.shape)
    if found.size:
        chunk = libhdf5_values.encode(found, variable.element)
        table = ChunkTable.of_inline(index=np.zeros((1, ndim), np.uint32), chunks=[chunk])
    else:
        table = ChunkTable.empty(ndim)
    return variable.array(
        tuple(max(length, 1) for length in variable.shape),
        codecs,
        table,
        whole=True,
        digest=libhdf5_values.digest_of(found, variable.element),
        **_labels_of(variable, found),
    )


def _labels_of(variable: HDF5Variable, found: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Return the values of a coordinate, or a single value, for plans."""
    if not (variable.is_coordinate or found.size == 1):
        return {}
    labels = found.reshape(-1)
    if variable.element.text:
        texts = [(text or b"").decode("utf-8", "replace") for text in labels.tolist()]
        labels = np.array(texts)
    elif not variable.is_coordinate and labels.dtype.kind not in "iuf":
        return {}
    return {"labels": labels.tobytes(), "labels_dtype": labels.dtype.str}


def _decode(variable: HDF5Variable, context: FileContext) -> np.ndarray[Any, Any] | None:
    """Return all values of a chunked dataset of plain numbers, None where libhdf5 is to read them.

    Raises:
        ScanError: A chunk is shorter than its values.
        ValueError: Its chunk index is damaged.
    """
    shape, chunk, element = variable.own_shape, variable.own_chunk, variable.element
    undo = _undoing(variable)
    counts = tuple(-(-n // edge) for n, edge in zip(shape, chunk, strict=True))
    size = prod(chunk) * element.dtype.itemsize
    is_run = context.options.run_of(variable.path) is not None
    if undo is None or not 0 < prod(counts) * size <= _LARGE or variable.unfilled or is_run:
        return None
    found = read_index(variable, context)
    if not _fills(found, counts) or odd_chunks(variable, found).any():
        return None
    if int(found.length.max()) > _LARGE:
        return None
    chunks: list[NDArray[Any]] = []
    places = zip(found.index, found.offset.tolist(), found.length.tolist(), strict=True)
    for index, offset, length in places:
        raw = context.source.read(offset, length)
        values = undo(raw, size) if len(raw) == length else None
        if values is None or len(values) > size:
            return None
        if len(values) < size:
            raise short_chunk(variable, context, index, len(values))
        chunks.append(np.frombuffer(values, element.stored_as).reshape(chunk))
    if chunk == shape:
        return chunks[0].astype(element.dtype)
    whole = np.empty([n * edge for n, edge in zip(counts, chunk, strict=True)], element.stored_as)
    for each, place in zip(chunks, found.index.tolist(), strict=True):
        box = (slice(at * edge, (at + 1) * edge) for at, edge in zip(place, chunk, strict=True))
        whole[tuple(box)] = each
    return whole[tuple(slice(n) for n in shape)].astype(element.dtype)


def _fills(found: ChunkEntries, counts: tuple[int, ...]) -> bool:
    """Say whether each chunk of the grid is there, once."""
    if len(found.index) != prod(counts):
        return False
    if len(found.index) == 1:
        return not found.index.any()
    places = np.ravel_multi_index(tuple(found.index.T), counts)
    return bool((np.sort(places) == np.arange(len(places))).all())


def _undoing(variable: HDF5Variable) -> Callable[[bytes, int], bytes | None] | None:
    """Return what decodes a chunk of so many bytes, or to None; None where that is not known."""
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
        return found

    return undo


def _step(codec: JSON) -> Callable[[bytes, int], bytes | None] | None:
    match codec:
        case {"name": "numcodecs.zlib"}:
            return _inflate
        case {"name": "numcodecs.shuffle", "configuration": {"elementsize": int(width)}}:
            return lambda raw, _: _unshuffle(raw, width)
        case _:
            return None


def _inflate(raw: bytes, size: int) -> bytes | None:
    """Undo zlib, as long as it gives no more than it should."""
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(raw, size + 1)
    except zlib.error:
        return None
    return found if stream.eof else None


def _unshuffle(raw: bytes, width: int) -> bytes | None:
    if len(raw) % width:
        return None
    turned: NDArray[np.uint8] = np.frombuffer(raw, np.uint8).reshape(width, -1).T
    return turned.tobytes()
