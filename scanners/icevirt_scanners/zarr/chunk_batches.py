"""Read the keys of chunks of many arrays together: a plate has thousands of a few chunks each.

Arrays that spell their keys alike are one batch, up to a limit of objects. A batch is read when the
first of its arrays is asked for, and let go of with the last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from icevirt.model.strings import Strings, gather
from icevirt.scan.contract import StoreByteSource
from icevirt_scanners.zarr.chunk_keys import ChunkKeys

_MOST = 1 << 16  # objects of a batch of several arrays


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelled:
    """Where the keys of an array are among those of the store, and how they are spelled."""

    folder: str
    low: int  # the first row below it
    high: int  # the one behind the last
    keys: ChunkKeys
    ndim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRows:
    """Objects that are named as chunks of an array are, by their index."""

    rows: NDArray[np.int64]  # (n,) among the objects of the store
    index: NDArray[np.int64]  # (n, ndim)


class ChunkBatches:
    """Finds the chunks of the arrays of a store, each array once."""

    def __init__(self, source: StoreByteSource, arrays: Iterable[Spelled]) -> None:
        self._waiting: dict[str, tuple[_Batch, int]] = {}  # by folder
        open_ones: dict[tuple[ChunkKeys, int], _Batch] = {}
        for array in arrays:
            kind = array.keys, array.ndim
            batch = open_ones.get(kind)
            if batch is None or batch.size + array.high - array.low > _MOST:
                batch = open_ones[kind] = _Batch(source)
            self._waiting[array.folder] = batch, batch.add(array)

    def take(self, folder: str) -> ChunkRows:
        """Return the chunks of the array of a folder."""
        batch, number = self._waiting.pop(folder)
        return batch.chunks(number)


class _Batch:
    """Arrays that spell keys alike."""

    def __init__(self, source: StoreByteSource) -> None:
        self._source = source
        self._arrays: list[Spelled] = []
        self.size = 0  # objects

    def add(self, array: Spelled) -> int:
        """Add an array, and return its number."""
        self._arrays.append(array)
        self.size += array.high - array.low
        return len(self._arrays) - 1

    def chunks(self, number: int) -> ChunkRows:
        """Return the chunks of an array."""
        found, ends = self._found
        low, high = int(ends[number]), int(ends[number + 1])
        return ChunkRows(
            rows=found.rows[low:high],
            index=found.index[low:high],
        )

    @cached_property
    def _found(self) -> tuple[ChunkRows, NDArray[np.int64]]:
        """The chunks of all arrays, and where those of each begin and the last end."""
        keys, first = self._source.objects.keys, self._arrays[0]
        sizes = np.array([array.high - array.low for array in self._arrays])
        cut = np.array(
            [len(f"{array.folder}/".encode()) * bool(array.folder) for array in self._arrays]
        )
        owner = np.repeat(np.arange(len(sizes)), sizes)
        begins = np.cumsum(sizes) - sizes
        lows = np.array([array.low for array in self._arrays])
        rows = np.arange(self.size) + (lows - begins)[owner]
        start = keys.starts[rows] + cut[owner]
        names = Strings(*gather(keys.data, start, keys.starts[rows + 1] - start))
        good, index = first.keys.read(names, first.ndim)
        columns = [*index.T[::-1], *([owner[good]] if len(sizes) > 1 else [])]
        order = np.lexsort(columns) if columns else np.arange(len(good))
        rows, index, owner = rows[good[order]], index[order], owner[good[order]]
        found = ChunkRows(rows=rows, index=index)
        return found, np.searchsorted(owner, np.arange(len(sizes) + 1))
