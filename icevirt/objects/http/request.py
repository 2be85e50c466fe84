"""Send a request for a file of a web server; follow redirects only where that was authorized.

Each hop is checked before anything is sent: it stays below the prefix, or goes to a listed host,
without credentials, and never from the internet into the network here.
"""

from __future__ import annotations

import http.client
import re
import ssl
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from http.client import HTTPResponse
from urllib.parse import urljoin, urlsplit

from icevirt.connect.credentials.common import Refreshable
from icevirt.connect.credentials.http import TOKENS, Token
from icevirt.deferred_dataclass import dataclass
from icevirt.errors import StorageError, UnauthorizedError
from icevirt.objects import answers
from icevirt.objects.answers import ObjectBytes
from icevirt.objects.http.connections import (
    CONNECTIONS,
    Connection,
    HungUpError,
    Origin,
)
from icevirt.objects.http.heads import reason_of
from icevirt.objects.http.loop_exchange import LoopExchange

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
