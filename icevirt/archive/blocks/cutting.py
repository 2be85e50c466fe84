"""Cut blocks apart and join them, between the catalog's parts and a window.

A scan does not know how files will be combined, so its runs of contiguous values hold as many steps
as fit; `cut` makes single steps of them. Stored runs are gzipped, because scanners compress what
they store.
"""

from __future__ import annotations

import gzip
import pickle
import zlib
from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import zstandard
from numpy.typing import NDArray

from icevirt.archive.blocks.packing import (
    Block,
    PackedBlock,
    pack_columns,
    pack_targets,
    unpack,
)
from icevirt.errors import FormatError
from icevirt.model.chunks import ChunkType, Locations
from icevirt.model.strings import gather

_GZIP_LEVEL = 1  # of what scanners store
_GZIP = 31  # what zlib calls the window size of gzip
_FIELDS = [field.name for field in fields(PackedBlock)]


def part_of(block: Block, rows: NDArray[np.int64], file: NDArray[np.integer]) -> Block:
    """Return some rows of a block, with nothing of the others; ``file`` numbers their files anew.

    Args:
        block: The block.
        rows: (k,) Its rows, in the order wanted.
        file: (k,) The files of these rows.
    """
    kind, offset, length = block.kind[rows], block.offset[rows], block.length[rows]
    inline = kind == ChunkType.inline
    data, starts = gather(
        block.data, offset[inline].astype(np.int64), length[inline].astype(np.int64)
    )
    offset[inline] = starts[:-1]
    source, targets = block.source[rows], block.targets
    if len(targets):
        used = np.unique(source[source > 0]).astype(np.int64)
        number = np.zeros(len(targets) + 1, np.uint32)
        number[used] = np.arange(1, len(used) + 1)
        source, targets = number[source], targets.take(used - 1)
    return Block(
        file=file.astype(np.int32),
        index=block.index[rows],
        kind=kind,
        offset=offset,
        length=length,
        data=data,
        source=source,
        targets=targets,
    )


def join(blocks: Sequence[Block]) -> Block:
    """Return the rows of blocks of one array, one behind the other."""
    if len(blocks) == 1:
        return blocks[0]
    offset, source = [], []
    data = targets = 0
    for block in blocks:
        offset.append(_move(block.offset, block.kind == ChunkType.inline, data))
        source.append(_move(block.source, block.source > 0, targets))
        data += len(block.data)
        targets += len(block.targets)
    places = [block.targets for block in blocks if len(block.targets)]
    return Block(
        file=np.concatenate([block.file for block in blocks]),
        index=np.concatenate([block.index for block in blocks]),
        kind=np.concatenate([block.kind for block in blocks]),
        offset=np.concatenate(offset),
        length=np.concatenate([block.length for block in blocks]),
        data=np.concatenate([block.data for block in blocks]),
        source=np.concatenate(source),
        targets=sum(places[1:], places[0]) if places else Locations.none(),
    )


def _move[T: np.unsignedinteger](
    column: NDArray[T], rows: NDArray[np.bool_], by: int
) -> NDArray[T]:
    if not by or not rows.any():
        return column
    moved = column.copy()
    moved[rows] += column.dtype.type(by)
    return moved


def pack_block(block: Block) -> PackedBlock:
    """Undo `unpack`; indices are written out."""
    edges = np.flatnonzero(np.diff(block.file)) + 1
    first = np.concatenate([[0], edges]) if len(block) else edges
    counts = np.diff(np.append(first, len(block)))
    return PackedBlock(
        ndim=block.index.shape[1],
        files=block.file[first].astype("<i4").tobytes(),
        counts=counts.astype("<u4").tobytes(),
        boxes=None,
        index=block.index.astype("<u4").tobytes(),
        kinds=block.kind.tobytes(),
        data=block.data.tobytes(),
        sources=block.source.astype("<u4").tobytes(),
        targets=pack_targets(block.targets),
        **pack_columns(block.offset, block.length),
    )


def dumps(block: Block) -> bytes:
    """Return a block as bytes that travel: about ten for each reference."""
    packed = pack_block(block)
    columns = pickle.dumps([getattr(packed, name) for name in _FIELDS])
    return zstandard.ZstdCompressor(level=1).compress(columns)


def loads(raw: bytes) -> Block:
    """Undo `dumps`."""
    columns = pickle.loads(zstandard.ZstdDecompressor().decompress(raw))  # noqa: S301  # our own row
    return unpack(PackedBlock(**dict(zip(_FIELDS, columns, strict=True))))


