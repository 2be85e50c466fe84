"""Buckets: conditional writes whose answers get lost, servers that misbehave, errors that help."""

import base64
import hmac
import os
import pickle
import signal
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from urllib.parse import quote, urlsplit

import pytest

from icevirt import (
    S3StaticCredentials,
    azure_storage,
    r2_storage,
    s3_storage,
    tigris_storage,
)
from icevirt.connect import retry
from icevirt.errors import InvalidInputError, ObjectNotFoundError, StorageError
from icevirt.storage import object_store
from icevirt.storage.constructors import storage_of
from icevirt.storage.object_store import ObjectStorage
from icevirt.storage.protocol import LostRace, Written
from long_forms import cases, crossed
from servers import azurite
from servers.faults import ANSWER_LOST, DROPPED, Rules, conflicting, refused, slow, truncated
from servers.places import BUCKET
from servers.proxy import passing_on
from servers.serving import served

REPO = r"(/|%2F)repo$"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Retry at once; a test may put something of its own in the pauses."""
    monkeypatch.setattr(object_store, "_pause", lambda _: None)
    monkeypatch.setattr(retry, "TOTAL", 3.0)


@pytest.fixture
def storage(s3_proxy):
    """A storage behind the proxy, known to heed conditions."""
    made = s3_proxy.place.icevirt()
    made.put_if("first", b"", was=None)
    s3_proxy.rules.clear()
    return made


@pytest.fixture(params=["s3", "azure", "gcs"])
def line(request):
    """A place of each kind, directly and through a proxy: (rules, direct, through)."""
    place, rules = request.getfixturevalue(request.param), Rules()
    with served(passing_on(place.endpoint), rules) as url:
        through = place.at(url + urlsplit(place.endpoint).path).icevirt()
        through.put_if("first", b"", was=None)
        rules.clear()
        yield rules, place.icevirt(), through


FAULTS = {
    "the answer is lost": ANSWER_LOST,
    "it never arrives": DROPPED,
    "applied, but refused by a proxy": replace(refused(500), applied=True),
    "refused by a broken server": refused(500),
    "two writers at one moment": conflicting(),
    "slow down": refused(503, "SlowDown", retry_after="1"),
    "too many requests": refused(429, "SlowDown", retry_after="1"),
    "applied, but a bad gateway": replace(refused(502), applied=True),
}


KINDS = ("s3", "azure", "gcs")
CASES = cases(
    product(KINDS, FAULTS, [1, 3]),
    *product(["s3"], FAULTS, [1, 3]),
    *((kind, *each) for kind in KINDS[1:] for each in crossed(FAULTS, [1, 3])),
)


@pytest.mark.parametrize(("line", "fault", "times"), CASES, indirect=["line"])
def test_a_conditional_write_that_took_place_is_found_to_be_ours(line, fault, times):
    rules, direct, storage = line
    rule = rules.add(FAULTS[fault], method="PUT", target=REPO, times=times)
    first = storage.put_if("repo", b"one", was=None)
    assert isinstance(first, Written)
    assert direct.get_versioned("repo") == (b"one", first.version)
    assert rule.seen > 1

    rules.clear()
    rule = rules.add(FAULTS[fault], method="PUT", target=REPO, times=times)
    second = storage.put_if("repo", b"two", was=first.version)
    assert isinstance(second, Written)
    assert direct.get_versioned("repo") == (b"two", second.version)
    assert rule.seen > 1


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_write_that_lost_is_lost_whatever_else_happens(line, fault):
    rules, direct, storage = line
    version = storage.put_if("repo", b"one", was=None).version
    direct.put_if("repo", b"theirs", was=version)
    rules.add(fault, method="PUT", target=REPO)
    assert isinstance(storage.put_if("repo", b"two", was=version), LostRace)
    assert isinstance(storage.put_if("repo", b"two", was=None), LostRace)
    assert direct.get("repo") == b"theirs"
    assert rules.hits == 1


def test_a_plain_refusal_is_a_plain_loss_with_one_write_and_one_read(s3_proxy, storage):
    storage.put_if("repo", b"one", was=None)
    s3_proxy.rules.clear()
    assert storage.put_if("repo", b"two", was=None) == LostRace()
    assert [request.method for request in s3_proxy.rules.requests] == ["PUT", "GET"]


def test_a_write_that_others_wrote_upon_before_its_answer_is_said_to_be_unsure(
    s3_proxy, storage, monkeypatch
):
    version = storage.put_if("repo", b"one", was=None).version
    other = s3_proxy.direct.icevirt()

    def meanwhile(_attempt):
        body, seen = other.get_versioned("repo")
        assert body == b"two"
        assert isinstance(other.put_if("repo", b"two and more", was=seen), Written)

    monkeypatch.setattr(object_store, "_pause", meanwhile)
    s3_proxy.rules.add(ANSWER_LOST, method="PUT", target=REPO)
    outcome = storage.put_if("repo", b"two", was=version)
    assert outcome == LostRace(perhaps_first_written=True)
    assert storage.get("repo") == b"two and more"


def test_a_write_to_a_store_that_stays_silent_is_said_to_be_unknown(s3_proxy, storage):
    s3_proxy.rules.add(ANSWER_LOST, method="PUT", target=REPO, times=100)
    written = storage.put_if("repo", b"one", was=None)
    assert isinstance(written, Written)  # it reads what it wrote, after the last try
    s3_proxy.rules.clear()
    s3_proxy.rules.add(DROPPED, method="PUT", target=REPO, times=100)
    with pytest.raises(StorageError, match="unknown whether") as caught:
        storage.put_if("repo", b"two", was=written.version)
    assert s3_proxy.rules.hits == object_store._TRIES
    assert pickle.loads(pickle.dumps(caught.value)).facts == caught.value.facts


def test_of_threads_that_race_through_a_bad_line_none_is_lost_and_none_counts_twice(
    s3_proxy, storage
):
    storage.put_if("repo", b"", was=None)
    for nth in range(5, 200, 7):
        s3_proxy.rules.add(ANSWER_LOST, method="PUT", target=REPO, nth=nth)
        s3_proxy.rules.add(refused(500), method="PUT", target=REPO, nth=nth + 3)
    unsure = []

    def count(name: bytes) -> None:
        for n in range(10):
            mine = b"%s%d " % (name, n)
            while True:
                body, version = storage.get_versioned("repo")
                if mine in body:
                    break  # an unsure loss was none
                outcome = storage.put_if("repo", body + mine, was=version)
                if isinstance(outcome, Written):
                    break
                if outcome.perhaps_first_written:
                    unsure.append(mine)

    threads = [threading.Thread(target=count, args=(bytes([65 + n]),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counted = storage.get("repo").split()
    assert sorted(counted) == sorted(b"%c%d" % (65 + t, n) for t in range(4) for n in range(10))
    assert s3_proxy.rules.hits >= 5


@pytest.mark.parametrize("header", ["if-none-match", "if-match"])
def test_a_store_that_ignores_conditions_is_refused(s3, header):
    honest = passing_on(s3.endpoint)

    def careless(request):
        kept = {name: value for name, value in request.headers.items() if name != header}
        return honest(replace(request, headers=kept))

    with served(careless, Rules()) as url:
        storage = s3.at(url).icevirt()
        with pytest.raises(StorageError, match="ignores the conditions"):
            storage.put_if("repo", b"one", was=None)


def test_so_it_is_where_the_repository_was_there_before(s3):
    """It was copied there, or made by a client that does not look."""
    s3.icevirt().put("repo", b"one")
    honest = passing_on(s3.endpoint)

    def careless(request):
        kept = {name: value for name, value in request.headers.items() if name != "if-match"}
        return honest(replace(request, headers=kept))

    with served(careless, Rules()) as url:
        storage = s3.at(url).icevirt()
        _, version = storage.get_versioned("repo")
        with pytest.raises(StorageError, match="ignores the conditions"):
            storage.put_if("repo", b"two", was=version)


def test_a_store_without_conditional_writes_is_refused(s3_proxy):
    s3_proxy.rules.add(refused(501, "NotImplemented"), method="PUT", target=REPO, times=9)
    with pytest.raises(StorageError, match="If-Match"):
        s3_proxy.place.icevirt().put_if("repo", b"one", was=None)
    assert s3_proxy.rules.hits == 1


def test_what_is_read_or_put_without_a_condition_is_tried_again(s3_proxy, storage):
    s3_proxy.rules.add(DROPPED, target=r"/a$", nth=1)
    s3_proxy.rules.add(refused(503, "SlowDown", retry_after="1"), target=r"/a$", nth=3)
    s3_proxy.rules.add(refused(500), target=r"/a$", nth=5)
    storage.put("a", b"body")
    assert storage.get("a") == b"body"
    assert storage.get_range("a", offset=1, length=2) == b"od"
    assert s3_proxy.rules.hits == 3


def test_a_body_cut_short_is_never_returned(s3_proxy, storage):
    storage.put("a", b"a body of some length")
    s3_proxy.rules.add(truncated(7), method="GET", target=r"/a$", times=2)
    assert storage.get("a") == b"a body of some length"
    assert s3_proxy.rules.hits == 2
    s3_proxy.rules.clear()
    s3_proxy.rules.add(truncated(0), method="GET", target=r"/a$", times=100)
    with pytest.raises(StorageError):
        storage.get("a")


def test_large_objects_are_put_in_parts(s3_proxy, storage):
    body = os.urandom(1024) * (20 * 1024)
    storage.put("large", body)
    parts = [r for r in s3_proxy.rules.requests if r.method == "PUT" and "partNumber" in r.target]
    assert len(parts) == 2
    assert storage.get("large") == body


def test_listings_of_many_objects_have_many_pages(s3_proxy, storage):
    names = {f"chunks/{n:04}" for n in range(1100)}
    direct = s3_proxy.direct.store()
    import obstore

    for name in names:
        obstore.put(direct, name, b"x")
    s3_proxy.rules.clear()
    assert {info.path for info in storage.list("chunks")} == names
    assert len(s3_proxy.rules.requests) == 2
    storage.delete_below("chunks")
    assert list(storage.list("chunks")) == []
    assert len(s3_proxy.rules.requests) < 10


def test_an_object_is_listed_by_its_own_name(s3):
    storage = s3.icevirt()
    storage.put("a/b", b"x")
    assert [info.path for info in storage.list("a/b")] == ["a/b"]


HELP = {
    "no permission": (refused(403, "AccessDenied"), "permissions"),
    "clock": (refused(403, "RequestTimeTooSkewed"), "clock"),
    "expired": (refused(400, "ExpiredToken"), "expired"),
    "unknown key": (refused(403, "InvalidAccessKeyId"), "access key"),
    "wrong secret": (refused(403, "SignatureDoesNotMatch"), "secret key"),
    "wrong region": (refused(301, "PermanentRedirect"), "region"),
    "wrong region, signed": (refused(400, "AuthorizationHeaderMalformed"), "region"),
    "no such bucket": (refused(404, "NoSuchBucket"), "Check its name"),
}


@pytest.mark.parametrize(("fault", "remedy"), HELP.values(), ids=HELP.keys())
def test_a_refusal_says_what_to_do(s3_proxy, storage, fault, remedy):
    s3_proxy.rules.add(fault, times=100)
    for act in (
        lambda: storage.get("repo"),
        lambda: storage.get_range("repo", offset=0, length=1),
        lambda: storage.put("repo", b""),
        lambda: storage.put_if("repo", b"", was=None),
        lambda: list(storage.list()),
        lambda: storage.delete("repo"),
    ):
        with pytest.raises(StorageError, match=remedy) as caught:
            act()
        assert not isinstance(caught.value, ObjectNotFoundError)
        assert caught.value.__context__ is None
        assert storage.url in str(caught.value)
    assert len(s3_proxy.rules.requests) <= 8  # nothing is sent again


@pytest.mark.ci
def test_a_server_that_is_not_there_is_said(monkeypatch):
    storage = s3_storage(
        bucket="b", prefix="p", endpoint_url="http://127.0.0.1:1", allow_http=True, anonymous=True
    )
    monkeypatch.setattr("icevirt.connect.stores._RETRIES", {"max_retries": 0})
    with pytest.raises(StorageError, match="Nothing answers there"):
        storage.get("repo")
    with pytest.raises(StorageError, match="Nothing answers there") as caught:
        storage.put_if("repo", b"", was=None)
    assert "not known" not in str(caught.value)  # nothing was sent


def test_a_server_that_hangs_is_given_up(s3_proxy):
    storage = s3_storage(**s3_proxy.place.options, network_stream_timeout_seconds=1)
    s3_proxy.rules.add(slow(3), times=1)
    with pytest.raises(ObjectNotFoundError):  # the second try is answered
        storage.get("repo")
    assert s3_proxy.rules.hits == 1
    assert len(s3_proxy.rules.requests) == 2


def _in_child(act) -> int:
    """Return the exit code of a forked child that acts, -SIGALRM if it hangs."""
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            act()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_storage_in_use_works_in_forked_children_and_theirs(place):
    storage = place.icevirt()
    storage.put("a", b"parent")

    def use():
        assert storage.get("a") == b"parent"
        storage.put("b", b"child")
        assert isinstance(storage.put_if(f"c{os.getpid()}", b"", was=None), Written)
        with pytest.raises(ObjectNotFoundError):
            storage.get("never")
        assert len(list(storage.list())) >= 3

    def use_and_fork():
        use()
        assert _in_child(use) == 0

    assert _in_child(use_and_fork) == 0
    assert storage.get("b") == b"child"
    assert len(list(storage.list())) == 4


@pytest.mark.parametrize("prefix", ["a//b", "./a", "a/../b"])
def test_odd_prefixes_are_refused(prefix):
    with pytest.raises(InvalidInputError):
        s3_storage(bucket="b", prefix=prefix, anonymous=True)


@pytest.mark.parametrize("prefix", ["a b", "ünïcode", "per%20cent", "q?a=b#c", "plus+and&"])
def test_prefixes_of_any_characters_hold_and_come_back_from_their_url(s3, prefix):
    storage = s3_storage(**{**s3.options, "prefix": f"{s3.prefix}/{prefix}"})
    storage.put("x/y", b"1")
    assert [info.path for info in storage.list()] == ["x/y"]
    options = {k: v for k, v in s3.options.items() if k not in ("bucket", "prefix")}
    again = storage_of(storage.url, options)
    assert again == storage
    assert again.get("x/y") == b"1"


def test_a_url_and_the_environment_make_a_storage(s3, monkeypatch):
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_ENDPOINT_URL": s3.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    storage = storage_of(s3.url)
    storage.put("a", b"1")
    assert s3.icevirt().get("a") == b"1"
    assert storage.url == s3.url == f"s3://{BUCKET}/{s3.prefix}"


def _sent_with(rules):
    return [request.headers for request in rules.requests]


def test_keys_that_were_given_go_without_a_token_of_the_environment(s3_proxy, monkeypatch):
    monkeypatch.setenv("AWS_SESSION_TOKEN", "not theirs")
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    s3_proxy.place.icevirt().exists()
    for headers in _sent_with(s3_proxy.rules):
        assert "Credential=test/" in headers["authorization"]
        assert "x-amz-security-token" not in headers


def test_anonymous_requests_are_not_signed_whatever_the_environment_has(s3_proxy, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "mine")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "mine")
    options = {k: v for k, v in s3_proxy.place.options.items() if "access_key" not in k}
    s3_storage(**options, anonymous=True).exists()
    assert ["authorization" in headers for headers in _sent_with(s3_proxy.rules)] == [False]


def test_a_change_of_the_environment_is_noticed(s3_proxy, monkeypatch):
    options = {k: v for k, v in s3_proxy.place.options.items() if "access_key" not in k}
    for name in ("first", "second"):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", name)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", name)
        s3_storage(**options).exists()
        assert f"Credential={name}/" in s3_proxy.rules.requests[-1].headers["authorization"]


def test_keys_of_a_file_are_used_and_looked_at_again(s3_proxy, monkeypatch, tmp_path):
    file = tmp_path / "credentials"
    file.write_text("[default]\naws_access_key_id = one\naws_secret_access_key = x\n")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    options = {k: v for k, v in s3_proxy.place.options.items() if "access_key" not in k}
    s3_storage(**options).exists()
    assert "Credential=one/" in s3_proxy.rules.requests[-1].headers["authorization"]


def test_credentials_that_expire_are_asked_for_again_before_they_do(s3_proxy):
    calls = []

    def fresh():
        calls.append(1)
        end = datetime.now(UTC) + timedelta(seconds=30)
        return S3StaticCredentials(f"key{len(calls)}", "x", None, end)

    options = {k: v for k, v in s3_proxy.place.options.items() if "access_key" not in k}
    storage = s3_storage(**options, get_credentials=fresh)
    for _ in range(3):
        storage.exists()
        time.sleep(0.2)  # obstore asks ten times a second at most
    keys = {headers["authorization"].split("/")[0] for headers in _sent_with(s3_proxy.rules)}
    assert len(keys) == len(calls) == 3


def test_tigris_and_r2_are_s3_with_their_own_endpoints(s3_proxy):
    tigris = tigris_storage(bucket="b", prefix="p", anonymous=True)
    assert dict(tigris._bucket.options.store)["aws_endpoint_url_s3"] == "https://t3.storage.dev"
    assert storage_of("tigris://b/p", {"anonymous": True}) == tigris
    tigris_storage(**s3_proxy.place.options).exists()
    assert s3_proxy.rules.requests[-1].headers["x-tigris-consistent"] == "true"
    r2 = r2_storage(prefix="bucket/a/b", account_id="acc", anonymous=True)
    assert r2.url == "s3://bucket/a/b"
    assert dict(r2._bucket.options.store)["aws_endpoint_url_s3"] == (
        "https://acc.r2.cloudflarestorage.com"
    )
    with pytest.raises(InvalidInputError, match="account_id"):
        r2_storage(bucket="b", prefix="p")


def test_a_shared_access_signature_opens_a_container(azure):
    storage = azure.icevirt()
    storage.put("a", b"1")
    options = {k: v for k, v in azure.options.items() if k != "access_key"}
    signed = azure_storage(**options, sas_token=_signature(azure))
    assert signed.get("a") == b"1"
    with pytest.raises(StorageError, match=r"status=40[13]"):
        azure_storage(**options, sas_token=_signature(azure, key=b"another")).get("a")


def _signature(place, key=None) -> str:
    """Return a signature that lets its bearer do everything in the container for an hour."""
    end = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    version = "2021-08-06"
    resource = f"/blob/{azurite.ACCOUNT}/{BUCKET}"
    signed = "\n".join(["racwdl", "", end, resource, "", "", "", version, "c", *[""] * 7])
    digest = hmac.digest(key or base64.b64decode(azurite.KEY), signed.encode(), "sha256")
    signature = quote(base64.b64encode(digest), safe="")
    return f"sp=racwdl&se={quote(end)}&sv={version}&sr=c&sig={signature}"


def test_an_endpoint_in_the_clear_has_to_be_meant(monkeypatch):
    monkeypatch.delenv("AWS_ALLOW_HTTP", raising=False)
    with pytest.raises(InvalidInputError, match="allow_http=True"):
        s3_storage(bucket="b", prefix="p", endpoint_url="http://host:1", anonymous=True)


def test_options_that_do_not_fit_the_url_are_named():
    with pytest.raises(InvalidInputError, match="acount"):
        storage_of("az://container/prefix", {"acount": "x"})
    with pytest.raises(InvalidInputError, match="storage_options"):
        storage_of("/a/path", {"anonymous": True})


def test_storages_of_the_same_place_are_equal_and_pickle(place):
    storage = place.icevirt()
    again = pickle.loads(pickle.dumps(storage))
    assert again == storage == place.icevirt()
    assert hash(again) == hash(storage)
    if isinstance(storage, ObjectStorage):
        assert again._bucket.store() is storage._bucket.store()
