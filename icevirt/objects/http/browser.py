"""Ask a web server as a browser does for a page, and say what the page would miss.

The rules are those of the Fetch standard, and of icechunk's client for JavaScript: it takes no part
of a file but with status 206 and a visible ``Content-Range``, and follows no redirect.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import suppress
from email.utils import formatdate, parsedate_to_datetime
from urllib.parse import quote, urlsplit

from icevirt.archive.reports.web_access import WebProblem, WebProblemKind
from icevirt.deferred_dataclass import dataclass
from icevirt.errors import StaleReferenceError
from icevirt.objects.answers import UNCHECKED, Checksum, Meta, changed
from icevirt.objects.http.client import SAFE
from icevirt.objects.http.connections import Connection, Headers, Origin, kind_of

_TIMEOUT = 30.0  # seconds
_REDIRECTS = range(300, 400)
_PREFLIGHTED = ("Range", "If-Match", "If-None-Match")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """A part of a file or object that a page wants."""

    url: str
    begin: int = 0
    end: int  # byte after the last one
    checksum: Checksum = UNCHECKED  # that the reference has
    is_file: bool = True  # otherwise an object of a repository, of which less is compared
    is_optional: bool = False  # whether the client goes on where it is not there


def look_as_browser(request: PageRequest, origin: str) -> Iterator[WebProblem]:
    """Yield what a page at an origin (``https://host:port``) misses where it sends a request."""
    url = request.url
    if kind := _unreadable_scheme(url, origin):
        yield kind
    is_elsewhere = Origin.of(url) != Origin.of(origin)
    sent = {"range": f"bytes={request.begin}-{request.end - 1}", "accept-encoding": "identity"}
    try:
        answer = _ask("GET", url, sent | ({"origin": origin} if is_elsewhere else {}))
    except (OSError, http.client.HTTPException, ValueError) as error:
        yield _problem(
            WebProblemKind.unreachable,
            url,
            f"the server does not answer: {error}",
            "Check the address, and that the server runs.",
        )
        return
    if request.is_optional and answer.status == 404:
        if is_elsewhere and not answer.shares_with(origin):
            yield _unshared(url, answer, origin)
        return
    if answer.status not in (200, 206):
        yield _of_absence(url, answer) if request.is_optional else _of_status(request, answer)
        return
    yield from _of_range(request, answer)
    yield from _of_validators(request, answer)
    if is_elsewhere and not answer.shares_with(origin):
        yield _unshared(url, answer, origin)
    elif is_elsewhere:
        yield from _of_visibility(request, answer)
        yield from _of_preflights(url, origin)


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: Headers

    def listed(self, name: str) -> frozenset[str]:
        """Return the items of a header that is a list, in lower case."""
        items = ",".join(self.headers.get_all(name)).split(",")
        return frozenset(item.strip().lower() for item in items) - {""}

    def shares_with(self, origin: str) -> bool:
        return self.headers.get("access-control-allow-origin", "").strip() in ("*", origin)

    def exposes(self, name: str) -> bool:
        return not self.listed("access-control-expose-headers").isdisjoint({"*", name.lower()})


def _ask(method: str, url: str, headers: dict[str, str]) -> _Answer:
    parts = urlsplit(url)
    address = parts._replace(path=quote(parts.path, safe=f"{SAFE}%")).geturl()
    connection = Connection(Origin.of(url), _TIMEOUT)
    try:
        response = connection.ask(address, headers, method)
        return _Answer(response.status, response.headers)
    finally:
        connection.close()


def _problem(
    kind: WebProblemKind, url: str, what: str, do: str, *, stops: bool = True
) -> WebProblem:
    return WebProblem(kind=kind, url=url, what=what, do=do, stops=stops)


def _unreadable_scheme(url: str, origin: str) -> WebProblem | None:
    at = Origin.of(url)
    if at.scheme == "https" or kind_of(at.host) == "loopback" or not origin.startswith("https:"):
        return None
    return _problem(
        WebProblemKind.insecure,
        url,
        "the address begins with http, and browsers keep pages under https from reading it",
        "Serve it under https. Where the references say http, build again with"
        " --publish-as FROM=https://...",
    )


def _of_status(request: PageRequest, answer: _Answer) -> WebProblem:
    if answer.status not in _REDIRECTS:
        return _problem(
            WebProblemKind.unreachable,
            request.url,
            f"the server answers with status {answer.status}",
            "Let every browser read what is below this prefix: a page has no credentials.",
        )
    if request.is_file:
        return _problem(
            WebProblemKind.redirect,
            request.url,
            f"the server redirects (status {answer.status}), and the client in the page follows"
            " no redirect of a file",
            "Build with --publish-as FROM=TO, to the address that it leads to.",
        )
    return _problem(
        WebProblemKind.redirect,
        request.url,
        f"the server redirects (status {answer.status}); where to was not looked at",
        "Pass the address that it leads to as REPO.",
        stops=False,
    )


def _of_absence(url: str, answer: _Answer) -> WebProblem:
    return _problem(
        WebProblemKind.unreachable,
        url,
        f"the server answers with status {answer.status}; the client looks for this object, and"
        " only status 404 tells it that there is none",
        "Let the server answer 404 for what is not there. S3 does so for those who may list the"
        " bucket.",
    )


def _of_range(request: PageRequest, answer: _Answer) -> Iterator[WebProblem]:
    wanted = f"bytes {request.begin}-{request.end - 1}/"
    content_range = answer.headers.get("content-range", "")
    if answer.status == 206 and content_range.startswith(wanted):
        return
    found = (
        "status 200, the whole"
        if answer.status == 200
        else f"Content-Range: {content_range or 'none'}"
    )
    yield _problem(
        WebProblemKind.ranges,
        request.url,
        f"the server answers a request for a part of the file with {found}",
        "Use a server that answers ranges: status 206, with Content-Range.",
    )


def _of_validators(request: PageRequest, answer: _Answer) -> Iterator[WebProblem]:
    checksum = request.checksum
    etag, time = answer.headers.get("etag", ""), answer.headers.get("last-modified", "")
    seconds = None
    with suppress(ValueError):
        seconds = parsedate_to_datetime(time).timestamp() if time else None
    meta = Meta(size=None, etag=etag, last_modified=seconds)
    wrong = changed(request.url, checksum, meta)
    if wrong is None:
        return
    name = "ETag" if checksum.etag else "Last-Modified"
    if not isinstance(wrong, StaleReferenceError):
        yield _problem(
            WebProblemKind.validator,
            request.url,
            f"the server sends no {name} that can be compared, and the reference has one: the"
            " client refuses the file",
            f"Let the server send {name}, or build again from this server.",
        )
        return
    recorded = checksum.etag or formatdate(checksum.last_modified, usegmt=True)
    yield _problem(
        WebProblemKind.changed,
        request.url,
        f"{name} is {etag if checksum.etag else time}, and the reference has {recorded}: the"
        " client refuses the file as another one",
        "Build again from this server.",
    )


def _unshared(url: str, answer: _Answer, origin: str) -> WebProblem:
    found = answer.headers.get("access-control-allow-origin")
    return _problem(
        WebProblemKind.cors,
        url,
        f"Access-Control-Allow-Origin is {found or 'missing'} with status {answer.status}, and the"
        f" page is at {origin}",
        f"Let the server send Access-Control-Allow-Origin: * (or {origin}), with status 404 too.",
    )


def _of_visibility(request: PageRequest, answer: _Answer) -> Iterator[WebProblem]:
    needed = ["Content-Range"] * request.is_file + ["ETag"] * bool(request.checksum.etag)
    if hidden := [name for name in needed if not answer.exposes(name)]:
        yield _problem(
            WebProblemKind.exposed,
            request.url,
            f"the page may not see {' and '.join(hidden)}",
            "Let the server send Access-Control-Expose-Headers: Content-Range, ETag.",
        )


def _of_preflights(url: str, origin: str) -> Iterator[WebProblem]:
    """Ask what some browsers ask before ranges, and all of them before conditions."""
    refused = [each for each in _PREFLIGHTED if not _is_allowed(url, origin, each)]
    if refused:
        yield _problem(
            WebProblemKind.preflight,
            url,
            f"OPTIONS does not allow {', '.join(refused)}: browsers that ask about these headers,"
            " and clients that send them, read nothing",
            "Let the server answer OPTIONS with status 204, Access-Control-Allow-Origin, and"
            f" Access-Control-Allow-Headers: {', '.join(_PREFLIGHTED)}.",
            stops=False,
        )


def _is_allowed(url: str, origin: str, name: str) -> bool:
    asked = {
        "origin": origin,
        "access-control-request-method": "GET",
        "access-control-request-headers": name.lower(),
    }
    try:
        answer = _ask("OPTIONS", url, asked)
    except (OSError, http.client.HTTPException):
        return False
    allowed = answer.listed("access-control-allow-headers")
    good = 200 <= answer.status < 300 and answer.shares_with(origin)
    return good and not allowed.isdisjoint({"*", name.lower()})
