"""Merge the ranges of a window's chunks into pieces, each read by one call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from icevirt.objects.coalescing import Coalescing, Requests, coalesce

if TYPE_CHECKING:
    from icevirt.repo.reader import FoundChunks

_LAST = 1 << 62  # no object is as long


class Piece(NamedTuple):
    """Bytes of one object that hold whole chunks."""

    source: int  # the row of its location or id
    begin: int
    end: int
    rows: list[int]  # of the window
    starts: list[int]  # of the chunks, in the object
    ends: list[int]

    def cut(self, body: memoryview) -> list[memoryview]:
        """Return the bytes of each chunk."""
        bounds = zip(self.starts, self.ends, strict=True)
        return [body[low - self.begin : high - self.begin] for low, high in bounds]


def pieces_of(
    found: FoundChunks, rows: NDArray[np.int64], how: Coalescing
) -> tuple[list[Piece], list[int]]:
    """Return pieces that hold the ranges of some rows, in the order of the objects.

    Returns:
        The pieces, and the rows that are read by themselves: what is empty, beyond every object,
        or so large that several requests fetch it.
    """
    offset, length = found.offset[rows], found.length[rows]
    is_odd = (length == 0) | (offset >= _LAST) | (length >= _LAST)
    alone, rows = rows[is_odd].tolist(), rows[~is_odd]
    begin = found.offset[rows].astype(np.int64)
    end = begin + found.length[rows].astype(np.int64)
    requests = coalesce(found.source[rows].astype(np.int64), begin, end, how)
    is_split = requests.count > 1
    alone += rows[is_split].tolist()
    order = np.lexsort((begin, requests.first))
    order = order[~is_split[order]]
    return [*_cut(rows, begin, end, requests, order)], alone


def batch(pieces: Sequence[Piece], most: int) -> Iterator[list[Piece]]:
    """Yield runs of pieces of one object each, of at most so many bytes or one piece."""
    held: list[Piece] = []
    size = 0
    for piece in pieces:
        length = piece.end - piece.begin
        if held and (piece.source != held[0].source or size + length > most):
            yield held
            held, size = [], 0
        held.append(piece)
        size += length
    if held:
        yield held


def _cut(
    rows: NDArray[np.int64],
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    requests: Requests,
    order: NDArray[np.int64],
) -> Iterator[Piece]:
    """Yield the pieces; ``order`` has the rows of each one after the other."""
    first = requests.first[order]
    bounds = [*np.flatnonzero(np.diff(first, prepend=-1)).tolist(), len(order)]
    numbers = first[bounds[:-1]]
    columns = requests.source[numbers], requests.begin[numbers], requests.end[numbers]
    ordered = (rows[order].tolist(), begin[order].tolist(), end[order].tolist())
    for low, high, source, left, right in zip(
        bounds[:-1], bounds[1:], *(each.tolist() for each in columns), strict=True
    ):
        parts = (each[low:high] for each in ordered)
        yield Piece(source, left, right, *parts)
