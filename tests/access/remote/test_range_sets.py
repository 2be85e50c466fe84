"""Many ranges of a file with one request: from servers that answer it, and as before from others."""

import os
import socket
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace

import h5py
import numpy as np
import pytest

import icevirt
from icevirt.connect import retry
from icevirt.errors import StaleReferenceError, UnauthorizedError
from icevirt.model.config.containers import ObjectStoreConfig
from icevirt.objects.answers import unreachable
from icevirt.objects.http import client, connections, range_set
from icevirt.objects.http.client import site_of
from icevirt.objects.http.connections import CONNECTIONS, Origin
from icevirt.objects.http.request import TryAgainError
from icevirt.objects.remote_source import RemoteSource
from icevirt.objects.source import open_source
from icevirt.objects.source_access import SourceAccess, granted
from icevirt.scan.contract import ScannerOptions
from icevirt.scan.registry import scan
from servers.faults import DROPPED, Fault, Rules, redirected, refused, truncated
from servers.listeners import Serving
from servers.listeners import served as talking
from servers.ranges import BOUNDARY, Files, multipart
from servers.serving import served
from servers.tokens import Expiring, write_module

pytestmark = pytest.mark.servers

MIB = 1 << 20
SIZE = 40 * MIB
BODY = np.random.default_rng(1).integers(0, 256, SIZE, np.uint8).tobytes()
PLACES = [[number * MIB, (number + 4) * MIB, (number + 9) * MIB] for number in (5, 17, 25)]


@pytest.fixture
def server(http_server, monkeypatch):
    monkeypatch.setattr(client, "_pause", lambda _failed: 0.0)
    http_server.files.put("data/a.bin", BODY)
    return http_server


def look(source, places):
    """Fetch what is at some places, and compare it."""
    source.prefetch([(place, place + 10) for place in places])
    before = source.requests
    for place in places:
        assert source.read(place + 5, 100) == BODY[place + 5 : place + 105]
    assert source.requests == before


def sets(server):
    """Return the requests for several ranges."""
    return [one for one in server.rules.requests if "," in one.headers.get("range", "")]


def misbehaving(server, fault, **how):
    """Let a fault befall requests for several ranges."""
    server.rules.add(fault, ranges=",", **how)


def changed(change):
    return Fault(change=change)


def body(change):
    """Change the body of an answer."""
    return changed(lambda r: replace(r, headers=without(r, "content-length"), body=change(r.body)))


def without(response, *names):
    return {name: value for name, value in response.headers.items() if name not in names}


def header(name, value):
    return changed(lambda r: replace(r, headers=r.headers | {name: value}))


def test_many_ranges_are_one_request(server):
    with RemoteSource(server.url + "/data/a.bin") as source:
        for number, places in enumerate(PLACES, start=2):
            look(source, places)
            assert source.requests == number == len(server.rules.requests)
        assert source.bytes_fetched == (8 + 9) * 65536
    assert len(sets(server)) == 3
    assert sets(server)[0].headers["range"] == ",".join(
        [f"bytes={5 * MIB}-{5 * MIB + 65535}", *(f"{a * MIB}-{a * MIB + 65535}" for a in (9, 14))]
    )


def chunked(response):
    parts = [response.body[at : at + 5000] for at in range(0, len(response.body), 5000)]
    lines = [f"{len(each):x}\r\n".encode() + each + b"\r\n" for each in [*parts, b""]]
    headers = without(response, "content-length") | {"transfer-encoding": "chunked"}
    return replace(response, headers=headers, body=b"".join(lines))


def reversed_parts(text):
    parts = text.removesuffix(f"--{BOUNDARY}--\r\n".encode()).split(f"--{BOUNDARY}\r\n".encode())
    delimiter = f"--{BOUNDARY}\r\n".encode()
    return (
        b"\r\n" + b"".join(delimiter + each for each in parts[:0:-1]) + f"--{BOUNDARY}--".encode()
    )


ODD = {
    "chunks": changed(chunked),
    "parts in another order": body(reversed_parts),
    "a quoted boundary": header("content-type", f'multipart/byteranges; boundary="{BOUNDARY}"'),
    "an etag that nobody compares": header("x-etag", '"other"'),
    "the end of the connection": header("connection", "close"),
}


