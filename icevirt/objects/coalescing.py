"""Decide which ranges of objects are fetched by one request.

A request costs a round trip, so the bytes between two ranges are read and discarded where that is
cheaper. Beyond a gap that costs next to nothing, they never exceed the requested bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

_FEW = 16  # ranges that Python orders sooner than numpy

type Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coalescing:
    """When two ranges of an object share a request."""

    free_gap: int = 32 * 1024  # bytes that are always worth a round trip
    max_gap: int = 1024 * 1024  # a gap up to here is bridged between ranges that are as long
    joined: int = 1024 * 1024  # bytes after which waiting for each other costs more than it saves
    most: int = 8 * 1024 * 1024  # bytes of one request; more is fetched in parts, in parallel


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Requests:
    """What to fetch, ordered by object and begin.

    Requested range i lies, in this order and without a gap, in the ``count[i]``
    requests from ``first[i]`` on; only in the first and last of them there is something else.
    """

    source: Places  # (r,) the object
    begin: Places  # (r,) bytes
    end: Places  # (r,)
    first: Places  # (k,) row of a request
    count: Places  # (k,)

    def __len__(self) -> int:
        return len(self.source)


def coalesce(source: Places, begin: Places, end: Places, how: Coalescing) -> Requests:
    """Return requests that hold every range ``begin[i]:end[i]`` of object ``source[i]``.

    No range may be empty. They may overlap, be equal, and come in any order.
    """
    if len(source) <= _FEW and (made := _apart(source, begin, end, how)) is not None:
        return made
    order = np.lexsort((end, begin, source))
    ends = _find_reach(source[order], end[order])
    opens = _opens(source[order], begin[order], end[order], ends, how)
    group = np.cumsum(opens) - 1
    low = begin[order][opens]
    high = np.maximum.reduceat(end[order], np.flatnonzero(opens)) if len(opens) else low
    parts = -(-(high - low) // how.most)
    size = -(-(high - low) // np.maximum(parts, 1))
    start = np.cumsum(parts) - parts  # the first part of each group
    nth = np.arange(parts.sum()) - np.repeat(start, parts)
    part_begin = np.repeat(low, parts) + nth * np.repeat(size, parts)
    first = np.empty(len(order), np.int64)
    last = np.empty(len(order), np.int64)
    first[order] = start[group] + (begin[order] - low[group]) // size[group]
    last[order] = start[group] + (end[order] - 1 - low[group]) // size[group]
    return Requests(
        source=np.repeat(source[order][opens], parts),
        begin=part_begin,
        end=np.minimum(part_begin + np.repeat(size, parts), np.repeat(high, parts)),
        first=first,
        count=last - first + 1,
    )


def _apart(source: Places, begin: Places, end: Places, how: Coalescing) -> Requests | None:
    """Return a request for each of few ranges, if none is near another or large."""
    ranges = zip(source.tolist(), begin.tolist(), end.tolist(), range(len(source)), strict=True)
    ordered = sorted(ranges)
    for (one, _, stop, _), (other, start, _, _) in pairwise(ordered):
        if one == other and start - stop <= how.max_gap:
            return None
    if any(stop - start > how.most for _, start, stop, _ in ordered):
        return None
    columns = np.array(ordered, np.int64).reshape(len(ordered), 4).T
    first = np.empty(len(ordered), np.int64)
    first[columns[3]] = np.arange(len(ordered))
    one_each = np.ones(len(ordered), np.int64)
    return Requests(
        source=columns[0], begin=columns[1], end=columns[2], first=first, count=one_each
    )


def _find_reach(source: Places, end: Places) -> Places:
    """Return, for each of the ordered ranges, how far those of its object reach up to there."""
    by_end = np.argsort(end, kind="stable")
    rank = np.empty(len(end), np.int64)
    rank[by_end] = np.arange(len(end))
    # the number of the object, not its value, so that the sum stays small
    number = np.cumsum(np.diff(source, prepend=source[:1]) != 0)
    furthest = np.maximum.accumulate(number * len(end) + rank) - number * len(end)
    reached: Places = end[by_end[furthest]]
    return reached


def _opens(
    source: Places, begin: Places, end: Places, reached: Places, how: Coalescing
) -> NDArray[np.bool_]:
    """Say which of the ordered ranges begin a new request."""
    opens = np.ones(len(source), np.bool_)
    gap = begin[1:] - reached[:-1]
    length = end - begin
    # each range counts as neighbour of two gaps, so what is thrown away stays below what is wanted
    near = (gap <= how.free_gap) | ((gap <= how.max_gap) & (gap <= (length[1:] + length[:-1]) // 2))
    opens[1:] = (source[1:] != source[:-1]) | ~near
    if not len(opens):
        return opens
    low = begin[opens][np.cumsum(opens) - 1]
    nth = (begin - low) // how.joined
    opens[1:] |= (nth[1:] != nth[:-1]) & (gap >= 0)  # no byte is fetched twice
    return opens
