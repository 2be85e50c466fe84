"""Requests to web servers name what the URL says, byte for byte: servers sign and route by it."""

import socket
import threading

import pytest

from icevirt.objects.web_client import site_of
from icevirt.objects.web_connections import Connection, Origin

ANSWER = (
    b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-0/1\r\nContent-Length: 1\r\n"
    b"Connection: close\r\n\r\nx"
)


@pytest.fixture
def listener():
    """A server that keeps the first line of each request as it came."""
    lines: list[bytes] = []
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                connection, _ = server.accept()
            except OSError:  # closed
                return
            with connection:
                raw = b""
                while b"\r\n\r\n" not in raw and (part := connection.recv(65536)):
                    raw += part
                lines.append(raw.partition(b"\r\n")[0])
                connection.sendall(ANSWER)

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}", lines
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


TARGETS = {
    "a lower-case escape": "/a%2fb",
    "an upper-case escape": "/a%2Fb",
    "an escape of a letter": "/%41bc",
    "an escape of a dot": "/a%2e%2e/b",
    "empty segments": "//double//slash",
    "two dots": "/a/../b",
    "one dot": "/a/./b",
    "brackets": "/a[1]|b",
    "no escape": "/100%",
    "half an escape": "/a%zz",
    "escaped text": "/caf%c3%a9",
    "a signature": "/a?sig=a%2fb%3d&x=%7e&y=[1]",
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
def test_a_target_is_sent_as_it_is(listener, target):
    url, lines = listener
    connection = Connection(Origin.of(url), timeout=10)
    connection.ask(f"{url}{target}", {}).read()
    connection.close()
    assert lines == [f"GET {target} HTTP/1.1".encode()]


KEYS = {
    "text": ("data/café.nc", b"/data/caf%C3%A9.nc"),
    "an escape is a name": ("data/a%2fb.nc", b"/data/a%252fb.nc"),
    "a question mark and a hash": ("data/a?b#c", b"/data/a%3Fb%23c"),
    "what a path may hold": ("data/a b;c=1,d", b"/data/a%20b;c=1,d"),
}


@pytest.mark.parametrize(("key", "sent"), KEYS.values(), ids=KEYS.keys())
def test_a_key_is_escaped_once(listener, key, sent):
    url, lines = listener
    answer = site_of(f"{url}/data/").get(key, 0, 1, lambda _meta: None)
    assert bytes(answer.body) == b"x"
    assert lines == [b"GET " + sent + b" HTTP/1.1"]
