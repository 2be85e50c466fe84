"""Secrets in URLs of sources: refused before a request, shown by nothing, stored nowhere."""

import json
import logging
import pickle
import traceback
from pathlib import Path

import pytest
import xarray as xr

import icevirt
from builds.support import expected_dataset, write_days
from icevirt.errors import IcevirtError, InvalidInputError
from icevirt.objects import web_client as client
from servers.faults import redirected, refused, truncated

pytestmark = pytest.mark.servers

CANARY = "CANARY"
SIGNED = f"X-Amz-Credential={CANARY}%2F1&X-Amz-Security-Token={CANARY}&X-Amz-Signature={CANARY}"
URLS = {
    "user and password": f"http://{CANARY}:{CANARY}@HOST/data/a.nc",
    "a user": f"http://{CANARY}@HOST/data/a.nc",
    "a password and a query": f"http://u:{CANARY}@HOST/data/a.nc?sig={CANARY}",
    "a presigned URL": f"http://HOST/data/a.nc?{SIGNED}",
    "a SAS token": f"http://HOST/data/a.nc?sv=2025-01-05&sig={CANARY}%3D",
    "a fragment": f"http://HOST/data/a.nc#token={CANARY}",
    "keys of a bucket": f"s3://{CANARY}:{CANARY}@bucket/a.nc",
    "a kind that nobody knows": f"dav://{CANARY}:{CANARY}@host/a.nc",
    "no number as port": f"http://u:{CANARY}@host:{CANARY}@x/a.nc",
    "a bracket too few": f"http://{CANARY}:{CANARY}@[::1/a.nc",
    "a slash too few": f"http:/{CANARY}:{CANARY}@HOST/a.nc",
    "a local URL": f"file://{CANARY}:{CANARY}@host/a.nc?sig={CANARY}",
}


@pytest.fixture(params=URLS.values(), ids=URLS.keys())
def url(request, http_server):
    return request.param.replace("HOST", http_server.url.removeprefix("http://"))


@pytest.fixture
def output(caplog):
    """All records, however unimportant."""
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "icevirt")
    return lambda: [f"{vars(one)} {one.getMessage()}" for one in caplog.records]


