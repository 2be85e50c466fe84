"""Finds out which of many rows are equal, by number and by content, in the order of first use."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from icevirt.wire.ranges import Bytes, Places

# The factors of the digest are secret and new in every process: nobody can prepare collisions.
# Equal digests are compared byte by byte all the same.
_WORDS = 256
_FEW = 1 << 16
_LONG = 8192
_FACTORS = np.frombuffer(os.urandom(8 * _WORDS), "<u8") | np.uint64(1)


def first_uses(keys: NDArray[np.number]) -> tuple[Places, Places]:
    """Return the rows in which each distinct key comes first, and every row's number among them.

    Neighbours are mostly equal (chunks of one file follow one another), so only the heads of runs
    are sorted.
    """
    if not len(keys):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    change = np.empty(len(keys), np.bool_)
    change[0] = False
    np.not_equal(keys[1:], keys[:-1], out=change[1:])
    if bool(np.greater(keys[1:], keys[:-1]).all()):  # as places of strings that are not shared are
        rows = np.arange(len(keys))
        return rows, rows
    heads = np.concatenate([[0], np.flatnonzero(change)])
    _, first, inverse = np.unique(keys[heads], return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    return heads[first[order]], number[inverse][np.cumsum(change)]


def looks_distinct(data: Bytes, start: Places, length: Places) -> bool:
    """Say whether a sample of many ranges, neighbours and far ones, has no two equal ones.

    Telling a million distinct strings apart costs more than all else. Equal ones that the sample
    misses are kept twice, which wastes memory and harms nothing.
    """
    count = len(start)
    if count <= _FEW:
        return False
    spread = np.linspace(0, count - 1, _FEW // 64).astype(np.int64)
    near = np.minimum(spread[:: len(spread) // 16 or 1, None] + np.arange(64), count - 1)
    rows = np.unique(np.concatenate([spread, near.reshape(-1)]))
    first, _ = equal_ranges(data, start[rows], length[rows])
    return len(first) == len(rows)


def equal_ranges(data: Bytes, start: Places, length: Places) -> tuple[Places, Places]:
    """Return the first of each distinct byte range, and every range's number among those.

    ``start`` must be multiples of 4, and ``data`` must go on to the multiple of 4 after each end.
    """
    if int(length.max(initial=0)) > _LONG:  # no location; and the digest goes word by word
        return _one_by_one(data, start, length)
    digest = _digest(data, start, length)
    rows, rank = first_uses(digest)
    if _same(data, start, length, rows[rank]):
        return rows, rank
    return _one_by_one(data, start, length)


def _words(
    data: Bytes, start: Places, length: Places, at: int
) -> tuple[Places, NDArray[np.uint32]]:
    """Return the rows that reach word ``at``, and the word, with zeros behind the row's end."""
    rows = np.flatnonzero(length > 4 * at)
    if len(rows) == len(length):
        left, first = length, start
    else:
        left, first = length[rows], start[rows]
    word = data[: len(data) // 4 * 4].view("<u4")[(first >> 2) + at]
    partial = np.flatnonzero(left < 4 * at + 4)
    word[partial] &= ((1 << (8 * (left[partial] - 4 * at))) - 1).astype(np.uint32)
    return rows, word


def _digest(data: Bytes, start: Places, length: Places) -> NDArray[np.uint64]:
    digest = length.astype(np.uint64) * _FACTORS[-1]
    for at in range(-(-int(length.max(initial=0)) // 4)):
        rows, word = _words(data, start, length, at)
        if at and at % (_WORDS - 1) == 0:  # factors come round again: stir first
            digest = digest * _FACTORS[0] ^ digest >> np.uint64(29)
        term = word.astype(np.uint64) * _FACTORS[at % (_WORDS - 1)]
        if len(rows) == len(digest):
            digest += term
        else:
            digest[rows] += term
    return np.asarray(digest ^ digest >> np.uint64(32))


def _same(data: Bytes, start: Places, length: Places, other: Places) -> bool:
    """Say whether every range equals the range of the row ``other``."""
    rows = np.flatnonzero(other != np.arange(len(other)))
    if bool((length[rows] != length[other[rows]]).any()):
        return False
    mine, theirs, size = start[rows], start[other[rows]], length[rows]
    return all(
        np.array_equal(_words(data, mine, size, at)[1], _words(data, theirs, size, at)[1])
        for at in range(-(-int(size.max(initial=0)) // 4))
    )


def _one_by_one(data: Bytes, start: Places, length: Places) -> tuple[Places, Places]:
    """Do the same by the obvious loop: for absurd lengths, and for the day two digests collide."""
    seen: dict[bytes, int] = {}
    rows: list[int] = []
    rank = np.empty(len(start), np.int64)
    for row, (low, size) in enumerate(zip(start.tolist(), length.tolist(), strict=True)):
        number = seen.setdefault(data[low : low + size].tobytes(), len(rows))
        if number == len(rows):
            rows.append(row)
        rank[row] = number
    return np.array(rows, np.int64), rank
