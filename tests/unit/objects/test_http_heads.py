"""Heads of answers are read as the standard library reads them."""

import http.client
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.objects.http.connections import HttpResponse

NAMES = ("Content-Range", "etag", "ETag", "X-A", "content-encoding", "Location")
VALUES = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=8)
LENGTHS = st.sampled_from(["", "Content-Length: 4\r\n", "content-length: -1\r\n"])
ENDS = st.sampled_from(["", "Connection: close\r\n", "Connection: keep-alive\r\n"])
CODINGS = st.sampled_from(["", "", "Transfer-Encoding: chunked\r\n"])
FIRST = st.sampled_from(
    [
        "HTTP/1.1 206 Partial Content",
        "HTTP/1.0 200 OK",
        "HTTP/1.1 204 ",
        "HTTP/1.1 304",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK",
        "HTTP/1.1 503  busy  ",
    ]
)


class Socket:
    """Gives the bytes of an answer."""

    def __init__(self, raw):
        self.raw = raw

    def makefile(self, _mode):
        return io.BufferedReader(io.BytesIO(self.raw))


def begun(kind, raw, method="GET"):
    answer = kind(Socket(raw), method=method)
    answer.begin()
    return answer


def facts(answer):
    values = {name: answer.headers.get(name) for name in NAMES}
    return values, answer.status, answer.reason, answer.version, answer.length, answer.will_close


@given(
    first=FIRST,
    headers=st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=6),
    length=LENGTHS,
    end=ENDS,
    coding=CODINGS,
    method=st.sampled_from(["GET", "HEAD"]),
)
def test_a_head_is_read_as_the_standard_library_reads_it(
    first, headers, length, end, coding, method
):
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    raw = f"{first}\r\n{lines}{length}{end}{coding}\r\n".encode() + b"4\r\nbody\r\n0\r\n\r\n"
    ours, theirs = (begun(kind, raw, method) for kind in (HttpResponse, http.client.HTTPResponse))
    assert facts(ours) == facts(theirs)
    assert ours.read() == theirs.read()
    for name in NAMES:
        assert ours.headers.get_all(name) == theirs.headers.get_all(name, [])


def test_a_value_may_go_on_in_the_next_line():
    raw = b"HTTP/1.1 200 OK\r\nX-A: one,\r\n\t two\r\nContent-Length: 0\r\n\r\n"
    assert begun(HttpResponse, raw).headers.get("x-a") == "one, two"


@pytest.mark.parametrize(
    "raw",
    {
        "no answer": b"",
        "another protocol": b"ICY 200 OK\r\n\r\n",
        "a version to come": b"HTTP/2 200 OK\r\n\r\n",
        "no status": b"HTTP/1.1 OK\r\n\r\n",
        "a long line": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
        "many headers": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 101 + b"\r\n",
    }.items(),
    ids=lambda case: case[0],
)
def test_a_head_that_cannot_be_is_refused(raw):
    for kind in (HttpResponse, http.client.HTTPResponse):
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            begun(kind, raw[1])
