"""Gather files of one layout for a part: rows and references of all their arrays at once.

What such files say of an array differs in bytes, so that a file is some columns, and no array of it
is looked at alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.array_layouts import ArrayLayout, LaidOutArrays
from icevirt.archive.blocks.packing import PackedBlock, pack_alike
from icevirt.archive.catalog import BLOCK_REFS

_MOST = 16 * BLOCK_REFS  # references of all arrays
type ArrayRow = tuple[Any, ...]
"""The columns of an array but that of its file, in the order of the catalog."""


class StackedFiles:
    """Files of one layout.

    Args:
        layout: Theirs.
        rows: Of the arrays in the first of them.
    """

    def __init__(self, layout: ArrayLayout, rows: Sequence[ArrayRow]) -> None:
        self.layout = layout
        self.schemas = tuple(row[:2] for row in rows)  # path and schema
        self._columns = [list(column) for column in zip(*rows, strict=True)]
        self._starts = layout.starts
        self._files: list[int] = []
        self._held: list[LaidOutArrays] = []

    def add(self, file: int, arrays: LaidOutArrays) -> Iterator[Sequence[Any]]:
        """Take a file of the part; return its rows of arrays, column by column."""
        self._files.append(file)
        self._held.append(arrays)
        *alike, _, inline_bytes = self._columns
        nbytes = np.add.reduceat(arrays.length, self._starts[:-1]).tolist()
        yield [file] * len(nbytes)
        yield from (*alike, nbytes, inline_bytes)

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
        starts: NDArray[np.int64] = self._starts
        for array, low, high in zip(
            self.layout.arrays, starts[:-1].tolist(), starts[1:].tolist(), strict=True
        ):
            own = offset[:, low:high], length[:, low:high]
            yield array.path, pack_alike(self._files, array.references, *own)

    def clear(self) -> None:
        """Forget the files."""
        self._files, self._held = [], []
