"""Repositories in buckets: with the official client, through a bad line, and without their secrets."""

import logging
import multiprocessing
import pickle
import subprocess
import sys
import threading
from dataclasses import replace

import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr

import icevirt
from icevirt.access.xarray.writing import to_icechunk
from icevirt.errors import NotListableError, ReadOnlyError, RepositoryNotFoundError
from icevirt.storage import object_store
from servers.faults import ANSWER_LOST, refused

REPO = r"/repo$"
SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def bucket(request):
    """A fresh place on each kind of object store."""
    return request.getfixturevalue(request.param)


each_bucket = pytest.mark.parametrize("bucket", ["s3", "azure", "gcs"], indirect=True)


def _grow(repo, value):
    """Commit one more value with either client."""
    session = repo.writable_session("main")
    group = zarr.open_group(session.store, mode="a")
    if "a" not in group:
        array = group.create_array("a", shape=(8,), chunks=(2,), dtype="i4", fill_value=-1)
    else:
        array = group["a"]
    array[value] = value
    session.commit(f"value {value}")


def _values(repo):
    return zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")[:].tolist()


@each_bucket
def test_a_repository_of_icevirt_is_opened_and_committed_to_by_the_official_client(bucket):
    ours = icevirt.Repository.create(bucket.icevirt())
    _grow(ours, 0)
    theirs = icechunk.Repository.open(bucket.official())
    _grow(theirs, 1)
    _grow(icevirt.Repository.open(bucket.icevirt()), 2)
    assert _values(ours) == _values(theirs) == [0, 1, 2, -1, -1, -1, -1, -1]
    assert icevirt.check(bucket.icevirt()).ok
    messages = [snapshot.message for snapshot in theirs.ancestry(branch="main")]
    assert messages == [snapshot.message for snapshot in ours.ancestry(branch="main")]


@each_bucket
def test_a_repository_of_the_official_client_is_opened_and_committed_to(bucket):
    theirs = icechunk.Repository.create(bucket.official())
    _grow(theirs, 0)
    ours = icevirt.Repository.open(bucket.icevirt())
    _grow(ours, 1)
    _grow(theirs, 2)
    ours.create_tag("v1", snapshot_id=ours.lookup_branch("main"))
    assert theirs.list_tags() == {"v1"}
    assert _values(ours) == _values(theirs) == [0, 1, 2, -1, -1, -1, -1, -1]
    assert icevirt.check(bucket.icevirt()).ok


@pytest.mark.parametrize(
    "fault", [ANSWER_LOST, replace(refused(500), applied=True)], ids=["lost", "500"]
)
def test_a_commit_whose_answer_is_lost_while_others_commit_upon_it_counts_once(
    s3_proxy, monkeypatch, fault
):
    icevirt.Repository.create(s3_proxy.direct.icevirt())
    _grow(icevirt.Repository.open(s3_proxy.direct.icevirt()), 0)
    repo = icevirt.Repository.open(s3_proxy.place.icevirt())

    def meanwhile(_attempt):
        _grow(icechunk.Repository.open(s3_proxy.direct.official()), 2)

    monkeypatch.setattr(object_store, "_pause", meanwhile)
    s3_proxy.rules.add(fault, method="PUT", target=REPO)
    _grow(repo, 1)
    assert s3_proxy.rules.hits == 1
    messages = [snapshot.message for snapshot in repo.ancestry(branch="main")]
    assert messages[:3] == ["value 2", "value 1", "value 0"]
    assert len(messages) == 4
    assert _values(repo)[:3] == [0, 1, 2]
    assert icevirt.check(s3_proxy.direct.icevirt()).ok


def test_a_repository_is_read_from_a_web_server(http_server, s3):
    _grow(icevirt.Repository.create(s3.icevirt()), 3)
    for info in s3.icevirt().list():
        http_server.files.put(f"deep/repo/{info.path}", s3.icevirt().get(info.path))
    url = f"{http_server.url}/deep/repo"
    for storage in (icevirt.http_storage(url), url, url + "/"):
        repo = icevirt.Repository.open(storage)
        assert _values(repo)[3] == 3
    with pytest.raises(ReadOnlyError, match="web server"):
        _grow(repo, 4)
    with pytest.raises(NotListableError, match="lists files"):
        list(icevirt.http_storage(url).list())
    with pytest.raises(RepositoryNotFoundError):
        icevirt.Repository.open(f"{http_server.url}/elsewhere")
    assert not icevirt.Repository.exists(f"{http_server.url}/elsewhere")


def test_a_web_server_gets_its_headers(http_server, s3):
    _grow(icevirt.Repository.create(s3.icevirt()), 3)
    for info in s3.icevirt().list():
        http_server.files.put(f"r/{info.path}", s3.icevirt().get(info.path))
    storage = icevirt.http_storage(f"{http_server.url}/r", headers={"Authorization": "Bearer C"})
    assert _values(icevirt.Repository.open(pickle.loads(pickle.dumps(storage))))[3] == 3
    assert {request.headers["authorization"] for request in http_server.rules.requests} == {
        "Bearer C"
    }


