"""Hold the entries of a chunk index as columns, and number the chunks of an array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from icevirt_scanners.hdf5.raw.space import Rows, Space, defined, numbers, require, signed

_MASK = 4  # bytes of a filter mask


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkEntries:
    """Stored chunks of a dataset, as its index lists them.

    Readers of indices count offsets from the end of the user block; `stored_chunks` counts them
    from the begin of the file.
    """

    index: NDArray[np.int64]  # (n, ndim) chunk coordinates
    offset: NDArray[np.int64]  # (n,)
    length: NDArray[np.int64]  # (n,) bytes
    mask: NDArray[np.uint32]  # (n,) filters that were skipped

    @classmethod
    def joined(cls, parts: Sequence[ChunkEntries], ndim: int) -> ChunkEntries:
        """Join the parts of one index."""
        if len(parts) == 1:
            return parts[0]
        none = np.zeros(0, np.int64)
        return cls(
            index=np.concatenate([np.zeros((0, ndim), np.int64), *(part.index for part in parts)]),
            offset=np.concatenate([none, *(part.offset for part in parts)]),
            length=np.concatenate([none, *(part.length for part in parts)]),
            mask=np.concatenate([none.astype(np.uint32), *(part.mask for part in parts)]),
        )

    def take(self, rows: NDArray[np.bool_]) -> ChunkEntries:
        """Return the rows where the mask is true."""
        return ChunkEntries(
            index=self.index[rows],
            offset=self.offset[rows],
            length=self.length[rows],
            mask=self.mask[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkGrid:
    """The chunk grid of a dataset, as far as it may grow, and the size of its chunks."""

    chunk: tuple[int, ...]
    shape: tuple[int, ...]
    limits: tuple[int | None, ...]  # None where there is no limit
    chunk_bytes: int  # of a chunk without filters
    run: tuple[int, int] | None = None  # of places in the grid of the shape, which alone are wanted

    def within_run(
        self, index: NDArray[np.int64], *, until: NDArray[np.int64] | None = None
    ) -> NDArray[np.bool_]:
        """Say which chunks are in the run; with ``until``, what of [index, until) reaches into it.

        Chunks beyond the shape follow in C order like all others; the last run has those at the
        end, so that all runs together hold each chunk once.
        """
        if self.run is None:
            return np.ones(len(index), np.bool_)
        shown = index if until is None else np.concatenate([index, until])
        own = [-(-n // edge) for n, edge in zip(self.shape, self.chunk, strict=True)]
        most = shown.max(axis=0, initial=0).tolist()
        sides = [max(1, n, top + 1) for n, top in zip(own, most, strict=True)]
        steps = np.array([prod(sides[axis + 1 :]) for axis in range(len(own))], np.int64)
        require(prod(sides) < 1 << 62, "a grid too large")
        low, high = (self._ranked(place, own, steps) for place in self.run)
        if self.run[1] >= prod(own):
            high = 1 << 62
        ranks = index @ steps
        ends = ranks + 1 if until is None else until @ steps
        found: NDArray[np.bool_] = (ends > low) & (ranks < high)
        return found

    @staticmethod
    def _ranked(place: int, own: list[int], steps: NDArray[np.int64]) -> int:
        rank = 0
        for axis in reversed(range(len(own))):
            if axis:
                place, at = divmod(place, own[axis])
            else:
                at = place
            rank += at * int(steps[axis])
        return rank

    def counts(self) -> tuple[int, ...]:
        """Return how many chunks an axis can have; 0 without limit."""
        return tuple(
            -(-(limit or 0) // edge) for limit, edge in zip(self.limits, self.chunk, strict=True)
        )

    def coordinates(self, place: NDArray[np.int64], *, first: int = 0) -> NDArray[np.int64]:
        """Return the chunk coordinates of places in an array that has axis ``first`` outermost."""
        counts = self.counts()
        axes = [first, *(axis for axis in range(len(counts)) if axis != first)]
        require(all(counts[axis] for axis in axes[1:]), "more than one unlimited axis")
        index = np.empty((len(place), len(counts)), np.int64)
        for axis in reversed(axes[1:]):
            place, index[:, axis] = np.divmod(place, counts[axis])
        index[:, first] = place
        return index

    def places(self) -> int:
        """Return how many chunks there can be."""
        return prod(self.counts())


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFormat:
    """How an entry of an index is written: an address, with filters also a length and a mask."""

    width: int
    filtered: bool
    address_width: int
    chunk_bytes: int

    @classmethod
    def of(cls, width: int, space: Space, grid: ChunkGrid, *, filtered: bool) -> EntryFormat:
        """Check the width of an entry that the index states."""
        size = width - space.address_width - _MASK
        right = 1 <= size <= 8 if filtered else width == space.address_width
        require(right, "entries of an odd size")
        return cls(
            width=width,
            filtered=filtered,
            address_width=space.address_width,
            chunk_bytes=grid.chunk_bytes,
        )

    def decode(self, raw: Rows, index: NDArray[np.int64]) -> ChunkEntries:
        """Return the entries that lead to a chunk; ``index`` has the coordinates of each row."""
        there = defined(raw[:, : self.address_width])
        if not there.all():
            raw, index = raw[there], index[there]
        n = len(raw)
        length = np.full(n, self.chunk_bytes, np.int64)
        mask = np.zeros(n, np.uint32)
        if self.filtered:
            end = self.width - _MASK
            length = signed(numbers(raw[:, self.address_width : end]))
            mask = numbers(raw[:, end : self.width]).astype(np.uint32)
        offset = signed(numbers(raw[:, : self.address_width]))
        return ChunkEntries(index=index, offset=offset, length=length, mask=mask)
