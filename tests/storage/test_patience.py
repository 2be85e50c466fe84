"""Stores that throttle or are away for a while cost time; those that are down cost little of it."""

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from urllib.parse import urlsplit

import obstore
import pytest

from icevirt.connect import retry
from icevirt.errors import StorageError
from icevirt.objects.backends import BucketReach
from long_forms import cases, crossed
from servers.faults import ANSWER_LOST, DROPPED, Rules, refused, truncated
from servers.haste import hasten
from servers.proxy import passing_on
from servers.serving import served

pytestmark = pytest.mark.servers
MORE = 4  # failures than the library gets over by itself


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Wait shortly, but send as often as with pauses of usual length."""
    hasten(monkeypatch, max_retries=1)
    retry.SERVERS.clear()
    yield
    retry.SERVERS.clear()


@pytest.fixture(params=["s3", "azure", "gcs"])
def line(request):
    """A place of each kind, through a proxy whose rules the test sets; three objects are there."""
    place, rules = request.getfixturevalue(request.param), Rules()
    with served(passing_on(place.endpoint), rules) as url:
        through = place.at(url + urlsplit(place.endpoint).path).icevirt()
        for name in "abc":
            through.put(f"dir/{name}", b"0123456789")
        rules.clear()
        yield rules, place.icevirt(), through


def whole(storage):
    """Return the object through what reads source files."""
    reach = BucketReach(storage._bucket, storage.url)
    key = f"{storage._prefix}/dir/a"
    return bytes(reach.get(key, 0, 10, lambda _: None).body)


VERBS = {
    "get": (lambda s: s.get("dir/a"), b"0123456789"),
    "range": (lambda s: s.get_range("dir/a", offset=2, length=3), b"234"),
    "source": (whole, b"0123456789"),
    "list": (lambda s: sorted(i.path for i in s.list("dir")), ["dir/a", "dir/b", "dir/c"]),
    "head": (lambda s: [i.size for i in s.list("dir/a")], [10]),
    "put": (lambda s: s.put("dir/d", b"new"), None),
    "delete": (lambda s: s.delete("dir/a"), None),
    "delete below": (lambda s: s.delete_below("dir"), None),
}
FAULTS = {
    "slow down": refused(503, "SlowDown"),
    "too many requests": refused(429, "SlowDown", retry_after="0"),
    "the connection breaks": DROPPED,
    "the answer is lost": ANSWER_LOST,
    "the answer breaks off": truncated(3),
}


KINDS = ("s3", "azure", "gcs")
CASES = cases(
    product(KINDS, VERBS, FAULTS),
    *product(["s3"], VERBS, FAULTS),
    *((kind, *each) for kind in KINDS[1:] for each in crossed(VERBS, FAULTS)),
)


@pytest.mark.parametrize(("line", "verb", "fault"), CASES, indirect=["line"])
def test_every_verb_outlasts_a_storm(line, verb, fault):
    rules, direct, storage = line
    act, expected = VERBS[verb]
    rules.add(FAULTS[fault], times=MORE)
    assert act(storage) == expected
    left = {info.path for info in direct.list("dir")}
    gone = {"delete": {"dir/a"}, "delete below": {"dir/a", "dir/b", "dir/c"}}.get(verb, set())
    assert left == ({"dir/a", "dir/b", "dir/c"} | ({"dir/d"} if verb == "put" else set())) - gone


def test_what_came_too_slowly_for_s3_is_sent_again(s3_proxy):
    s3_proxy.rules.add(refused(400, "RequestTimeout"), times=MORE)
    s3_proxy.place.icevirt().put("a", b"body")
    assert s3_proxy.direct.icevirt().get("a") == b"body"


def test_a_listing_that_breaks_off_goes_on_where_it_was(s3_proxy):
    names = [f"dir/{number:04}" for number in range(1050)]  # two pages of S3
    direct = s3_proxy.direct.store()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: obstore.put(direct, name, b""), names))
    rules, storage = s3_proxy.rules, s3_proxy.place.icevirt()
    rules.add(truncated(40), target="list-type", nth=2, times=MORE)
    assert [info.path for info in storage.list("dir")] == names
    assert rules.hits == MORE


def test_a_store_that_is_down_is_named_in_bounded_time_and_left_alone(line, monkeypatch):
    rules, _, storage = line
    monkeypatch.setattr(retry, "TOTAL", 1.5)
    monkeypatch.setattr(retry, "_REST", 0.5)
    rules.add(refused(503, "SlowDown"), times=1e9)
    begin = time.monotonic()
    with pytest.raises(StorageError, match="fewer requests") as caught:
        storage.get("dir/a")
    assert time.monotonic() - begin < 20
    assert caught.value.facts["status"] == 503
    assert caught.value.facts["url"] == f"{storage.url}/dir/a"
    assert "tried_for" in caught.value.facts

    sent = len(rules.requests)
    for number in range(retry._CERTAIN - 1):  # a few may be about their objects: each is asked
        with pytest.raises(StorageError, match=f"/dir/{number}'"):
            storage.get(f"dir/{number}")
        assert len(rules.requests) == sent + number + 1
    with pytest.raises(StorageError, match="/dir/more'"):
        storage.get("dir/more")
    assert len(rules.requests) == sent + retry._CERTAIN - 1  # so many are not

    time.sleep(0.6)
    rules.clear()
    assert storage.get("dir/a") == b"0123456789"
    rules.add(refused(503, "SlowDown"), times=MORE)
    assert storage.get("dir/b") == b"0123456789"  # and patience is back


def test_an_object_that_always_fails_costs_others_nothing(line, monkeypatch):
    rules, _, storage = line
    monkeypatch.setattr(retry, "TOTAL", 0.5)
    rules.add(refused(500), target=r"dir(/|%2F)a", times=1e9)
    for name in "abcabc":
        if name == "a":
            with pytest.raises(StorageError, match="dir/a"):
                storage.get("dir/a")
        else:
            assert storage.get(f"dir/{name}") == b"0123456789"
