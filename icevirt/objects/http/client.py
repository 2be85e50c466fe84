"""Read ranges of files on web servers; redirects go only to hosts that the container lists.

It uses HTTP/1.1 of the standard library, because object-store clients follow redirects to any host
and send most headers along. Here each hop is checked: it stays below the container's prefix, or
goes to a listed host, without credentials.
"""

from __future__ import annotations

import http.client
import re
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from email.utils import parsedate_to_datetime
from urllib.parse import quote, unquote, urljoin, urlsplit

from icevirt.connect.credentials.common import Refreshable
from icevirt.connect.credentials.http import TOKENS, Token
from icevirt.connect.retry import SERVERS, Server, jitter
from icevirt.deferred_dataclass import dataclass
from icevirt.errors import IcevirtError, InvalidInputError, StorageError, UnauthorizedError
from icevirt.objects import answers
from icevirt.objects.answers import Check, Meta, ObjectBytes
from icevirt.objects.http.connections import (
    CONNECTIONS,
    HOSTS,
    Connection,
    Headers,
    HttpResponse,
    HungUpError,
    Origin,
)
from icevirt.objects.http.loop_exchange import LoopExchange

_HOPS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_REFUSALS = (401, 403)
_RENEWALS = 8  # of the token for one request; many threads may use one up meanwhile
_AGAIN = (408, 425, 429, 500, 502, 503, 504)
_NUMBER = re.compile(r"[0-9]{1,19}")
_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19}|\*)")
_AMBIGUOUS = re.compile(r"[\\\x00-\x20\x7f]|%2e|%2f|%5c|/\.\.?(/|$)", re.IGNORECASE)
# what RFC 3986 lets stand in a path, beyond what is always left alone
SAFE = "/!$&'()*+,;=:@~"
_LONGEST_WAIT = 10.0  # seconds
_SMALL = 64 * 1024  # bytes of a body that is read only to keep its connection
_IN_LOOP = 256 * 1024  # bytes of a range, beyond which copying and decrypting outweigh a thread


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long to try."""

    tries: int = 9
    total: float = 120.0  # seconds after which no other try begins
    timeout: float = 30.0  # seconds without a byte


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The files below one prefix of a web server; make it with `site_of`."""

    origin: Origin
    prefix: str  # percent-encoded as requests are
    redirect_hosts: frozenset[str] = frozenset()  # "host" or "host:port"
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # for the prefix alone
    renewable: Refreshable | None = None  # more of them, likewise
    patience: RetryPolicy = RetryPolicy()

    @property
    def host(self) -> str:
        """Whose limit of requests counts."""
        return str(self.origin)

    def get(self, key: str, begin: int, end: int, check: Check) -> ObjectBytes:
        """Return bytes ``begin`` to ``end`` of a file; ``key`` counts from the server's root.

        Raises:
            ObjectNotFoundError: There is no such file.
            UnauthorizedError: It is redirected to where nothing was authorised.
            StorageError: The server refuses, or keeps failing; or ``check`` raises it.
        """
        return self.get_at(f"{self.origin}/{quote(key, safe=SAFE)}", begin, end, check)

    def get_at(self, url: str, begin: int, end: int, check: Check, query: str = "") -> ObjectBytes:
        """Do what `get` does with a URL below the prefix.

        ``query`` follows it in requests. It may be a secret: it is neither shown nor sent
        anywhere else.
        """
        return self._insist(_Asked(self, url, begin, end, check, query))

    async def get_async(self, key: str, begin: int, end: int, check: Check) -> ObjectBytes:
        """Do what `get` does; the event loop itself receives small ranges, where it can."""
        asked = _Asked(self, f"{self.origin}/{quote(key, safe=SAFE)}", begin, end, check, "")
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
            except _RefusedError as refusal:
                renewed += 1
                if not asked.renew(refusal.status, renewed):
                    raise asked.denied(refusal.reason) from None
            except _TryAgainError as trouble:
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


class _TryAgainError(Exception):
    def __init__(self, reason: str, wait: float | None = None) -> None:
        self.reason, self.wait = reason, wait
        super().__init__(reason)


class _RefusedError(Exception):
    def __init__(self, status: int, reason: str) -> None:
        self.status, self.reason = status, reason
        super().__init__(reason)


@contextmanager
def _noting(server: Server, url: str) -> Iterator[None]:
    """Take note that a server works where it answers, whatever it says."""
    try:
        yield
    except (_TryAgainError, _RefusedError):
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


