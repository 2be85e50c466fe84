"""What goes wrong between a client and a server: a table of rules that a test sets.

A rule names requests and what befalls them. The first rule that fits a request decides about it;
rules count the requests that they fit, so that "the second put of `repo`" can be said.
"""

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl, unquote, urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a client asked; header names are lower-case."""

    method: str
    target: str  # path and query as they were sent
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def path(self) -> str:
        return unquote(urlsplit(self.target).path)

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What a server answered; header names are lower-case."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What befalls a request."""

    delay: float = 0.0  # seconds, before it is handled
    torn: int | None = None  # the connection breaks after so many bytes of the request's body
    applied: bool = True  # the server handles it, though the client may not hear of it
    dropped: bool = False  # the connection ends without an answer
    cut: int | None = None  # it ends after so many bytes of the answer's body
    answer: Response | None = None  # this instead of the server's answer
    change: Callable[[Response], Response] | None = None  # the server's answer, changed


def refused(status: int, code: str = "InternalError", **headers: str) -> Fault:
    """Answer with an error and do nothing; ``retry_after="1"`` gives the header."""
    return Fault(applied=False, answer=_error(status, code, headers))


def applied_but_refused(status: int, code: str = "InternalError") -> Fault:
    """Do it, and say that it failed."""
    return Fault(answer=_error(status, code, {}))


def conflicting() -> Fault:
    """Answer as S3 does when two conditional writes of a key overlap; nothing was done."""
    return refused(409, "ConditionalRequestConflict")


DROPPED = Fault(applied=False, dropped=True)
"""The connection breaks before the server knows."""

ANSWER_LOST = Fault(dropped=True)
"""The server does it, and the connection breaks before it can say so."""


def torn(length: int) -> Fault:
    """Hang up after so many bytes of the request's body; the server stores nothing."""
    return Fault(applied=False, dropped=True, torn=length)


def slow(seconds: float) -> Fault:
    """Take time."""
    return Fault(delay=seconds)


def truncated(length: int) -> Fault:
    """Promise the whole body, send so many bytes of it and hang up."""
    return Fault(cut=length)


def redirected(url: str, status: int = 307) -> Fault:
    """Send the client elsewhere."""
    return Fault(applied=False, answer=Response(status=status, headers={"location": url}))


def without(*names: str) -> Fault:
    """Leave headers out of the answer."""
    kept = lambda r: {k: v for k, v in r.headers.items() if k not in names}  # noqa: E731
    return Fault(change=lambda r: replace(r, headers=kept(r)))


def weak_etag() -> Fault:
    """Make the answer's etag a weak one."""
    return Fault(
        change=lambda r: replace(r, headers={**r.headers, "etag": "W/" + r.headers["etag"]})
    )


def _error(status: int, code: str, headers: dict[str, str]) -> Response:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>made up</Message></Error>"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(
        status=status, headers={"content-type": "application/xml", **named}, body=body.encode()
    )


@dataclass(slots=True, kw_only=True)
class Rule:
    """Which requests a fault befalls."""

    fault: Fault
    method: str = ""  # any
    target: str = ""  # a regular expression, searched in path and query
    nth: int = 1  # of those that fit, the first that it befalls
    times: float = 1  # how many it befalls from there on
    seen: int = 0

    def fits(self, request: Request) -> bool:
        return self.method in ("", request.method) and bool(re.search(self.target, request.target))

    def hits(self, request: Request) -> bool:
        """Count a request; say whether the fault befalls it."""
        if not self.fits(request):
            return False
        self.seen += 1
        return self.nth <= self.seen < self.nth + self.times


class Rules:
    """The rules in force and the requests so far. Safe in threads."""

    def __init__(self, *, log: bool = True) -> None:
        self._lock = threading.Lock()
        self._log = log
        self._rules: list[Rule] = []
        self.requests: list[Request] = []
        self.hits = 0

    def add(
        self,
        fault: Fault,
        *,
        method: str = "",
        target: str = "",
        nth: int = 1,
        times: float = 1,
    ) -> Rule:
        """Let a fault befall requests from now on; see `Rule`."""
        rule = Rule(fault=fault, method=method, target=target, nth=nth, times=times)
        with self._lock:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """Forget rules and requests."""
        with self._lock:
            self._rules.clear()
            self.requests.clear()
            self.hits = 0

    def note(self, request: Request) -> None:
        """Remember a request."""
        if self._log:
            with self._lock:
                self.requests.append(request)

    def fault_of(self, request: Request) -> Fault | None:
        """Return what befalls a request, whose body may not have come yet."""
        with self._lock:
            hit = [rule for rule in self._rules if rule.hits(request)]
            self.hits += bool(hit)
        return hit[0].fault if hit else None