def cut(block: Block, rows: NDArray[np.int64], step: int, extent: NDArray[np.int64]) -> Block:
    """Return the block with some rows cut to runs of ``step`` bytes, along the first axis.

    HDF5 keeps the last chunk of an axis at full length; what lies behind the axis is left out.

    Args:
        block: References of one array.
        rows: (k,) Rows that are runs of whole steps: of chunks of the array.
        step: Bytes of a step, not encoded.
        extent: (k,) Steps that the array has in the file of each row.

    Raises:
        FormatError: A run has no whole number of steps, lies beyond its file's, or does not decode.
    """
    inline = block.kind[rows] == ChunkType.inline
    others = np.setdiff1d(np.arange(len(block)), rows)
    found = [part_of(block, others, block.file[others])] if len(others) else []
    if not inline.all():
        found.append(_cut_virtual(block, rows[~inline], step, extent[~inline]))
    if inline.any():
        found.append(_cut_stored(block, rows[inline], step, extent[inline]))
    return join(found)


def _cut_virtual(
    block: Block, rows: NDArray[np.int64], step: int, extent: NDArray[np.int64]
) -> Block:
    times, kept = _count(block.length[rows].astype(np.int64), step, block.index[rows, 0], extent)
    made = part_of(block, np.repeat(rows, kept), np.repeat(block.file[rows], kept))
    within = np.arange(len(made)) - np.repeat(np.cumsum(kept) - kept, kept)
    index = made.index.copy()
    index[:, 0] = index[:, 0].astype(np.int64) * np.repeat(times, kept) + within
    return replace(
        made,
        index=index,
        offset=made.offset + (within * step).astype(np.uint64),
        length=np.full(len(made), step, np.uint64),
    )


def _cut_stored(
    block: Block, rows: NDArray[np.int64], step: int, extent: NDArray[np.int64]
) -> Block:
    """Cut runs whose values are in the catalog; there are few, as large ones are refused."""
    index, file, data = [], [], []
    for row, most in zip(rows.tolist(), extent, strict=True):
        at, size = int(block.offset[row]), int(block.length[row])
        raw = _decompress(block.data[at : at + size].tobytes(), step * int(most))
        own = block.index[row : row + 1, 0]
        (count,), (kept,) = (
            each.tolist() for each in _count(np.array([len(raw)]), step, own, most)
        )
        for number in range(kept):
            piece = raw[number * step : (number + 1) * step]
            data.append(gzip.compress(piece, _GZIP_LEVEL, mtime=0))
            index.append([int(block.index[row, 0]) * count + number, *block.index[row, 1:]])
            file.append(int(block.file[row]))
    length = np.array(list(map(len, data)), np.uint64)
    return replace(
        block,
        file=np.array(file, np.int32),
        index=np.array(index, np.uint32).reshape(len(index), block.index.shape[1]),
        kind=np.full(len(index), ChunkType.inline, np.uint8),
        offset=(np.cumsum(length) - length).astype(np.uint64),
        length=length,
        data=np.frombuffer(b"".join(data), np.uint8),
        source=np.zeros(len(index), np.uint32),
        targets=block.targets.take(np.zeros(0, np.int64)),
    )


def _decompress(raw: bytes, limit: int) -> bytes:
    """Undo gzip; a few bytes must not become more than the array has."""
    decoder = zlib.decompressobj(_GZIP)
    try:
        found = decoder.decompress(raw, limit + 1)
    except zlib.error as error:
        raise FormatError("a stored run of values is damaged", cause=str(error)) from error
    if len(found) > limit or not decoder.eof:
        raise FormatError(
            "a stored run of values does not end where its array does", most=limit, found=len(found)
        )
    return found


def _count(
    sizes: NDArray[np.int64],
    step: int,
    index: NDArray[np.uint32],
    extent: NDArray[np.int64] | np.int64,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many steps runs have, and how many of them lie within the axis.

    Args:
        sizes: Of the runs, in bytes.
        step: Bytes of a step.
        index: Numbers of the runs along the axis.
        extent: How many steps the axis has in their files.
    """
    if (sizes % step).any():
        raise FormatError(
            "a run of contiguous values has no whole number of steps",
            size=int(sizes[int(np.argmax(sizes % step))]),
            step=step,
        )
    times: NDArray[np.int64] = sizes // step
    left = extent - index.astype(np.int64) * times
    if (beyond := left <= 0).any():
        raise FormatError(
            "a run of contiguous values lies beyond the steps of its file",
            run=int(index[int(np.argmax(beyond))]),
        )
    return times, np.minimum(times, left)
