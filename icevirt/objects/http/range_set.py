"""Fetch several ranges of a file with one request, from web servers that answer such requests.

RFC 9110 defines them in section 14.2; answers are of type multipart/byteranges. A server need not
support them, so nothing here is an error: if an answer is not exactly what was requested, the
caller requests one range at a time, and decides about errors as it always does. This process
remembers which servers do not answer such requests.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from icevirt.connect.retry import SERVERS
from icevirt.errors import IcevirtError
from icevirt.objects.http.heads import AGAIN, GONE, content_range, is_encoded, meta_of, reason_of
from icevirt.objects.http.multipart import (
    MultipartError,
    Range,
    bodies_of,
    boundary_of,
    longest_body,
    parts_of,
)
from icevirt.objects.http.request import (
    FileRequest,
    RefusedError,
    TryAgainError,
    WebPrefix,
    finish,
    talking,
)

if TYPE_CHECKING:
    from icevirt.objects.answers import Body, Meta
    from icevirt.objects.http.connections import HttpResponse, Origin

_MOST_RANGES = 64  # of a request; servers refuse many, and long heads
_FAILURES = 2  # in a row, after which a server is taken for one that does not answer
_HANG_UPS = 2  # of idle connections, for one request
_OBJECT_STORES = re.compile(  # which answer one range, or the whole object
    r"(?:.*\.)?(?:amazonaws\.com(?:\.cn)?|googleapis\.com|core\.windows\.net"
    r"|r2\.cloudflarestorage\.com)"
)

_FAILED: dict[Origin, int] = {}
"""Failures in a row of each server that was asked; `_FAILURES` where it does not answer."""


def answers_range_sets(site: WebPrefix) -> bool | None:
    """Say whether a server answers requests for several ranges; None if it was never asked."""
    server = SERVERS.get(site.origin)
    if server is not None and server.is_down:
        return False
    if (failed := _FAILED.get(site.origin)) is None:
        return False if _OBJECT_STORES.fullmatch(site.origin.host) else None
    return failed < _FAILURES


def forget() -> None:
    """Forget which servers answer."""
    _FAILED.clear()


def range_sets(ranges: Sequence[Range], most: int) -> list[list[Range]]:
    """Divide ranges into sets for one request each, of ``most`` bytes unless a range has more."""
    sets: list[list[Range]] = []
    left = 0  # bytes
    for begin, end in ranges:
        left -= end - begin
        if left < 0 or len(sets[-1]) == _MOST_RANGES:
            sets.append([])
            left = most - (end - begin)
        sets[-1].append((begin, end))
    return sets


def fetch_range_set(
    site: WebPrefix, url: str, ranges: Sequence[Range], opened: Meta
) -> list[Body] | None:
    """Return the bytes of ranges of a file, requested together.

    Args:
        site: Where the file is.
        url: Of the file.
        ranges: In ascending order, none adjacent to another.
        opened: What the server said of the file before; the answer must be of the same file.

    Returns:
        The bytes of each range, or None if the caller must request one range at a time.
    """
    request = _RangeSetRequest(site, url, ranges, opened)
    try:
        bodies = _insist(request)
    except MultipartError:
        _FAILED[site.origin] = _FAILURES
    except (TryAgainError, RefusedError, IcevirtError, ValueError, OverflowError):
        _FAILED[site.origin] = _FAILED.get(site.origin, 0) + 1
    else:
        _FAILED[site.origin] = 0
        return bodies
    return None


def _insist(request: _RangeSetRequest) -> list[Body]:
    """Return the answer; try another token or connection if the first one had ended."""
    renewed = hung_up = 0
    while True:
        try:
            return request.once()
        except RefusedError as refusal:
            renewed += 1
            if not request.renew(refusal.status, renewed):
                raise
        except TryAgainError as trouble:
            hung_up += 1
            if trouble.wait != 0.0 or hung_up > _HANG_UPS:
                raise


class _RangeSetRequest(FileRequest[list["Body"]]):
    """Ranges that were requested together."""

    def __init__(self, site: WebPrefix, url: str, ranges: Sequence[Range], opened: Meta) -> None:
        super().__init__(site, url)
        self._ranges = ranges
        self._opened = opened

    def _wanted(self) -> str:
        return "bytes=" + ",".join(f"{begin}-{end - 1}" for begin, end in self._ranges)

    def _answer(self, response: HttpResponse) -> list[Body]:
        """Read an answer; check what its head says before its body is fetched."""
        if response.status in (416, *AGAIN, *GONE):
            finish(response)
            raise TryAgainError(reason_of(response))
        if response.status in (200, 206):
            self._check(response)
        boundary = self._boundary(response)
        most = longest_body(self._ranges)
        if response.length is not None and response.length > most:
            raise MultipartError("the answer is too long")
        with talking():
            body = response.read(most if response.length is None else None)
        assert self._opened.size is not None, "a file that was opened has a size"
        return bodies_of(parts_of(body, boundary), self._ranges, self._opened.size)

    def _check(self, response: HttpResponse) -> None:
        """Raise if the file changed; requests for one range then say how."""
        found = content_range(response.headers.get("content-range", ""))
        size = str(self._opened.size) if found is None else found[3]
        if meta_of(response.headers, size) != self._opened:
            raise TryAgainError("the file is another one")

    def _boundary(self, response: HttpResponse) -> bytes:
        """Return what separates the ranges of an answer, if it has several."""
        one = response.headers.get("content-range")
        if response.status != 206 or one is not None or is_encoded(response):
            finish(response)
            raise MultipartError("the server does not answer several ranges")
        return boundary_of(response.headers.get("content-type", ""))
