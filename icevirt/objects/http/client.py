"""Read ranges of files on web servers; redirects go only to hosts that the container lists.

It uses HTTP/1.1 of the standard library, because object-store clients follow redirects to any host
and send most headers along. Here each hop is checked: it stays below the container's prefix, or
goes to a listed host, without credentials.
"""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPResponse
from urllib.parse import quote, unquote, urlsplit

from icevirt.connect.credentials.common import Refreshable
from icevirt.connect.retry import SERVERS, Server, jitter
from icevirt.errors import IcevirtError, InvalidInputError, StorageError
from icevirt.objects import answers
from icevirt.objects.answers import (
    AGAIN,
    GONE_STATUSES,
    Check,
    Fields,
    Meta,
    ObjectBytes,
    fields_of,
    is_encoded,
    meta_of,
    range_of,
    reason_of,
    retry_after,
)
from icevirt.objects.http.connections import CONNECTIONS, HOSTS, Origin
from icevirt.objects.http.request import (
    FileRequest,
    LoopExchange,
    RefusedError,
    RetryPolicy,
    TryAgainError,
    WebPrefix,
    finish,
    talking,
)

# what RFC 3986 lets stand in a path, beyond what is always left alone
SAFE = "/!$&'()*+,;=:@~"
_LONGEST_WAIT = 10.0  # seconds
_IN_LOOP = 256 * 1024  # bytes of a range, beyond which copying and decrypting outweigh a thread


@dataclass(frozen=True, slots=True, kw_only=True)
class Site(WebPrefix):
    """The files below one prefix of a web server; make it with `site_of`."""

    @property
    def host(self) -> str:
        """Whose limit of requests counts."""
        return str(self.origin)

    def get(self, key: str, begin: int, end: int, check: Check) -> ObjectBytes:
        """Return bytes ``begin`` to ``end`` of a file; ``key`` counts from the server's root.

        Raises:
            ObjectNotFoundError: There is no such file.
            UnauthorizedError: It is redirected to where nothing was authorized.
            StorageError: The server refuses, or keeps failing; or ``check`` raises it.
        """
        return self.get_at(self.url_of(key), begin, end, check)

    def url_of(self, key: str) -> str:
        """Return the URL of a file; ``key`` counts from the server's root."""
        return f"{self.origin}/{quote(key, safe=SAFE)}"

    def get_at(self, url: str, begin: int, end: int, check: Check, query: str = "") -> ObjectBytes:
        """Do what `get` does with a URL below the prefix.

        ``query`` follows it in requests. It may be a secret: it is neither shown nor sent
        anywhere else.
        """
        return self._insist(_Asked(self, url, begin, end, check, query))

    async def get_async(self, key: str, begin: int, end: int, check: Check) -> ObjectBytes:
        """Do what `get` does; the event loop itself receives small ranges, where it can."""
        asked = _Asked(self, self.url_of(key), begin, end, check, "")
        async with HOSTS.limit(self.host):
            exchange, server = None, self._server
            if self.renewable is None and end - begin <= _IN_LOOP and not server.is_down:
                exchange = self._exchange()
            if exchange is not None:
                with _noting(server, asked.url):
                    answer = await asked.in_loop(exchange)
                if answer is not None:
                    return answer
            return await HOSTS.wait(self.host, lambda: self._insist(asked, exchange))

    @property
    def _server(self) -> Server:
        return SERVERS.get(self.origin) or SERVERS.setdefault(self.origin, Server())

    def _exchange(self) -> LoopExchange | None:
        """Return a kept connection for the event loop."""
        connection = CONNECTIONS.take_regular(self.origin)
        return None if connection is None else LoopExchange(connection, self.patience.timeout)

    def _insist(self, asked: _Asked, exchange: LoopExchange | None = None) -> ObjectBytes:
        """Return the answer after as many tries as it takes; the first may have begun."""
        server, url = self._server, asked.url
        if exchange is None:
            server.check(url)
        began, failed, renewed = time.monotonic(), 0, 0
        while True:
            at = time.monotonic()
            begun, exchange = exchange, None
            try:
                with _noting(server, url):
                    return asked.once(begun)
            except RefusedError as refusal:
                renewed += 1
                if not asked.renew(refusal.status, renewed):
                    raise asked.denied(refusal.reason) from None
            except TryAgainError as trouble:
                failed += 1
                wait = _pause(failed) if trouble.wait is None else trouble.wait
                spent = time.monotonic() - began + wait
                enough = failed >= self.patience.tries or spent > self.patience.total
                if enough or server.is_down:
                    failure = answers.unreachable(url, reason=trouble.reason, tries=failed)
                    server.gave_up(failure, time.monotonic() - at)
                    raise failure from None
                time.sleep(wait)


