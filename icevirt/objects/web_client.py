"""Read ranges of files on web servers; redirects go only to hosts that the container lists.

It uses HTTP/1.1 of the standard library, because object-store clients follow redirects to any host
and send most headers along. Here each hop is checked before anything is sent: it stays below the
container's prefix, or goes to a listed host, without credentials, and never from the internet into
the network here.
"""

from __future__ import annotations

import http.client
import re
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urljoin, urlsplit

from icevirt.connect.credentials.common import Refreshable
from icevirt.connect.credentials.http import TOKENS, Token
from icevirt.connect.retry import SERVERS, Server, jitter
from icevirt.errors import IcevirtError, InvalidInputError, StorageError, UnauthorizedError
from icevirt.objects import answers
from icevirt.objects.answers import Check, Fields, Meta, ObjectBytes
from icevirt.objects.web_connections import (
    CONNECTIONS,
    HOSTS,
    Answer,
    Connection,
    HungUpError,
    LoopExchange,
    Origin,
)
from icevirt.threads import run_interruptibly

# what RFC 3986 lets stand in a path, beyond what is always left alone
SAFE = "/!$&'()*+,;=:@~"
_LONGEST_WAIT = 10.0  # seconds
_IN_LOOP = 256 * 1024  # bytes of a range, beyond which copying and decrypting outweigh a thread
_HOPS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_RENEWALS = 8  # of the token for one request; many threads may use one up meanwhile
_AMBIGUOUS = re.compile(r"[\\\x00-\x20\x7f]|%2e|%2f|%5c|/\.\.?(/|$)", re.IGNORECASE)
_SMALL = 64 * 1024  # bytes of a body that is read only to keep its connection


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long to try."""

    tries: int = 9
    total: float = 120.0  # seconds after which no other try begins
    timeout: float = 30.0  # seconds without a byte


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What was authorized: the files below one prefix of a web server; make it with `site_of`."""

    origin: Origin
    prefix: str  # percent-encoded as requests are
    redirect_hosts: frozenset[str]  # "host" or "host:port"
    headers: tuple[tuple[str, str], ...] = field(repr=False)  # for the prefix alone
    renewable: Refreshable | None  # more of them, likewise
    patience: RetryPolicy

    @property
    def host(self) -> str:
        """Whose limit of requests counts."""
        return str(self.origin)

    def get(self, key: str, begin: int, end: int, check: Check, query: str = "") -> ObjectBytes:
        """Return bytes ``begin`` to ``end`` of a file; ``key`` counts from the server's root.

        ``query`` as for `get_at`.

        Raises:
            ObjectNotFoundError: There is no such file.
            UnauthorizedError: It is redirected to where nothing was authorized.
            StorageError: The server refuses, or keeps failing; or ``check`` raises it.
        """
        return self.get_at(self._url_of(key), begin, end, check, query)

    def get_at(self, url: str, begin: int, end: int, check: Check, query: str = "") -> ObjectBytes:
        """Do what `get` does with a URL below the prefix.

        ``query`` follows it in requests. It may be a secret: it is neither shown nor sent
        anywhere else.
        """
        asked = _FileRequest(self, url, begin, end, check, query)
        return run_interruptibly(lambda: self._insist(asked), is_python=True)

    async def get_async(
        self, key: str, begin: int, end: int, check: Check, query: str = ""
    ) -> ObjectBytes:
        """Do what `get` does; the event loop itself receives small ranges, where it can."""
        asked = _FileRequest(self, self._url_of(key), begin, end, check, query)
        async with HOSTS.limit(self.host):
            exchange, server = None, self._server
            if self.renewable is None and end - begin <= _IN_LOOP and not server.is_down:
                kept = CONNECTIONS.take_regular(self.origin)
                exchange = None if kept is None else LoopExchange(kept, self.patience.timeout)
            if exchange is not None:
                with _noting(server, asked.url):
                    answer = await asked.in_loop(exchange)
                if answer is not None:
                    return answer
            return await HOSTS.wait(self.host, lambda: self._insist(asked, exchange))

    def _url_of(self, key: str) -> str:
        return f"{self.origin}/{quote(key, safe=SAFE)}"

    @property
    def _server(self) -> Server:
        return SERVERS.get(self.origin) or SERVERS.setdefault(self.origin, Server())

    def _insist(self, asked: _FileRequest, exchange: LoopExchange | None = None) -> ObjectBytes:
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
                if renewed > _RENEWALS or not asked.renew(refusal.status):
                    raise asked.denial(refusal.reason) from None
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
    is_public: bool = False,
) -> Site:
    """Return the site at a prefix; ``is_public``: of the public internet, and so are redirects.

    Raises ``InvalidInputError``: it is no URL of a web server.
    """
    try:
        origin = Origin.of(prefix, is_public=is_public)
        path = unquote(urlsplit(prefix).path, errors="strict")
    except ValueError as error:
        raise InvalidInputError("this is not the URL of a web server", url=prefix) from error
    if is_public and origin.scheme != "https":
        raise UnauthorizedError(
            "'public' authorizes servers that speak https only",
            do="If you trust the repository, name the prefix in the place of 'public'.",
            url=prefix,
        )
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


