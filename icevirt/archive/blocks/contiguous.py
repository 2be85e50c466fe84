"""Cut runs of contiguous values to single steps along the first axis.

A scan knows nothing of how files will be combined, so its runs hold as many steps as fit. Runs that
are stored are gzipped, because scanners compress what they store.
"""

from __future__ import annotations

import gzip
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


def cut(block: Block, rows: NDArray[np.int64], step: int) -> Block:
    """Return the block with some rows cut to runs of ``step`` bytes, one step of the first axis.

    Args:
        block: References of one array.
        rows: (k,) Rows that are runs of whole steps.
        step: Bytes of a step, not encoded.

    Raises:
        FormatError: A run has no whole number of steps.
    """
    inline = block.kind[rows] == ChunkType.inline
    others = np.setdiff1d(np.arange(len(block)), rows)
    found = [part_of(block, others, block.file[others])] if len(others) else []
    if not inline.all():
        found.append(_cut_virtual(block, rows[~inline], step))
    if inline.any():
        found.append(_cut_stored(block, rows[inline], step))
    return joined(found)


def _cut_virtual(block: Block, rows: NDArray[np.int64], step: int) -> Block:
    times = _steps(block.length[rows].astype(np.int64), step)
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


def _cut_stored(block: Block, rows: NDArray[np.int64], step: int) -> Block:
    """Cut runs whose values are in the catalog; there are few, as large ones are refused."""
    index, file, data = [], [], []
    for row in rows.tolist():
        at, size = int(block.offset[row]), int(block.length[row])
        raw = gzip.decompress(block.data[at : at + size].tobytes())
        (count,) = _steps(np.array([len(raw)]), step).tolist()
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


def _steps(sizes: NDArray[np.int64], step: int) -> NDArray[np.int64]:
    if (sizes % step).any():
        raise FormatError(
            "a run of contiguous values has no whole number of steps",
            size=int(sizes[int(np.argmax(sizes % step))]),
            step=step,
        )
    times: NDArray[np.int64] = sizes // step
    return times
