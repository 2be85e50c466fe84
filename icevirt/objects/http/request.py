"""Send a request for a file of a web server; follow redirects only where that was authorized.

Each hop is checked before anything is sent: it stays below the prefix, or goes to a listed host,
without credentials, and never from the internet into the network here.

A thread for each small range costs more than the range: two handovers, and turns in Python. So what
is usual happens in the event loop, on connections that a thread opened before: a request that the
kernel takes at once, and an answer with a range of known length. In every other case a thread goes
on with the same connection and what arrived on it, so decisions are made in one place.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import re
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPResponse
from typing import Any, Literal
from urllib.parse import urljoin, urlsplit

from icevirt.connect.credentials.common import Refreshable
from icevirt.connect.credentials.http import TOKENS, Token
from icevirt.errors import StorageError, UnauthorizedError
from icevirt.objects import answers
from icevirt.objects.answers import ObjectBytes, reason_of
from icevirt.objects.http.connections import (
    CONNECTIONS,
    Connection,
    HungUpError,
    Origin,
)

_END = re.compile(rb"\n\r?\n")  # of a head, as the standard library sees it
_LONGEST_HEAD = 64 * 1024  # bytes
_PART = 64 * 1024  # bytes that are received at a time


class LoopExchange:
    """A request and its answer on a connection whose socket does not block.

    Only in the thread of the loop, until another one takes over with `resume`.
    """

    def __init__(self, connection: Connection, timeout: float) -> None:
        self.connection = connection
        self.failure: OSError | http.client.HTTPException | None = None
        self._timeout = timeout
        self._arrived = _Arrived(connection.socket)
        self._unsent = b""
        self._response: HTTPResponse | None = None
        self._head = 0  # bytes of the head, once it is there
        self._is_over = False  # nothing more arrives

    async def ask(self, url: str, headers: dict[str, str]) -> HTTPResponse | None:
        """Return the answer with a range, its body unread; None where a thread has to go on.

        Raises:
            OSError, http.client.HTTPException: It did not work.
            ValueError: A header cannot be sent.
        """
        self._unsent = self.connection.send_now(self.connection.request(url, headers))
        if self._unsent:
            return None
        await self._receive(self._has_head)
        if not self._head or not self._arrived.data.startswith(b"HTTP/1.1 206 "):
            return None
        self._response = self.connection.answer_of(self._arrived)
        return self._response

    async def read(self, length: int) -> bytes:
        """Return the body, which has ``length`` bytes.

        Raises:
            OSError, http.client.HTTPException: It did not work.
        """
        assert self._response is not None, "there is an answer"
        data, end = self._arrived.data, self._head + length
        if not self._pull(lambda: len(data) >= end):
            await self._receive(lambda: len(data) >= end)
        # a server that sent bytes after the end of its answer may not get another request
        self._response.will_close |= len(data) > end
        return self._response.read()

    def resume(self) -> HTTPResponse:
        """Return the answer, its body unread; blocks. Only in a thread that takes over.

        Raises:
            OSError, http.client.HTTPException: It did not work.
        """
        if self.failure is not None:
            raise self.failure
        self.connection.socket.settimeout(self._timeout)
        return self._response or self.connection.answer_of(self._arrived, self._unsent)

    def _has_head(self) -> bool:
        found = _END.search(self._arrived.data)
        self._head = found.end() if found else 0
        return bool(found) or len(self._arrived.data) > _LONGEST_HEAD

    def _pull(self, is_enough: Callable[[], bool]) -> bool:
        """Take what arrived; say whether that is enough, or all."""
        while not is_enough():
            try:
                part = self.connection.socket.recv(_PART)
            except (BlockingIOError, ssl.SSLWantReadError):
                return self._is_over
            except ssl.SSLWantWriteError:
                part = b""
            if not part:
                self._is_over = True
                return True
            self._arrived.data += part
        return True

    async def _receive(self, is_enough: Callable[[], bool]) -> None:
        """Wait until enough arrived. Raises ``OSError``."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        number = self.connection.socket.fileno()
        self._last = loop.time()
        self._wait(done)
        loop.add_reader(number, self._on_arrival, done, is_enough)
        try:
            await done
        finally:
            loop.remove_reader(number)
            self._timer.cancel()

    def _on_arrival(self, done: asyncio.Future[None], is_enough: Callable[[], bool]) -> None:
        if done.done():  # cancelled in this turn
            return
        self._last = done.get_loop().time()
        try:
            if self._pull(is_enough):
                done.set_result(None)
        except OSError as error:
            done.set_exception(error)

    def _wait(self, done: asyncio.Future[None]) -> None:
        """Give up once nothing arrived for too long."""
        loop = done.get_loop()
        if (left := self._last + self._timeout - loop.time()) > 0:
            self._timer = loop.call_later(left, self._wait, done)
        elif not done.done():
            done.set_exception(TimeoutError("timed out"))