def lists_of(url, folder):
    """Write lists that name a file in every way, and return how they are named."""
    line = {"url": url, "size": 4, "etag": '"1"'}
    item = {"type": "Feature", "id": "i", "assets": {"data": {"href": url, "roles": ["data"]}}}
    texts = {
        "a.txt": url,
        "b.csv": f'url,size,etag\n"{url}",4,1',
        "c.csv": f'url,size\n"{url}",much',
        "d.jsonl": json.dumps(line),
        "e.json": json.dumps(item),
        "f.json": f"[{json.dumps(url)}",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    return [f"@{folder / name}" for name in texts]


@pytest.mark.ci
def test_no_command_shows_a_secret_of_a_source(url, run, tmp_path, http_server, output):
    lists = lists_of(url, tmp_path)
    repo, catalog = str(tmp_path / "repo"), str(tmp_path / "catalog")
    commands = [
        *(["build", source, repo, "--concat-dim", "time"] for source in (url, f"@{url}", *lists)),
        ["--progress", "json", "build", url, repo, "-o", "json"],
        ["build", url, "b.nc", repo, "--combine", "nested", "--concat-dim", "time"],
        ["build", tmp_path, url],
        ["plan", url],
        ["plan", lists[1], "-o", "json"],
        ["scan", url],
        ["scan", url, "--catalog", catalog, "-o", "json"],
        ["scan", *lists, "--catalog", catalog],
        ["scan", url, "--access", f"{url}=anonymous"],
        ["scan", url, "--allow-references-to", url],
        ["catalog", url],
        ["info", url],
        ["verify", url, "--authorize", f"{url}={url}"],
        ["verify", repo, url],  # an argument too many
        [url],
        ["build", "--max-bad-files", url],
        ["build", "-f", url],
        ["check", url],
    ]
    for command in commands:
        status, out, error = run(*command)
        assert status not in (0, None), command
        assert error, command
        assert CANARY not in out + error, (command, out + error)
    assert not any(CANARY in each for each in output())
    assert http_server.rules.requests == []
    assert not Path(repo).exists()


def calls(url, folder):
    return {
        "build": lambda: icevirt.build(url, folder / "repo", concat_dim="time"),
        "build of a table": lambda: icevirt.build([url, "none.nc"], folder / "repo"),
        "build into": lambda: icevirt.build(folder, url),
        "plan": lambda: icevirt.plan([url]),
        "scan_file": lambda: icevirt.scan_file(url),
        "scan_file in a child": lambda: icevirt.scan_file(url, scan_options={"file_timeout": 9}),
        "scan_files": lambda: icevirt.scan_files([url], folder / "catalog"),
        "scan_files into": lambda: icevirt.scan_files([folder], url),
        "access": lambda: icevirt.scan_file("a.nc", access={url: "anonymous", f"{url}/": 1}),
        "verify": lambda: icevirt.verify(url),
        "open": lambda: icevirt.Repository.open(url),
        "xarray": lambda: xr.open_dataset(url, engine="icevirt"),
        "catalog_view": lambda: icevirt.catalog_view(url),
    }


def test_no_error_holds_a_secret_of_a_source(url, tmp_path, output, in_process):
    for name, call in calls(url, tmp_path).items():
        with pytest.raises(IcevirtError) as raised:
            call()
        error = raised.value
        shown = f"{error} {error!r} {error.args} {error.facts}"
        shown += "".join(traceback.format_exception(error))
        assert CANARY not in shown, name
        assert CANARY.encode() not in pickle.dumps(error), name
    assert not any(CANARY in each for each in output())


@pytest.mark.parametrize(
    "secret", [f"http://u:{CANARY}@h/a.nc", f"http://h/a.nc?{SIGNED}"], ids=["password", "query"]
)
def test_a_refusal_says_how_to_pass_the_secret(secret):
    with pytest.raises(InvalidInputError, match=r"access=.*http_credentials.*s3://") as raised:
        icevirt.build(secret, "repo")
    assert raised.value.facts["location"].startswith("http://h/a.nc")


FAULTS = {
    "forbidden": refused(403),
    "unauthorized": refused(401),
    "gone": refused(404),
    "failing": refused(500),
    "a body that ends early": truncated(7),
}


@pytest.fixture
def signing(http_server, tmp_path, monkeypatch, in_process):
    """A server that sends clients on to signed URLs, as archives in front of buckets do."""
    monkeypatch.setattr(client, "_pause", lambda _failed: 0.0)
    paths = write_days(tmp_path / "archive")
    for path in paths:
        name = Path(path).name
        http_server.files.put(f"data/{name}", Path(path).read_bytes())
        http_server.rules.add(
            redirected(f"{http_server.url}/data/{name}?{SIGNED}"),
            target=rf"/{name}$",
            times=float("inf"),
        )
    return http_server, paths


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_signed_url_that_a_server_sends_us_on_to_is_not_shown(signing, fault, repo_path, output):
    server, paths = signing
    server.rules.add(fault, target="Signature", times=float("inf"))
    sources = [f"{server.url}/data/{Path(path).name}" for path in paths]
    with pytest.raises(IcevirtError) as raised:
        icevirt.build(sources, repo_path, concat_dim="time")
    shown = "".join(traceback.format_exception(raised.value)) + repr(raised.value.facts)
    assert CANARY not in shown + "".join(output())


@pytest.mark.parametrize(
    "target",
    [f"http://u:{CANARY}@HOST/data/a.nc", f"http://127.0.0.2:1/a.nc?{SIGNED}",
     f"http://[::1?{CANARY}", f"//u:{CANARY}@HOST/data/a.nc", f"x://{CANARY}@h?{CANARY}"],
    ids=["a password", "another host", "no URL", "no scheme", "another scheme"],
)  # fmt: skip
def test_a_redirect_that_is_refused_is_reported_without_its_secret(http_server, target, output):
    host = http_server.url.removeprefix("http://")
    http_server.rules.add(redirected(target.replace("HOST", host)), times=float("inf"))
    with pytest.raises((IcevirtError, ValueError)) as raised:
        icevirt.scan_file(f"{http_server.url}/data/a.nc")
    shown = "".join(traceback.format_exception(raised.value))
    assert CANARY not in shown + "".join(output())


def test_what_is_built_through_signed_urls_holds_none_of_them(
    signing, repo_path, tmp_path, output, capfd
):
    server, paths = signing
    sources = [f"{server.url}/data/{Path(path).name}" for path in paths]
    catalog = tmp_path / "catalog"
    report = icevirt.build(sources, repo_path, concat_dim="time", catalog=catalog)
    assert any(CANARY in request.target for request in server.rules.requests)
    with xr.open_dataset(
        repo_path,
        engine="icevirt",
        authorize_virtual_chunk_access={f"{server.url}/data/": None},
    ) as ours:
        xr.testing.assert_identical(ours.load(), expected_dataset(paths, "time").load())
    shown = [repr(report), *output(), *capfd.readouterr()]
    written = [path.read_bytes() for path in Path(repo_path).rglob("*") if path.is_file()]
    written += [path.read_bytes() for path in catalog.rglob("*") if path.is_file()]
    assert written
    assert not any(CANARY in each for each in shown)
    assert not any(CANARY.encode() in each for each in written)


PREFIXES = {
    "a password": f"https://u:{CANARY}@host/data/",
    "a user": f"https://{CANARY}@host/data/",
    "a query": f"https://host/data/?{CANARY}/",
    "keys of a bucket": f"s3://{CANARY}:{CANARY}@bucket/data/",
}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES.keys())
def test_no_container_stores_a_secret_of_its_prefix(prefix, repo_path):
    store = icevirt.s3_store() if prefix.startswith("s3") else icevirt.http_store()
    with pytest.raises(InvalidInputError, match="authorize_virtual_chunk_access") as raised:
        icevirt.VirtualChunkContainer(prefix, store)
    assert CANARY not in str(raised.value)
    # one of another client stays as it is, and is not shown
    config = icevirt.RepositoryConfig()
    entry = {"url_prefix": prefix, "name": None, "store": store.to_document()}
    config.document["virtual_chunk_containers"] = {prefix: entry}
    repo = icevirt.Repository.create(repo_path, config)
    assert repo.config.document["virtual_chunk_containers"].keys() == {prefix}
    assert repo.config.virtual_chunk_containers == {}
    assert CANARY not in repr(repo.config)
