"""A strict Google Cloud Storage: the XML API as object stores use it, in memory, for one process.

Generations grow with every write of any object. ``x-goog-if-generation-match`` is checked and the
write done under one lock. What it does not know it answers with 501, so that a client that begins
to use more is noticed. As a program it serves until it is killed:

    python gcs.py <port> <seconds that its clock is ahead>
"""

import hashlib
import itertools
import sys
import threading
import time
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from urllib.parse import quote, unquote
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from servers.faults import Request, Response, Rules
from servers.ranges import ranged
from servers.serving import server

_PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """An object."""

    body: bytes
    generation: int
    at: float
    metadata: dict[str, str]

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.body).hexdigest()}"'

    def headers(self) -> dict[str, str]:
        return {
            "etag": self.etag,
            "x-goog-generation": str(self.generation),
            "last-modified": formatdate(self.at, usegmt=True),
            **self.metadata,
        }


class RefusedError(Exception):
    """What the server answers when it does not do what is asked for."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>".encode()
        self.response = Response(
            status=status, headers={"content-type": "application/xml"}, body=body
        )


class Cloud:
    """All buckets; every bucket that is named exists."""

    def __init__(self, ahead: float = 0.0) -> None:
        self._ahead = ahead
        self._lock = threading.Lock()
        self._generations = itertools.count(time.time_ns() // 1000)
        self._uploads: dict[str, tuple[str, dict[str, str], dict[int, bytes]]] = {}
        self._objects: dict[str, Stored] = {}  # by bucket/key

    def answer(self, request: Request) -> Response:
        """Handle a request."""
        name = request.path.removeprefix("/")
        try:
            with self._lock:
                answered = self._handled(request, name)
        except RefusedError as refused:
            answered = refused.response
        date = {"date": formatdate(self._now(), usegmt=True)}
        return Response(
            status=answered.status, headers={**date, **answered.headers}, body=answered.body
        )

    def _handled(self, request: Request, name: str) -> Response:
        asked = set(request.query)
        match request.method:
            case "GET" if "/" not in name.rstrip("/") and request.query.get("list-type") == "2":
                return self._list(name.rstrip("/"), request.query)
            case "GET" | "HEAD" if not asked:
                return ranged(request, self._found(name).body, self._found(name).headers())
            case "PUT" if asked == {"partNumber", "uploadId"}:
                return self._put_part(request)
            case "PUT" if not asked:
                return self._put(request, name)
            case "DELETE" if asked == {"uploadId"}:
                self._upload(request)
                del self._uploads[request.query["uploadId"]]
                return Response(status=204)
            case "DELETE" if not asked:
                self._check(request, name)
                self._found(name)
                self._set(name, None)
                return Response(status=204)
            case "POST" if asked == {"uploads"}:
                return self._begin(request, name)
            case "POST" if asked == {"uploadId"}:
                return self._complete(request, name)
        raise RefusedError(501, "NotImplemented")

    # -- objects -----------------------------------------------------------------------------

    def _found(self, name: str) -> Stored:
        found = self._objects.get(name)
        if found is None:
            raise RefusedError(404, "NoSuchKey")
        return found

    def _check(self, request: Request, name: str) -> None:
        """Refuse unless the object is as the request supposes."""
        unknown = {
            key
            for key in request.headers
            if key.startswith(("x-goog-if-", "if-")) and key != "x-goog-if-generation-match"
        }
        if unknown:
            raise RefusedError(501, "NotImplemented")
        supposed = request.headers.get("x-goog-if-generation-match")
        found = self._objects.get(name)
        if supposed is not None and int(supposed) != (found.generation if found else 0):
            raise RefusedError(412, "PreconditionFailed")

    def _put(self, request: Request, name: str) -> Response:
        self._check(request, name)
        body = request.body
        if (source := request.headers.get("x-goog-copy-source")) is not None:
            body = self._found(unquote(source).removeprefix("/")).body
        return self._write(name, body, _metadata(request))

    def _write(self, name: str, body: bytes, metadata: dict[str, str]) -> Response:
        made = Stored(
            body=body, generation=next(self._generations), at=self._now(), metadata=metadata
        )
        self._set(name, made)
        said = made.headers()
        return Response(
            status=200, headers={key: said[key] for key in ("etag", "x-goog-generation")}
        )

    def _set(self, name: str, stored: Stored | None) -> None:
        """Replace an object, or remove it."""
        if stored is None:
            self._objects.pop(name, None)
        else:
            self._objects[name] = stored

    def _now(self) -> float:
        return time.time() + self._ahead

    # -- uploads in parts --------------------------------------------------------------------

    def _begin(self, request: Request, name: str) -> Response:
        key = f"upload-{next(self._generations)}"
        self._uploads[key] = (name, _metadata(request), {})
        return document("InitiateMultipartUploadResult", f"<UploadId>{key}</UploadId>")

    def _upload(self, request: Request) -> tuple[str, dict[str, str], dict[int, bytes]]:
        if request.query["uploadId"] not in self._uploads:
            raise RefusedError(404, "NoSuchUpload")
        return self._uploads[request.query["uploadId"]]

    def _put_part(self, request: Request) -> Response:
        self._upload(request)[2][int(request.query["partNumber"])] = request.body
        return Response(status=200, headers={"etag": _part_etag(request.body)})

    def _complete(self, request: Request, name: str) -> Response:
        begun, metadata, parts = self._upload(request)
        self._check(request, name)
        numbers = []
        for part in ET.fromstring(request.body):
            output = {element.tag.rpartition("}")[2]: element.text or "" for element in part}
            number = int(output["PartNumber"])
            if number not in parts or output["ETag"].strip('"') != _part_etag(parts[number])[1:-1]:
                raise RefusedError(400, "InvalidPart")
            numbers.append(number)
        if begun != name or not numbers or numbers != sorted(set(numbers)):
            raise RefusedError(400, "InvalidPartOrder")
        del self._uploads[request.query["uploadId"]]
        said = self._write(name, b"".join(parts[number] for number in numbers), metadata).headers
        done = document("CompleteMultipartUploadResult", f"<ETag>{escape(said['etag'])}</ETag>")
        return Response(status=200, headers={**done.headers, **said}, body=done.body)

    # -- listing -----------------------------------------------------------------------------

    def _list(self, bucket: str, query: dict[str, str]) -> Response:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = max(query.get("continuation-token", ""), query.get("start-after", ""))
        folders: set[str] = set()
        rows: list[str] = []
        last = ""
        for name in sorted(self._objects):
            key = name.removeprefix(bucket + "/")
            if key == name or not key.startswith(prefix) or key <= after:
                continue
            if len(rows) + len(folders) == int(query.get("max-keys", _PAGE)):
                rows.append(f"<NextContinuationToken>{escape(last)}</NextContinuationToken>")
                break
            last = key
            folder, found, _ = (
                key[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
            )
            if found:
                last = prefix + folder + delimiter + "\U0010ffff"
                folders.add(prefix + folder + delimiter)
                after = last
            else:
                rows.append(_row(key, self._objects[name]))
        rows += [f"<CommonPrefixes><Prefix>{escape(f)}</Prefix></CommonPrefixes>" for f in folders]
        return document("ListBucketResult", "".join(rows))


def _row(key: str, found: Stored) -> str:
    whole, part = divmod(int(found.at * 1000), 1000)
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{part:03d}Z"
    return (
        f"<Contents><Key>{escape(key)}</Key><LastModified>{at}</LastModified>"
        f"<ETag>{escape(found.etag)}</ETag><Size>{len(found.body)}</Size>"
        f"<Generation>{found.generation}</Generation></Contents>"
    )


def _part_etag(body: bytes) -> str:
    return f'"{hashlib.md5(body).hexdigest()}"'


def _metadata(request: Request) -> dict[str, str]:
    return {
        key: quote(value, safe=" /:;,.=-_()")
        for key, value in request.headers.items()
        if key.startswith(("x-goog-meta-", "x-amz-meta-"))
        or key in ("content-type", "cache-control")
    }


def document(root: str, inner: str) -> Response:
    body = f"<?xml version='1.0' encoding='UTF-8'?><{root}>{inner}</{root}>".encode()
    return Response(status=200, headers={"content-type": "application/xml"}, body=body)


def main() -> None:
    """Serve."""
    port, ahead = sys.argv[1:]
    server(Cloud(float(ahead)).answer, Rules(log=False), port=int(port)).serve_forever()


if __name__ == "__main__":
    main()