class _Arrived(io.RawIOBase):
    """The bytes of a connection: first what the event loop received, then what its socket gives."""

    def __init__(self, source: socket.socket) -> None:
        self.data = bytearray()
        self._source = source
        self._taken = 0

    def makefile(self, _mode: Literal["rb"], /) -> io.BufferedReader:
        """Return a file of the bytes."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, into: Any, /) -> int:
        """Take bytes."""
        part = self.data[self._taken : self._taken + len(into)]
        if not part:
            return self._source.recv_into(into)
        into[: len(part)] = part
        self._taken += len(part)
        return len(part)


_HOPS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_REFUSALS = (401, 403)
_RENEWALS = 8  # of the token for one request; many threads may use one up meanwhile
_AMBIGUOUS = re.compile(r"[\\\x00-\x20\x7f]|%2e|%2f|%5c|/\.\.?(/|$)", re.IGNORECASE)
_SMALL = 64 * 1024  # bytes of a body that is read only to keep its connection


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long to try."""

    tries: int = 9
    total: float = 120.0  # seconds after which no other try begins
    timeout: float = 30.0  # seconds without a byte


@dataclass(frozen=True, slots=True, kw_only=True)
class WebPrefix:
    """What was authorized: the files below one prefix of a web server."""

    origin: Origin
    prefix: str  # percent-encoded as requests are
    redirect_hosts: frozenset[str] = frozenset()  # "host" or "host:port"
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # for the prefix alone
    renewable: Refreshable | None = None  # more of them, likewise
    patience: RetryPolicy = RetryPolicy()


