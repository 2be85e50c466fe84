"""Servers and networks that fail: what is tried again, what is told, and after how long."""

import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import icevirt
from access.remote.objects import CHUNK, refer, values
from icevirt.errors import ObjectNotFoundError, StorageError
from icevirt.model.config.containers import ObjectStoreConfig
from icevirt.objects import remote
from icevirt.objects import web_client as client
from icevirt.objects.answers import Meta
from icevirt.objects.backends import ForeignReach
from icevirt.objects.web_client import RetryPolicy, site_of
from icevirt.virtualizarr.registry_access import StoreReach
from servers.faults import (
    DROPPED,
    Fault,
    Response,
    refused,
    slow,
    truncated,
    weak_etag,
    without,
)

pytestmark = pytest.mark.servers
VALUES = values(8)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Do not wait between tries."""
    monkeypatch.setattr(client, "_pause", lambda _failed: 0.0)


@pytest.fixture
def server(http_server):
    http_server.files.put("data/a.bin", VALUES.tobytes())
    return http_server


def made(server, tmp_path, **options):
    root = tmp_path / "repo"
    return refer(root, server.url + "/data/", store=ObjectStoreConfig("http", {}), **options)


PASSING = {
    "the server is overloaded": refused(503),
    "the server fails": refused(500),
    "a gateway fails": refused(502),
    "too many requests": refused(429, retry_after="0"),
    "the connection breaks": DROPPED,
    "the answer breaks off": truncated(CHUNK + 1),
    "the answer breaks off at once": truncated(0),
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING.keys())
def test_what_may_pass_is_tried_again(server, tmp_path, fault):
    array = made(server, tmp_path).array()
    server.rules.add(fault, times=3)
    np.testing.assert_array_equal(array[:], VALUES)
    assert server.rules.hits == 3


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING.keys())
def test_what_does_not_pass_is_reported_after_some_tries(server, tmp_path, fault):
    array = made(server, tmp_path).array()
    server.rules.add(fault, times=1e9)
    with pytest.raises(StorageError, match="cannot be read") as caught:
        array[:]
    assert caught.value.facts["tries"] == len(server.rules.requests) == RetryPolicy().tries


FINAL = {
    "not there": (refused(404), ObjectNotFoundError, "does not exist"),
    "gone": (refused(410), ObjectNotFoundError, "does not exist"),
    "forbidden": (refused(403), StorageError, "refuses to serve"),
    "not valid": (refused(400), StorageError, "cannot be read"),
    "no ranges": (
        Fault(answer=Response(status=200, body=VALUES.tobytes())),
        StorageError,
        "does not support range",
    ),
    "a range without saying which": (
        without("content-range"),
        StorageError,
        "does not support range",
    ),
    "another range": (
        Fault(change=lambda r: changed(r, "content-range", f"bytes 1-{len(r.body)}/9999")),
        StorageError,
        "does not support range",
    ),
    "a longer range": (
        Fault(change=lambda r: changed(r, "content-range", "bytes 0-9999/99999")),
        StorageError,
        "does not support range",
    ),
    "a length that is not that of the range": (
        Fault(change=lambda r: changed(r, "content-range", "bytes 0-9/99999")),
        StorageError,
        "does not support range",
    ),
    "compressed bytes": (
        Fault(change=lambda r: changed(r, "content-encoding", "gzip")),
        StorageError,
        "does not support range",
    ),
}


def changed(response, name, value):
    return Response(
        status=response.status, headers=response.headers | {name: value}, body=response.body
    )


@pytest.mark.parametrize(("fault", "error", "what"), FINAL.values(), ids=FINAL.keys())
def test_what_will_not_pass_is_reported_at_once(server, tmp_path, fault, error, what):
    array = made(server, tmp_path).array()
    server.rules.add(fault, times=1e9)
    with pytest.raises(error, match=what):
        array[:]
    assert len(server.rules.requests) == 1


def test_nothing_is_there_is_reported(tmp_path, server):
    array = refer(
        tmp_path / "repo", "http://127.0.0.1:1/", store=ObjectStoreConfig("http", {})
    ).array()
    with pytest.raises(StorageError, match="cannot be read") as caught:
        array[:]
    assert "refused" in caught.value.facts["reason"]


def ask(site, check=lambda _meta: None):
    return site.get("data/a.bin", 0, 10, check)


def test_a_server_that_says_nothing_is_given_up(server):
    site = site_of(server.url + "/data/", patience=RetryPolicy(tries=2, timeout=0.1))
    server.rules.add(slow(0.5), times=2)
    began = time.monotonic()
    with pytest.raises(StorageError, match="cannot be read") as caught:
        ask(site)
    assert "timed out" in caught.value.facts["reason"]
    assert time.monotonic() - began < 0.45


def test_no_other_try_begins_when_the_time_is_up(server, monkeypatch):
    monkeypatch.setattr(client, "_pause", lambda _failed: 0.1)
    server.rules.add(refused(503), times=1e9)
    with pytest.raises(StorageError):
        ask(site_of(server.url + "/data/", patience=RetryPolicy(total=0.15)))
    assert len(server.rules.requests) == 2


def test_a_server_may_say_when_to_come_back(server, monkeypatch):
    waited = []
    clock = SimpleNamespace(sleep=waited.append, monotonic=time.monotonic)
    monkeypatch.setattr(client, "time", clock)
    server.rules.add(refused(503, retry_after="7"), nth=1)
    server.rules.add(refused(503, retry_after="86400"), nth=2)
    ask(site_of(server.url + "/data/"))
    assert waited == [7.0, 10.0]


def test_connections_are_kept(server):
    site = site_of(server.url + "/data/")
    ask(site)
    before = set(map(id, server_connections(server)))
    for _ in range(5):
        ask(site)
    assert set(map(id, server_connections(server))) == before
    assert len(before) == 1


def server_connections(server):
    import gc

    from servers.serving import _Server

    (found,) = [
        each
        for each in gc.get_objects()
        if isinstance(each, _Server) and server.url.endswith(f":{each.server_address[1]}")
    ]
    return list(found.connections)


def test_a_server_that_hung_up_on_an_idle_connection_is_asked_anew(server):
    site = site_of(server.url + "/data/")
    ask(site)
    server.rules.add(DROPPED, times=1)  # as the client sees it
    assert ask(site).body == VALUES.tobytes()[:10]


def test_bytes_are_not_fetched_where_the_headers_tell_that_they_changed(server):
    class No(StorageError):
        pass

    def check(meta):
        seen.append(meta)
        raise No("no")

    seen: list[Meta] = []
    with pytest.raises(No):
        ask(site_of(server.url + "/data/"), check)
    assert (seen[0].size, seen[0].etag) == (2048, server.files.etags["data/a.bin"])
    assert ask(site_of(server.url + "/data/")).body == VALUES.tobytes()[:10]


WEAK = {
    "recorded weak, and the server's is": ('W/"x"', 'W/"x"', "unverifiable"),
    "recorded weak, and the server's is another": ('W/"x"', 'W/"y"', "stale"),
    "recorded weak, and the server's is strong": ('W/"x"', '"x"', "unverifiable"),
    "recorded strong, and the server's is weak": ('"x"', 'W/"x"', "refused"),
    "recorded strong, without quotes": ("x", '"x"', "verified"),
    "recorded strong, and the server's is another": ('"x"', '"y"', "stale"),
    "recorded strong, and the server has none": ('"x"', None, "refused"),
    "recorded strong, and it is the same": ('"x"', '"x"', "verified"),
}


@pytest.mark.parametrize(("recorded", "found", "outcome"), WEAK.values(), ids=WEAK.keys())
def test_weak_and_absent_etags(server, tmp_path, recorded, found, outcome):
    server.files.put("data/a.bin", VALUES.tobytes(), etag=found or '"x"')
    if found is None:
        server.rules.add(without("etag"), times=1e9)
    array = made(server, tmp_path, checksum={"etag": recorded}).array()
    if outcome == "stale":
        with pytest.raises(icevirt.errors.StaleReferenceError):
            array[:]
    elif outcome == "refused":
        with pytest.raises(StorageError, match="cannot be verified"):
            array[:]
    else:
        np.testing.assert_array_equal(array[:], VALUES)
        seen = array.store.verification
        assert (seen.verifiable == 8) == (outcome == "verified")
        assert (seen.unverifiable == 8) == (outcome == "unverifiable")


def test_a_server_without_times_cannot_verify_a_time(server, tmp_path):
    server.rules.add(without("last-modified"), times=1e9)
    array = made(server, tmp_path, checksum={"last_modified": 2_000_000_000}).array()
    with pytest.raises(StorageError, match="cannot be verified"):
        array[:]


def test_an_object_that_changes_between_two_requests_does_not_pass(server, tmp_path):
    array = made(server, tmp_path, checksum={"etag": server.files.etags["data/a.bin"]}).array()
    np.testing.assert_array_equal(array[0], VALUES[0])
    server.files.put("data/a.bin", VALUES[::-1].tobytes())
    with pytest.raises(icevirt.errors.StaleReferenceError):
        array[1]


@pytest.mark.parametrize("lacking", [[], ["etag"]], ids=["an etag", "only a time"])
def test_no_chunk_is_of_two_versions_of_an_object(server, tmp_path, monkeypatch, lacking):
    """Without a recorded checksum any version may be read, but one at a time."""

    versions = iter(("", "of the other version"))

    def as_one_of_two(response):
        if not (version := next(versions)):
            return without(*lacking).change(response)
        later = {"etag": f'"{version}"', "last-modified": "Sun, 13 Sep 2020 12:26:41 GMT"}
        body = bytes(255 - byte for byte in response.body)
        other = replace(response, headers=response.headers | later, body=body)
        return without(*lacking).change(other)

    monkeypatch.setattr(remote, "Coalescing", partial(remote.Coalescing, most=CHUNK // 2))
    array = made(server, tmp_path).array()
    server.rules.add(Fault(change=as_one_of_two), times=2)
    with pytest.raises(StorageError, match="changed while a chunk of it was read"):
        array[0]
    np.testing.assert_array_equal(array[0], VALUES[0])


def test_weak_etags_of_the_server_are_counted_when_recorded_so(server, tmp_path):
    server.rules.add(weak_etag(), times=1e9)
    array = made(server, tmp_path, checksum={"etag": "W/" + server.files.etags["data/a.bin"]})
    opened = array.array()
    opened[:]
    assert opened.store.verification.unverifiable == 8


def test_a_proxy_of_the_environment_is_used(server, monkeypatch):
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.delenv("no_proxy", raising=False)
    answer = ask(site_of("http://archive.example/data/"))
    assert answer.body == VALUES.tobytes()[:10]
    (request,) = server.rules.requests
    assert request.target == "http://archive.example/data/a.bin"
    assert request.headers["host"] == "archive.example"


def test_a_host_that_needs_no_proxy_is_asked_itself(server, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    ask(site_of(server.url + "/data/"))
    assert server.rules.requests[0].target == "/data/a.bin"


# -- answers that are not as long as their range ---------------------------------------------------


def of_length(more):
    """Let an answer say the right range, and have more bytes before it, or fewer."""

    def change(response):
        body = b"?" * more + response.body if more > 0 else response.body[:more]
        headers = {**response.headers, "content-length": str(len(body))}
        return replace(response, body=body, headers=headers)

    return Fault(change=change)


@pytest.mark.parametrize("more", [7, -7])
def test_an_answer_that_is_not_as_long_as_its_range_is_refused(server, tmp_path, more):
    server.rules.add(of_length(more), times=1e9)
    with pytest.raises(StorageError, match=r"range requests|not valid"):
        made(server, tmp_path).array()[:]


@pytest.mark.parametrize("more", [7, -7])
def test_so_it_is_from_a_bucket(strict_s3, tmp_path, more):
    strict_s3.place.store().put("data/a.bin", VALUES.tobytes())
    options = {"region": "us-east-1", "endpoint_url": strict_s3.place.endpoint, "allow_http": True}
    prefix = f"{strict_s3.place.url}/data/"
    credentials = icevirt.s3_credentials(access_key_id="test", secret_access_key="test")
    remote = refer(
        tmp_path / "repo",
        prefix,
        store=ObjectStoreConfig("s3_compatible", options),
        authorize={(prefix, strict_s3.place.endpoint): credentials},
    )
    np.testing.assert_array_equal(remote.array()[:], VALUES)
    strict_s3.rules.add(of_length(more), method="GET", target="a.bin", times=1e9)
    with pytest.raises(StorageError, match="not valid"):
        remote.array()[:]


@pytest.mark.parametrize("more", [7, -7])
def test_so_it_is_from_file_systems_and_stores_of_others(more):
    """Of fsspec, and of a registry of VirtualiZarr."""
    wrong = b"?" * (CHUNK + more)
    meta = {"size": 4 * CHUNK, "e_tag": "e", "last_modified": datetime.fromtimestamp(1, UTC)}
    answer = SimpleNamespace(meta=meta, range=(0, CHUNK), buffer=lambda: wrong)
    system = SimpleNamespace(
        cat_ranges=lambda **_: [wrong], info=lambda _: {"size": 4 * CHUNK, "mtime": 1}
    )
    store = SimpleNamespace(get=lambda *_, **__: answer)
    for reach in (ForeignReach(system, "x://y/"), StoreReach(store, "x://y/a")):
        with pytest.raises(StorageError, match="not valid"):
            reach.get("a", 0, CHUNK, lambda _: None)
