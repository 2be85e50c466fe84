"""Credentials: which kind the arguments make, when they are refreshed, and that they stay secret."""

import pickle
import threading
from datetime import UTC, datetime, timedelta

import icechunk
import pytest

import icevirt
from icevirt.connect.credentials.common import Anonymous, FromEnv, Refreshable, Refresher
from icevirt.connect.stores import bucket_of
from icevirt.errors import InvalidInputError, StorageError

SECRET = "CANARY-47"


def _s3():
    return icevirt.S3StaticCredentials("id", SECRET, "token", None)


def _gcs():
    return icevirt.GcsBearerCredential(SECRET)


def _azure():
    return icevirt.AzureRefreshableCredential.SasToken(SECRET)


KINDS = {
    "s3": icevirt.s3_credentials(access_key_id=SECRET, secret_access_key=SECRET, session_token=SECRET),
    "s3 env": icevirt.s3_credentials(),
    "s3 anonymous": icevirt.s3_credentials(anonymous=True),
    "s3 refreshable": icevirt.s3_credentials(get_credentials=_s3, scatter_initial_credentials=True),
    "gcs file": icevirt.gcs_credentials(service_account_file="/a/path"),
    "gcs key": icevirt.gcs_credentials(service_account_key=SECRET),
    "gcs application": icevirt.gcs_credentials(application_credentials="/a/path"),
    "gcs bearer": icevirt.gcs_credentials(bearer_token=SECRET),
    "gcs env": icevirt.gcs_credentials(),
    "gcs anonymous": icevirt.gcs_credentials(anonymous=True),
    "gcs refreshable": icevirt.gcs_credentials(
        get_credentials=_gcs, scatter_initial_credentials=True
    ),
    "azure key": icevirt.azure_credentials(access_key=SECRET),
    "azure sas": icevirt.azure_credentials(sas_token="?" + SECRET),
    "azure bearer": icevirt.azure_credentials(bearer_token=SECRET),
    "azure env": icevirt.azure_credentials(),
    "azure anonymous": icevirt.azure_credentials(anonymous=True),
    "azure refreshable": icevirt.azure_credentials(
        get_credentials=_azure, scatter_initial_credentials=True
    ),
    "http headers": icevirt.http_credentials(headers={"X-Api-Key": SECRET}),
    "http bearer": icevirt.http_credentials(bearer_token=SECRET),
    "http": icevirt.HttpAccess,
}  # fmt: skip


@pytest.mark.parametrize("credentials", KINDS.values(), ids=KINDS.keys())
def test_credentials_show_no_secret_compare_hash_and_pickle(credentials):
    again = pickle.loads(pickle.dumps(credentials))
    assert again == credentials
    assert hash(again) == hash(credentials)
    for text in (repr(credentials), str(credentials), f"{credentials}", repr([credentials])):
        assert SECRET not in text
    others = [other for other in KINDS.values() if other is not credentials]
    assert credentials not in others


HOLDING = [name for name, made in KINDS.items() if SECRET.encode() in pickle.dumps(made)]


def test_secrets_reach_other_processes():
    """Else the test above would prove nothing."""
    assert len(HOLDING) >= 10


def test_the_same_arguments_make_the_kinds_that_icechunk_makes():
    for arguments in (
        {},
        {"from_env": True},
        {"anonymous": True},
        {"access_key_id": "a", "secret_access_key": "b"},
    ):
        theirs = type(icechunk.s3_credentials(**arguments)).__name__.rpartition(".")[2]
        ours = icevirt.s3_credentials(**arguments)
        kinds = {FromEnv: "FromEnv", Anonymous: "Anonymous", icevirt.S3StaticCredentials: "Static"}
        assert kinds[type(ours)] in theirs


