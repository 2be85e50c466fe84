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

from icevirt.errors import UnsupportedError
from icevirt.model.chunks import ChunkTable
from icevirt.model.indices import ascends
from icevirt.model.strings import Strings, gather
from icevirt.scan.contract import StoreByteSource
from icevirt_scanners.zarr.chunk_keys import ChunkKeys

_MOST = 1 << 16  # objects of a batch of several arrays
LAST_CHUNK = 2**32 - 1
"""The greatest index that Icechunk can number."""


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
    index: NDArray[np.int64]  # (n, ndim), in ascending order
    last: tuple[int, ...]  # the greatest index along each axis, -1 where there is none
    sizes: tuple[int, int]  # bytes of the smallest and of the largest, 0 where there is none
    references: ChunkTable | None  # None where they are to be made of each array by itself


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
        found = self._found
        low, high = found.ends[number], found.ends[number + 1]
        table = found.references
        return ChunkRows(
            rows=found.rows[low:high],
            index=found.index[low:high],
            last=found.last[number],
            sizes=found.sizes[number],
            references=None if table is None else table.part(low, high),
        )

    @cached_property
    def _found(self) -> _Found:
        """The chunks of all arrays."""
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
        ends = np.searchsorted(owner, np.arange(len(sizes) + 1))
        held = self._source.objects.sizes[rows]
        spans = [_reduce(reduce, held, ends, 0) for reduce in (np.minimum, np.maximum)]
        last = [_reduce(np.maximum, axis, ends, -1) for axis in index.T]
        return _Found(
            rows=rows,
            index=index,
            ends=ends.tolist(),
            last=list(zip(*last, strict=True)) if last else [()] * len(sizes),
            sizes=list(zip(*spans, strict=True)),
            references=self._refer(rows, index, owner),
        )

    def _refer(
        self, rows: NDArray[np.int64], index: NDArray[np.int64], owner: NDArray[np.int64]
    ) -> ChunkTable | None:
        """Return the references of all arrays end to end, None where one of them is refused."""
        if index.max(initial=0) > LAST_CHUNK:
            return None
        order = index if len(self._arrays) == 1 else np.column_stack([owner, index])
        if len(rows) > 1 and not ascends(order):
            return None
        try:
            return self._source.references(index, rows)
        except UnsupportedError:  # by those of one array, which is named when it is asked for
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The chunks of several arrays end to end."""

    rows: NDArray[np.int64]  # (n,)
    index: NDArray[np.int64]  # (n, ndim)
    ends: list[int]  # where those of each begin, and the last end
    last: list[tuple[int, ...]]  # of each, as in `ChunkRows`
    sizes: list[tuple[int, int]]
    references: ChunkTable | None  # (n,)


def _reduce(
    how: np.ufunc, column: NDArray[np.int64], ends: NDArray[np.int64], nothing: int
) -> list[int]:
    """Return the least or greatest of each run, and for one without rows another number."""
    found = np.full(len(ends) - 1, nothing, np.int64)
    filled = ends[1:] > ends[:-1]
    if filled.any():
        found[filled] = how.reduceat(column, ends[:-1][filled])
    numbers: list[int] = found.tolist()
    return numbers
