"""Choose how a variable is represented, and digest values that must be equal in all files.

In this order: stored whole (coordinates, strings, scalars, compact layout, short odd lengths),
referenced, referenced except for a few stored chunks, stored chunk by chunk.

`weight_of` estimates what that takes from headers alone, to divide a huge file. Measured on one
core: half a microsecond per chunk of an index, values at 200 MB/s if they are read, 0.1 ms for any
variable.

A digest covers decoded values, so files may encode them differently. Decoding the same grid in each
of ten thousand files would be most of a scan, so digests are cached by the encoded bytes: a file
with the same bytes and filters needs no decoding.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from h5py import h5d
from numpy.typing import NDArray

from icevirt.archive.joining import Fact
from icevirt.archive.scanned import FactsBeside, ScannedArray, Weight
from icevirt.errors import ScanError
from icevirt.model.chunks import ChunkTable
from icevirt.scan.contract import Policy, prefetch
from icevirt_scanners import blocks
from icevirt_scanners.encoding import GZIP, PIECE
from icevirt_scanners.given import digest_of
from icevirt_scanners.hdf5 import libhdf5_values
from icevirt_scanners.hdf5.chunked import (
    check_decodable,
    may_leave_edges,
    offset_of,
    read_index,
    reference_chunks,
    store_chunks,
    with_inner,
)
from icevirt_scanners.hdf5.datatypes import bytes_codec
from icevirt_scanners.hdf5.files import CLOSE_IT, FileContext
from icevirt_scanners.hdf5.filters import filters_of_plist
from icevirt_scanners.hdf5.libhdf5_values import fill_json
from icevirt_scanners.hdf5.raw.arrays import ChunkEntries
from icevirt_scanners.hdf5.raw.chunks import layout_of
from icevirt_scanners.hdf5.raw.header import DATATYPE, FILTERS
from icevirt_scanners.hdf5.raw.space import NotUnderstoodError
from icevirt_scanners.hdf5.variable import HDF5Variable
from icevirt_scanners.hdf5.virtual_datasets import Resolved, resolve
from icevirt_scanners.hdf5.whole import store_whole, wants_whole

_BY_POLICY = "its policy is 'native'"
LEAST = 200
"""References that take as long as the header of a variable."""

_BYTES = 100  # of values that are read in the time of a reference


def represent(variable: HDF5Variable, context: FileContext) -> ScannedArray:
    """Return the scanned array.

    Raises:
        UnsupportedError: The values can neither be referenced nor read and stored.
    """
    if variable.layout == h5d.VIRTUAL:
        return _virtual(variable, context)
    if wants_whole(variable, context):
        return store_whole(variable, context)
    found = read_index(variable, context) if variable.chunk is not None else None
    known, findings = variable.known, len(context.findings)
    if known is not None and found is not None:
        alike = known.array(found, size=context.source.file.size, context=context)
        if alike is not None:
            return alike
    if variable.not_plain or context.options.policy_of(variable.path) is Policy.native:
        array = _store(variable, found, context, cause=_BY_POLICY)
    elif found is None:
        array = _reference_block(variable, context)
    else:
        array = reference_chunks(variable, found, context) or _store(variable, found, context)
    if known is not None and found is not None and len(context.findings) == findings:
        more = context.choose_facts(array) & (Fact.values | Fact.digest)
        if not (more or variable.pipeline.least or may_leave_edges(variable)):
            known.keep_array(array, found)
    return _add_facts(
        array,
        context,
        values=lambda: store_whole(variable, context),
        digest=lambda: digest_of_dataset(variable, found, context),
    )


def _add_facts(
    array: ScannedArray,
    context: FileContext,
    *,
    values: Callable[[], ScannedArray],
    digest: Callable[[], str],
) -> ScannedArray:
    """Return the array with the facts that combining files will need."""
    wanted = context.choose_facts(array)
    if Fact.values in wanted:
        return replace(array, beside=context.values_of(values))
    if Fact.digest in wanted:
        return replace(array, beside=FactsBeside(digest=digest()))
    return array


def _virtual(variable: HDF5Variable, context: FileContext) -> ScannedArray:
    """Reference the chunks of the sources of a virtual dataset, or store its values."""
    resolved = resolve(variable, context)
    if context.options.policy_of(variable.path) is Policy.native:
        resolved = replace(resolved, array=None, reason=resolved.reason or _BY_POLICY)
    if resolved.missing:
        message = f"{len(resolved.missing)} source files are missing, first {resolved.missing[0]}:"
        context.warn(
            variable.path, "virtual-source-missing", f"{message} it reads as its fill value there"
        )
    array = resolved.array
    why = "" if array is not None else f"{variable.elsewhere}: {resolved.reason}"
    variable = variable._replace(elsewhere=why)

    def whole() -> ScannedArray:
        _check_here(variable, resolved, context)
        return store_whole(variable, context)

    def digest() -> str:
        if resolved.array is None:
            return digest_of_dataset(variable, None, context)
        return digest_of(resolved.array, variable.element.dtype, context.elsewhere)

    if wants_whole(variable, context):
        return whole()
    if array is None:
        _check_here(variable, resolved, context)
        array = _store(variable, None, context)
    else:
        message = f"its chunks are those of datasets in {resolved.files} files"
        context.tell(variable.path, "virtual-dataset", message)
    return _add_facts(array, context, values=whole, digest=digest)


def _check_here(variable: HDF5Variable, resolved: Resolved, context: FileContext) -> None:
    """Refuse to read a virtual dataset through libhdf5 where that would open the wrong file."""
    remote = context.source.local_path is None
    if not remote and context.file.is_detached:
        what = "values of a virtual dataset must be read, and this process has the file open"
        raise ScanError(what, do=CLOSE_IT, file=context.source.file.url, variable=variable.path)
    if not remote and not resolved.by_own_name:
        return
    cause = variable.elsewhere or "its values are needed while scanning"
    raise context.refusal(
        variable.path,
        "values of a virtual dataset in a remote file must be read"
        if remote
        else "values of a virtual dataset over its own file (named by file name) must be read",
        do="Copy it and its sources to local disk, or leave it out with drop_variables."
        if remote
        else 'Name the file "." in the virtual dataset, or leave it out with drop_variables.',
        cause=cause,
    )


def _reference_block(variable: HDF5Variable, context: FileContext) -> ScannedArray:
    """Reference a contiguous dataset, split into chunks of a readable size."""
    itemsize = variable.element.dtype.itemsize
    chunk = blocks.grid_of_block(variable.shape, itemsize)
    offset = offset_of(variable, context)
    table = ChunkTable.empty(len(variable.shape))
    if offset is not None and variable.nbytes:
        places = blocks.block_chunks(variable.shape, chunk, itemsize, offset)
        table = blocks.virtual(variable.path, *places, context)
    return variable.array(chunk, (variable.element.codec(),), table, contiguous=True)


def _store(
    variable: HDF5Variable,
    found: ChunkEntries | None,
    context: FileContext,
    *,
    cause: str = "filters that libhdf5 skips",
) -> ScannedArray:
    """Read and store all chunks."""
    cause = variable.not_plain or cause
    check_decodable(variable, context, cause)
    contiguous = variable.chunk is None or found is None
    if variable.chunk is not None and found is not None:
        chunk = variable.chunk
        index = with_inner(found.index, len(variable.shape))
    else:
        chunk = blocks.grid_of_block(variable.shape, variable.element.dtype.itemsize)
        edges = zip(variable.shape, chunk, strict=True)
        index = blocks.all_chunks(tuple(-(-length // edge) for length, edge in edges))
    table = store_chunks(variable, chunk, index, budget=context.budget, cause=cause)
    context.tell(variable.path, "stored-natively", cause)
    codecs = (bytes_codec(variable.element), GZIP)
    return variable.array(chunk, codecs, table, contiguous=contiguous)


def weight_of(variable: HDF5Variable, context: FileContext) -> Weight:
    """Return what a variable takes, and whether its chunk index can be read in runs."""
    options, path = context.options, variable.path
    if variable.layout == h5d.VIRTUAL:
        return Weight(path=path, cost=LEAST + variable.nbytes // _BYTES)
    places = 0
    if variable.chunk is not None:
        edges = zip(variable.own_shape, variable.own_chunk, strict=True)
        places = prod(-(-length // edge) for length, edge in edges)
    stored = (
        wants_whole(variable, context)
        or bool(variable.not_plain)
        or options.policy_of(path) in (Policy.native, Policy.inline)
    )
    chunk = variable.chunk or blocks.grid_of_block(variable.shape, variable.element.dtype.itemsize)
    table = ChunkTable.empty(len(variable.shape))
    described = variable.array(chunk, (), table, contiguous=variable.chunk is None)
    if stored or context.choose_facts(described):
        return Weight(path=path, cost=LEAST + places + variable.nbytes // _BYTES)
    plain = not variable.unfilled and variable.shape == variable.own_shape
    runs = 0
    with suppress(NotUnderstoodError):
        if plain and variable.header is not None and context.raw is not None:
            # places in the index must follow each other as those in the chunk grid do
            kind = layout_of(variable.header.layout, context.raw.space).kind
            is_fixed = kind == "fixed" and variable.limits == variable.own_shape
            runs = places if kind == "btree1" or is_fixed else 0
    return Weight(path=path, cost=LEAST + places, chunks=runs)


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
        return _hash_decoded(variable)
    if context.source.local_path is None and not variable.pipeline.undecodable:
        # bytes from a server are fetched once: kept while they are hashed and decoded, or decoded
        if int(found.length.sum()) > _KEPT:
            return _hash_decoded(variable)
        ends = found.offset + found.length
        prefetch(context.source, list(zip(found.offset.tolist(), ends.tolist(), strict=True)))
    if variable.pipeline.undecodable:
        return _hash_encoded(_facts(variable), found, context).hex()
    # what decides what the chunks decode to, within this process
    said = variable.header.key((*FILTERS, DATATYPE)) if variable.header is not None else None
    if said is not None and variable.element.is_number:
        fill, shapes = (
            fill_json(variable.fill, variable.element),
            (variable.own_shape, variable.chunk),
        )
        head = repr((variable.element.data_type, said, shapes, fill)).encode()
    else:
        head = _facts(variable)
    key = _hash_encoded(head, found, context)
    known = _known.pop(key, None) or _hash_decoded(variable)
    _known[key] = known  # the latest stands last
    while len(_known) > _REMEMBERED:
        _known.popitem(last=False)
    return known


def _hash_decoded(variable: HDF5Variable) -> str:
    return libhdf5_values.digest(variable.dsid, variable.element, variable.own_chunk or None)


def _hash_encoded(head: bytes, found: ChunkEntries, context: FileContext) -> bytes:
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


def _facts(variable: HDF5Variable) -> bytes:
    """Return what decides what the chunks decode to, by libhdf5 and equal in all files."""
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