@pytest.mark.parametrize("fault", ODD.values(), ids=ODD.keys())
def test_an_answer_in_another_form_is_one_request_too(server, fault):
    misbehaving(server, fault, times=1e9)
    with RemoteSource(server.url + "/data/a.bin") as source:
        for places in PLACES:
            look(source, places)
    assert len(sets(server)) == len(server.rules.requests) - 1 == 3


def shifted(text):
    return multipart([(place + 1, place + 65536) for place in PLACES[0]], BODY)


# what a server does, and how often it is asked for several ranges before it no longer is
MISBEHAVING = {
    "the whole file": (refused(200), 2),  # which it does not describe
    "the whole file, described": (
        changed(lambda r: replace(r, status=200, headers=without(r, "content-type"))),
        1,
    ),
    "one range of them": (
        changed(
            lambda r: replace(
                r,
                headers=without(r, "content-type", "content-length")
                | {"content-range": f"bytes {5 * MIB}-{5 * MIB + 9}/{SIZE}"},
                body=BODY[5 * MIB : 5 * MIB + 10],
            )
        ),
        1,
    ),
    "bad request": (refused(400), 1),
    "forbidden": (refused(403), 1),
    "not implemented": (refused(501), 1),
    "not satisfiable": (refused(416), 2),
    "not found": (refused(404), 2),
    "too many requests": (refused(429), 2),
    "it fails": (refused(500), 2),
    "it is overloaded": (refused(503, retry_after="30"), 2),
    "another etag": (header("etag", '"other"'), 2),
    "no etag": (changed(lambda r: replace(r, headers=without(r, "etag"))), 2),
    "another time": (header("last-modified", "Wed, 21 Oct 2015 07:28:00 GMT"), 2),
    "a time that is none": (header("last-modified", "once"), 2),
    "a length that is none": (header("content-length", "9" * 5000), 2),
    "an encoding": (header("content-encoding", "gzip"), 1),
    "no boundary": (header("content-type", "multipart/byteranges"), 1),
    "a range for all of it": (header("content-range", f"bytes 0-9/{SIZE}"), 1),
    "no parts": (body(lambda _: b""), 1),
    "zeros": (body(lambda text: bytes(len(text))), 1),
    "other ranges": (body(shifted), 1),
    "a part more": (body(lambda text: multipart([(0, 9)], BODY)[:-26] + text), 1),
    "no last delimiter": (body(lambda text: text[: -len(BOUNDARY) - 6]), 1),
    "too much of it": (body(lambda text: text + bytes(100_000)), 1),
    "too much of it, in chunks": (
        changed(lambda r: chunked(replace(r, body=r.body + bytes(100_000)))),
        1,
    ),
    "chunks that are none": (
        changed(lambda r: replace(chunked(r), body=b"x\r\n" + r.body)),
        2,
    ),
    "a file of another size": (body(lambda text: text.replace(b"/41943040", b"/41943041")), 1),
}


@pytest.mark.parametrize(("fault", "most"), MISBEHAVING.values(), ids=MISBEHAVING.keys())
def test_any_other_answer_costs_requests_and_nothing_else(server, fault, most):
    misbehaving(server, fault, times=1e9)
    with RemoteSource(server.url + "/data/a.bin") as source:
        for places in PLACES:
            look(source, places)
        source.check_unchanged()
    assert len(sets(server)) == most
    assert source.requests == len(server.rules.requests) == 1 + 9 + most
    with RemoteSource(server.url + "/data/a.bin") as source:
        look(source, PLACES[0])
    assert len(sets(server)) == most


BROKEN = {
    "before the answer": (DROPPED, 4),  # twice each: a kept connection may have ended by itself
    "at its beginning": (truncated(0), 2),
    "in the first part": (truncated(100), 2),
    "in the last part": (truncated(3 * 65536), 2),
}


