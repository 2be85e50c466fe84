"""References relative to a named container: every reader resolves them, and an archive can move."""

import json
import shutil
from pathlib import Path

import obstore
import pytest
import xarray as xr

import icevirt
from builds.support import (
    assert_same_dataset,
    assert_same_raw,
    expected_dataset,
    official,
    opened,
    write_day,
    write_days,
)
from grouping import grouped
from icevirt.errors import InvalidInputError


@pytest.fixture
def days(tmp_path, in_process):
    """Three days in a directory whose name needs encoding, below the container's."""
    return write_days(tmp_path / "in" / "a b")


def build(days, repo, tmp_path, **how):
    return icevirt.build(
        days, repo, concat_dim="time", **grouped(how, containers={"archive": tmp_path / "in"})
    )


def session_of(repo):
    prefixes = list(icevirt.Repository.open(repo).config.virtual_chunk_containers)
    return icevirt.Repository.open(repo, authorize_virtual_chunk_access=prefixes).readonly_session(
        "main"
    )


def official_reads(repo, files):
    """Compare what the official client reads with the files."""
    assert_same_raw(
        repo.readonly_session("main").store,
        files,
        lambda name, array: 0 if "time" in array.metadata.dimension_names else None,
    )


def copied(files, folder):
    """Copy files with their times."""
    folder.mkdir(parents=True)
    return [shutil.copy2(path, folder) for path in files]


def raw_locations(repo):
    session = session_of(repo)
    tables = (session.array_table(node.path) for node in session.snapshot.arrays())
    return {url for table in tables for url in table.locations.url}


def test_both_clients_read_relative_references(days, tmp_path, repo_path):
    report = build(days, repo_path, tmp_path)
    assert report.containers == (f"file://{tmp_path}/in/",)
    assert raw_locations(repo_path) == {f"vcc://archive/a%20b/day{n}.nc" for n in (1, 2, 3)}
    expected = expected_dataset(days, "time").load()
    assert_same_dataset(opened(repo_path), expected)
    official_reads(official(repo_path), days)
    held = icevirt.Repository.open(repo_path).config.get_virtual_chunk_container("archive")
    assert held.url_prefix == f"file://{tmp_path}/in/"


def test_all_that_shows_references_shows_where_they_lead(days, tmp_path, repo_path):
    build(days, repo_path, tmp_path)
    session = session_of(repo_path)
    urls = {f"file://{tmp_path}/in/a%20b/day{n}.nc" for n in (1, 2, 3)}
    table = session.store.refs_table("/packed")
    assert set(table["location"].to_pylist()) == urls
    assert session.store.source_of("/packed", (0, 0, 0)).url in urls
    icevirt.to_kerchunk(session, "/", tmp_path / "refs.json")
    refs = json.loads((tmp_path / "refs.json").read_text())["refs"]
    targets = {entry[0] for entry in refs.values() if isinstance(entry, list)}
    assert targets == {f"file://{day}" for day in days}
    found = icevirt.verify(
        repo_path,
        full=True,
        references=True,
        authorize_virtual_chunk_access=[f"file://{tmp_path}/in/"],
    )
    assert found.ok
    assert found.checked.files >= 3  # once for every task that met a file
    (tmp_path / "in/a b/day2.nc").unlink()
    missing = icevirt.verify(
        repo_path, references=True, authorize_virtual_chunk_access=[f"file://{tmp_path}/in/"]
    ).checked.differences
    assert {each.file for each in missing} == {f"file://{tmp_path}/in/a%20b/day2.nc"}


def test_an_archive_moves_by_changing_its_container(days, tmp_path, repo_path):
    build(days, repo_path, tmp_path)
    expected = expected_dataset(days, "time").load()
    moved = copied(days, tmp_path / "moved" / "a b")
    shutil.rmtree(tmp_path / "in")
    repo = icevirt.Repository.open(repo_path)
    there = f"file://{tmp_path}/moved/"
    repo.config.set_virtual_chunk_container(
        icevirt.VirtualChunkContainer(
            there, icevirt.local_filesystem_store(f"{tmp_path}/moved/"), "archive"
        )
    )
    repo.save_config()
    assert list(icevirt.Repository.open(repo_path).config.virtual_chunk_containers) == [there]
    assert_same_dataset(opened(repo_path), expected)
    official_reads(official(repo_path), moved)
    assert icevirt.verify(repo_path, full=True, authorize_virtual_chunk_access=[there]).ok


