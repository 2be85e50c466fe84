"""Ranges that the event loop receives on kept connections are those that a thread would read."""

import asyncio
import http.client
import itertools
import re
import ssl
import threading
import time
from contextlib import contextmanager, suppress

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.connect import retry
from icevirt.errors import IcevirtError, StaleReferenceError, UnauthorizedError
from icevirt.objects import web_client as client
from icevirt.objects import web_connections as connections
from icevirt.objects.answers import stale
from icevirt.objects.web_client import RetryPolicy, site_of
from icevirt.objects.web_connections import CONNECTIONS, Origin
from servers.listeners import Serving, served

CONTENT = bytes(range(256)) * 1024
HEAD = "HTTP/1.1 206 Partial Content\r\nETag: {etag}\r\nContent-Range: bytes {range}\r\n"
BEGIN, END = 100, 164
BODY = CONTENT[BEGIN:END]


def regular(begin=BEGIN, end=END, etag='"e"'):
    """Return the usual answer."""
    head = HEAD.format(etag=etag, range=f"{begin}-{end - 1}/{len(CONTENT)}")
    return f"{head}Content-Length: {end - begin}\r\n\r\n".encode() + CONTENT[begin:end]


class Script(Serving):
    """A server that answers as tests say, in pieces, and regularly when they say nothing."""

    def __init__(self, tls=None):
        self.requests = []
        self.answers = []  # pieces of each; None hangs up
        self.began = threading.Event()  # an answer of the script
        self._tls = tls
        super().__init__(tls=tls is not None)

    def _talk(self, connection):
        with suppress(OSError), self._wrapped(connection) as connection:
            while True:
                asked = b""
                while b"\r\n\r\n" not in asked:
                    if not (part := connection.recv(65536)):
                        return
                    asked += part
                self.requests.append(asked)
                if self.answers:
                    self.began.set()
                for piece in self.answers.pop(0) if self.answers else [self._regular(asked)]:
                    if piece is None:
                        return
                    if piece:
                        connection.sendall(piece)
                        time.sleep(0.0005)

    def _wrapped(self, connection):
        return self._tls.wrap_socket(connection, server_side=True) if self._tls else connection

    def _regular(self, asked):
        found = re.search(rb"\r\nrange: bytes=(\d+)-(\d+)", asked)
        return regular(int(found[1]), int(found[2]) + 1)


@contextmanager
def scripted(tls=None):
    made = Script(tls)
    try:
        with served(made):
            yield made
    finally:
        CONNECTIONS.forget(Origin.of(made.url))


@pytest.fixture(scope="module")
def module_server():
    with scripted() as made:
        yield made


@pytest.fixture
def server(module_server):
    module_server.answers.clear()
    module_server.requests.clear()
    retry.SERVERS.clear()  # a test before may have left one that is taken for down
    return module_server


@pytest.fixture(scope="module", autouse=True)
def impatient():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "_pause", lambda _failed: 0.0)
        yield


@pytest.fixture
def no_threads(monkeypatch):
    """Count what is handed to threads."""
    handed = []
    submit = connections.Hosts.submit

    def counted(self, host, work):
        handed.append(host)
        return submit(self, host, work)

    monkeypatch.setattr(connections.Hosts, "submit", counted)
    return handed


def same(meta):
    """Refuse a file that was changed."""
    if meta.etag != '"e"':
        raise stale("http://x/", '"e"', meta.etag)


def site(server, **options):
    return site_of(f"{server.url}/data/", patience=RetryPolicy(tries=2, timeout=10), **options)


def warm(at):
    """Leave a kept connection whose last answer was regular."""
    at.get("data/a.bin", BEGIN, END, same)


def keep(at, count):
    """Leave so many of them."""
    made = [CONNECTIONS.take(at.origin, 10) for _ in range(count)]
    for connection in made:
        connection.ask(f"{at.origin}/data/a.bin", {"range": "bytes=0-0"}).read()
        CONNECTIONS.give_back(connection)