@pytest.mark.parametrize(("fault", "most"), BROKEN.values(), ids=BROKEN.keys())
def test_connections_that_break_cost_requests_and_nothing_else(server, fault, most):
    """The server may be one that hangs up on such requests: it is tried twice."""
    misbehaving(server, fault, times=1e9)
    with RemoteSource(server.url + "/data/a.bin") as source:
        for places in PLACES:
            look(source, places)
    assert len(sets(server)) == most
    assert len(server.rules.requests) == 1 + 9 + most


def test_one_failure_is_forgotten_after_a_success(server):
    server.rules.add(refused(503))
    server.rules.add(refused(503), nth=3)
    with RemoteSource(server.url + "/data/a.bin") as source:
        for _ in range(4):
            look(source, PLACES[0])
            source.close()
    assert len(sets(server)) == 4


def test_an_idle_connection_that_the_server_closed_is_no_failure(server):
    with RemoteSource(server.url + "/data/a.bin") as source:
        for places in PLACES:
            (idle,) = CONNECTIONS._idle[Origin.of(server.url)]
            idle.socket.shutdown(socket.SHUT_RDWR)
            look(source, places)
    assert len(sets(server)) == 3
    assert range_set.answers_range_sets(site_of(server.url + "/data/"))


def test_connections_that_keep_ending_are_a_failure(server, monkeypatch):
    def once(_request):
        raise TryAgainError("hung up", 0.0)

    with RemoteSource(server.url + "/data/a.bin") as source:
        monkeypatch.setattr(range_set._RangeSetRequest, "once", once)
        look(source, PLACES[0])
        assert source.requests == 1 + 1 + 3


def test_a_file_that_changed_is_noticed(server):
    with RemoteSource(server.url + "/data/a.bin") as source:
        look(source, PLACES[0])
        server.files.put("data/a.bin", BODY[::-1])
        with pytest.raises(StaleReferenceError, match="changed during the scan"):
            look(source, PLACES[1])
        with pytest.raises(StaleReferenceError):
            source.check_unchanged()
    assert range_set.answers_range_sets(site_of(server.url + "/data/"))


def test_a_file_that_is_shorter_now_is_noticed(server):
    with RemoteSource(server.url + "/data/a.bin") as source:
        server.files.put("data/a.bin", BODY[: 8 * MIB])
        with pytest.raises(StaleReferenceError, match="changed during the scan"):
            look(source, PLACES[0])


# -- when ---------------------------------------------------------------------------------------