class _Asked:
    """One range that was asked for."""

    def __init__(  # noqa: PLR0917 - one request
        self, site: Site, url: str, begin: int, end: int, check: Check, query: str
    ) -> None:
        self._site = site
        self.url = url
        self._query = query
        self._begin = begin
        self._end = end
        self._check = check
        self._tokens = None if site.renewable is None else TOKENS.of(site.renewable)
        self._token: Token | None = None

    async def in_loop(self, exchange: LoopExchange) -> ObjectBytes | None:
        """Try once in the event loop; None says that `once` has to go on in a thread."""
        answer = None
        try:
            response = await exchange.ask(self.url, self._headers(is_own=True))
            found = None if response is None else _range_of(response)
            if response is not None and found is not None and response.length is not None:
                meta = self._checked(response, found)
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

    def once(self, begun: LoopExchange | None = None) -> ObjectBytes:
        """Try once, following redirects; the first request may have been sent already."""
        at, is_own, network = f"{self.url}{self._query}", True, ""
        self._token = None if self._tokens is None else self._tokens.current()
        for _ in range(_HOPS + 1):
            if begun is not None:
                connection = begun.connection
            else:
                with _talking():
                    connection = CONNECTIONS.take(Origin.of(at), self._site.patience.timeout)
            try:
                network = self._check_peer(connection, network)
                with _talking():
                    response = (
                        connection.ask(at, self._headers(is_own=is_own))
                        if begun is None
                        else begun.resume()
                    )
                begun = None
                if self._is_refused(response.status, is_own=is_own):
                    _finish(response)
                    raise _RefusedError(response.status, _reason_of(response))
                if response.status not in _REDIRECTS:
                    return self._answer(response)
                _finish(response)
                at, is_own = self._next(at, response.headers.get("location", ""))
            except _TryAgainError:
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
        wanted = {"range": f"bytes={self._begin}-{self._end - 1}", "accept-encoding": "identity"}
        return given | wanted

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
        """Return where a redirect leads, and whether below the prefix; if that was authorised."""
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

    def _answer(self, response: HttpResponse) -> ObjectBytes:
        """Read an answer; what it says is checked before its body is fetched."""
        found = _range_of(response)
        if found is None:
            return self._without_bytes(response)
        meta = self._checked(response, found)
        length = self._end - self._begin if response.length is None else None
        with _talking():
            body = response.read(length)
        if len(body) != int(found[2]) + 1 - self._begin:
            raise _TryAgainError("the answer ended too early")
        return ObjectBytes(meta=meta, begin=self._begin, body=body)

    def _checked(self, response: HttpResponse, found: re.Match[str]) -> Meta:
        """Return what the head of an answer says of the file, if it is the range and the file."""
        begin, end = int(found[1]), int(found[2]) + 1
        coded = response.headers.get("content-encoding", "identity") != "identity"
        if begin != self._begin or not begin < end <= self._end or coded:
            raise self._other_bytes(response)
        if response.length not in (None, end - begin):
            raise self._other_bytes(response)
        meta = _meta(response.headers, found[3])
        self._check(meta)
        return meta

    def _without_bytes(self, response: HttpResponse) -> ObjectBytes:
        """Say what an answer without a range means. Raises unless the file ends before it."""
        status, reason = response.status, _reason_of(response)
        headers = response.headers
        _finish(response)
        if status in _AGAIN:
            raise _TryAgainError(reason, _retry_after(headers.get("retry-after")))
        if status == 416:
            meta = _meta(headers, headers.get("content-range", "").rpartition("/")[2])
            if meta.etag:
                self._check(meta)
            return ObjectBytes(meta=meta, begin=self._begin, body=b"")
        if status in (404, 410):
            raise answers.gone(self.url, reason=reason)
        if status in (401, 403, 407):
            raise self.denied(reason)
        if status in (200, 206):
            raise self._other_bytes(response)
        raise answers.unreachable(self.url, reason=reason, tries=1)

    def _other_bytes(self, response: HttpResponse) -> StorageError:
        return StorageError(
            "the web server does not support range requests",
            do="Copy the files to a server that does, or to local disk.",
            location=self.url,
            asked=f"bytes {self._begin}-{self._end - 1}",
            status=response.status,
            answered=response.headers.get("content-range"),
            encoding=response.headers.get("content-encoding"),
        )


@contextmanager
def _talking() -> Iterator[None]:
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
        raise _TryAgainError(str(error) or type(error).__name__, wait) from error


def _range_of(response: HttpResponse) -> re.Match[str] | None:
    """Return begin, end and size of the range that an answer has; None if it has none."""
    if response.status != 206:
        return None
    return _RANGE.fullmatch(response.headers.get("content-range", "").strip())


def _reason_of(response: HttpResponse) -> str:
    return f"{response.status} {response.reason}"


def _finish(response: HttpResponse) -> None:
    """Read a small unused body, so that its connection can be used again."""
    if response.length is not None and response.length <= _SMALL:
        with _talking():
            response.read()


def _meta(headers: Headers, size: str) -> Meta:
    return Meta(
        size=int(size) if _NUMBER.fullmatch(size) else None,
        etag=headers.get("etag", ""),
        last_modified=_seconds(headers.get("last-modified")),
    )


def _seconds(date: str | None) -> float | None:
    try:
        return None if date is None else parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError, TypeError, IndexError):
        return None


def _retry_after(text: str | None) -> float | None:
    return min(float(text), _LONGEST_WAIT) if text and _NUMBER.fullmatch(text) else None
