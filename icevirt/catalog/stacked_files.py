"""Gather files of one layout for a part: rows and references of all their arrays at once.

What such files say of an array differs in bytes, so that a file is some columns, and no array of it
is looked at alone.
"""

from __future__ import annotations

import array
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from icevirt.archive.array_layouts import ArrayLayout, LaidOutArrays
from icevirt.archive.blocks.packing import PackedBlock, pack_alike
from icevirt.archive.catalog import BLOCK_REFS

_MOST = 16 * BLOCK_REFS  # references of all arrays


class StackedFiles:
    """Files of one layout.

    Args:
        layout: Theirs.
        schemas: Path and schema of each of its arrays.
        numbers: Of what their rows say.
    """

    def __init__(
        self,
        layout: ArrayLayout,
        schemas: tuple[tuple[str, str], ...],
        numbers: Sequence[int],
    ) -> None:
        self.layout, self.schemas, self.numbers = layout, schemas, array.array("i", numbers)
        self._starts = layout.starts
        self._files: list[int] = []
        self._held: list[LaidOutArrays] = []

    def add(self, file: int, arrays: LaidOutArrays) -> Sequence[int]:
        """Take a file of the part; return the bytes that each of its arrays refers to."""
        self._files.append(file)
        self._held.append(arrays)
        nbytes = np.add.reduceat(arrays.length, self._starts[:-1])
        return array.array("q", nbytes.astype(np.int64).tobytes())

    @property
    def is_full(self) -> bool:
        """Whether an array has as many references as a block holds, or all as many as `_MOST`."""
        most, count = int(np.diff(self._starts).max()), len(self._files)
        return count * most >= BLOCK_REFS or count * int(self._starts[-1]) >= _MOST

    def pack(self) -> Iterator[tuple[str, PackedBlock]]:
        """Yield the path of each array and its references in the files that were added."""
        if not self._files:
            return
        offset = np.stack([arrays.offset for arrays in self._held])
        length = np.stack([arrays.length for arrays in self._held])
        rows, arrays = np.diff(self._starts), self.layout.arrays
        edges = [0, *(np.flatnonzero(np.diff(rows)) + 1).tolist(), len(arrays)]
        for first, last in pairwise(edges):  # arrays of as many rows
            mine = slice(*self._starts[[first, last]].tolist())
            shape = len(self._files), last - first, int(rows[first])
            own = (column[:, mine].reshape(shape) for column in (offset, length))
            tables = [array.references for array in arrays[first:last]]
            blocks = pack_alike(self._files, tables, *own)
            yield from zip(self.layout.paths[first:last], blocks, strict=True)

    def clear(self) -> None:
        """Forget the files."""
        self._files, self._held = [], []