WRONG = {
    "half a key": lambda: icevirt.s3_credentials(access_key_id="a"),
    "token alone": lambda: icevirt.s3_credentials(session_token="a"),
    "key and env": lambda: icevirt.s3_credentials(
        access_key_id="a", secret_access_key=SECRET, from_env=True
    ),
    "anonymous and function": lambda: icevirt.s3_credentials(anonymous=True, get_credentials=_s3),
    "two of gcs": lambda: icevirt.gcs_credentials(bearer_token=SECRET, service_account_file="a"),
    "none of gcs": icevirt.gcs_static_credentials,
    "two of azure": lambda: icevirt.azure_credentials(access_key=SECRET, sas_token=SECRET),
    "two of azure's static": lambda: icevirt.azure_static_credentials(
        access_key=SECRET, sas_token=SECRET
    ),
    "no time zone": lambda: icevirt.s3_credentials(
        access_key_id="a", secret_access_key=SECRET, expires_after=datetime(2030, 1, 1)  # noqa: DTZ001
    ),
    "no credentials": lambda: icevirt.containers_credentials({"s3://bucket/": SECRET}),
    "for another store": lambda: bucket_of("s3://b/p", None, KINDS["gcs bearer"]),
}  # fmt: skip


@pytest.mark.parametrize("act", WRONG.values(), ids=WRONG.keys())
def test_contradictions_are_refused_without_showing_the_secret(act):
    with pytest.raises(InvalidInputError) as caught:
        act()
    assert SECRET not in str(caught.value)


class Source:
    """Returns credentials that expire after so many seconds, and counts."""

    def __init__(self, *seconds: float) -> None:
        self.seconds, self.calls, self.lock = list(seconds), 0, threading.Lock()

    def __call__(self):
        with self.lock:
            seconds = self.seconds[min(self.calls, len(self.seconds) - 1)]
            self.calls += 1
            end = None if seconds is None else datetime.now(UTC) + timedelta(seconds=seconds)
            return icevirt.S3StaticCredentials(f"id{self.calls}", SECRET, None, end)


def test_a_function_is_asked_again_before_its_credentials_expire_and_not_sooner():
    source = Source(3600, 30, None)
    refresh = Refresher(icevirt.s3_refreshable_credentials(source))
    assert refresh()["access_key_id"] == "id1"
    assert refresh()["access_key_id"] == "id1"
    refresh._current = source()  # thirty seconds left: too little for a request
    assert refresh()["access_key_id"] == "id3"
    assert refresh()["access_key_id"] == "id3"
    assert source.calls == 3


def test_scattered_credentials_are_used_until_they_expire():
    source = Source(3600, None)
    scattered = icevirt.s3_refreshable_credentials(source, scatter_initial_credentials=True)
    assert source.calls == 1
    assert Refresher(scattered)()["access_key_id"] == "id1"
    assert source.calls == 1
    stale = Source(1, None)
    expired = icevirt.s3_refreshable_credentials(stale, scatter_initial_credentials=True)
    assert Refresher(expired)()["access_key_id"] == "id2"


def test_threads_that_want_credentials_at_once_ask_once():
    source = Source(None)
    refresh = Refresher(icevirt.s3_refreshable_credentials(source))
    threads = [threading.Thread(target=refresh) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert source.calls == 1


def test_what_icechunk_functions_return_is_understood():
    end = datetime(2090, 1, 1, tzinfo=UTC)
    s3 = icevirt.s3_refreshable_credentials(
        lambda: icechunk.S3StaticCredentials("a", "b", "c", end)
    )
    assert Refresher(s3)() == {
        "access_key_id": "a",
        "secret_access_key": "b",
        "token": "c",
        "expires_at": end,
    }
    gcs = icevirt.gcs_refreshable_credentials(
        lambda: icechunk.GcsBearerCredential("a", expires_after=end)
    )
    assert Refresher(gcs)() == {"token": "a", "expires_at": end}


def _failing():
    raise RuntimeError(SECRET)


@pytest.mark.parametrize("function", [_failing, lambda: SECRET, lambda: None])
@pytest.mark.parametrize(
    "make",
    [
        icevirt.s3_refreshable_credentials,
        icevirt.gcs_refreshable_credentials,
        icevirt.azure_refreshable_credentials,
    ],
)
def test_a_function_that_fails_is_named_and_what_it_said_is_not(make, function):
    with pytest.raises(StorageError, match="refreshes credentials") as caught:
        make(function, scatter_initial_credentials=True)
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None


def test_refreshable_credentials_are_a_kind_of_their_own():
    assert isinstance(KINDS["s3 refreshable"], Refreshable)
    assert KINDS["s3 refreshable"] == icevirt.s3_refreshable_credentials(
        _s3, scatter_initial_credentials=True
    )