def site_of(
    prefix: str,
    *,
    redirect_hosts: frozenset[str] = frozenset(),
    headers: Mapping[str, str] | None = None,
    renewable: Refreshable | None = None,
    patience: RetryPolicy | None = None,
) -> Site:
    """Return the site at a prefix. Raises ``InvalidInputError``: it is no URL of a web server."""
    try:
        origin, path = Origin.of(prefix), unquote(urlsplit(prefix).path, errors="strict")
    except ValueError as error:
        raise InvalidInputError("this is not the URL of a web server", url=prefix) from error
    return Site(
        origin=origin,
        prefix=f"{origin}{quote(path, safe=SAFE)}",
        redirect_hosts=frozenset(host.lower() for host in redirect_hosts),
        headers=tuple((headers or {}).items()),
        renewable=renewable,
        patience=patience or RetryPolicy(),
    )


@contextmanager
def _noting(server: Server, url: str) -> Iterator[None]:
    """Take note that a server works where it answers, whatever it says."""
    try:
        yield
    except (TryAgainError, RefusedError):
        raise
    except IcevirtError:
        server.works()
        raise
    except (ValueError, OverflowError) as error:  # of a parser that its words defeat
        server.works()
        raise answers.unreadable(url, reason=str(error)) from error
    server.works()


def _pause(failed: int) -> float:
    return min(0.1 * 2.0**failed, _LONGEST_WAIT) * jitter(0.5, 1.0)


class _Asked(FileRequest):
    """One range that was asked for."""

    def __init__(  # noqa: PLR0917 - one request
        self, site: Site, url: str, begin: int, end: int, check: Check, query: str
    ) -> None:
        super().__init__(site, url, query)
        self._begin = begin
        self._end = end
        self._check = check

    def _wanted(self) -> str:
        return f"bytes={self._begin}-{self._end - 1}"

    async def in_loop(self, exchange: LoopExchange) -> ObjectBytes | None:
        """Try once in the event loop; None says that `once` has to go on in a thread."""
        answer = None
        try:
            response = await exchange.ask(self.url, self._headers(is_own=True))
            fields = {} if response is None else fields_of(response.headers)
            found = None if response is None else range_of(response, fields)
            if response is not None and found is not None and response.length is not None:
                meta = self._checked(response, found, fields)
                body = await exchange.read(response.length)
                answer = ObjectBytes(meta=meta, begin=self._begin, body=body)
        except (OSError, http.client.HTTPException) as error:
            exchange.failure = error
        except BaseException:
            exchange.connection.close()
            raise
        if answer is not None:
            CONNECTIONS.give_back(exchange.connection)
        return answer

    def _answer(self, response: HTTPResponse) -> ObjectBytes:
        """Read an answer; what it says is checked before its body is fetched."""
        fields = fields_of(response.headers)
        found = range_of(response, fields)
        if found is None:
            return self._without_bytes(response, fields)
        meta = self._checked(response, found, fields)
        expected = int(found[2]) + 1 - self._begin
        with talking():  # the end of chunks is looked for, too
            body = response.read(expected + 1 if response.chunked else expected)
        if len(body) < expected:
            raise TryAgainError("the answer ended too early")
        return answers.exact_bytes(self.url, meta, self._begin, self._begin + expected, body)

    def _checked(self, response: HTTPResponse, found: re.Match[str], fields: Fields) -> Meta:
        """Return what the head of an answer says of the file, if it is the range and the file."""
        begin, end, size = int(found[1]), int(found[2]) + 1, found[3]
        last = self._end if size == "*" else min(self._end, int(size))
        if begin != self._begin or not begin < end == last or is_encoded(fields):
            raise self._other_bytes(response)
        if response.length is None and not response.chunked:
            raise answers.unreadable(self.url, reason="it does not say how long it is")
        if response.length not in (None, end - begin):
            raise self._other_bytes(response)
        meta = meta_of(fields, size)
        self._check(meta)
        return meta

    def _without_bytes(self, response: HTTPResponse, fields: Fields) -> ObjectBytes:
        """Say what an answer without a range means. Raises unless the file ends before it."""
        status, reason = response.status, reason_of(response)
        finish(response)
        if status in AGAIN:
            raise TryAgainError(reason, retry_after(fields.get("retry-after")))
        if status == 416:
            meta = meta_of(fields, fields.get("content-range", "").rpartition("/")[2])
            if meta.etag:
                self._check(meta)
            return ObjectBytes(meta=meta, begin=self._begin, body=b"")
        if status in GONE_STATUSES:
            raise answers.gone(self.url, reason=reason)
        if status in (401, 403, 407):
            raise self.denied(reason)
        if status in (200, 206):
            raise self._other_bytes(response)
        raise answers.unreachable(self.url, reason=reason, tries=1)

    def _other_bytes(self, response: HTTPResponse) -> StorageError:
        return StorageError(
            "the web server does not support range requests",
            do="Copy the files to a server that does, or to local disk.",
            location=self.url,
            asked=f"bytes {self._begin}-{self._end - 1}",
            status=response.status,
            answered=response.headers.get("content-range"),
            encoding=response.headers.get("content-encoding"),
        )
