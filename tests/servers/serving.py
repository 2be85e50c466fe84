"""A small HTTP/1.1 server around a function from request to response, with faults between."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from servers.faults import Fault, Request, Response, Rules

type Answer = Callable[[Request], Response]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, answer: Answer, rules: Rules, host: str, port: int) -> None:
        super().__init__((host, port), _Handler)
        self.answer, self.rules = answer, rules
        self.connections: set[socket.socket] = set()

    def handle_error(self, request, client_address) -> None:
        """Say nothing: clients hang up, and some faults hang up on them."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        with suppress(OSError):
            super().finish()

    def handle_any(self) -> None:
        head = self.head()
        fault = self.server.rules.fault_of(head) or Fault()
        request = replace(head, body=self.body(head, fault.torn))
        self.server.rules.note(request)
        if fault.torn is not None or len(request.body) < self.announced(head):
            self.hang_up()  # whoever sends half a body gets nothing stored, and no answer
            return
        time.sleep(fault.delay)
        response = self.server.answer(request) if fault.applied else None
        if fault.dropped:
            self.hang_up()
            return
        if response is not None and fault.change is not None:
            response = fault.change(response)
        self.send(fault.answer or response or Response(status=500), fault.cut)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_OPTIONS = handle_any

    def head(self) -> Request:
        headers = {name.lower(): value for name, value in self.headers.items()}
        return Request(method=self.command, target=self.path, headers=headers)

    def announced(self, head: Request) -> int:
        return int(head.headers.get("content-length", 0))

    def body(self, head: Request, most: int | None) -> bytes:
        if head.headers.get("transfer-encoding") == "chunked":
            return b"".join(iter(self.chunk, b""))
        length = self.announced(head)
        return self.rfile.read(length if most is None else min(most, length))

    def chunk(self) -> bytes:
        size = int(self.rfile.readline().split(b";")[0], 16)
        body = self.rfile.read(size)
        self.rfile.readline()
        return body

    def send(self, response: Response, cut: int | None) -> None:
        self.send_response_only(response.status)
        headers = {"date": self.date_time_string(), **response.headers}
        if response.status not in (204, 304) and "transfer-encoding" not in headers:
            headers.setdefault("content-length", str(len(response.body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body[:cut])
        self.wfile.flush()
        if cut is not None:
            self.hang_up()

    def hang_up(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *args) -> None:
        """Keep quiet; the rules have the requests."""


def server(answer: Answer, rules: Rules, *, host: str = "127.0.0.1", port: int = 0) -> _Server:
    """Return a server on a port of loopback, a free one unless given, not yet serving.

    Another ``host`` is for networks of their own.
    """
    return _Server(answer, rules, host, port)


@contextmanager
def served(answer: Answer, rules: Rules) -> Iterator[str]:
    """Serve in a thread of this process and give the URL; in the end hang up on everybody."""
    made = server(answer, rules)
    thread = threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{made.server_address[1]}"
    finally:
        made.shutdown()
        made.server_close()
        for connection in list(made.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        thread.join()
