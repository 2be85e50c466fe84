"""Servers whose tokens end: a function that is named fetches others, from scan to read."""

import contextlib
import pickle
import threading
from pathlib import Path

import pytest
import xarray as xr

import icevirt
from builds.support import assert_same_dataset, expected_dataset, write_days
from grouping import grouped
from icevirt.connect.credentials.http import TOKENS
from icevirt.display.document import document
from icevirt.errors import InvalidInputError, ScanError, StorageError
from icevirt.objects import web_client as client
from icevirt.objects.opening import open_source
from icevirt.objects.source_access import SourceAccess, grant_access
from servers.faults import Rules, refused, without
from servers.ranges import Files
from servers.serving import served
from servers.tokens import CANARY, Expiring, write_module

pytestmark = pytest.mark.servers

DAYS = 12


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """Twelve days behind tokens that are good for 20 requests."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(client, "_pause", lambda _failed: 0.0)
    TOKENS.reset()
    server, rules = Expiring(Files()), Rules()
    with served(server.answer, rules) as url:
        yield Archive(server, rules, url, tmp_path)


class Archive:
    """The server, its files, and how to reach them."""

    def __init__(self, server, rules, url, folder):
        self.server, self.rules, self.folder = server, rules, folder
        self.prefix = f"{url}/data/"
        self.paths = write_days(folder / "archive", DAYS)
        self.urls = [self.prefix + Path(path).name for path in self.paths]
        for path in self.paths:
            server.files.put(f"data/{Path(path).name}", Path(path).read_bytes())
        self.module, self.function = write_module(folder, url)
        self.access = {self.prefix: self.function}

    def build(self, repo, **how):
        return icevirt.build(self.urls, repo, concat_dim="time", access=self.access, **grouped(how))

    def read(self, repo):
        with xr.open_dataset(
            repo, engine="icevirt", authorize_virtual_chunk_access=self.access
        ) as ours:
            return ours.load()

    def forget(self):
        """Let the next request fetch a token, as in another process."""
        TOKENS.reset()
        self.server.asked.clear()


@pytest.mark.ci
def test_a_build_on_spark_outlasts_its_tokens_and_so_do_verification_and_reads(
    archive, spark, repo_path, tmp_path, capfd, caplog
):
    spark.sparkContext.addPyFile(str(archive.module))
    report = archive.build(repo_path, executor=spark, catalog=tmp_path / "catalog", verify=10)
    assert report.containers == (archive.prefix,)
    scanned = archive.server.issued
    assert scanned > 2
    expected = expected_dataset(archive.paths, "time").load()
    xr.testing.assert_identical(archive.read(repo_path), expected)
    found = icevirt.verify(
        repo_path,
        references=True,
        full=True,
        authorize_virtual_chunk_access=archive.access,
        executor=spark,
    )
    assert found.ok
    assert found.checked.chunks > DAYS
    assert archive.server.issued > scanned
    assert {each.startswith(f"Bearer {CANARY}") for each in archive.server.asked} == {True}
    assert_nowhere(CANARY, report, found, repo_path, tmp_path / "catalog", capfd, caplog)


def assert_nowhere(secret, report, found, repo_path, catalog, capfd, caplog):
    """Look for a secret in all that a build leaves and says."""
    tables = icevirt.catalog_view(str(catalog))
    repo = icevirt.Repository.open(repo_path)
    output = [report, found, repo.config, list(repo.ancestry(branch="main")), caplog.text]
    output += [each.metadata for each in repo.ancestry(branch="main")]
    output += [repo.readonly_session("main").all_virtual_chunk_locations()]
    output += [tables.files().read_all().to_pylist(), tables.attributes().read_all().to_pylist()]
    output += [tables.arrays().read_all().to_pylist(), *capfd.readouterr()]
    for folder in (repo_path, catalog):
        output += [path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()]
    assert secret not in "".join(map(repr, output))


@pytest.mark.parametrize("status", [401, 403])
def test_tokens_are_renewed_when_they_are_refused(archive, repo_path, status, in_process):
    archive.server.status = status
    archive.build(repo_path)
    assert archive.server.issued > 1
    expected = expected_dataset(archive.paths, "time").load()
    xr.testing.assert_identical(archive.read(repo_path), expected)
    refused_ones = len(archive.server.asked) - 20 * archive.server.issued
    assert refused_ones < len(archive.server.asked) / 2


def test_a_token_is_fetched_once_for_all_threads_and_files(archive, repo_path, in_process):
    archive.server.requests = 10**6
    report = archive.build(repo_path)
    archive.read(repo_path)
    assert archive.server.issued == 1
    with report.open() as found:
        assert_same_dataset(found.load(), expected_dataset(archive.paths, "time"))
    assert archive.server.issued == 1
    assert "authorization" not in document(report)


def test_a_server_that_refuses_every_token_stops_the_build_and_is_not_asked_for_ever(
    archive, repo_path, in_process
):
    archive.server.is_good = False
    with pytest.raises((ScanError, StorageError), match=r"data/day\d+\.nc") as caught:
        archive.build(repo_path)
    assert "credentials for this prefix" in str(caught.value)
    assert CANARY not in str(caught.value)
    assert archive.server.issued <= 3 * DAYS
    assert not Path(repo_path).exists()


@pytest.mark.ci
def test_a_file_that_nobody_may_read_is_not_taken_for_the_end_of_a_token(
    archive, repo_path, in_process
):
    archive.server.requests = 10**6
    archive.build(repo_path)
    archive.forget()
    archive.server.issued = 0
    archive.rules.add(refused(403), target=r"day7\.nc", times=1e9)
    for _ in range(5):
        with pytest.raises(StorageError, match=r"day7\.nc"):
            archive.read(repo_path)
    assert archive.server.issued <= 8


def test_a_function_that_fails_is_reported_without_what_it_said(archive, repo_path, in_process):
    archive.module.write_text(f"def fresh():\n    raise ValueError('{CANARY}')\n")
    with pytest.raises(StorageError, match="function that refreshes credentials failed") as caught:
        archive.build(repo_path)
    assert archive.function in str(caught.value)
    assert CANARY not in repr(caught.value) + str(caught.value.__cause__)


WRONG = {
    "no such module": ("no_such_module:f", "cannot be imported"),
    "no such function": ("icevirt.errors:nothing", "cannot be imported"),
    "no function": ("icevirt.version:__version__", "is not a function"),
}


@pytest.mark.parametrize(("name", "output"), WRONG.values(), ids=WRONG.keys())
def test_a_name_of_nothing_is_reported_before_anything_is_done(archive, repo_path, name, output):
    access = {archive.prefix: name}
    with pytest.raises(InvalidInputError, match=output):
        icevirt.build(archive.urls, repo_path, access=access)
    with pytest.raises(InvalidInputError, match=output):
        icevirt.Repository.open(repo_path, authorize_virtual_chunk_access=access)
    assert archive.rules.requests == []


def test_a_function_of_a_script_travels_as_code_and_one_that_cannot_is_reported(archive):
    url = archive.prefix.replace("data/", "token")

    def here():
        from urllib.request import urlopen

        with urlopen(url) as answer:
            return icevirt.http_credentials(bearer_token=answer.read().decode())

    access = {archive.prefix: icevirt.http_credentials(get_credentials=here)}
    grants = [pickle.loads(pickle.dumps(SourceAccess.of(access))) for _ in range(2)]
    assert grants[0] == grants[1]
    for grant in grants:
        with grant_access(grant), open_source(archive.urls[0]) as source:
            assert source.read(0, 4) == b"\x89HDF"
    assert archive.server.issued == 1
    assert "here" in repr(grants[0].grants[0].credentials)
    lock = threading.Lock()
    bad = icevirt.http_credentials(get_credentials=lambda: lock)
    with pytest.raises(InvalidInputError, match="cannot be sent"):
        icevirt.build(archive.urls, "repo", access={archive.prefix: bad})


def test_tokens_that_tell_their_end_are_renewed_before_it(archive, monkeypatch, repo_path):
    """A life of two seconds is renewed after one, though no server ever refused."""
    from icevirt.connect.credentials import http

    now = 1000.0
    monkeypatch.setattr(http.time, "monotonic", lambda: now)
    archive.server.requests = 10**6
    archive.module.write_text(
        archive.module.read_text().replace(
            "decode())", "decode(), expires_after=datetime.now(UTC) + timedelta(seconds=2))"
        )
        + "from datetime import UTC, datetime, timedelta\n"
    )
    for url, expected in ((archive.urls[0], 1), (archive.urls[1], 1)):
        icevirt.scan_file(url, access=archive.access)
        assert archive.server.issued == expected
    now += 1.5
    icevirt.scan_file(archive.urls[2], access=archive.access)
    assert archive.server.issued == 2
    assert len(set(archive.server.asked)) == 2


@pytest.mark.ci
@pytest.mark.parametrize("missing", [("etag",), ()], ids=["no etag", "an etag"])
def test_tokens_and_few_checksums_go_together(archive, repo_path, missing, in_process):
    if missing:
        archive.rules.add(without(*missing), target="data", times=1e9)
    archive.build(repo_path)
    found = icevirt.verify(
        repo_path, references=True, values=5, authorize_virtual_chunk_access=archive.access
    )
    assert found.ok
    assert found.checked.unverifiable == 0


@pytest.mark.ci
def test_many_threads_share_a_token_that_is_soon_used_up(archive, repo_path, in_process):
    """Sixty-four requests at once use up a token of twenty three times over."""
    archive.build(repo_path)
    with contextlib.ExitStack() as stack:
        stack.callback(archive.forget)
        repo = icevirt.Repository.open(repo_path, authorize_virtual_chunk_access=archive.access)
        store = repo.readonly_session("main").store
        import zarr

        with zarr.config.set({"async.concurrency": 64}):
            for _ in range(5):
                zarr.open_array(store, path="packed", mode="r")[...]
