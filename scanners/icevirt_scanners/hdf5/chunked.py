"""Reference the chunks of a dataset, or read and store them: all, or the few that are odd.

libhdf5 itself encodes odd chunks (a filter skipped) again, with the dataset's own filters in a file
in memory, so that they decode like their neighbors.

Places of chunks are columns, with absolute offsets, user block included. Large indices are decoded
from the bytes of the file, and libhdf5 counts their chunks. libhdf5 lists small ones, and any that
the decoder does not understand. It must never list one index: it names the wrong chunks of an
extensible array whose only unlimited axis is not the first (seen in HDF5 2.0.0; it reads the values
correctly).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from math import prod
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5s
from numpy.typing import NDArray

from icevirt.archive.scanned import ScannedArray
from icevirt.errors import ScanError
from icevirt.model.chunks import ChunkTable
from icevirt.model.json import JSON
from icevirt_scanners import blocks
from icevirt_scanners.context import Budget
from icevirt_scanners.encoding import squeeze
from icevirt_scanners.hdf5.files import REMEDY, FileContext
from icevirt_scanners.hdf5.libhdf5_values import encode, read
from icevirt_scanners.hdf5.raw.arrays import ChunkEntries
from icevirt_scanners.hdf5.raw.chunks import list_chunks
from icevirt_scanners.hdf5.raw.space import NotUnderstoodError, number, require
from icevirt_scanners.hdf5.variable import HDF5Variable

STORED = 1 << 31  # in a mask, where no filter is: a chunk that must be stored whatever it skips
_FEW = 128  # chunks that libhdf5 need not count: to open file and dataset takes longer
_OLD = b"\3"  # the last version of layout messages that knows no extensible arrays
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
    codecs: tuple[JSON, ...] = (variable.element.codec(), *variable.pipeline.keep())
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
            chunk, (variable.element.codec(), *variable.pipeline.keep(mask)), table
        )
    if variable.unfilled:
        why = "are followed by netCDF's filling"
    else:
        why = "skip a filter" if found.mask.any() else "are smaller than the codec expects"
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
    if may_leave_edges(variable):
        full = found.length == prod(own) * variable.stored_size
        if full.any():
            partial = ((found.index + 1) * np.array(own) > np.array(shape)).any(axis=1)
            odd = odd | (partial & full)
    return odd | (found.length < variable.pipeline.least) if variable.pipeline.least else odd


def may_leave_edges(variable: HDF5Variable) -> bool:
    """Say whether there are partial edge chunks, which may lie there unfiltered."""
    edges = zip(variable.own_shape, variable.own_chunk, strict=True)
    cut = any(n % edge for n, edge in edges)
    return cut and bool(variable.pipeline.codecs) and _may_leave_edges(variable)


def _may_leave_edges(variable: HDF5Variable) -> bool:
    """Say whether the layout leaves edges unfiltered: a flag since version 4 (HDF5 1.10)."""
    try:
        message = variable.header.layout if variable.header is not None else b""
        version, flags = number(message, 0, 1), number(message, 2, 1)
    except NotUnderstoodError:
        return True
    return version > _NEWEST or (version >= _FLAGGED and bool(flags & _LEFT))


def with_inner(index: np.ndarray[Any, Any], ndim: int) -> np.ndarray[Any, Any]:
    """Add zeros for the axes of an array type."""
    missing = ndim - index.shape[1]
    return np.pad(index, ((0, 0), (0, missing))) if missing else index


def check_decodable(variable: HDF5Variable, context: FileContext, cause: str) -> None:
    """Refuse values that must be read and cannot be decoded. Raises `UnsupportedError`."""
    if variable.pipeline.undecodable:
        raise context.refusal(
            variable.path,
            "neither zarr nor this libhdf5 has a filter of the values",
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
        squeeze(encode(values, variable.element)) for values in _boxes(variable, chunk, index)
    ]
    return ChunkTable.of_inline(index=index, chunks=encoded)


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
    if variable.pipeline.needs_package:
        for values in _boxes(variable, variable.chunk, index):
            stored = variable.pipeline.encode(values.astype(variable.element.stored_as).tobytes())
            if stored is None:
                return None
            encoded.append(stored)
        return ChunkTable.of_inline(index=index, chunks=encoded)
    with h5py.File("memory", "w", driver="core", backing_store=False) as file:
        plist, kind = variable.plist, variable.dsid.get_type().copy()
        space = h5s.create_simple(plist.get_chunk())  # one chunk, with the filters of the variable
        twin = h5d.create(file.id, b"twin", kind, space, plist)
        corner = (0,) * len(variable.own_shape)
        for values in _boxes(variable, variable.chunk, index):
            held = values.astype(variable.element.read_as or values.dtype)
            twin.write(h5s.ALL, h5s.ALL, np.ascontiguousarray(held), variable.element.memory)
            twin.flush() if hasattr(twin, "flush") else None
            mask, data = twin.read_direct_chunk(corner)
            if mask:
                return None
            encoded.append(bytes(data))
    return ChunkTable.of_inline(index=index, chunks=encoded)


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


def read_index(variable: HDF5Variable, context: FileContext) -> ChunkEntries:
    """Read the chunk index of a chunked dataset in one pass.

    Chunks outside the shape are left out: libhdf5 never reads them either.

    Raises:
        ScanError: A chunk is shorter than its values.
        ValueError: The index is damaged.
    """
    run = context.options.run_of(variable.path)
    if run is not None:
        return _read_run(variable, context, run)
    known = variable.known
    if known is not None:
        alike = known.entries(variable.header, context.raw)
        if alike is not None:
            return alike
    shape, chunk = variable.own_shape, variable.own_chunk
    few = prod(-(-n // edge) for n, edge in zip(shape, chunk, strict=True)) <= _FEW
    counted = not few or _is_turned(variable)
    decoded = _decode(variable, context, counted=counted)
    listed = _list_chunks(variable.dsid, chunk) if decoded is None else decoded
    found = _cut_off(listed, variable)
    if found.mask.any():  # a chunk of which every filter was skipped is as long as its values
        every = (1 << len(variable.pipeline.codecs)) - 1
        nbytes = prod(chunk) * variable.stored_size
        short = ((found.mask & every) == every) & (found.length < nbytes)
        if short.any():
            row = int(np.argmax(short))
            raise short_chunk(variable, context, found.index[row], int(found.length[row]))
    if known is not None and found is decoded and not (counted or variable.unfilled):
        known.keep_entries(found, variable.header, context.raw)
    return _complete(found, variable, context.budget) if variable.unfilled else found


def short_chunk(
    variable: HDF5Variable, context: FileContext, index: NDArray[np.int64], nbytes: int
) -> ScanError:
    """Return the error of a chunk that decodes to ``nbytes``, which are too few.

    libhdf5 (seen in 2.0.0) shows what its memory holds behind them, other values each time.
    """
    return ScanError(
        "a chunk is shorter than its values",
        do="The file is damaged; fetch it again, or leave the variable out with drop_variables.",
        file=context.source.file.url,
        variable=variable.path,
        chunk=index.tolist(),
        nbytes=nbytes,
        needed=prod(variable.own_chunk) * variable.stored_size,
    )


def _cut_off(found: ChunkEntries, variable: HDF5Variable) -> ChunkEntries:
    shape, chunk = variable.own_shape, variable.own_chunk
    if len(found.index) <= _FEW and _all_inside(found.index.tobytes(), shape, chunk):
        return found
    inside = (found.index * np.array(chunk, np.int64) < np.array(shape, np.int64)).all(axis=1)
    return found if inside.all() else found.take(inside)


@lru_cache(256)
def _all_inside(index: bytes, shape: tuple[int, ...], chunk: tuple[int, ...]) -> bool:
    corner = np.frombuffer(index, np.int64).reshape(-1, len(chunk)) * np.array(chunk, np.int64)
    return bool((corner < np.array(shape, np.int64)).all())


def _read_run(variable: HDF5Variable, context: FileContext, run: tuple[int, int]) -> ChunkEntries:
    """Read a run of the chunk index; libhdf5 counts the chunks of all runs for the first one.

    Raises:
        UnsupportedError: It is not as this reader expects it.
    """
    found = _decode(variable, context, counted=False, run=run)
    if found is None or found.mask.any():
        what = "an array that a single task must scan"
        raise context.refusal(variable.path, what, do="Scan the file in one task.")
    there = variable.dsid.get_num_chunks() if run[0] == 0 else 0
    context.tally[variable.path] = len(found.offset) - there
    return _cut_off(found, variable)


def _complete(found: ChunkEntries, variable: HDF5Variable, budget: Budget) -> ChunkEntries:
    """Add chunks that were never written, which are zeros, and mark those with netCDF's filling."""
    own, chunk = np.array(variable.own_shape), np.array(variable.own_chunk)
    counts = tuple((-(-own // chunk)).tolist())
    if prod(counts) > budget.left:
        budget.spend(prod(counts), variable=variable.path, cause="chunks that were never written")
    there = np.zeros(counts, bool)
    there[tuple(found.index.T)] = True
    missing = np.argwhere(~there)
    ends = (found.index + 1) * chunk > own
    longer = own < np.array(variable.shape[: len(own)])
    filled = np.where((ends & longer).any(axis=1), found.mask | np.uint32(STORED), found.mask)
    none = np.zeros(len(missing), np.int64)
    never = np.full(len(missing), STORED, np.uint32)
    unwritten = ChunkEntries(index=missing, offset=none, length=none, mask=never)
    return ChunkEntries.join([replace(found, mask=filled), unwritten], len(own))


def _is_turned(variable: HDF5Variable) -> bool:
    """Say whether an extensible array over the dataset would number chunks not in C order."""
    unlimited = [limit == h5s.UNLIMITED for limit in variable.limits]
    return sum(unlimited) == 1 and not unlimited[0]


def _decode(
    variable: HDF5Variable,
    context: FileContext,
    *,
    counted: bool = True,
    run: tuple[int, int] | None = None,
) -> ChunkEntries | None:
    """Decode the index from the file's bytes; None where libhdf5 is to list it.

    Where it is to be ``counted``, libhdf5 must find as many chunks.
    """
    message = b""
    try:
        raw, header = context.raw, context.header(variable.address)
        require(raw is not None and header is not None, "an odd superblock or object header")
        assert raw is not None
        assert header is not None
        message = header.layout
        found = list_chunks(
            raw.space.begin(),
            message,
            chunk=variable.own_chunk,
            shape=variable.own_shape,
            limits=tuple(None if n == h5s.UNLIMITED else n for n in variable.limits),
            run=run,
        )
        right = not counted or len(found.offset) == variable.dsid.get_num_chunks()
        require(right, "another number of chunks")
    except NotUnderstoodError as error:
        if _is_turned(variable) and not b"\0" < message[:1] <= _OLD:
            raise ValueError(f"a chunk index that cannot be read: {error}") from error
        return None
    return replace(found, offset=found.offset + raw.space.base) if raw.space.base else found


def _list_chunks(dsid: Any, chunk: tuple[int, ...]) -> ChunkEntries:
    """Let libhdf5 list the chunks, through a callback for each."""
    found: list[Any] = []
    dsid.chunk_iter(found.append)
    n, ndim = len(found), len(chunk)
    if not n:
        return ChunkEntries.join([], ndim)
    corners, masks, offsets, lengths = zip(*found, strict=True)
    corner = np.fromiter(chain.from_iterable(corners), np.int64, n * ndim).reshape(n, ndim)
    index, rest = np.divmod(corner, np.array(chunk, np.int64))
    if rest.any():
        raise ValueError("a chunk that does not lie on the chunk grid")
    return ChunkEntries(
        index=index,
        offset=np.fromiter(offsets, np.int64, n),
        length=np.fromiter(lengths, np.int64, n),
        mask=np.fromiter(masks, np.uint32, n),
    )
