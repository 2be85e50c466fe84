"""The servers keep the promises that tests of icevirt rest on; checked without icevirt."""

import os
import signal
import socket
import subprocess
import sys
import time

import icechunk
import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, PreconditionError

from servers import counting
from servers.counting import version
from servers.faults import (
    ANSWER_LOST,
    DROPPED,
    applied_but_refused,
    conflicting,
    redirected,
    refused,
    slow,
    truncated,
    weak_etag,
    without,
)
from servers.fixtures import gcs_running
from servers.places import GcsPlace
from servers.processes import free_port
from servers.racing import raced

RACERS, ROUNDS = 8, 50
PATIENT = {"max_retries": 0}


@pytest.fixture(params=["s3", "azure", "gcs"])
def place(request):
    return request.getfixturevalue(request.param)


def test_of_processes_that_race_none_is_lost(place):
    place.store().put("counter", b"0", mode="create")
    raced(counting.count, [(place, racer, ROUNDS) for racer in range(RACERS)])
    body = bytes(place.store().get("counter").bytes())
    assert int(body.split()[0]) == RACERS * ROUNDS


def test_conditions_are_kept(place):
    store = place.store()
    first = store.put("repo", b"one", mode="create")
    with pytest.raises(AlreadyExistsError):
        store.put("repo", b"two", mode="create")
    second = store.put("repo", b"two", mode=version(first))
    with pytest.raises(PreconditionError):
        store.put("repo", b"three", mode=version(first))
    assert store.get("repo").bytes() == b"two"
    assert version(store.head("repo")) == version(second)
    with pytest.raises(PreconditionError):
        obstore.get(store, "repo", options={"if_match": '"other"'}).bytes()
    store.delete("repo")
    with pytest.raises((PreconditionError, FileNotFoundError)):
        store.put("repo", b"four", mode=version(second))
    with pytest.raises(FileNotFoundError):
        store.get("repo")


def test_ranges_and_large_objects_come_back(place):
    store = place.store()
    body = bytes(range(256)) * 80_000  # several parts
    store.put("dir/large é#1", body, chunk_size=6 * 1024 * 1024, use_multipart=True)
    assert store.get("dir/large é#1").bytes() == body
    assert store.get_range("dir/large é#1", start=300, length=9) == body[300:309]
    parts = store.get_ranges("dir/large é#1", starts=[0, 20_479_990], lengths=[2, 10])
    assert [bytes(part) for part in parts] == [body[:2], body[-10:]]


def test_listings_are_whole_and_sorted_into_folders(place):
    store = place.store()
    names = {f"a/{number:04}" for number in range(1100 if "gcs" in place.kind else 60)}
    for name in (*names, "a b/x", "ab", "a/deep/1", "a/deep/2", "é&<"):
        store.put(name, b"four")
    found = [meta for page in store.list() for meta in page]
    assert {meta["path"] for meta in found} == {
        *names,
        "a b/x",
        "ab",
        "a/deep/1",
        "a/deep/2",
        "é&<",
    }
    assert {meta["size"] for meta in found} == {4}
    level = store.list_with_delimiter("a")
    assert set(level["common_prefixes"]) == {"a/deep"}
    assert {meta["path"] for meta in level["objects"]} == names


def test_the_official_client_makes_a_repository(place):
    made = icechunk.Repository.create(place.official())
    made.create_tag("v1", made.lookup_branch("main"))
    again = icechunk.Repository.open(place.official())
    assert again.list_tags() == {"v1"}
    assert {"repo", "overwritten"} <= {
        meta["path"].split("/")[0] for page in place.store().list() for meta in page
    }


def test_a_clock_may_be_ahead():
    with gcs_running(ahead=5) as url:
        store = GcsPlace(endpoint=url, prefix="p").store()
        before = time.time()
        store.put("a", b"")
        after = time.time()
        output = store.head("a")["last_modified"].timestamp()
        ((listed,),) = store.list()
    assert before + 4 < output <= after + 5  # whole seconds
    assert before + 4.99 < listed["last_modified"].timestamp() <= after + 5