@pytest.mark.servers
def test_an_archive_moves_from_disk_into_a_bucket(days, tmp_path, repo_path, s3, monkeypatch):
    """Published where it will be read; the server is known from `access` alone."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    for day in days:
        obstore.put(s3.store(), f"a b/{Path(day).name}", Path(day).read_bytes())
    store = icevirt.s3_store(
        region="us-east-1", endpoint_url=s3.endpoint, allow_http=True, force_path_style=True
    )
    keys = icevirt.s3_credentials(access_key_id="test", secret_access_key="CANARY-50")
    report = icevirt.build(
        days,
        repo_path,
        concat_dim="time",
        commit_options={
            "publish_as": {tmp_path / "in": s3.url},
            "containers": {"archive": s3.url},
            "verify": 5,
        },
        access={s3.url: (store, keys)},
    )
    assert report.containers == ((f"{s3.url}/", s3.endpoint),)
    assert raw_locations_of_bucket(repo_path) == {
        f"vcc://archive/a%20b/day{n}.nc" for n in (1, 2, 3)
    }
    expected = expected_dataset(days, "time").load()
    copies = copied(days, tmp_path / "copies")
    shutil.rmtree(tmp_path / "in")
    with xr.open_dataset(
        repo_path,
        engine="icevirt",
        authorize_virtual_chunk_access=dict.fromkeys(report.containers, keys),
    ) as ours:
        assert_same_dataset(ours, expected)
    repo = icevirt.Repository.open(repo_path)
    assert icevirt.info(repo_path).containers == report.containers
    assert "CANARY" not in repr(repo.config) + repr(report)
    import icechunk

    credentials = icechunk.s3_credentials(access_key_id="test", secret_access_key="test")
    theirs = icechunk.Repository.open(
        icechunk.local_filesystem_storage(repo_path),
        authorize_virtual_chunk_access=icechunk.containers_credentials({f"{s3.url}/": credentials}),
    )
    official_reads(theirs, copies)


def raw_locations_of_bucket(repo):
    session = icevirt.Repository.open(repo).readonly_session("main")
    tables = (session.array_table(node.path) for node in session.snapshot.arrays())
    return {url for table in tables for url in table.locations.url}


def test_later_builds_keep_what_references_depend_on(days, tmp_path, repo_path):
    build(days, repo_path, tmp_path, group="/a")
    # the same prefix, by itself: the name stays
    icevirt.build(days, repo_path, concat_dim="time", group="/b")
    more = write_day(tmp_path / "in" / "day9.nc", 9)
    icevirt.build(more, repo_path, group="/c")
    config = icevirt.Repository.open(repo_path).config
    assert config.get_virtual_chunk_container("archive").url_prefix == f"file://{tmp_path}/in/"
    assert opened(repo_path, group="/a").load().sizes["time"] == 12
    other = write_days(tmp_path / "other", 1)
    for containers, output in (
        ({"archive": tmp_path / "other"}, "belongs to another prefix"),
        ({"archive": tmp_path / "in"}, "no file lies below"),
    ):
        with pytest.raises(InvalidInputError, match=output):
            icevirt.build(other, repo_path, group="/d", commit_options={"containers": containers})
    with pytest.raises(InvalidInputError, match="has another name"):
        icevirt.build(
            days,
            repo_path,
            concat_dim="time",
            group="/d",
            commit_options={"containers": {"x": tmp_path / "in"}},
        )
    assert opened(repo_path, group="/a").load().sizes["time"] == 12


def test_files_of_references_may_be_relative_too(days, tmp_path, repo_path):
    prefix = f"file://{tmp_path}/in/a%20b/"
    icevirt.build(days, repo_path, concat_dim="time")
    icevirt.to_kerchunk(session_of(repo_path), "/", tmp_path / "refs.json")
    icevirt.build(
        tmp_path / "refs.json",
        tmp_path / "again",
        scan_options={"scanner": "kerchunk", "allow_references_to": str(tmp_path / "in")},
        commit_options={"containers": {"archive": prefix}},
    )
    locations = raw_locations(str(tmp_path / "again"))
    assert {url for url in locations if url} <= {f"vcc://archive/day{n}.nc" for n in (1, 2, 3)}
    assert locations


BAD = {
    "a slash": ({"a/b": "/d"}, "not a valid container name"),
    "a blank": ({"a b": "/d"}, "not a valid container name"),
    "an empty name": ({"": "/d"}, "not a valid container name"),
    "no text": ({7: "/d"}, "not a valid container name"),
    "one prefix twice": ({"a": "/d", "b": "file:///d/"}, "two names"),
    "no URL": ({"a": ""}, "not the path or URL"),
    "no mapping": (["a"], "must be a mapping"),
}


@pytest.mark.parametrize(("containers", "output"), BAD.values(), ids=BAD.keys())
def test_what_is_no_container_is_reported_before_anything_is_done(
    containers, output, days, repo_path
):
    with pytest.raises(InvalidInputError, match=output):
        icevirt.build(days, repo_path, concat_dim="time", commit_options={"containers": containers})
    assert not Path(repo_path).exists()


def test_the_command_names_containers(days, tmp_path, repo_path, run):
    line = ["build", f"{tmp_path}/in", repo_path, "--concat-dim", "time", "-q"]
    line += ["--container", f"archive={tmp_path}/in"]
    assert run(*line)[0] == 0
    assert all(url.startswith("vcc://archive/") for url in raw_locations(repo_path))
