"""A strict S3: what AWS refuses is refused, and nothing is stored of a request that is not whole.

It compares the length of a body, its Content-MD5, its x-amz-checksum-* (headers and trailers) and
the payload hash of its signature. PUT knows ``If-Match`` and ``If-None-Match: *`` and answers with
404, 409 and 412 as AWS does, completing an upload too. Parts but the last have 5 MiB. What it does
not know it answers with 501, so that a client that begins to use more is noticed.

A test can make it answer reads from the past (`S3.lag`): stores that speak S3 behind a cache do so.
"""

import base64
import hashlib
import re
import zlib
from dataclasses import replace
from urllib.parse import unquote
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

from servers.faults import Request, Response
from servers.gcs import Cloud, RefusedError, Stored, document
from servers.ranges import ranged

_LEAST_PART = 5 << 20
_UNSIGNED = "UNSIGNED-PAYLOAD"
_STREAMED = ("STREAMING-UNSIGNED-PAYLOAD-TRAILER",)


class S3(Cloud):
    """All buckets; every bucket that is named exists."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[str, str] = {}
        self._message = ""
        self._past: dict[str, list[Stored | None]] = {}  # what keys held before, newest last
        self._lags: dict[str, int] = {}  # key: how many reads are yet to be answered from the past
        self._listed: dict[str, Stored] | None = None  # what listings show; None: what is there
        self._later: dict[str, int] = {}  # the same, from the next write on

    # -- what a test can ask for ---------------------------------------------------------------

    def lag(self, end: str, reads: int) -> None:
        """Answer so many reads of each key that ends so with what it held before."""
        with self._lock:
            self._lags[end] = reads

    def lag_after_put(self, end: str, reads: int) -> None:
        """Do so from the next time on that such a key is written."""
        with self._lock:
            self._later[end] = reads

    def freeze_listings(self, frozen: bool = True) -> None:
        """List from now on what is there now, until told otherwise."""
        with self._lock:
            self._listed = dict(self._objects) if frozen else None

    def keep(self, target: str, code: str, message: str = "<Message>made up</Message>") -> None:
        """Refuse from now on to delete what a regular expression finds in bucket/key."""
        self._kept, self._message = {target: code}, message

    def _refusal_of(self, name: str) -> str:
        return next((code for target, code in self._kept.items() if re.search(target, name)), "")

    def move(self, before: str, after: str) -> None:
        """Name all objects anew."""
        with self._lock:
            moved = {name.replace(before, after, 1): each for name, each in self._objects.items()}
            self._objects = moved

    def bodies(self) -> dict[str, bytes]:
        """Return what is stored, by bucket/key."""
        with self._lock:
            return {name: stored.body for name, stored in self._objects.items()}

    @property
    def uploads(self) -> int:
        """How many uploads in parts were begun and neither completed nor aborted."""
        return len(self._uploads)

    # -- requests ------------------------------------------------------------------------------

    def _handled(self, request: Request, name: str) -> Response:
        # the name of the operation, which AWS's clients add
        target = re.sub(r"[?&]x-id=\w+$", "", request.target)
        request = replace(request, target=target, body=checked_body(request))
        # a signature may stand in the query
        asked = {each for each in request.query if not each.lower().startswith("x-amz-")}
        match request.method:
            case "GET" | "HEAD" if not asked and "/" in name:
                found = self._read(name)
                return ranged(request, found.body, found.headers())
            case "POST" if asked == {"delete"}:
                return self._delete(request, name)
            case "PUT" if "/" not in name.rstrip("/"):
                return Response(status=200)  # a bucket
            case "DELETE" if not asked:
                if code := self._refusal_of(name):
                    raise RefusedError(403, code)
                self._set(name, None)
                return Response(status=204)
        return super()._handled(request, name)

    def _check(self, request: Request, name: str) -> None:
        """Refuse unless the object is as the request supposes."""
        headers = request.headers
        unknown = {key for key in headers if key.startswith("if-")} - {"if-match", "if-none-match"}
        match, none_match = headers.get("if-match"), headers.get("if-none-match")
        if unknown or none_match not in (None, "*") or (match and none_match):
            raise RefusedError(501, "NotImplemented")
        found = self._objects.get(name)
        if none_match and found is not None:
            raise RefusedError(412, "PreconditionFailed")
        if match is not None:
            if found is None:
                raise RefusedError(404, "NoSuchKey")
            if match.strip('"') != found.etag.strip('"'):
                raise RefusedError(412, "PreconditionFailed")

    def _put(self, request: Request, name: str) -> Response:
        if (source := request.headers.get("x-amz-copy-source")) is None:
            return super()._put(request, name)
        self._check(request, name)
        found = self._found(unquote(source).removeprefix("/"))
        supposed = request.headers.get("x-amz-copy-source-if-match", found.etag)
        if supposed.strip('"') != found.etag.strip('"'):
            raise RefusedError(412, "PreconditionFailed")
        self._write(name, found.body, {})
        return document("CopyObjectResult", f"<ETag>{escape(found.etag)}</ETag>")

    def _complete(self, request: Request, name: str) -> Response:
        _, _, parts = self._upload(request)
        numbers = [int(each.text or 0) for each in ET.fromstring(request.body).iter() if _is(each)]
        if any(len(parts.get(number, b"")) < _LEAST_PART for number in numbers[:-1]):
            raise RefusedError(400, "EntityTooSmall")
        if any(not 1 <= number <= 10_000 for number in numbers):
            raise RefusedError(400, "InvalidArgument")
        return super()._complete(request, name)

    def _delete(self, request: Request, bucket: str) -> Response:
        if not any(name.startswith(("content-md5", "x-amz-checksum-")) for name in request.headers):
            raise RefusedError(400, "InvalidRequest")
        keys = [each.text or "" for each in ET.fromstring(request.body).iter() if _is(each, "Key")]
        if len(keys) > 1000:
            raise RefusedError(400, "MalformedXML")
        rows = ""
        for key in keys:
            name = f"{bucket.rstrip('/')}/{key}"
            if code := self._refusal_of(name):
                rows += f"<Error><Key>{escape(key)}</Key><Code>{code}</Code>{self._message}</Error>"
            else:
                self._set(name, None)
                rows += f"<Deleted><Key>{escape(key)}</Key></Deleted>"
        return document("DeleteResult", rows)

    def _list(self, bucket: str, query: dict[str, str]) -> Response:
        if self._listed is None:
            return super()._list(bucket, query)
        now, self._objects = self._objects, self._listed
        try:
            return super()._list(bucket, query)
        finally:
            self._objects = now

    # -- objects and their past ----------------------------------------------------------------

    def _read(self, name: str) -> Stored:
        for end, left in self._lags.items():
            past = self._past.get(name)
            if name.endswith(end) and left and past:
                self._lags[end] -= 1
                if past[-1] is None:
                    raise RefusedError(404, "NoSuchKey")
                return past[-1]
        return self._found(name)

    def _set(self, name: str, stored: Stored | None) -> None:
        self._past.setdefault(name, []).append(self._objects.get(name))
        for end in [end for end in self._later if name.endswith(end)]:
            self._lags[end] = self._later.pop(end)
        super()._set(name, stored)


def checked_body(request: Request) -> bytes:
    """Return the payload of a request, all of whose digests are right.

    Raises:
        RefusedError: One is not, or its length.
    """
    headers, body, trailer = request.headers, request.body, {}
    output = headers.get("x-amz-content-sha256", _UNSIGNED)
    if output in _STREAMED:
        body, trailer = _unframed(body)
        if len(body) != int(headers["x-amz-decoded-content-length"]):
            raise RefusedError(400, "IncompleteBody")
    elif output.startswith("STREAMING-"):
        raise RefusedError(501, "NotImplemented")
    elif output != _UNSIGNED and output != hashlib.sha256(body).hexdigest():
        raise RefusedError(400, "XAmzContentSHA256Mismatch")
    copies = "x-amz-copy-source" in headers
    if request.method == "PUT" and not copies and "content-length" not in headers:
        raise RefusedError(411, "MissingContentLength")
    if (md5 := headers.get("content-md5")) and md5 != _in_base64(hashlib.md5(body).digest()):
        raise RefusedError(400, "BadDigest")
    for name, value in {**headers, **trailer}.items():
        kind = name.removeprefix("x-amz-checksum-")
        if kind == name or kind in ("algorithm", "mode", "type"):
            continue
        if kind not in _CHECKSUMS:
            raise RefusedError(501, "NotImplemented")
        if value != _in_base64(checksum(kind, body)):
            raise RefusedError(400, "BadDigest")
    return body


def checksum(kind: str, body: bytes) -> bytes:
    """Return a checksum by the name that AWS has for it."""
    return _CHECKSUMS[kind](body)


def _unframed(body: bytes) -> tuple[bytes, dict[str, str]]:
    """Take an aws-chunked body apart: payload and trailing headers."""
    payload, at = [], 0
    while True:
        end = body.find(b"\r\n", at)
        if end < 0:
            raise RefusedError(400, "IncompleteBody")
        size = int(body[at:end].split(b";")[0], 16)
        if not size:
            break
        payload.append(body[end + 2 : end + 2 + size])
        if len(payload[-1]) < size:
            raise RefusedError(400, "IncompleteBody")
        at = end + 2 + size + 2
    lines = body[end + 2 :].decode().split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    return b"".join(payload), {name.strip().lower(): value.strip() for name, _, value in pairs}


def _in_base64(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


def _reflected(polynomial: int, width: int):
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (polynomial if value & 1 else 0)
        table.append(value)

    def digest(body: bytes) -> bytes:
        state = ones = (1 << width) - 1
        for byte in body:
            state = state >> 8 ^ table[(state ^ byte) & 255]
        return (state ^ ones).to_bytes(width // 8)

    return digest


_CHECKSUMS = {
    "crc32": lambda body: zlib.crc32(body).to_bytes(4),
    "crc32c": _reflected(0x82F63B78, 32),
    "crc64nvme": _reflected(0x9A6C9329AC4BC9B5, 64),
    "sha1": lambda body: hashlib.sha1(body).digest(),
    "sha256": lambda body: hashlib.sha256(body).digest(),
}


def _is(element: ET.Element, name: str = "PartNumber") -> bool:
    return element.tag.rpartition("}")[2] == name