def in_loop(at, begin=BEGIN, end=END):
    async def read():
        return await at.get_async("data/a.bin", begin, end, same)

    return asyncio.run(read())


def outcome(read):
    try:
        answer = read()
    except IcevirtError as error:
        return type(error), error.what, error.facts
    return answer.meta, answer.begin, bytes(answer.body)


def head(status, *lines, body=b""):
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode() + body


def in_pieces(*lines, body=BODY, size=None):
    """Return an answer in one chunk, whatever it says of it."""
    chunk = f"{len(body):x}" if size is None else size
    pieces = chunk.encode() + b"\r\n" + body + b"\r\n0\r\n\r\n"
    return head("206 OK", RANGE, 'ETag: "e"', *lines, body=pieces)


RANGE = f"Content-Range: bytes {BEGIN}-{END - 1}/{len(CONTENT)}"
ANSWERS = {
    "regular": [regular()],
    "a changed file": [regular(etag='"other"')],
    "another range": [regular(BEGIN + 1, END)],
    "fewer bytes": [regular(BEGIN, END - 7)],
    "more bytes than requested": [regular(BEGIN, END + 7)],
    "a length that is not that of the range": [regular().replace(b"Length: 64", b"Length: 63")],
    "encoded": [head("206 ", RANGE, "Content-Encoding: gzip", "Content-Length: 64", body=BODY)],
    "encoded, by the second header": [
        head("206 ", RANGE, *map("Content-Encoding: {}".format, ("identity", "gzip")), body=BODY)
    ],
    "no length": [head("206 ", RANGE, 'ETag: "e"', body=BODY), None],
    "in pieces": [in_pieces("Transfer-Encoding: chunked")],
    "in pieces, spelled otherwise": [in_pieces("TRANSFER-ENCODING:  CHUNKED")],
    "in pieces, more than the range": [in_pieces("Transfer-Encoding: chunked", body=BODY + b"!")],
    "in pieces, less than the range": [in_pieces("Transfer-Encoding: chunked", body=BODY[1:])],
    "in pieces, without the last": [in_pieces("Transfer-Encoding: chunked")[:-5], None],
    "in pieces of no size": [in_pieces("Transfer-Encoding: chunked", size="zz"), None],
    "in pieces and by HTTP/1.0": [
        in_pieces("Transfer-Encoding: chunked").replace(b"HTTP/1.1", b"HTTP/1.0"),
        None,
    ],
    "another coding first": [in_pieces("Transfer-Encoding: identity, chunked")],
    "compressed pieces": [in_pieces("Transfer-Encoding: gzip, chunked")],
    "an unknown coding": [in_pieces("Transfer-Encoding: x")],
    "no coding": [in_pieces("Transfer-Encoding:")],
    "identity": [in_pieces("Transfer-Encoding: identity")],
    "chunked last but one": [in_pieces("Transfer-Encoding: chunked, gzip")],
    "chunked twice": [in_pieces("Transfer-Encoding: chunked", "Transfer-Encoding: chunked")],
    "two lines of codings": [in_pieces("Transfer-Encoding: chunked", "Transfer-Encoding: gzip")],
    "chunked with a parameter": [in_pieces("Transfer-Encoding: chunked;q=1")],
    "an unknown coding and a length": [in_pieces("Transfer-Encoding: x", "Content-Length: 64")],
    "both lengths": [in_pieces("Transfer-Encoding: chunked", "Content-Length: 64")],
    "two lengths": [in_pieces("Content-Length: 64", "Content-Length: 74")],
    "a list of lengths": [in_pieces("Content-Length: 64, 64")],
    "a length that Python reads": [in_pieces("Content-Length: 6_4")],
    "a length with a sign": [in_pieces("Content-Length: +64")],
    "a negative length": [in_pieces("Content-Length: -1")],
    "a head that the parser cuts": [
        in_pieces("Content-Length: 64", "no header", "Transfer-Encoding: chunked")
    ],
    "a space before a colon": [in_pieces("Content-Length: 64", "Transfer-Encoding : chunked")],
    "two ranges": [
        head(
            "206 ",
            RANGE,
            f"Content-Range: bytes 0-63/{len(CONTENT)}",
            "Content-Length: 64",
            body=BODY,
        )
    ],
    "a range behind the end": [
        head("206 ", f"Content-Range: bytes {BEGIN}-{END - 1}/99", "Content-Length: 64", body=BODY)
    ],
    "two etags": [head("206 ", RANGE, 'ETag: "e"', 'ETag: "f"', "Content-Length: 64", body=BODY)],
    "the same header twice": [regular().replace(b"ETag", b'ETag: "e" \r\nETag')],
    "the connection ends": [
        head("206 ", RANGE, 'ETag: "e"', "Content-Length: 64", "Connection: close", body=BODY),
        None,
    ],
    "HTTP/1.0": [regular().replace(b"HTTP/1.1", b"HTTP/1.0"), None],
    "announced": [b"HTTP/1.1 100 Continue\r\n\r\n" + regular()],
    "bare line feeds": [regular().replace(b"\r\n", b"\n")],
    "folded": [regular().replace(b"bytes 100", b"bytes\r\n 100")],
    "not there": [head("404 Not Found", "Content-Length: 4", body=b"none")],
    "forbidden": [head("403 Forbidden", "Content-Length: 0")],
    "after the end": [head("416 ", f"Content-Range: bytes */{BEGIN}", "Content-Length: 0")],
    "all of it": [head("200 OK", "Content-Length: 64", body=BODY)],
    "overloaded": [head("503 busy", "Retry-After: 0", "Content-Length: 0")],
    "a redirect below the prefix": [head("302 ", "Location: /data/b.bin", "Content-Length: 0")],
    "a redirect out of it": [head("302 ", "Location: /other/b.bin", "Content-Length: 0")],
    "a redirect to another server": [
        head("302 ", "Location: http://169.254.169.254/data/b.bin", "Content-Length: 0")
    ],
    "hung up": [None],
    "hung up in the head": [regular()[:30], None],
    "hung up in the body": [regular()[:-9], None],
    "another protocol": [b"ICY 200 OK\r\n\r\n"],
    "no status": [b"HTTP/1.1 206\r\n\r\n", None],
    "many headers": [head("206 OK", *["X: y"] * 101)],
    "a long line": [b"HTTP/1.1 206 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n"],
    "a head without end": [b"HTTP/1.1 206 OK\r\n" + b"X: y\r\n" * 20_000, None],
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
def test_any_answer_means_what_it_means_in_a_thread(server, answer):
    at, found = site(server), []
    for read in (lambda: at.get("data/a.bin", BEGIN, END, same), lambda: in_loop(at)):
        CONNECTIONS.forget(at.origin)
        warm(at)
        server.requests.clear()
        server.answers[:] = [answer]
        found.append((outcome(read), len(server.requests)))
        assert not server.answers
        warm(at)  # whatever is left of it meets no other request
    assert found[0] == found[1]


EXACT = {
    "regular",
    "in pieces",
    "in pieces, spelled otherwise",
    "the connection ends",
    "HTTP/1.0",
    "announced",
    "bare line feeds",
    "the same header twice",
}
"""Answers that say what they are in a way that everybody reads alike."""
LATER = {
    "overloaded",
    "a redirect below the prefix",
    "in pieces, less than the range",
    "in pieces, without the last",
    "in pieces of no size",
    "hung up",
    "hung up in the body",
    "another protocol",
    "many headers",
    "a long line",
    "a head without end",
}
"""Those after which the next try goes well."""


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_read_exactly_or_refused(server, name):
    """Chunk heads and other codings are no bytes of a file, and no length is guessed."""
    at = site(server)
    CONNECTIONS.forget(at.origin)
    warm(at)
    server.answers[:] = [ANSWERS[name]]
    found = outcome(lambda: at.get("data/a.bin", BEGIN, END, same))
    if name in EXACT | LATER | {"after the end"}:
        assert found[2] in (BODY, b"")
        assert (found[2] == b"") == (name == "after the end")
    else:
        assert issubclass(found[0], IcevirtError), found


@settings(max_examples=60, deadline=None)
@given(
    answer=st.sampled_from(sorted(ANSWERS.keys() - {"a head without end", "a long line"})),
    cuts=st.lists(st.integers(0, 400), max_size=5).map(sorted),
)
def test_answers_may_be_cut_anywhere(module_server, answer, cuts):
    server, at = module_server, site(module_server)
    whole = [piece for piece in ANSWERS[answer] if piece is not None]
    end = [None] if None in ANSWERS[answer] else []
    pieces = [b"".join(whole)[low:high] for low, high in itertools.pairwise([0, *cuts, None])]
    found = []
    for scripted_pieces in (ANSWERS[answer], [*pieces, *end]):
        CONNECTIONS.forget(at.origin)
        warm(at)
        server.answers[:] = [scripted_pieces]
        found.append(outcome(lambda: in_loop(at)))
    assert found[0] == found[1]


def test_no_thread_is_needed_on_kept_connections(server, no_threads):
    at = site(server)
    CONNECTIONS.forget(at.origin)

    async def read(count):
        ranges = [(n, n + 50) for n in range(count)]
        answers = await asyncio.gather(
            *(at.get_async("data/a.bin", begin, end, same) for begin, end in ranges)
        )
        assert [bytes(a.body) for a in answers] == [CONTENT[b:e] for b, e in ranges]

    keep(at, 8)
    opened = server.accepted
    for _ in range(20):
        asyncio.run(read(8))
    assert server.accepted == opened
    assert not no_threads


def test_as_many_connections_are_kept_as_requests_are_under_way(server):
    at = site(server)
    CONNECTIONS.forget(at.origin)

    async def read():
        for _ in range(3):
            await asyncio.gather(*(at.get_async("data/a.bin", n, n + 9, same) for n in range(200)))

    before = server.accepted
    asyncio.run(read())
    assert server.accepted - before <= connections.AT_ONCE


def test_an_unusual_server_is_left_to_threads(server, no_threads):
    """Its answers would be handed over each time, which costs more than a thread from the start."""
    at = site(server)
    CONNECTIONS.forget(at.origin)
    warm(at)
    server.answers[:] = [ANSWERS["in pieces"]] * 5
    for _ in range(5):
        assert bytes(in_loop(at).body) == BODY
    assert len(no_threads) == 5


def test_large_ranges_are_left_to_threads(server, no_threads):
    at = site(server)
    warm(at)
    end = client._IN_LOOP
    assert len(in_loop(at, 0, end).body) == len(CONTENT[:end])
    assert not no_threads
    server.answers[:] = [[regular(0, len(CONTENT))]]
    assert len(CONTENT) <= end < end + 1
    assert bytes(in_loop(at, 0, end + 1).body) == CONTENT
    assert len(no_threads) == 1


def test_what_follows_an_answer_meets_no_other_request(server):
    at = site(server)
    CONNECTIONS.forget(at.origin)
    warm(at)
    server.answers[:] = [[regular() + regular(etag='"forged"')]]
    assert bytes(in_loop(at).body) == BODY
    assert bytes(in_loop(at).body) == BODY


def test_a_changed_file_is_refused_before_its_body_arrives(server):
    at = site(server)
    CONNECTIONS.forget(at.origin)
    warm(at)
    never = regular(etag='"other"').partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    server.answers[:] = [[never]]
    with pytest.raises(StaleReferenceError):
        in_loop(at)


def test_a_silent_server_is_given_up(server):
    at = site_of(f"{server.url}/data/", patience=RetryPolicy(tries=1, timeout=0.2))
    CONNECTIONS.forget(at.origin)
    warm(at)
    server.answers[:] = [[regular()[:40]]]
    output = outcome(lambda: in_loop(at))
    assert output[2]["reason"] == "timed out"


def test_a_cancelled_read_leaves_no_answer_for_the_next(server):
    at = site(server)
    CONNECTIONS.forget(at.origin)
    warm(at)
    server.answers[:] = [[regular(etag='"late"')[:40]]]
    server.began.clear()

    async def cancelled():
        task = asyncio.create_task(at.get_async("data/a.bin", BEGIN, END, same))
        await asyncio.sleep(0)
        await asyncio.to_thread(server.began.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await at.get_async("data/a.bin", BEGIN, END, same)

    assert bytes(asyncio.run(cancelled()).body) == BODY


def test_a_request_that_the_kernel_does_not_take_goes_on_in_a_thread(server, monkeypatch):
    at = site(server)
    CONNECTIONS.forget(at.origin)
    warm(at)
    server.requests.clear()

    def some(self, request):
        return request[self.socket.send(request[:10]) :]

    monkeypatch.setattr(connections.Connection, "send_now", some)
    assert bytes(in_loop(at).body) == BODY
    assert len(server.requests) == 1


def test_no_credential_follows_a_redirect_from_a_kept_connection(server):
    with scripted() as other:
        secret = {"Authorization": "Bearer CANARY", "X-Key": "CANARY"}
        at = site(server, headers=secret, redirect_hosts=frozenset({other.host}))
        CONNECTIONS.forget(at.origin)
        warm(at)
        to = head("302 ", f"Location: {other.url}/data/a.bin", "Content-Length: 0")
        server.answers[:] = [[to]]
        assert bytes(in_loop(at).body) == BODY
        assert all(b"CANARY" in request for request in server.requests)
        assert len(other.requests) == 1
        assert b"CANARY" not in other.requests[0]
        server.answers[:] = [[to]]
        warm(site(other))  # there is a kept connection to it
        other.requests.clear()
        with pytest.raises(UnauthorizedError):
            in_loop(site(server, headers=secret))
        assert not other.requests


def test_a_header_cannot_begin_another_request(server):
    at = site(server, headers={"X-Key": "a\r\n\r\nGET /secret HTTP/1.1"})
    warm(site(server))
    server.requests.clear()
    found = [outcome(lambda: at.get("data/a.bin", BEGIN, END, same)), outcome(lambda: in_loop(at))]
    assert found[0][:2] == found[1][:2]
    assert not server.requests


def test_a_request_is_what_the_standard_library_would_send(server):
    url, headers = f"{server.url}/data/a%20b.bin?x=1", {"range": "bytes=0-0", "X-Key": "é"}
    connection = connections.Connection(Origin.of(url), 10)
    connection.ask(url, headers).read()
    connection.close()
    theirs = http.client.HTTPConnection(server.host)
    theirs.request("GET", "/data/a%20b.bin?x=1", headers=headers)
    theirs.getresponse().read()
    theirs.close()
    assert server.requests[-2] == server.requests[-1]


def test_ranges_arrive_over_tls(tmp_path, monkeypatch, no_threads):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    connections._trust.cache_clear()
    try:
        with scripted(context) as server:
            at = site(server)
            warm(at)
            for end in (1, 17_000, 200_000):
                assert bytes(in_loop(at, 0, end).body) == CONTENT[:end]
            whole = regular(0, 100_000)
            server.answers[:] = [[whole[:50], whole[50:70_000], whole[70_000:]]]
            assert bytes(in_loop(at, 0, 100_000).body) == CONTENT[:100_000]
            assert server.accepted == 1
            assert not no_threads
            server.answers[:] = [[None]]
            assert bytes(in_loop(at).body) == BODY
    finally:
        connections._trust.cache_clear()