def test_the_first_request_for_several_ranges_is_small_and_others_take_many(server):
    """Beyond 4 MiB they are divided, and only a server that answers gets several such requests."""
    wide = [(place, place + 10) for place in range(MIB, 33 * MIB, MIB // 4)]
    with RemoteSource(server.url + "/data/a.bin") as source:
        source.prefetch(wide)
        assert source.requests == 1 + len(wide) == 129
        assert sets(server) == []
    with RemoteSource(server.url + "/data/a.bin") as source:
        look(source, PLACES[0])
        source.close()
        source.prefetch(wide)
        assert source.requests == 2 + 2
    for one in sets(server):
        assert len(one.headers["range"].split(",")) <= 64


def test_large_reads_are_requests_of_4_mib_as_before(server):
    with RemoteSource(server.url + "/data/a.bin") as source:
        look(source, PLACES[0])
        assert source.read(MIB, 13 * MIB) == BODY[MIB : 14 * MIB]
        assert source.requests == 2 + 4
    assert len(sets(server)) == 1


def test_ranges_are_divided_by_bytes_and_by_number():
    tiny = [(10 * number, 10 * number + 1) for number in range(130)]
    assert [len(each) for each in range_set.range_sets(tiny, 1000)] == [64, 64, 2]
    large = [(0, 9), (20, 120), (200, 250), (300, 350), (400, 401)]
    assert range_set.range_sets(large, 100) == [large[:1], large[1:2], large[2:4], large[4:]]
    assert range_set.range_sets([], 100) == []


HOSTS = {
    "https://bucket.s3.eu-west-1.amazonaws.com/a/": False,
    "https://s3.cn-north-1.amazonaws.com.cn/bucket/": False,
    "https://storage.googleapis.com/bucket/": False,
    "https://account.blob.core.windows.net/container/": False,
    "https://0123.r2.cloudflarestorage.com/bucket/": False,
    "https://data.example/": None,
    "https://amazonaws.com.example/": None,
    "https://notamazonaws.com/": None,
}


@pytest.mark.parametrize(("url", "answers"), HOSTS.items())
def test_object_stores_are_known_to_answer_one_range(url, answers):
    range_set.forget()
    assert range_set.answers_range_sets(site_of(url)) is answers


def test_a_server_that_is_down_gets_no_such_request(server):
    site = site_of(server.url + "/data/")
    with RemoteSource(server.url + "/data/a.bin") as source:
        look(source, PLACES[0])
        assert range_set.answers_range_sets(site)
        known = retry.SERVERS[site.origin]
        known.gave_up(unreachable(server.url, reason="503", tries=9), 0.0)
        assert range_set.answers_range_sets(site) is False
        look(source, PLACES[1])  # each range alone, and it is up again
        assert range_set.answers_range_sets(site)


# -- who gets what ------------------------------------------------------------------------------

TOKEN = "canary-5d1e"


@pytest.fixture
def other():
    files, rules = Files(), Rules()
    files.put("elsewhere/a.bin", BODY)
    with served(files.answer, rules) as url:
        yield type("Other", (), {"url": url, "files": files, "rules": rules})


@contextmanager
def reaching(server, **options):
    """Read with a token, from there and from hosts that are listed."""
    server.files.tokens = {TOKEN}
    store = ObjectStoreConfig("http", options)
    token = icevirt.http_credentials(bearer_token=TOKEN)
    access = SourceAccess.of({server.url + "/data/": (store, token)})
    with granted(access), RemoteSource(server.url + "/data/a.bin") as source:
        yield source


def redirecting(server, other):
    """Send all requests but the first elsewhere, where the same file is."""
    other.files.etags["elsewhere/a.bin"] = server.files.etags["data/a.bin"]
    server.rules.add(redirected(other.url + "/elsewhere/a.bin"), nth=2, times=1e9)


def test_credentials_go_along_below_the_prefix(server):
    with reaching(server) as source:
        look(source, PLACES[0])
    assert [one.headers["authorization"] for one in sets(server)] == [f"Bearer {TOKEN}"]


def test_a_listed_host_answers_and_gets_no_credentials(server, other):
    redirecting(server, other)
    host = other.url.removeprefix("http://")
    with reaching(server, redirect_hosts=host, headers={"x-api-key": "k"}) as source:
        look(source, PLACES[0])
        assert source.requests == 2
    assert [one.headers["x-api-key"] for one in sets(server)] == ["k"]
    (asked,) = other.rules.requests
    assert set(asked.headers) == {"host", "range", "accept-encoding"}
    assert asked.headers["range"].count(",") == 2


def test_a_host_that_is_not_listed_gets_nothing(server, other):
    redirecting(server, other)
    with reaching(server) as source, pytest.raises(UnauthorizedError, match="redirects to"):
        look(source, PLACES[0])
    assert other.rules.requests == []


def test_a_listed_host_does_not_lead_into_the_network_here(server, other, monkeypatch):
    redirecting(server, other)
    known = {server.url: "93.184.216.34", other.url: "169.254.169.254"}
    address = lambda self: known[str(self.origin)]  # noqa: E731
    monkeypatch.setattr(connections.Connection, "address", property(address))
    host = other.url.removeprefix("http://")
    with (
        reaching(server, redirect_hosts=host) as source,
        pytest.raises(UnauthorizedError, match="inside this network"),
    ):
        look(source, PLACES[0])
    assert other.rules.requests == []


@pytest.mark.parametrize("status", [401, 403])
def test_a_token_that_ended_is_renewed(status, tmp_path, monkeypatch):
    range_set.forget()
    monkeypatch.syspath_prepend(str(tmp_path))
    expiring, rules = Expiring(Files(), requests=1, status=status), Rules()
    expiring.files.put("data/a.bin", BODY)
    with served(expiring.answer, rules) as url:
        _, function = write_module(tmp_path, url)
        access = SourceAccess.of({url + "/data/": function})
        with granted(access), RemoteSource(url + "/data/a.bin") as source:
            look(source, PLACES[0])
            assert source.requests == 2
    assert expiring.issued == 2
    tokens = [one.headers["authorization"] for one in rules.requests if "range" in one.headers]
    assert len(tokens) == 3
    assert tokens[0] == tokens[1] != tokens[2]


# -- hostile servers ----------------------------------------------------------------------------


class Endless(Serving):
    """A server whose answers with several ranges never end."""

    def __init__(self, head):
        self.head = head
        self.sent = 0
        self.hung_up = threading.Event()
        super().__init__(tls=False)

    def _talk(self, connection):
        with suppress(OSError), connection:
            while asked := connection.recv(65536):
                if b"," in asked.partition(b"bytes=")[2]:
                    connection.sendall(self.head)
                    break
                said = asked.partition(b"bytes=")[2].partition(b"\r\n")[0].decode()
                first, last = map(int, said.split("-"))
                head = f'Content-Range: bytes {first}-{last}/{SIZE}\r\nETag: "e"\r\n'
                head += f"Content-Length: {last + 1 - first}\r\n\r\n"
                connection.sendall(
                    f"HTTP/1.1 206 Partial Content\r\n{head}".encode() + BODY[first : last + 1]
                )
            else:
                return
            try:
                while self.sent < 1 << 30:
                    self.sent += connection.send(bytes(65536))
            except OSError:
                self.hung_up.set()
                raise


KIND = b'ETag: "e"\r\nContent-Type: multipart/byteranges; boundary=x\r\n'
ENDLESS = {
    "of no length": b"HTTP/1.1 206 OK\r\n" + KIND + b"\r\n\r\n--x\r\n",
    "of a terabyte": b"HTTP/1.1 206 OK\r\n" + KIND + b"Content-Length: 1000000000000\r\n\r\n",
    "in one chunk": (
        b"HTTP/1.1 206 OK\r\n"
        + KIND
        + b"Transfer-Encoding: chunked\r\n\r\nffffffffff\r\n\r\n--x\r\n"
    ),
    "the whole file, a terabyte": (
        b'HTTP/1.1 200 OK\r\nETag: "e"\r\nContent-Length: 1000000000000\r\n\r\n'
    ),
}


@pytest.mark.parametrize("head", ENDLESS.values(), ids=ENDLESS.keys())
def test_an_answer_without_end_is_not_received(head):
    """What the kernel buffers aside."""
    range_set.forget()
    with talking(Endless(head)) as server, RemoteSource(server.url + "/data/a.bin") as source:
        for places in PLACES:
            look(source, places)
        assert server.hung_up.wait(10)
        assert server.sent < 32 * MIB


# -- servers that the internet has --------------------------------------------------------------


def test_web_servers_answer_as_the_test_server_does(web_server):
    (web_server.folder / "data").mkdir()
    path = web_server.folder / "data" / "a.bin"
    path.write_bytes(BODY)
    places = [[number * MIB // 8 for number in range(first, 320, 9)] for first in (9, 12, 15)]
    with RemoteSource(web_server.url + "/data/a.bin") as source:
        for some in places:
            look(source, some)
        assert source.requests == 4 == len(web_server.requests(4))
        path.write_bytes(BODY[::-1])
        os.utime(path, (1, 1))  # nginx knows whole seconds
        with pytest.raises(StaleReferenceError):
            look(source, PLACES[0])


def test_a_file_on_a_web_server_is_described_with_four_requests(web_server, tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        for number in range(10):
            data = np.full((12, 256, 512), number, "f4")
            file.create_dataset(f"v{number}", data=data, chunks=(1, 256, 512))
    (web_server.folder / "a.h5").write_bytes(path.read_bytes())
    with open_source(web_server.url + "/a.h5") as source:
        far = scan(source, ScannerOptions())
        assert source.requests == len(web_server.requests(source.requests)) <= 4
        assert source.bytes_fetched < 2 * MIB
    with open_source(path) as source:
        near = scan(source, ScannerOptions())
    for one, other in zip(far.arrays, near.arrays, strict=True):
        np.testing.assert_array_equal(one.references.offset, other.references.offset)
