"""Sources on servers that the environment knows nothing of: what is named for a prefix holds."""

import pickle
from pathlib import Path

import obstore
import pytest
import xarray as xr

import icevirt
from builds.support import write_days
from icevirt.errors import IcevirtError, InvalidInputError, StorageError
from icevirt.objects.source_access import SourceAccess, carrying, grant_access, in_force
from servers.faults import redirected, refused

SERVER = {"region": "us-east-1", "allow_http": True, "force_path_style": True}


@pytest.fixture
def bucket(s3_proxy, monkeypatch, tmp_path, in_process):
    """Three days in a bucket of a server that no variable names."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    for day in write_days(tmp_path / "archive"):
        obstore.put(s3_proxy.direct.store(), Path(day).name, Path(day).read_bytes())
    return s3_proxy


def store(bucket):
    return icevirt.s3_store(endpoint_url=bucket.place.endpoint, **SERVER)


KEYS = icevirt.s3_credentials(access_key_id="who", secret_access_key="this-is-a-secret")


def signed(requests):
    return {"who/" in request.headers.get("authorization", "") for request in requests}


@pytest.mark.servers
@pytest.mark.parametrize("credentials", [KEYS, "anonymous"], ids=["keys", "anonymous"])
def test_listing_scan_and_recheck_use_what_was_named(bucket, credentials, tmp_path):
    url = bucket.place.url
    access = {url: (store(bucket), credentials)}
    bucket.rules.requests.clear()
    for sources in (url, f"{url}/day*.nc", [f"{url}/day{day}.nc" for day in (1, 2, 3)]):
        report = icevirt.build(
            sources, tmp_path / "repo", concat_dim="time", mode="w", access=access
        )
        assert report.references.virtual
    assert {request.method for request in bucket.rules.requests} <= {"GET", "HEAD"}
    assert signed(bucket.rules.requests) == {credentials is KEYS}
    assert icevirt.scan_file(f"{url}/day1.nc", access=access).arrays
    assert "this-is-a-secret" not in repr(SourceAccess.of(access))


@pytest.mark.servers
def test_lists_are_read_and_their_files_asked_for_with_what_was_named(bucket, tmp_path):
    url = bucket.place.url
    path = tmp_path / "list.txt"
    path.write_text("".join(f"{url}/day{day}.nc\n" for day in (1, 2, 3)))
    report = icevirt.build(
        f"@{path}", tmp_path / "repo", concat_dim="time", access={url: (store(bucket), KEYS)}
    )
    assert report.files_scanned == 3
    assert signed(bucket.rules.requests) == {True}


def test_the_longest_prefix_counts():
    other = icevirt.s3_credentials(access_key_id="other", secret_access_key="x")
    access = SourceAccess.of({"s3://a": KEYS, "s3://a/b/": other, "s3://a/b/c": "anonymous"})
    found = {
        url: access.bucket(url).credentials
        for url in ("s3://a/f.nc", "s3://a/b/f.nc", "s3://a/bb/f.nc", "s3://a/b/c/f.nc", "s3://b/f")
    }
    assert list(found.values())[:3] == [KEYS, other, KEYS]
    assert [type(value).__name__ for value in found.values()][3:] == ["Anonymous", "FromEnv"]


def test_access_travels_to_tasks_and_threads():
    access = SourceAccess.of(
        {"s3://a": KEYS, "https://b.test/x": icevirt.http_credentials(bearer_token="t")}
    )
    there = pickle.loads(pickle.dumps(access))
    assert there == access
    assert dict(there.site("https://b.test/x/y/").headers)["authorization"] == "Bearer t"
    assert not there.site("https://b.test/z/").headers
    with grant_access(access):
        carried = carrying(in_force)
    assert in_force() == SourceAccess()
    assert carried() == access


CANARY = "CANARY-49"


@pytest.mark.servers
def test_passwords_of_netrc_files_reach_their_host_and_no_other(
    http_server, monkeypatch, tmp_path, in_process
):
    """A scan and a read over a server that redirects to another one, as archives of NASA do."""
    host, port = http_server.url.removeprefix("http://").split(":")
    (tmp_path / "netrc").write_text(f"machine {host} login me password {CANARY}\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    paths = write_days(tmp_path / "archive")
    for path in paths:
        http_server.files.put(f"there/{Path(path).name}", Path(path).read_bytes())
        there = f"http://localhost:{port}/there/{Path(path).name}"
        http_server.rules.add(redirected(there), target=f"/here/{Path(path).name}", times=1e9)
    prefix = f"{http_server.url}/here/"
    access = {prefix: (icevirt.http_store({"redirect_hosts": f"localhost:{port}"}), "netrc")}
    report = icevirt.build(
        [prefix + Path(path).name for path in paths],
        tmp_path / "repo",
        concat_dim="time",
        access=access,
        commit_options={"verify": 5},
    )
    with xr.open_dataset(
        tmp_path / "repo", engine="icevirt", authorize_virtual_chunk_access={prefix: "netrc"}
    ) as ours:
        assert ours.load().sizes["time"] == 12
    sent = {
        (request.path.split("/")[1], request.headers.get("authorization", "")[:6])
        for request in http_server.rules.requests
    }
    assert sent == {("here", "Basic "), ("there", "")}
    assert CANARY not in repr(SourceAccess.of(access)) + repr(report)
    assert CANARY.encode() not in pickle.dumps(SourceAccess.of(access))


CALLS = []


def keys():
    """Return another key each time."""
    CALLS.append(1)
    return icevirt.S3StaticCredentials(f"who{len(CALLS)}", CANARY, None, None)


ENDED = {"S3's own word": (400, "ExpiredToken"), "forbidden": (403, "AccessDenied")}


@pytest.mark.servers
@pytest.mark.parametrize(("status", "code"), ENDED.values(), ids=ENDED.keys())
@pytest.mark.parametrize("target", [r"list-type=2", r"day2\.nc"], ids=["listing", "reading"])
def test_keys_that_a_bucket_refuses_are_asked_for_again_once(
    bucket, status, code, target, tmp_path
):
    CALLS.clear()
    credentials = icevirt.s3_credentials(get_credentials=keys)
    access = {bucket.place.url: (store(bucket), credentials)}
    bucket.rules.add(refused(status, code), target=target, nth=1)
    report = icevirt.build(
        bucket.place.url,
        tmp_path / "repo",
        concat_dim="time",
        access=access,
        commit_options={"verify": 3},
    )
    assert report.references.virtual
    assert len(CALLS) == 2
    bucket.rules.add(refused(status, code), target=r"day3\.nc", times=1e9)
    for _ in range(3):
        with pytest.raises(StorageError, match=r"day3\.nc"):
            icevirt.scan_file(f"{bucket.place.url}/day3.nc", access=access)
    assert len(CALLS) == 3
    assert CANARY not in repr(SourceAccess.of(access)) + repr(report)


@pytest.mark.servers
def test_who_reads_pays_where_that_is_said(bucket, monkeypatch, tmp_path):
    for name, value in {
        "AWS_ENDPOINT_URL": bucket.place.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "who",
        "AWS_SECRET_ACCESS_KEY": "x",
    }.items():
        monkeypatch.setenv(name, value)
    access = {bucket.place.url: "requester-pays"}
    bucket.rules.requests.clear()
    icevirt.build(bucket.place.url, tmp_path / "repo", concat_dim="time", access=access)
    paid = {r.headers.get("x-amz-request-payer") for r in bucket.rules.requests}
    assert paid == {"requester"}


BAD = {
    "no mapping": (["s3://a"], "must be a mapping"),
    "a local prefix": ({"/data": "anonymous"}, "object store"),
    "an unknown word": ({"s3://a": "nobody"}, "not a way"),
    "a function that is not there": ({"s3://a": "no.module:f"}, "cannot be imported"),
    "no file of passwords": ({"https://a.test/": "netrc"}, "netrc file"),
    "a web server that is paid": (
        {"https://a.test/": "requester-pays"},
        "not a valid value|not a way",
    ),
    "a number": ({"s3://a": 7}, "not a valid value|not a way"),
    "keys of another cloud": ({"gs://a": KEYS}, "another kind"),
    "keys for a web server": ({"https://a.test/": KEYS}, "another kind"),
}


@pytest.mark.parametrize(("access", "output"), BAD.values(), ids=BAD.keys())
def test_what_is_no_access_is_reported(access, output, tmp_path, monkeypatch):
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    with pytest.raises(InvalidInputError, match=output) as caught:
        icevirt.build("s3://a/*.nc", tmp_path / "repo", access=access)
    assert "secret" not in str(caught.value).replace("s3_credentials", "")
    assert isinstance(caught.value, IcevirtError)
    assert not (tmp_path / "repo").exists()
