"""A proxy before a server, which waits before each answer, as a distant server does.

It counts requests and bytes, and how many answers came one after the other. It may also answer from
memory what it was asked before, for a server that is slow itself: then nothing may be written.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from servers.processes import free_port, running

READ, WRITTEN = "bytes read", "bytes written"  # of bodies
WAITS = "waits"  # as many answers came one after the other: none was asked for before the last
_OF_CONNECTION = ("connection", "transfer-encoding", "content-length")


@contextmanager
def before(server: int, latency: float, *, remembers: bool = False) -> Iterator[int]:
    """Run the proxy before the server at a port of this machine, and return its own port."""
    port = free_port()
    words = [str(port), str(server), str(latency), *(["remembers"] if remembers else [])]
    with running([sys.executable, __file__, *words], port=port):
        yield port


def tell(proxy: int, latency: float) -> None:
    """Let the proxy wait so many seconds before each answer."""
    _get(proxy, f"/late/{latency}")


def asked_of(proxy: int) -> Counter[str]:
    """Return the requests since the last call by kind, the bytes and the waits."""
    pairs = (line.rpartition(" ") for line in _get(proxy, "/asked").splitlines())
    return Counter({name: int(count) for name, _, count in pairs})


def requests_of(proxy: int) -> int:
    """Return the number of requests since the last call."""
    return sum(n for name, n in asked_of(proxy).items() if name not in (READ, WRITTEN, WAITS))


def trace_of(proxy: int) -> str:
    """Return a line for each request since the last count: its begin, its end, and its name."""
    return _get(proxy, "/trace")


def _get(proxy: int, path: str) -> str:
    connection = HTTPConnection("127.0.0.1", proxy, timeout=30)
    connection.request("GET", path)
    answer = connection.getresponse().read().decode()
    connection.close()
    return answer


type _Found = tuple[int, dict[str, str], bytes, str | None]


class Late(BaseHTTPRequestHandler):
    """Passes requests on, late, and counts them by method and folder."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server_port = 0
    latency = 0.0
    counts: ClassVar[Counter[str]] = Counter()
    spans: ClassVar[list[tuple[float, float]]] = []  # when a request came, and when its answer went
    names: ClassVar[list[str]] = []  # of the same requests
    known: ClassVar[dict[tuple[str, str, str | None], _Found] | None] = None  # answers, by request

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.path.startswith("/late/"):
            Late.latency = float(self.path.removeprefix("/late/"))
            self._answer(200, {}, b"")
            return
        if self.path == "/trace":
            first = min((begin for begin, _ in Late.spans), default=0.0)
            told = sorted(zip(Late.spans, Late.names, strict=True))
            lines = (f"  {b - first:.3f} {e - first:.3f} {name}" for (b, e), name in told)
            self._answer(200, {}, "\n".join(lines).encode())
            return
        if self.path == "/asked":
            Late.counts[WAITS] = one_after_the_other(Late.spans)
            body = "\n".join(f"{name} {count}" for name, count in Late.counts.items()).encode()
            Late.counts.clear()
            Late.spans.clear()
            Late.names.clear()
            self._answer(200, {}, body)
            return
        begin = time.monotonic()
        time.sleep(Late.latency)
        parts = self.path.partition("?")[0].split("/")
        Late.counts[f"{self.command}:{'/'.join(parts[2:-1]) or parts[-1] or 'list'}"] += 1
        key = self.command, self.path, self.headers.get("range")
        found = None if Late.known is None else Late.known.get(key)
        if found is None:
            found = self._ask(body)
            if Late.known is not None:
                Late.known[key] = found
        status, kept, raw, length = found
        Late.spans.append((begin, time.monotonic()))
        Late.names.append(f"{self.command} {status} {'/'.join(self.path.split('/')[2:])[:90]}")
        Late.counts[READ] += len(raw)
        Late.counts[WRITTEN] += len(body)
        self._answer(status, kept, raw, length if self.command == "HEAD" else None)

    def _ask(self, body: bytes) -> _Found:
        """Return status, headers and body of the server's answer, and the length that it says."""
        connection = HTTPConnection("127.0.0.1", Late.server_port, timeout=120)
        headers = {k: v for k, v in self.headers.items() if k.lower() != "connection"}
        connection.request(self.command, self.path, body, headers)
        found = connection.getresponse()
        raw = found.read()
        connection.close()
        kept = {k: v for k, v in found.getheaders() if k.lower() not in _OF_CONNECTION}
        return found.status, kept, raw, found.getheader("content-length")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self._pass
        raise AttributeError(name)

    def _answer(
        self, status: int, headers: dict[str, str], body: bytes, length: str | None = None
    ) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", length or str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def one_after_the_other(spans: list[tuple[float, float]]) -> int:
    """Return how many requests there are at most of which each came behind the answer before."""
    found, free = 0, 0.0
    for begin, end in sorted(spans, key=lambda each: each[1]):
        if begin >= free:
            found, free = found + 1, end
    return found


def serve(port: int, server: int, latency: float, *, remembers: bool) -> None:
    """Run the proxy until the process ends."""
    Late.server_port, Late.latency = server, latency
    Late.known = {} if remembers else None
    ThreadingHTTPServer.request_queue_size = 256
    ThreadingHTTPServer(("127.0.0.1", port), Late).serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), remembers=len(sys.argv) > 4)
