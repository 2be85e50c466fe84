"""List where the bytes of a dataset lie: chunk indices and offsets as columns.

Offsets are absolute, user block included. Large indices are decoded from the bytes of the file, and
libhdf5 counts their chunks. libhdf5 lists small ones, and any that the decoder does not understand.

libhdf5 must never list one index: it names the wrong chunks of an extensible array whose only
unlimited axis is not the first (seen in HDF5 2.0.0; it reads the values correctly).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from math import prod
from typing import Any

import numpy as np
from h5py import h5s

from icevirt_scanners.context import Budget
from icevirt_scanners.hdf5.files import FileContext
from icevirt_scanners.hdf5.index.chunks import found_chunks
from icevirt_scanners.hdf5.index.entries import ChunkEntries
from icevirt_scanners.hdf5.raw.header import LAYOUT, only
from icevirt_scanners.hdf5.raw.space import NotUnderstoodError, require
from icevirt_scanners.hdf5.variable import HDF5Variable

STORED = 1 << 31  # in a mask, where no filter is: a chunk that must be stored whatever it skips
_FEW = 128  # chunks that libhdf5 need not count: to open file and dataset takes longer
_OLD = b"\3"  # the last version of layout messages that knows no extensible arrays


def stored_chunks(variable: HDF5Variable, context: FileContext) -> ChunkEntries:
    """Read the chunk index of a chunked dataset in one pass.

    Chunks outside the shape are left out: libhdf5 never reads them either.

    Raises:
        ValueError: The index is damaged.
    """
    shape, chunk = variable.own_shape, variable.own_chunk
    run = context.options.run_of(variable.path)
    if run is not None:
        return _in_run(variable, context, run)
    few = prod(-(-n // edge) for n, edge in zip(shape, chunk, strict=True)) <= _FEW
    found = _decoded(variable, context, counted=not few or _turned(variable))
    if found is None:
        found = _listed(variable.dsid, chunk)
    found = _inside(found, variable)
    return _completed(found, variable, context.budget) if variable.unfilled else found


def _inside(found: ChunkEntries, variable: HDF5Variable) -> ChunkEntries:
    shape, chunk = np.array(variable.own_shape, np.int64), np.array(variable.own_chunk, np.int64)
    inside = (found.index * chunk < shape).all(axis=1)
    return found if inside.all() else found.take(inside)


def _in_run(variable: HDF5Variable, context: FileContext, run: tuple[int, int]) -> ChunkEntries:
    """Read a run of the chunk index; libhdf5 counts the chunks of all runs for the first one.

    Raises:
        UnsupportedError: It is not as this reader expects it.
    """
    found = _decoded(variable, context, counted=False, run=run)
    if found is None or found.mask.any():
        raise context.refusal(
            variable.path,
            "an array that a single task must scan",
            do="Scan the file in one task.",
        )
    there = variable.dsid.get_num_chunks() if run[0] == 0 else 0
    context.tally[variable.path] = len(found.offset) - there
    return _inside(found, variable)


def _completed(found: ChunkEntries, variable: HDF5Variable, budget: Budget) -> ChunkEntries:
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
    return ChunkEntries.joined([replace(found, mask=filled), unwritten], len(own))


def _turned(variable: HDF5Variable) -> bool:
    """Say whether an extensible array over the dataset would number chunks not in C order."""
    unlimited = [limit == h5s.UNLIMITED for limit in variable.limits]
    return sum(unlimited) == 1 and not unlimited[0]


def _decoded(
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
        message = only(header.messages, LAYOUT)
        found = found_chunks(
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
        if _turned(variable) and not b"\0" < message[:1] <= _OLD:
            raise ValueError(f"a chunk index that cannot be read: {error}") from error
        return None
    return replace(found, offset=found.offset + raw.space.base)


def _listed(dsid: Any, chunk: tuple[int, ...]) -> ChunkEntries:
    """Let libhdf5 list the chunks, through a callback for each."""
    found: list[Any] = []
    dsid.chunk_iter(found.append)
    n, ndim = len(found), len(chunk)
    if not n:
        return ChunkEntries.joined([], ndim)
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