PROGRAM = """
import sys, time
from servers.processes import running
with running([sys.executable, "-m", "http.server", "--bind", "127.0.0.1", sys.argv[1]],
             port=int(sys.argv[1])):
    print("up", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("group", [False, True], ids=["it alone", "its group"])
def test_a_server_ends_with_the_process_that_is_killed(request, group):
    port = free_port()
    env = {**os.environ, "PYTHONPATH": str(request.config.rootpath / "tests")}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(port)],
        stdout=subprocess.PIPE,
        env=env,
        start_new_session=True,
    ) as starter:
        assert starter.stdout.readline() == b"up\n"
        os.killpg(starter.pid, signal.SIGKILL) if group else starter.kill()
    for _ in range(200):
        if not listens(port):
            return
        time.sleep(0.02)
    pytest.fail("it still listens")


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


# -- faults on the way -----------------------------------------------------------------------


def impatient(place):
    """A store that does not try again."""
    from obstore.store import S3Store

    return S3Store.from_url(
        place.url,
        endpoint=place.endpoint,
        region="us-east-1",
        access_key_id="test",
        secret_access_key="test",
        client_options={"allow_http": True},
        retry_config=PATIENT,
    )


@pytest.mark.parametrize(
    ("fault", "applied"),
    [
        (DROPPED, False),
        (refused(500), False),
        (refused(503, "SlowDown"), False),
        (conflicting(), False),
        (ANSWER_LOST, True),
        (applied_but_refused(500), True),
    ],
    ids=["dropped", "500", "503", "409", "answer lost", "500 but done"],
)
def test_what_befalls_a_request_befalls_it_once(s3_proxy, fault, applied):
    s3_proxy.rules.add(fault, method="PUT", target="/repo$", nth=2)
    store = impatient(s3_proxy.place)
    store.put("repo", b"one")
    with pytest.raises(Exception, match=r"repo|HTTP|error"):
        store.put("repo", b"two")
    there = bytes(s3_proxy.direct.store().get("repo").bytes())
    assert there == (b"two" if applied else b"one")
    store.put("repo", b"three")
    assert [r.method for r in s3_proxy.rules.requests] == ["PUT"] * 3
    assert s3_proxy.rules.hits == 1


def test_a_retried_conditional_write_whose_answer_was_lost_looks_like_a_lost_race(s3_proxy):
    """The case that clients have to resolve by reading back."""
    store = s3_proxy.place.store()
    first = store.put("repo", b"one", mode="create")
    s3_proxy.rules.add(ANSWER_LOST, method="PUT", target="/repo$")
    with pytest.raises(Exception):  # noqa: B017 - whichever the client makes of it
        store.put("repo", b"two", mode=version(first))
    assert store.get("repo").bytes() == b"two"


def test_a_server_of_files_serves_ranges_with_their_faults(http_server):
    from obstore.store import HTTPStore

    files, rules = http_server.files, http_server.rules
    files.put("data/a.nc", b"0123456789", etag='"one"')
    store = HTTPStore.from_url(
        http_server.url, client_options={"allow_http": True}, retry_config={"max_retries": 2}
    )
    assert store.get_range("data/a.nc", start=3, length=4) == b"3456"
    rules.add(refused(503, "SlowDown", retry_after="0"), nth=1)
    assert store.get("data/a.nc").bytes() == b"0123456789"
    rules.add(slow(0.05))
    started = time.monotonic()
    assert store.head("data/a.nc")["e_tag"] == '"one"'
    assert time.monotonic() - started > 0.05
    rules.add(weak_etag())
    assert store.head("data/a.nc")["e_tag"] == 'W/"one"'
    rules.add(without("etag"))
    assert store.head("data/a.nc")["e_tag"] is None
    rules.add(redirected(f"{http_server.url}/data/a.nc"), target="elsewhere")
    assert store.get("elsewhere").bytes() == b"0123456789"
    rules.add(truncated(1), times=99, target="a.nc")
    with pytest.raises(Exception, match="error"):
        store.get("data/a.nc").bytes()
    rules.clear()
    files.tokens = {"good"}
    with pytest.raises(Exception, match="401"):
        store.get("data/a.nc")
