"""An archive's endpoint gives keys of its bucket for a while: they are renewed and never stored."""

import itertools
import json
import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path

import obstore
import pytest
import xarray as xr
from obstore.store import S3Store

import icevirt
from builds.support import assert_same_dataset, expected_dataset, write_days
from icevirt.connect.credentials.earthdata import TOKEN, TemporaryKeys
from icevirt.errors import IcevirtError, InvalidInputError, StorageError
from servers.faults import Response, Rules
from servers.s3 import S3
from servers.serving import served

pytestmark = pytest.mark.servers

SERVER = {"region": "us-east-1", "client_options": {"allow_http": True}}
SESSION = "x-amz-security-token"
CANARY, GIVEN = "CANARY-OF-KEYS", "CANARY-OF-USERS"


class Archive:
    """A bucket for those whose session it has opened, and the endpoint that opens sessions."""

    def __init__(self):
        self.cloud, self.issued, self.sessions = S3(), itertools.count(), {"of the archive"}
        self.lasts = timedelta(hours=1)

    def put(self, url, path):
        store = S3Store(
            "archive",
            endpoint=url,
            access_key_id="own",
            secret_access_key="own",
            token="of the archive",
            **SERVER,
        )
        obstore.put(store, Path(path).name, Path(path).read_bytes())

    def answer(self, request):
        if request.path == "/s3credentials":
            return self.open_session(request)
        named = {name.lower(): value for name, value in request.query.items()}
        session = request.headers.get(SESSION) or named.get(SESSION)
        if session not in self.sessions:
            return Response(status=403)
        return self.cloud.answer(request)

    def open_session(self, request):
        if request.headers.get("authorization") != f"Bearer {GIVEN}":
            return Response(status=302, headers={"location": "https://login.test/"})
        session = f"{CANARY}-{next(self.issued)}"
        self.sessions.add(session)
        found = {
            "accessKeyId": "ASIA",
            "secretAccessKey": f"{CANARY}-secret",
            "sessionToken": session,
            "expiration": str(datetime.now(UTC) + self.lasts),
        }
        return Response(status=200, body=json.dumps(found).encode())


@pytest.fixture
def archive(tmp_path, monkeypatch, in_process):
    """Three days in a bucket, the address of its server, and the access that a user names."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(TOKEN, GIVEN)
    days, made = write_days(tmp_path / "archive"), Archive()
    with served(made.answer, Rules()) as url:
        for day in days:
            made.put(url, day)
        how = icevirt.s3_store(
            endpoint_url=url, region="us-east-1", allow_http=True, force_path_style=True
        )
        yield made, days, {"s3://archive/": (how, f"{url}/s3credentials")}


@pytest.mark.parametrize(("lasts", "most"), [(timedelta(hours=1), 2), (timedelta(seconds=1), 99)])
def test_scan_and_readers_ask_for_keys_and_none_is_stored(archive, lasts, most, tmp_path):
    made, days, access = archive
    made.lasts, repo = lasts, tmp_path / "repo"
    icevirt.build("s3://archive/", repo, concat_dim="time", access=access)
    ((store, how),) = access.values()
    named = {("s3://archive/", store.options["endpoint_url"]): how}
    with xr.open_dataset(repo, engine="icevirt", authorize_virtual_chunk_access=named) as ours:
        assert_same_dataset(ours, expected_dataset(days, "time"))
    used = next(made.issued)
    assert 0 < used <= most
    assert used > 2 or lasts > timedelta(minutes=1)
    written = b"".join(path.read_bytes() for path in repo.rglob("*") if path.is_file())
    assert written
    assert CANARY.encode() not in written
    assert GIVEN.encode() not in written + pickle.dumps(
        TemporaryKeys("https://a.test/s3credentials")
    )


@pytest.mark.parametrize(
    ("token", "output"), [(None, f"Set {TOKEN}"), ("another", "accept the archive's terms")]
)
def test_without_a_login_that_the_archive_takes_nothing_is_read(
    archive, token, output, tmp_path, monkeypatch
):
    _, _, access = archive
    monkeypatch.delenv(TOKEN) if token is None else monkeypatch.setenv(TOKEN, token)
    with pytest.raises(IcevirtError, match=output) as caught:
        icevirt.build("s3://archive/", tmp_path / "repo", concat_dim="time", access=access)
    assert "another" not in str(caught.value)
    assert not (tmp_path / "repo").exists()


def test_what_the_endpoint_answers_is_reported(archive, monkeypatch):
    made, _, access = archive
    monkeypatch.setenv(TOKEN, "another")
    with pytest.raises(StorageError, match=r"status 302.*accept the archive"):
        TemporaryKeys(access["s3://archive/"][1])()
    monkeypatch.setattr(made, "open_session", lambda _request: Response(status=200, body=b"<html>"))
    with pytest.raises(StorageError, match=r"JSONDecodeError"):
        TemporaryKeys(access["s3://archive/"][1])()


def test_a_token_is_sent_to_no_address_where_it_could_be_seen(tmp_path):
    access = {"s3://archive/": "http://archive.test/s3credentials"}
    with pytest.raises(InvalidInputError, match="https:// addresses only"):
        icevirt.build("s3://archive/a.nc", tmp_path / "repo", access=access)


@pytest.mark.parametrize("end", ["?token=x", "#x", "/a b"])
def test_an_endpoint_with_what_may_be_a_secret_is_no_word(end, tmp_path):
    access = {"s3://archive/": f"https://archive.test/s3credentials{end}"}
    with pytest.raises(InvalidInputError, match="not a way to get credentials") as caught:
        icevirt.build("s3://archive/a.nc", tmp_path / "repo", access=access)
    assert end not in str(caught.value)
