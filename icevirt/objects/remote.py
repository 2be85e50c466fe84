"""Read ranges of remote objects: plan them together, fetch in parallel, cut apart again.

Every answer is compared with what the scan recorded before its bytes are used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from icevirt.errors import StorageError
from icevirt.objects import answers
from icevirt.objects.answers import Body, Checksum, Meta, ObjectBytes
from icevirt.objects.authorize import RemoteGrant
from icevirt.objects.backends import Backend, BucketReach, reach_for_grant
from icevirt.objects.coalescing import Coalescing, coalesce
from icevirt.objects.web_client import Site
from icevirt.objects.web_connections import HOSTS

_MOST = 1 << 62  # no object is as long
_AT_ONCE = Coalescing().most  # bytes of one request

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
        if isinstance(self.reach, Site):
            return self.reach.get(self.grant.key, begin, end, self._check, self.grant.query)
        return self.reach.get(self.grant.key, begin, end, self._check)

    async def get_async(self, begin: int, end: int) -> ObjectBytes:
        """Do what `get` does."""
        if isinstance(self.reach, Site):
            key, query = self.grant.key, self.grant.query
            return await self.reach.get_async(key, begin, end, self._check, query)
        if isinstance(self.reach, BucketReach):
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
        if 0 < self.length <= _AT_ONCE and self.offset + self.length < _MOST:
            found = assemble(self, [self.source.get(self.offset, self.offset + self.length)])
        else:
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
