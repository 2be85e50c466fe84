"""Read ranges of remote objects: plan them together, fetch in parallel, cut apart again.

Every answer is compared with what the scan recorded before its bytes are used. A request costs a
round trip, so the bytes between two ranges are read and discarded where that is cheaper. Beyond a
gap that costs next to nothing, they never exceed the requested bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import StorageError
from icevirt.objects import answers
from icevirt.objects.answers import Body, Checksum, Meta, ObjectBytes
from icevirt.objects.authorize import RemoteGrant
from icevirt.objects.backends import Backend, BucketReach, reach_for_grant
from icevirt.objects.web_client import Site
from icevirt.objects.web_connections import HOSTS

_MOST = 1 << 62  # no object is as long
_FEW = 16  # ranges that Python orders sooner than numpy

type OnStale = Callable[[StorageError], None]
type Give = Callable[[int, Body | Exception], None]


@dataclass(frozen=True, slots=True)
class RemoteObject:
    """An object elsewhere that may be read, as the scan found it."""

    reach: Backend = field(repr=False)
    grant: RemoteGrant
    checksum: Checksum
    on_stale: OnStale = field(repr=False)

    @property
    def identity(self) -> tuple[str, Checksum]:
        """What ranges have in common that one request may fetch."""
        return self.grant.url, self.checksum

    def get(self, begin: int, end: int) -> ObjectBytes:
        """Return bytes of the object; blocks. Raises ``StorageError``, ``UnauthorizedError``."""
        return self.reach.get(self.grant.key, begin, end, self._check)

    async def get_async(self, begin: int, end: int) -> ObjectBytes:
        """Do what `get` does."""
        if isinstance(self.reach, BucketReach | Site):
            return await self.reach.get_async(self.grant.key, begin, end, self._check)
        return await HOSTS.wait(self.reach.host, lambda: self.get(begin, end))

    def _check(self, meta: Meta) -> None:
        if (change := answers.compare_with_scan(self.grant.url, self.checksum, meta)) is not None:
            self.on_stale(change)


def object_of(grant: RemoteGrant, checksum: Checksum, on_stale: OnStale) -> RemoteObject:
    """Return the object that was granted. Raises as `reach_for_grant` does."""
    reach = reach_for_grant(grant)
    return RemoteObject(reach, grant, checksum, on_stale)


@dataclass(frozen=True, slots=True)
class RemoteRange:
    """A range of an object elsewhere."""

    source: RemoteObject
    offset: int
    length: int

    def now(self) -> None:
        """Return nothing: a network has to be waited for."""

    def wait(self) -> Body:
        """Return the bytes; blocks. Raises ``StorageError``, ``UnauthorizedError``."""
        (found,) = fetch_all([self])
        if isinstance(found, Exception):
            raise found
        return found


class Fetch:
    """Some ranges, and the requests that fetch them."""

    def __init__(self, parts: Sequence[RemoteRange], how: Coalescing | None = None) -> None:
        self._parts = parts
        numbers: dict[tuple[str, Checksum], int] = {}
        self._objects: list[RemoteObject] = []
        rows, columns = [], []
        self.refused: list[tuple[int, Body | Exception]] = []
        for row, part in enumerate(parts):
            if (known := _without_request(part)) is not None:
                self.refused.append((row, known))
                continue
            if part.source.identity not in numbers:
                numbers[part.source.identity] = len(self._objects)
                self._objects.append(part.source)
            rows.append(row)
            number = numbers[part.source.identity]
            columns.append((number, part.offset, part.offset + part.length))
        self._rows = rows
        table = np.array(columns, np.int64).reshape(len(rows), 3).T
        self.requests = coalesce(table[0], table[1], table[2], how or Coalescing())
        self._answers: list[ObjectBytes | Exception | None] = [None] * len(self.requests)
        first, count = self.requests.first.tolist(), self.requests.count.tolist()
        self._needs = list(zip(first, count, strict=True))
        self._waiting: dict[int, list[int]] = {}  # request: which of ``rows`` need it
        for at, (start, many) in enumerate(self._needs):
            for request in range(start, start + many):
                self._waiting.setdefault(request, []).append(at)

    def targets(self) -> list[tuple[RemoteObject, int, int]]:
        """Return object, begin and end of each request."""
        made = self.requests
        columns = made.source.tolist(), made.begin.tolist(), made.end.tolist()
        return [(self._objects[n], begin, end) for n, begin, end in zip(*columns, strict=True)]

    def take(self, request: int, answer: ObjectBytes | Exception, give: Give) -> None:
        """Take the answer of one request; give what is complete with it."""
        self._answers[request] = answer
        for at in self._waiting[request]:
            start, many = self._needs[at]
            held = self._answers[start : start + many]
            if not any(one is None for one in held):
                give(self._rows[at], assemble(self._parts[self._rows[at]], held))


def _without_request(part: RemoteRange) -> Body | Exception | None:
    """Return what is known without a request."""
    if not 0 <= part.offset <= part.offset + part.length < _MOST:
        return answers.too_short(
            part.source.grant.url, offset=part.offset, expected=part.length, available=0
        )
    return b"" if part.length == 0 else None


def assemble(part: RemoteRange, held: Sequence[ObjectBytes | Exception | None]) -> Body | Exception:
    """Return a range cut out of answers that hold it together, or why there is none."""
    got: list[memoryview] = []
    end, first = part.offset + part.length, held[0]
    for answer in held:
        if not isinstance(answer, ObjectBytes):
            return answer or StorageError("a request was not answered")
        if isinstance(first, ObjectBytes) and not answers.are_alike(first.meta, answer.meta):
            return answers.change_while_read(part.source.grant.url)
        low = max(part.offset - answer.begin, 0)
        got.append(memoryview(answer.body)[low : max(end - answer.begin, 0)])
    available = sum(map(len, got))
    if available < part.length:
        url = part.source.grant.url
        return answers.too_short(url, offset=part.offset, expected=part.length, available=available)
    return got[0] if len(got) == 1 else b"".join(got)


async def fetch_async(
    parts: Sequence[RemoteRange], give: Give, how: Coalescing | None = None
) -> int:
    """Fetch ranges side by side and give each as soon as it is complete, in the loop's thread.

    Returns:
        How many requests that took.
    """
    fetch = Fetch(parts, how)
    for row, known in fetch.refused:
        give(row, known)

    async def one(number: int, answer: Awaitable[ObjectBytes]) -> None:
        try:
            fetch.take(number, await answer, give)
        except Exception as error:  # noqa: BLE001 - the caller gets it
            fetch.take(number, error, give)

    made = [source.get_async(begin, end) for source, begin, end in fetch.targets()]
    if len(made) == 1:
        await one(0, made[0])
        return 1
    await asyncio.gather(*(one(number, answer) for number, answer in enumerate(made)))
    return len(made)


def fetch_all(
    parts: Sequence[RemoteRange], how: Coalescing | None = None
) -> list[Body | Exception]:
    """Fetch ranges side by side and return bytes or error of each; blocks."""
    fetch = Fetch(parts, how)
    found: list[Body | Exception] = [b""] * len(parts)
    for row, known in fetch.refused:
        found[row] = known
    targets = fetch.targets()
    if len(targets) == 1:  # no thread is needed to wait for one
        fetch.take(0, _try(lambda: targets[0][0].get(*targets[0][1:])), found.__setitem__)
        return found
    waited = [
        HOSTS.submit(source.reach.host, lambda s=source, b=begin, e=end: s.get(b, e))  # type: ignore[misc]
        for source, begin, end in targets
    ]
    for number, future in enumerate(waited):
        fetch.take(number, _try(future.result), found.__setitem__)
    return found


def _try(work: Callable[[], ObjectBytes]) -> ObjectBytes | Exception:
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - the caller gets it
        return error


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
