"""Cut runs of contiguous values to single steps along the first axis.

A scan knows nothing of how files will be combined, so its runs hold as many steps as fit. Runs that
are stored are gzipped, because scanners compress what they store.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.blocks.cutting import joined, part_of
from icevirt.errors import FormatError
from icevirt.model.chunks import ChunkType

if TYPE_CHECKING:
    from icevirt.archive.blocks.packing import Block

_GZIP_LEVEL = 1  # of what scanners store
_GZIP = 31  # what zlib calls the window size of gzip


def cut(block: Block, rows: NDArray[np.int64], step: int, extent: NDArray[np.int64]) -> Block:
    """Return the block with some rows cut to runs of ``step`` bytes, one step of the first axis.

    Args:
        block: References of one array.
        rows: (k,) Rows that are runs of whole steps.
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
    return joined(found)


def _cut_virtual(
    block: Block, rows: NDArray[np.int64], step: int, extent: NDArray[np.int64]
) -> Block:
    times = _steps(block.length[rows].astype(np.int64), step, block.index[rows, 0], extent)
    made = part_of(block, np.repeat(rows, times), np.repeat(block.file[rows], times))
    within = np.arange(len(made)) - np.repeat(np.cumsum(times) - times, times)
    index = made.index.copy()
    index[:, 0] = index[:, 0].astype(np.int64) * np.repeat(times, times) + within
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
        raw = _decompressed(block.data[at : at + size].tobytes(), step * int(most))
        own = block.index[row : row + 1, 0]
        (count,) = _steps(np.array([len(raw)]), step, own, most).tolist()
        for number in range(count):
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


def _decompressed(raw: bytes, limit: int) -> bytes:
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


def _steps(
    sizes: NDArray[np.int64],
    step: int,
    index: NDArray[np.uint32],
    extent: NDArray[np.int64] | np.int64,
) -> NDArray[np.int64]:
    """Return how many steps runs have, given their bytes and their numbers along the axis."""
    if (sizes % step).any():
        raise FormatError(
            "a run of contiguous values has no whole number of steps",
            size=int(sizes[int(np.argmax(sizes % step))]),
            step=step,
        )
    times: NDArray[np.int64] = sizes // step
    ends = (index.astype(np.int64) + 1) * times
    if (beyond := ends > extent).any():
        raise FormatError(
            "a run of contiguous values lies beyond the steps of its file",
            end=int(ends[int(np.argmax(beyond))]),
        )
    return times
