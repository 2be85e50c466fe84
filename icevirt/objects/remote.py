"""Read ranges of remote objects: plan them together, fetch in parallel, cut apart again.

Every answer is compared with what the scan recorded before its bytes are used, and before a cache
on disk keeps them: what is kept was sent with exactly the checksum under which it is found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from icevirt.errors import StorageError
from icevirt.objects import answers
from icevirt.objects.answers import Body, Checksum, Meta, ObjectBytes
from icevirt.objects.authorize import RemoteGrant
from icevirt.objects.backends import Backend, BucketReach, reach_for_grant, server_of
from icevirt.objects.coalescing import Coalescing, coalesce
from icevirt.objects.web_client import Site
from icevirt.objects.web_connections import HOSTS
from icevirt.threads import run_in_thread

if TYPE_CHECKING:
    from icevirt.objects.chunk_cache import CachedObject, ChunkCache, FreshChunks

_MOST = 1 << 62  # no object is as long
_AT_ONCE = Coalescing().most  # bytes of one request

type OnStale = Callable[[StorageError], None]
type Give = Callable[[int, Body | Exception], None]
type Complete = tuple[int, Body | Exception, Sequence[ObjectBytes | Exception | None]]
"""A range by its number, its bytes, and the answers that hold them."""

type Span = tuple[int, int]
type Spans = tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class RemoteObject:
    """An object elsewhere that may be read, as the scan found it."""

    reach: Backend = field(repr=False)
    grant: RemoteGrant
    checksum: Checksum
    on_stale: OnStale = field(repr=False)
    kept: CachedObject | FreshChunks | None = field(default=None, repr=False, compare=False)

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


def object_of(
    grant: RemoteGrant, checksum: Checksum, on_stale: OnStale, cache: ChunkCache | None = None
) -> RemoteObject:
    """Return the object that was granted. Raises as `reach_for_grant` does.

    A cache keeps what a checksum tells from other versions of the object, by the server that is
    asked: a bucket of the same name elsewhere is another one.
    """
    reach = reach_for_grant(grant)
    kept, is_strong = None, checksum.etag and not answers.is_weak(checksum.etag)
    if cache is not None and (is_strong or checksum.is_time) and (server := server_of(reach)):
        kept = cache.of(server, grant.url, checksum.etag, str(checksum.last_modified))
    return RemoteObject(reach, grant, checksum, on_stale, kept)


@dataclass(frozen=True, slots=True)
class RemoteRange:
    """A range of an object elsewhere."""

    source: RemoteObject
    offset: int
    length: int
    chunks: Spans = ()  # begin and end of each one that a cache keeps by itself; (): the range

    def now(self) -> Body | None:
        """Return the bytes if a cache has them; else a network has to be waited for."""
        kept = self.source.kept
        return None if kept is None else kept.get(self.offset, self.length)

    def wait(self) -> Body:
        """Return the bytes; blocks. Raises ``StorageError``, ``UnauthorizedError``."""
        if 0 < self.length <= _AT_ONCE and self.offset + self.length < _MOST:
            answer = self.source.get(self.offset, self.offset + self.length)
            found = assemble(self, [answer])
            keep(self, found, [answer])
        else:
            (found,) = fetch_all([self])
        if isinstance(found, Exception):
            raise found
        return found


def keep(
    part: RemoteRange, body: Body | Exception, answers: Sequence[ObjectBytes | Exception | None]
) -> None:
    """Let the cache keep a range, if all answers are of the very version that was scanned.

    A time tells less than an etag: an older object passes for the one of a time, and is not kept.
    """
    kept, checksum = part.source.kept, part.source.checksum
    if kept is None or isinstance(body, Exception):
        return
    metas = [each.meta for each in answers if isinstance(each, ObjectBytes)]
    if checksum.is_time and any(each.last_modified != checksum.last_modified for each in metas):
        return
    kept.put(cut(body, part.offset, part.chunks or ((part.offset, part.offset + part.length),)))


def cut(body: Body, begin: int, spans: Sequence[Span]) -> dict[Span, Body]:
    """Return the bytes of ranges, out of those of an object from ``begin`` on."""
    whole = memoryview(body)
    return {each: whole[each[0] - begin : each[1] - begin] for each in spans}


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

    def take(self, request: int, answer: ObjectBytes | Exception) -> list[Complete]:
        """Take the answer of one request; return what is complete with it."""
        self._answers[request] = answer
        complete: list[Complete] = []
        for at in self._waiting[request]:
            start, many = self._needs[at]
            held = self._answers[start : start + many]
            if not any(one is None for one in held):
                row = self._rows[at]
                complete.append((row, assemble(self._parts[row], held), held))
        return complete

    def keep(self, complete: Sequence[Complete]) -> None:
        """Let the cache keep what is complete; waits for a disk."""
        for row, body, held in complete:
            keep(self._parts[row], body, held)


def _without_request(part: RemoteRange) -> Body | Exception | None:
    """Return what is known without a request."""
    if not 0 <= part.offset <= part.offset + part.length < _MOST:
        return answers.too_short(
            part.source.grant.url, offset=part.offset, expected=part.length, available=0
        )
    return b"" if part.length == 0 else part.now()


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
            complete = fetch.take(number, await answer)
        except Exception as error:  # noqa: BLE001 - the caller gets it
            complete = fetch.take(number, error)
        if any(parts[row].source.kept is not None for row, _, _ in complete):
            await run_in_thread(fetch.keep, complete)
        for row, body, _ in complete:
            give(row, body)

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

    def take(number: int, answer: ObjectBytes | Exception) -> None:
        fetch.keep(complete := fetch.take(number, answer))
        for row, body, _ in complete:
            found[row] = body

    if len(targets) == 1:  # no thread is needed to wait for one
        take(0, _try(lambda: targets[0][0].get(*targets[0][1:])))
        return found
    waited = [
        HOSTS.submit(source.reach.host, lambda s=source, b=begin, e=end: s.get(b, e))  # type: ignore[misc]
        for source, begin, end in targets
    ]
    for number, future in enumerate(waited):
        take(number, _try(future.result))
    return found


def _try(work: Callable[[], ObjectBytes]) -> ObjectBytes | Exception:
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - the caller gets it
        return error