@dataclass(slots=True, eq=False)
class _FileRequest:
    """A request for a range of one file."""

    site: Site  # below whose prefix the file is
    url: str
    begin: int
    end: int
    check: Check
    query: str = field(default="", repr=False)  # as in `Site.get_at`
    token: Token | None = None

    @property
    def _at(self) -> str:
        return f"{self.url}{self.query}"

    def once(self, begun: LoopExchange | None = None) -> ObjectBytes:
        """Try once, following redirects; the first request may have been sent already."""
        at, origin, is_own, network = self._at, self.site.origin, True, ""
        renewable, timeout = self.site.renewable, self.site.patience.timeout
        self.token = None if renewable is None else TOKENS.of(renewable).current()
        for _ in range(_HOPS + 1):
            if begun is not None:
                connection = begun.connection
            else:
                with _TALKING:
                    connection = CONNECTIONS.take(origin, timeout)
            try:
                network = self._check_peer(connection, network)
                with _TALKING:
                    response = (
                        connection.ask(at, self._headers(is_own=is_own))
                        if begun is None
                        else begun.resume()
                    )
                begun = None
                if self.token is not None and is_own:
                    self.token.worked |= response.status < 400
                    if response.status in (401, 403):
                        _finish(response)
                        raise RefusedError(response.status, answers.reason_of(response))
                if response.status not in _REDIRECTS:
                    return self._answer(response)
                _finish(response)
                at, is_own = self._next(at, response.headers.get("location", ""))
                origin = Origin.of(at, is_public=origin.is_public)
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

    async def in_loop(self, exchange: LoopExchange) -> ObjectBytes | None:
        """Try once in the event loop; None says that `once` has to go on in a thread."""
        answer = None
        try:
            response = await exchange.ask(self._at, self._headers(is_own=True))
            fields = {} if response is None else response.fields
            found = None if response is None else answers.range_of(response, fields)
            if response is not None and found is not None and response.length is not None:
                meta = self._check(response, found, fields)
                body = await exchange.read(response.length)
                answer = ObjectBytes(meta=meta, begin=self.begin, body=body)
        except (OSError, http.client.HTTPException) as error:
            exchange.failure = error
        except BaseException:
            exchange.connection.close()
            raise
        if answer is not None:
            CONNECTIONS.give_back(exchange.connection)
        return answer

    def _headers(self, *, is_own: bool) -> dict[str, str]:
        given = dict(self.site.headers) if is_own else {}
        if is_own and self.token is not None:
            given |= self.token.headers
        wanted = f"bytes={self.begin}-{self.end - 1}"
        return given | {"range": wanted, "accept-encoding": "identity"}

    def renew(self, status: int) -> bool:
        """Get another token for the next try; say whether there is a point in it."""
        assert self.site.renewable is not None, "refusals concern tokens"
        assert self.token is not None, "refusals concern tokens"
        return TOKENS.of(self.site.renewable).renew(self.token, status)

    def denial(self, reason: str) -> StorageError:
        """Return the error of a server that refuses these credentials, or everyone."""
        given = any(name.lower() == "authorization" for name, _ in self.site.headers)
        known = given or self.token is not None or bool(self.query)
        return answers.denial(self.url, self.site.prefix, reason=reason, with_credentials=known)

    # -- where redirects lead ----------------------------------------------------------------------

    def _next(self, at: str, location: str) -> tuple[str, bool]:
        """Return where a redirect leads, and whether below the prefix; if that was authorized."""
        if not location.isascii() or not location.isprintable():
            raise answers.bad_redirect(self.url, location)
        try:
            to = urljoin(at, location).partition("#")[0]
            parts, origin = urlsplit(to), Origin.of(to)
            host = (parts.hostname or "").lower()
        except ValueError:  # whose text may repeat secrets
            raise answers.bad_redirect(self.url, location) from None
        inside = to.startswith(self.site.prefix) and not _AMBIGUOUS.search(parts.path)
        listed = not self.site.redirect_hosts.isdisjoint(origin.names)
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

    # -- what an answer says -----------------------------------------------------------------------

    def _answer(self, response: Answer) -> ObjectBytes:
        """Read an answer; what it says is checked before its body is fetched."""
        fields = response.fields
        found = answers.range_of(response, fields)
        if found is None:
            return self._without_bytes(response, fields)
        meta = self._check(response, found, fields)
        expected = int(found[2]) + 1 - self.begin
        with _TALKING:  # the end of chunks is looked for, too
            body = response.read(expected + 1 if response.chunked else expected)
        if len(body) < expected:
            raise TryAgainError("the answer ended too early")
        return answers.exact_bytes(self.url, meta, self.begin, self.begin + expected, body)

    def _check(self, response: Answer, found: re.Match[str], fields: Fields) -> Meta:
        """Return what the head of an answer says of the file, if it is the range and the file."""
        begin, end, size = int(found[1]), int(found[2]) + 1, found[3]
        last = self.end if size == "*" else min(self.end, int(size))
        if begin != self.begin or not begin < end == last or answers.is_encoded(fields):
            raise self._other_bytes(response)
        if response.length is None and not response.chunked:
            raise answers.unreadable(self.url, reason="it does not say how long it is")
        if response.length not in (None, end - begin):
            raise self._other_bytes(response)
        meta = answers.meta_of(fields, size)
        self.check(meta)
        return meta

    def _without_bytes(self, response: Answer, fields: Fields) -> ObjectBytes:
        """Say what an answer without a range means. Raises unless the file ends before it."""
        status, reason = response.status, answers.reason_of(response)
        _finish(response)
        if status in answers.AGAIN:
            raise TryAgainError(reason, answers.retry_after(fields.get("retry-after")))
        if status == 416:
            meta = answers.meta_of(fields, fields.get("content-range", "").rpartition("/")[2])
            if meta.etag:
                self.check(meta)
            return ObjectBytes(meta=meta, begin=self.begin, body=b"")
        if status in (404, 410):
            raise answers.not_found(self.url, reason=reason)
        if status in (401, 403, 407):
            raise self.denial(reason)
        if status in (200, 206):
            raise self._other_bytes(response)
        raise answers.unreachable(self.url, reason=reason, tries=1)

    def _other_bytes(self, response: Answer) -> StorageError:
        return StorageError(
            "the web server does not support range requests",
            do="Copy the files to a server that does, or to local disk.",
            location=self.url,
            asked=f"bytes {self.begin}-{self.end - 1}",
            status=response.status,
            answered=response.headers.get("content-range"),
            encoding=response.headers.get("content-encoding"),
        )


class _Talking:
    """Turns failures between client and server into another try."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _at: object) -> None:
        if error is None:
            return
        if isinstance(error, ssl.SSLCertVerificationError):
            raise StorageError(
                "the certificate of the server is not trusted",
                do="Add its certificate authority to the system, or set SSL_CERT_FILE.",
                reason=error.verify_message,
            ) from error
        if isinstance(error, OSError | http.client.HTTPException):
            wait = 0.0 if isinstance(error, HungUpError) else None
            raise TryAgainError(str(error) or type(error).__name__, wait) from error


_TALKING = _Talking()


def _finish(response: Answer) -> None:
    """Read a small unused body, so that its connection can be used again."""
    if response.length is not None and response.length <= _SMALL:
        with _TALKING:
            response.read()