def test_xarray_opens_a_url_with_storage_options(s3):
    dataset = xr.Dataset({"t": (("x",), np.arange(5.0))})
    session = icevirt.Repository.create(s3.icevirt()).writable_session("main")
    to_icechunk(dataset, session)
    session.commit("t")
    options = {k: v for k, v in s3.options.items() if k not in ("bucket", "prefix")}
    with xr.open_dataset(s3.url, engine="icevirt", storage_options=options) as found:
        xr.testing.assert_identical(found.load(), dataset)
    with xr.open_dataset(s3.icevirt(), engine="icevirt") as found:
        xr.testing.assert_identical(found.load(), dataset)


def test_the_command_line_takes_urls(s3, monkeypatch):
    _grow(icevirt.Repository.create(s3.icevirt()), 0)
    environment = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "CANARY-secret",
        "AWS_ENDPOINT_URL": s3.endpoint,
        "AWS_ALLOW_HTTP": "true",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for command in (["info", s3.url], ["check", s3.url]):
        ran = subprocess.run(
            [sys.executable, "-m", "icevirt.cli.main", *command],
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "CANARY" not in ran.stdout + ran.stderr


def _secret_places(s3, azure, gcs, url):
    """Storages with a planted secret, each on the way to a server that will be unkind."""
    canary = "CANARY0secret0CANARY0secret0"
    yield icevirt.s3_storage(
        **{**s3.options, "secret_access_key": canary, "access_key_id": canary},
        session_token=canary,
    )
    sas = f"sv=2021-08-06&sig={canary}"
    options = {k: v for k, v in azure.options.items() if k != "access_key"}
    yield icevirt.azure_storage(**options, sas_token=sas)
    yield icevirt.azure_storage(**options, bearer_token=canary)
    yield icevirt.azure_storage(**options, access_key="Q0FOQVJZMHNlY3JldDA=")
    yield icevirt.gcs_storage(bucket="b", prefix="p", bearer_token=canary)
    yield icevirt.gcs_storage(bucket="b", prefix="p", service_account_key=f'{{"a": "{canary}"}}')
    yield icevirt.http_storage(url, headers={"x-key": canary, "authorization": canary})


def test_no_secret_shows_in_text_logs_errors_or_the_repository(
    s3, azure, gcs, http_server, caplog, capfd, monkeypatch
):
    """Secrets are planted in every kind of credentials; pickles alone may hold them."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr("icevirt.connect.stores._RETRIES", {"max_retries": 0})
    output = []
    held = 0
    for storage in _secret_places(s3, azure, gcs, http_server.url):
        held += b"CANARY" in pickle.dumps(storage) or b"Q0FOQVJZ" in pickle.dumps(storage)
        output += [repr(storage), str(storage), storage.url, repr(storage._bucket)]
        for act in (
            lambda s=storage: s.get("repo"),
            lambda s=storage: list(s.list()),
            lambda s=storage: s.put("secret-test", b"x"),
            lambda s=storage: icevirt.Repository.open(s),
        ):
            try:
                output.append(repr(act()))
            except icevirt.errors.IcevirtError as error:
                output += [str(error), repr(error), repr(error.__context__), repr(error.__cause__)]
                output.append(repr(vars(error)))
    assert held == 7
    fresh = {"prefix": s3.prefix + "/fresh", "secret_access_key": "CANARY0secret"}
    planted = icevirt.s3_storage(**{**s3.options, **fresh})
    repo = icevirt.Repository.create(planted)
    _grow(repo, 0)
    output += [repr(repo), str(repo.storage) if hasattr(repo, "storage") else ""]
    output += [planted.get(info.path).decode("latin-1") for info in planted.list()]
    output += [record.getMessage() for record in caplog.records]
    output += [*capfd.readouterr()]
    for text in output:
        assert "CANARY" not in text
        assert "Q0FOQVJZ" not in text


def test_refreshable_credentials_open_a_repository_in_other_processes(s3):
    options = {
        k: v for k, v in s3.options.items() if k not in ("access_key_id", "secret_access_key")
    }
    storage = icevirt.s3_storage(**options, get_credentials=_test_credentials)
    _grow(icevirt.Repository.create(storage), 5)
    with SPAWN.Pool(1) as pool:
        assert pool.apply(_read, (storage,))[5] == 5


def _test_credentials():
    return icevirt.S3StaticCredentials("test", "test")


def _read(storage):
    return _values(icevirt.Repository.open(storage))


def test_sessions_in_threads_share_connections(s3):
    repo = icevirt.Repository.create(s3.icevirt())
    _grow(repo, 0)
    found = []
    threads = [threading.Thread(target=lambda: found.append(_values(repo))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [_values(repo)] * 8
