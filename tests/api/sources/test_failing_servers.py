"""Builds over servers that throttle, drop connections, and tell little about their files."""

import os
from pathlib import Path

import pytest
import xarray as xr
import zarr

import icevirt
from builds.support import expected_dataset, write_days
from icevirt.errors import ScanError, StorageError
from icevirt.objects import web_client as client
from servers.faults import DROPPED, refused, weak_etag, without

pytestmark = pytest.mark.servers


@pytest.fixture
def archive(http_server, tmp_path, monkeypatch, in_process):
    """Three days on a web server: the server, their URLs, and the files."""
    monkeypatch.setattr(client, "_pause", lambda _failed: 0.0)
    files = write_days(tmp_path / "archive")
    for path in files:
        http_server.files.put(f"data/{Path(path).name}", Path(path).read_bytes())
    return http_server, [f"{http_server.url}/data/{Path(path).name}" for path in files], files


def built(archive, repo):
    report = icevirt.build(archive[1], repo, concat_dim="time")
    with xr.open_dataset(
        repo, engine="icevirt", authorize_virtual_chunk_access=report.containers
    ) as ours:
        xr.testing.assert_identical(ours.load(), expected_dataset(archive[2], "time").load())
    return icevirt.verify(
        repo, references=True, authorize_virtual_chunk_access=report.containers
    ).checked


def test_a_server_that_throttles_and_drops_costs_time_only(archive, repo_path):
    for nth in range(1, 90, 5):
        archive[0].rules.add(refused(503 if nth % 2 else 429, retry_after="0"), nth=nth)
        archive[0].rules.add(DROPPED, nth=nth + 1)
    checked = built(archive, repo_path)
    assert not checked.differences
    assert archive[0].rules.hits >= 6


@pytest.mark.parametrize("fault", [weak_etag(), without("etag")], ids=["weak", "none"])
def test_without_a_strong_etag_the_time_is_recorded(archive, repo_path, fault):
    archive[0].rules.add(fault, times=1e9)
    checked = built(archive, repo_path)
    assert not checked.differences
    assert checked.unverifiable == 0


@pytest.mark.ci
@pytest.mark.parametrize("fault", [weak_etag(), without("etag")], ids=["weak", "none"])
def test_what_reads_count_as_unverifiable_is_what_verify_counts(archive, repo_path, fault):
    """After the commit the server throttles each third request; reads and checks get through."""
    archive[0].rules.add(fault, times=1e9)
    report = icevirt.build(archive[1], repo_path, concat_dim="time")
    for nth in range(1, 90, 3):
        archive[0].rules.add(refused(429, retry_after="0"), nth=nth)
    repo = icevirt.Repository.open(repo_path, authorize_virtual_chunk_access=report.containers)
    store = repo.readonly_session("main").store
    with xr.open_zarr(store, consolidated=False, chunks=None, decode_cf=False) as raw:
        raw.load()
    assert store.verification.verifiable > 0
    found = icevirt.verify(
        repo_path, full=True, references=True, authorize_virtual_chunk_access=report.containers
    )
    assert found.ok
    assert store.verification.unverifiable == found.checked.unverifiable == 0


def test_a_reference_with_a_weak_etag_alone_is_unverifiable_for_both(
    http_server, tmp_path, repo_path
):
    http_server.files.put("data/a.bin", bytes(range(8)))
    http_server.rules.add(weak_etag(), times=1e9)
    prefix = f"{http_server.url}/data/"
    config = icevirt.RepositoryConfig()
    config.set_virtual_chunk_container(icevirt.VirtualChunkContainer(prefix, icevirt.http_store()))
    repo = icevirt.Repository.create(
        repo_path, config, authorize_virtual_chunk_access={prefix: None}
    )
    session = repo.writable_session("main")
    array = zarr.create_array(
        session.store, name="a", shape=(8,), chunks=(4,), dtype="u1", compressors=None, filters=None
    )
    etag = "W/" + http_server.files.etags["data/a.bin"]
    for number in range(2):
        session.store.set_virtual_ref(
            f"a/c/{number}", f"{prefix}a.bin", offset=4 * number, length=4, checksum=etag
        )
    session.commit("refer")
    assert array[:].tolist() == list(range(8))
    store = repo.readonly_session("main").store
    zarr.open_array(store, path="a", mode="r")[:]
    found = icevirt.verify(
        repo_path, references=True, authorize_virtual_chunk_access={prefix: None}
    )
    assert found.ok
    assert store.verification.unverifiable == found.checked.unverifiable == 2


def test_a_server_that_tells_nothing_is_refused_with_the_file(archive, repo_path):
    archive[0].rules.add(without("etag", "last-modified"), times=1e9)
    with pytest.raises((ScanError, StorageError), match=r"day1\.nc"):
        icevirt.build(archive[1], repo_path, concat_dim="time")
    assert not Path(repo_path).exists()


def test_a_server_that_never_answers_stops_the_build_with_its_name(archive, repo_path):
    archive[0].rules.add(refused(503), target=r"day2\.nc", times=1e9)
    with pytest.raises((ScanError, StorageError), match="day2"):
        icevirt.build(archive[1], repo_path, concat_dim="time")
    assert not Path(repo_path).exists()


def test_a_server_that_never_answers_stops_the_build_and_what_is_done_is_kept(archive, repo_path):
    """A file that cannot be read is not a bad file: nothing that was scanned is scanned again."""
    server, urls, _ = archive
    server.rules.add(refused(503), target=r"day2\.nc", nth=2, times=1e9)  # after it was listed
    with pytest.raises(ScanError, match=r"day2.*503") as caught:
        icevirt.build(urls, repo_path, concat_dim="time")
    assert caught.value.facts["unreadable"] == 1
    assert not icevirt.Repository.exists(repo_path)
    server.rules.clear()
    report = icevirt.build(urls, repo_path, concat_dim="time")
    assert (report.files_scanned, report.files_reused) == (1, 2)
    assert sorted(os.listdir(f"{repo_path}/icevirt")) == [
        "catalog",
        "known",
        "listings",
        "recipes",
        "records",
        "tails",
    ]
