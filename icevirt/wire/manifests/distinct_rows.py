"""Number equal rows, by content, in the order of first use."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from icevirt.model.ranges import Bytes, Places

# The factors of the digest are secret and new in every process: collisions cannot be prepared.
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
    ascending = np.sort(keys[heads])  # keys alone are sorted far sooner than keys with places
    if not bool((ascending[1:] == ascending[:-1]).any()):
        return heads, np.cumsum(change)
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
    data: Bytes, start: Places, length: Places
) -> Iterator[tuple[Places | None, NDArray[np.uint32]]]:
    """Yield, word by word, the rows that go so far (None: all) and their words.

    Behind the end of a row its last word has zeros.
    """
    words, first = data[: len(data) // 4 * 4].view("<u4"), start >> 2
    whole, longest = int(length.min(initial=_LONG)), int(length.max(initial=0))
    for at in range(-(-longest // 4)):
        if 4 * at + 4 <= whole:
            yield None, words[first + at]
            continue
        rows = np.flatnonzero(length > 4 * at)
        left, word = length[rows] - 4 * at, words[first[rows] + at]
        partial = np.flatnonzero(left < 4)
        word[partial] &= ((1 << (8 * left[partial])) - 1).astype(np.uint32)
        yield rows, word


def _digest(data: Bytes, start: Places, length: Places) -> NDArray[np.uint64]:
    digest = length.astype(np.uint64) * _FACTORS[-1]
    for at, (rows, word) in enumerate(_words(data, start, length)):
        if at and at % (_WORDS - 1) == 0:  # factors come round again: stir first
            digest = digest * _FACTORS[0] ^ digest >> np.uint64(29)
        term = word.astype(np.uint64) * _FACTORS[at % (_WORDS - 1)]
        if rows is None:
            digest += term
        else:
            digest[rows] += term
    return np.asarray(digest ^ digest >> np.uint64(32))


def _same(data: Bytes, start: Places, length: Places, other: Places) -> bool:
    """Say whether every range equals the range of the row ``other``."""
    rows = np.flatnonzero(other != np.arange(len(other)))
    size = length[rows]
    if bool((size != length[other[rows]]).any()):
        return False
    mine, theirs = _words(data, start[rows], size), _words(data, start[other[rows]], size)
    return all(np.array_equal(a, b) for (_, a), (_, b) in zip(mine, theirs, strict=True))


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