class TryAgainError(Exception):
    """Another try may go well, after some seconds if the server says so."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        self.reason, self.wait = reason, wait
        super().__init__(reason)


class RefusedError(Exception):
    """The server refuses a token, which may have expired."""

    def __init__(self, status: int, reason: str) -> None:
        self.status, self.reason = status, reason
        super().__init__(reason)


class FileRequest(ABC):
    """A request for bytes of one file.

    Args:
        site: Below whose prefix the file is.
        url: Of the file.
        query: It follows the URL in requests. It may be a secret: it is neither shown nor sent
            anywhere else.
    """

    def __init__(self, site: WebPrefix, url: str, query: str = "") -> None:
        self._site = site
        self.url = url
        self._query = query
        self._tokens = None if site.renewable is None else TOKENS.of(site.renewable)
        self._token: Token | None = None

    @abstractmethod
    def _wanted(self) -> str:
        """Return the value of the header ``Range``."""

    @abstractmethod
    def _answer(self, response: HTTPResponse) -> ObjectBytes:
        """Read an answer that is no redirect.

        Raises:
            TryAgainError: Another try may go well.
            IcevirtError: It will not.
        """

    def once(self, begun: LoopExchange | None = None) -> ObjectBytes:
        """Try once, following redirects; the first request may have been sent already."""
        at, is_own, network = f"{self.url}{self._query}", True, ""
        self._token = None if self._tokens is None else self._tokens.current()
        for _ in range(_HOPS + 1):
            if begun is not None:
                connection = begun.connection
            else:
                with talking():
                    connection = CONNECTIONS.take(Origin.of(at), self._site.patience.timeout)
            try:
                network = self._check_peer(connection, network)
                with talking():
                    response = (
                        connection.ask(at, self._headers(is_own=is_own))
                        if begun is None
                        else begun.resume()
                    )
                begun = None
                if self._is_refused(response.status, is_own=is_own):
                    finish(response)
                    raise RefusedError(response.status, reason_of(response))
                if response.status not in _REDIRECTS:
                    return self._answer(response)
                finish(response)
                at, is_own = self._next(at, response.headers.get("location", ""))
            except TryAgainError:
                connection.close()
                raise
            finally:
                CONNECTIONS.give_back(connection)
        raise StorageError(
            "a source file redirects too often",
            do="Refer to its final URL.",
            location=self.url,
        )

    def _headers(self, *, is_own: bool) -> dict[str, str]:
        given = dict(self._site.headers) if is_own else {}
        if is_own and self._token is not None:
            given |= self._token.headers
        return given | {"range": self._wanted(), "accept-encoding": "identity"}

    def _is_refused(self, status: int, *, is_own: bool) -> bool:
        """Say whether a server refused a token that may have expired."""
        if self._token is None or not is_own:
            return False
        self._token.worked |= status < 400
        return status in _REFUSALS

    def renew(self, status: int, times: int) -> bool:
        """Get another token for the next try; say whether there is a point in it."""
        assert self._tokens is not None, "refusals concern tokens"
        assert self._token is not None, "refusals concern tokens"
        return times <= _RENEWALS and self._tokens.renew(self._token, status)

    def denied(self, reason: str) -> StorageError:
        """Return the error of a server that refuses these credentials, or everyone."""
        given = any(name.lower() == "authorization" for name, _ in self._site.headers)
        known = given or self._token is not None or bool(self._query)
        return answers.denied(self.url, self._site.prefix, reason=reason, with_credentials=known)

    def _next(self, at: str, location: str) -> tuple[str, bool]:
        """Return where a redirect leads, and whether below the prefix; if that was authorized."""
        if not location.isascii() or not location.isprintable():
            raise answers.misdirected(self.url, location)
        try:
            to = urljoin(at, location).partition("#")[0]
            parts, origin = urlsplit(to), Origin.of(to)
            host = (parts.hostname or "").lower()
        except ValueError:  # whose text may repeat secrets
            raise answers.misdirected(self.url, location) from None
        inside = to.startswith(self._site.prefix) and not _AMBIGUOUS.search(parts.path)
        listed = not self._site.redirect_hosts.isdisjoint(origin.names)
        downgraded = at.startswith("https:") and origin.scheme != "https"
        named = "@" in parts.netloc
        if origin.scheme not in ("http", "https") or downgraded or named or not (inside or listed):
            raise UnauthorizedError(
                "a source file redirects to a server that its container does not list",
                do="If you trust it, add its host to the option redirect_hosts of the container's "
                "http_store, which separates hosts by commas.",
                location=self.url,
                host=host,
                scheme=parts.scheme,
            )
        return to, inside

    def _check_peer(self, connection: Connection, first: str) -> str:
        """Refuse a redirect from outside into the network here; return where the origin is."""
        network = connection.network
        if first and network not in ("global", first):
            raise UnauthorizedError(
                "a source file redirects to an address inside this network",
                do="Refer to its final URL.",
                location=self.url,
                host=connection.origin.host,
                address=connection.address,
            )
        return first or network


@contextmanager
def talking() -> Iterator[None]:
    """Turn failures between client and server into another try."""
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        raise StorageError(
            "the certificate of the server is not trusted",
            do="Add its certificate authority to the system, or set SSL_CERT_FILE.",
            reason=error.verify_message,
        ) from error
    except (OSError, http.client.HTTPException) as error:
        wait = 0.0 if isinstance(error, HungUpError) else None
        raise TryAgainError(str(error) or type(error).__name__, wait) from error


def finish(response: HTTPResponse) -> None:
    """Read a small unused body, so that its connection can be used again."""
    if response.length is not None and response.length <= _SMALL:
        with talking():
            response.read()
