"""GET and HEAD of one object: ranges and conditions as RFC 9110 has them. And a server of files."""

import re
from dataclasses import dataclass, field
from email.utils import formatdate, parsedate_to_datetime

from servers.faults import Request, Response


def ranged(request: Request, body: bytes, headers: dict[str, str]) -> Response:
    """Answer for an object with these headers (``etag``, ``last-modified``)."""
    refused = _condition(request, headers)
    if refused is not None:
        return Response(status=refused, headers=headers)
    asked = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("range", ""))
    headers = {"accept-ranges": "bytes", **headers}
    if asked is None or asked.groups() == ("", ""):
        return _answer(request, 200, body, headers)
    first, last = _interval(*asked.groups(), len(body))
    if first >= len(body) or first > last:
        return Response(status=416, headers={"content-range": f"bytes */{len(body)}"})
    output = {"content-range": f"bytes {first}-{last}/{len(body)}"}
    return _answer(request, 206, body[first : last + 1], {**headers, **output})


def _answer(request: Request, status: int, body: bytes, headers: dict[str, str]) -> Response:
    return Response(status=status, headers={**headers, "content-length": str(len(body))}, body=body)


def _interval(first: str, last: str, size: int) -> tuple[int, int]:
    if not first:
        return max(0, size - int(last)), size - 1
    return int(first), min(int(last or size), size - 1)


def _condition(request: Request, headers: dict[str, str]) -> int | None:
    """Return 412 or 304 where the request's conditions say so."""
    etag, asked = headers.get("etag"), request.headers
    changed = parsedate_to_datetime(headers["last-modified"])
    if "if-match" in asked:
        kept = asked["if-match"] == "*" or etag in _tags(asked["if-match"])
    else:
        latest = asked.get("if-unmodified-since")
        kept = latest is None or changed <= parsedate_to_datetime(latest)
    if not kept:
        return 412
    if "if-none-match" in asked and etag in _tags(asked["if-none-match"]):
        return 304
    return None


def _tags(listed: str) -> list[str]:
    return [tag.strip() for tag in listed.split(",")]


@dataclass(slots=True)
class Files:
    """Read-only files at paths, behind a token where one is set."""

    objects: dict[str, bytes] = field(default_factory=dict)
    etags: dict[str, str] = field(default_factory=dict)
    modified: float = 1_600_000_000.0
    tokens: set[str] | None = None  # bearer tokens that are good now; None: no token is asked for
    shared: dict[str, str] = field(default_factory=dict)  # headers for pages of other servers

    def put(self, path: str, body: bytes, etag: str | None = None) -> None:
        """Lay down a file, or another one in its place."""
        self.objects[path] = body
        self.etags[path] = etag or f'"{hash((path, body)):x}"'

    def answer(self, request: Request) -> Response:
        """Handle a request."""
        path = request.path.removeprefix("/")
        if self.shared and request.method == "OPTIONS":
            return Response(status=204, headers=self.shared)
        if self.tokens is not None and not self._authorized(request):
            return Response(status=401, headers={"www-authenticate": "Bearer"})
        if request.method not in ("GET", "HEAD"):
            return Response(status=405)
        if path not in self.objects:
            return Response(status=404, headers=self.shared)
        headers = {
            "etag": self.etags[path],
            "last-modified": formatdate(self.modified, usegmt=True),
            "content-type": "application/octet-stream",
            **self.shared,
        }
        return ranged(request, self.objects[path], headers)

    def _authorized(self, request: Request) -> bool:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        return kind == "Bearer" and token in (self.tokens or ())
