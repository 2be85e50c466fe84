"""Listeners that keep every byte they get, to see who is told a secret. Plain, or over TLS.

The certificate is for loopback, of an authority that tests trust by ``SSL_CERT_FILE``. Both are
made anew by each process that wants them.
"""

import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import trustme

_MOST = 1 << 16


@cache
def _authority() -> trustme.CA:
    return trustme.CA()


def write_authority(path: Path) -> str:
    """Write the certificate of the authority to a file, for ``SSL_CERT_FILE``; return its name."""
    _authority().cert_pem.write_to_path(path)
    return str(path)


class Serving:
    """Accepts connections on loopback, and talks on each in a thread of its own."""

    def __init__(self, *, tls: bool) -> None:
        self.accepted = 0  # connections
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self._socket.getsockname()[1]
        self.host = f"127.0.0.1:{self.port}"
        self.url = f"{'https' if tls else 'http'}://{self.host}"

    def serve(self) -> None:
        """Answer until the socket is closed."""
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.accepted += 1
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def close(self) -> None:
        """Stop."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _talk(self, connection: socket.socket) -> None:
        raise NotImplementedError


class Listener(Serving):
    """A server of one body, at every path; with ``redirect``, of nothing but that.

    Args:
        tls: Whether it speaks TLS.
        body: What it serves; None: it refuses everything, as a proxy that lets nobody through.
    """

    def __init__(self, *, tls: bool = False, body: bytes | None = b"") -> None:
        self.redirect = ""
        self._body = body
        self._got = bytearray()
        self._lock = threading.Lock()
        self._context: ssl.SSLContext | None = None
        if tls:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            _authority().issue_cert("127.0.0.1").configure_cert(self._context)
        super().__init__(tls=tls)

    @property
    def received(self) -> bytes:
        """All bytes so far, those of the handshake before what TLS protects."""
        with self._lock:
            return bytes(self._got)

    def forget(self) -> None:
        """Forget what was received."""
        with self._lock:
            self._got.clear()

    def _talk(self, connection: socket.socket) -> None:
        connection.settimeout(10)
        with connection, suppress(OSError):
            if self._context is not None:
                self._keep(connection.recv(_MOST, socket.MSG_PEEK))
                connection = self._context.wrap_socket(connection, server_side=True)
            asked = b""
            while b"\r\n\r\n" not in asked and (more := connection.recv(_MOST)):
                self._keep(more)
                asked += more
            connection.sendall(self._answer(asked))
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _keep(self, more: bytes) -> None:
        with self._lock:
            self._got += more

    def _answer(self, asked: bytes) -> bytes:
        if self._body is None:
            return _response("403 Forbidden", "", b"")
        if self.redirect:
            return _response("307 Temporary Redirect", f"Location: {self.redirect}\r\n", b"")
        found = re.search(rb"\r\nrange: *bytes=(\d+)-(\d+)", asked, re.IGNORECASE)
        first, last = (int(found[1]), int(found[2])) if found else (0, len(self._body) - 1)
        part = self._body[first : last + 1]
        headers = (
            f"Content-Range: bytes {first}-{first + len(part) - 1}/{len(self._body)}\r\n"
            'ETag: "e"\r\nLast-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n'
        )
        return _response("206 Partial Content", headers, part)


def _response(status: str, headers: str, body: bytes) -> bytes:
    length = f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return f"HTTP/1.1 {status}\r\n{headers}{length}".encode() + body


@contextmanager
def served[T: Serving](made: T) -> Iterator[T]:
    """Let a server answer in a thread of this process."""
    thread = threading.Thread(target=made.serve, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.close()
        thread.join()


@contextmanager
def listening(*, tls: bool = False, body: bytes | None = b"") -> Iterator[Listener]:
    """Run a listener in a thread of this process."""
    with served(Listener(tls=tls, body=body)) as made:
        yield made
