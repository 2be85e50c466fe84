"""Digest the values of arrays that must be equal in all files.

A digest covers decoded values, so files may encode them differently. Decoding the same grid in each
of ten thousand files would be most of a scan, so digests are cached by the encoded bytes: a file
with the same bytes and filters needs no decoding.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.scan.contract import prefetch
from icevirt_scanners.encoding import PIECE
from icevirt_scanners.hdf5.files import FileContext
from icevirt_scanners.hdf5.index.entries import ChunkEntries
from icevirt_scanners.hdf5.raw.header import DATATYPE, FILTERS
from icevirt_scanners.hdf5.types.filters import filters_of_plist
from icevirt_scanners.hdf5.values import libhdf5_values
from icevirt_scanners.hdf5.values.libhdf5_values import fill_json
from icevirt_scanners.hdf5.variable import HDF5Variable

_REMEMBERED = 4096  # digests; about 200 bytes each
_NEAR = 2 * PIECE  # bytes within which ranges are read at once
_GAPS = 1024 * 1024  # bytes between ranges that are read rather than asked for one by one
_KEPT = 12 * 1024 * 1024  # bytes that a source on a server surely holds at a time
_known: OrderedDict[bytes, str] = OrderedDict()


def digest_of_dataset(
    variable: HDF5Variable, found: ChunkEntries | None, context: FileContext
) -> str:
    """Hash type, shape and values; encoded chunks where this libhdf5 cannot decode them.

    ``found`` is where the chunks of a chunked dataset lie.
    """
    if found is None:
        return _decoded(variable)
    if context.source.local_path is None and not variable.pipeline.undecodable:
        # bytes from a server are fetched once: kept while they are hashed and decoded, or decoded
        if int(found.length.sum()) > _KEPT:
            return _decoded(variable)
        ends = found.offset + found.length
        prefetch(context.source, list(zip(found.offset.tolist(), ends.tolist(), strict=True)))
    if variable.pipeline.undecodable:
        return _encoded(_facts(variable), found, context).hex()
    key = _encoded(_head(variable), found, context)
    known = _known.pop(key, None) or _decoded(variable)
    _known[key] = known  # the latest stands last
    while len(_known) > _REMEMBERED:
        _known.popitem(last=False)
    return known


def _decoded(variable: HDF5Variable) -> str:
    return libhdf5_values.digest(variable.dsid, variable.element, variable.own_chunk or None)


def _encoded(head: bytes, found: ChunkEntries, context: FileContext) -> bytes:
    """Hash the chunks as they lie in the file, with all that decides what they decode to."""
    total = hashlib.blake2b(head, digest_size=16)
    order = np.lexsort(found.index.T[::-1])
    for column in (found.index, found.length, found.mask):
        total.update(column[order].tobytes())
    for piece in _pieces(context.source.read, found.offset[order], found.length[order]):
        total.update(piece)
    return total.digest()


def _pieces(
    read: Callable[[int, int], bytes], offset: NDArray[np.int64], length: NDArray[np.int64]
) -> Iterator[bytes | memoryview]:
    """Yield the bytes of all ranges in their order, in pieces of any size."""
    stop = offset + length
    batch = (np.cumsum(length) - length) // PIECE
    apart = np.ones(len(offset) + 1, bool)  # neighbours in the file are one run
    apart[1:-1] = (offset[1:] != stop[:-1]) | (batch[1:] != batch[:-1])
    begin, end, batch = offset[apart[:-1]], stop[apart[1:]], batch[apart[:-1]]
    for number in np.unique(batch).tolist():
        some = batch == number
        yield from _batch(read, begin[some], end[some])


def _batch(
    read: Callable[[int, int], bytes], begin: NDArray[np.int64], end: NDArray[np.int64]
) -> Iterator[bytes | memoryview]:
    low, high = int(begin.min()), int(end.max())
    edges = zip(begin.tolist(), end.tolist(), strict=True)
    if high - low <= min(_NEAR, _GAPS + 2 * int((end - begin).sum())):
        data = memoryview(read(low, high - low))
        yield from (data[start - low : stop - low] for start, stop in edges)
        return
    for start, stop in edges:
        yield from (read(at, min(PIECE, stop - at)) for at in range(start, stop, PIECE))


def _head(variable: HDF5Variable) -> bytes:
    """Return what decides what the chunks decode to, within this process."""
    known = variable.header.key((*FILTERS, DATATYPE)) if variable.header is not None else None
    if known is not None and variable.element.is_number:
        fill = fill_json(variable.fill, variable.element)
        shapes = variable.own_shape, variable.chunk
        return repr((variable.element.data_type, known, shapes, fill)).encode()
    return _facts(variable)


def _facts(variable: HDF5Variable) -> bytes:
    """Return the same by libhdf5, equal in all files."""
    facts: tuple[Any, ...] = (
        variable.element.data_type,
        variable.element.big_endian,
        variable.element.not_plain,
        variable.own_shape,
        variable.chunk,
        list(filters_of_plist(variable.plist)),
        fill_json(variable.fill, variable.element),
        variable.dsid.get_type().encode(),
    )
    return repr(facts).encode()
