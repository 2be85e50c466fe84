"""Read the sizes of all chunk objects from a listing, as columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import batched

import numpy as np
from numpy.typing import NDArray

from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.repo import layout
from icevirt.storage.protocol import ObjectInfo
from icevirt.versioning.id_columns import ID, of_names, of_rows, places

_AT_ONCE = 1 << 14


@dataclass(frozen=True, slots=True)
class ChunkSizes:
    """The chunk objects of a repository."""

    ids: NDArray[np.void]  # (n,) ascending
    sizes: NDArray[np.int64]  # (n,) bytes

    @classmethod
    def of(cls, listed: Iterable[ObjectInfo]) -> ChunkSizes:
        """Make the columns; what is not named like a chunk is left out."""
        ids, sizes = [np.zeros(0, ID)], [np.zeros(0, np.int64)]
        start = len(layout.CHUNKS) + 1
        for some in batched(listed, _AT_ONCE):
            found, there = of_names([info.path[start:] for info in some])
            ids.append(found)
            sizes.append(np.array([info.size for info in some], np.int64)[there])
        whole = np.concatenate(ids)
        order = np.argsort(whole, kind="stable")
        return cls(whole[order], np.concatenate(sizes)[order])

    def find(self, ids: NDArray[np.void]) -> NDArray[np.int64]:
        """Return the size of each chunk, -1 where there is none."""
        at = places(self.ids, ids)
        if not len(self.ids):
            return at
        return np.where(at < 0, -1, self.sizes[at])

    def lacking(self, table: ChunkTable) -> Lacking:
        """Return the chunks of a table that are missing, or shorter than what is referred to."""
        native = np.flatnonzero(table.kind == ChunkType.native)
        ids, number = np.unique(of_rows(table.chunk_ids[table.source[native]]), return_inverse=True)
        needed = np.zeros(len(ids), np.uint64)
        np.maximum.at(needed, number, table.offset[native] + table.length[native])
        sizes = self.find(ids)
        bad = (sizes < 0) | (sizes.astype(np.uint64) < needed)
        return Lacking(ids[bad], sizes[bad], needed[bad])


@dataclass(frozen=True, slots=True)
class Lacking:
    """Chunks that lack bytes."""

    ids: NDArray[np.void]
    sizes: NDArray[np.int64]  # -1: it is missing
    needed: NDArray[np.uint64]
