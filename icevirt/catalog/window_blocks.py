"""Find what windows are made of: references of the catalog, cut if need be, and values beside."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.blocks.cutting import cut, part_of
from icevirt.archive.blocks.packing import Block
from icevirt.archive.joining import Form, itemsize_of
from icevirt.archive.plan import FileRows, WindowTask
from icevirt.catalog.facts_beside import ValuesReader
from icevirt.catalog.references import WindowReferences
from icevirt.model.chunks import ChunkType


@dataclass(frozen=True, slots=True)
class WindowBlocks:
    """Where windows find what they are made of."""

    refs: WindowReferences
    values: ValuesReader

    def expect(self, files: FileRows, paths: Collection[str]) -> None:
        """Take note of arrays that will be read of some files, each once; forget all else."""
        self.refs.expect(files, paths)

    def of(self, files: FileRows, window: WindowTask, takes: NDArray[np.bool_]) -> Iterator[Block]:
        """Yield the references of a window in some of the files, which number these."""
        for path, mine in window.read_from(takes & ~window.is_form(Form.beside)):
            for block in self.refs.located(files, mine, path):
                yield _cut(window, block)
        for path, mine in window.read_from(takes & window.is_form(Form.beside)):
            if not mine.any():
                continue
            part = np.where(mine, files.part, -1).astype(np.int32)
            if (found := self.values.located(files.parts, part, files.row, path)) is not None:
                yield found


def _cut(window: WindowTask, block: Block) -> Block:
    """Return a block whose runs of values are cut as the array is."""
    is_cut = window.is_form(Form.cut)[block.file]
    if not is_cut.any():
        return block
    ndim = block.index.shape[1]
    size = itemsize_of(json.loads(window.zarr_json)["data_type"])
    step = prod(window.chunk_shape[len(window.chunk_shape) - ndim + 1 :]) * size
    rows = np.flatnonzero(is_cut)
    kept = _inside(window, block, rows, step)
    if len(kept) < len(rows):
        taken = np.union1d(np.flatnonzero(~is_cut), kept)
        block = part_of(block, taken, block.file[taken])
        rows = np.flatnonzero(is_cut[taken])
    return cut(block, rows, step, _extent(window, block, rows)) if len(rows) else block


def _extent(window: WindowTask, block: Block, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many steps of the first axis the file of each row has."""
    axis = len(window.chunk_shape) - block.index.shape[1]
    if axis not in window.axes:
        return np.full(len(rows), window.shape[axis], np.int64)
    found: NDArray[np.int64] = window.lengths[block.file[rows], window.axes.index(axis)]
    return found


def _inside(
    window: WindowTask, block: Block, rows: NDArray[np.int64], step: int
) -> NDArray[np.int64]:
    """Return the rows of which the window wants a step, so that no huge file is ever cut whole.

    Runs that the catalog holds encoded are all wanted: how many steps they have is not known here.
    """
    axis = len(window.chunk_shape) - block.index.shape[1]
    if not window.box or axis not in window.axes:
        return rows
    low, high = window.box[axis]
    starts = window.starts[:, window.axes.index(axis)]
    begin = window.grids[axis].chunk_at(starts)[block.file[rows]]
    steps = block.length[rows].astype(np.int64) // step
    first = begin + block.index[rows, 0].astype(np.int64) * steps
    inside = (first < high) & (first + steps > low)
    kept: NDArray[np.int64] = rows[inside | (block.kind[rows] != ChunkType.virtual)]
    return kept
