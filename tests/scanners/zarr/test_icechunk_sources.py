"""Repositories of Icechunk as sources: what they refer to is referred to directly, or refused."""

import os
import shutil
import subprocess
import sys

import icechunk
import numpy as np
import obstore
import pytest
import xarray as xr
import zarr

import icevirt
from api.sources.test_object_stores import access_to
from icevirt.api.scan import scan_file
from icevirt.archive.sources import SourceFile
from icevirt.errors import IcevirtError, InvalidInputError, ScanError, UnsupportedError
from icevirt.model.strings import Strings
from icevirt.scan.elsewhere import Elsewhere
from scanners.zarr.test_zarr_corpus import OFFICIAL
from scanners.zarr.zarr_stores import month, write_month

HOW = {"executor": "in-process"}


def repository(path, number=1, *, inline=0):
    """Let the official client write a month."""
    config = icechunk.RepositoryConfig(inline_chunk_threshold_bytes=inline)
    repo = icechunk.Repository.create(icechunk.local_filesystem_storage(str(path)), config)
    write(repo, number)
    return repo


def write(repo, number, branch="main"):
    session = repo.writable_session(branch)
    encoding = {"t": {"chunks": (1, 2, 6)}, "time": {"units": "days since 2020-01-01"}}
    month(number).to_zarr(session.store, mode="w", consolidated=False, encoding=encoding)
    return session.commit("a month")


def found(repo, *places):
    how = {"authorize_virtual_chunk_access": [*places]} if places else {}
    with xr.open_dataset(repo, engine="icevirt", **how) as dataset:
        return dataset.load()


def expected(*numbers):
    return xr.concat([month(each) for each in numbers], "time", data_vars="minimal")


@pytest.fixture
def virtual(tmp_path):
    """A repository that refers to a Zarr store."""
    write_month(tmp_path / "a/m.zarr", 1)
    icevirt.build(tmp_path / "a/m.zarr", tmp_path / "v", **HOW)
    return tmp_path / "v"


@pytest.mark.ci
def test_a_stack_of_repositories_reads_as_their_values_in_both_clients(tmp_path):
    for number in (1, 2):
        repository(tmp_path / f"r{number}", number, inline=100 * (number - 1))
    icevirt.build([tmp_path / "r1", tmp_path / "r2"], tmp_path / "repo", **HOW)
    xr.testing.assert_identical(found(tmp_path / "repo", tmp_path), expected(1, 2))
    subprocess.run(
        [sys.executable, "-c", OFFICIAL, tmp_path / "repo", tmp_path / "found"], check=True
    )
    official = np.load(tmp_path / "found", allow_pickle=True)
    np.testing.assert_array_equal(official["t"][0], expected(1, 2)["t"].values)
    scanned = [scan_file(tmp_path / f"r{number}") for number in (1, 2)]
    assert [bool(each.counts()["inline"]) for each in scanned] == [False, True]
    assert "garbage collection" in str(scanned[0].findings)
    checked = icevirt.verify(tmp_path / "repo", full=True, references=True, **HOW)
    assert checked.ok
    assert "another repository" in str(checked.checked.not_compared)


def test_references_of_references_lead_to_the_files_with_their_checksums(virtual, tmp_path):
    with pytest.raises(IcevirtError, match="outside the file's own directory") as error:
        scan_file(virtual)
    assert "allow_references_to" in str(error.value)
    options = {"allow_references_to": [str(tmp_path / "a")]}
    mine = scan_file(virtual, scan_options=options).array("/t").references
    store = scan_file(tmp_path / "a/m.zarr").array("/t").references
    assert mine == store
    icevirt.build(virtual, tmp_path / "repo", scan_options=options, **HOW)
    shutil.rmtree(virtual)
    access = [tmp_path / "a"]
    xr.testing.assert_identical(found(tmp_path / "repo", *access), expected(1))
    how = {"authorize_virtual_chunk_access": access, **HOW}
    assert icevirt.verify(tmp_path / "repo", full=True, references=True, **how).ok


class Far:
    """A repository in a bucket."""

    file = SourceFile(url="s3://bucket/data/repo", size=1)
    local_path = None


ODD = (
    "x:/../y",
    "%2e%2e/y",
    "../y",
    "./y",
    "a::b",
    "a//b",
    "a://b",
    "a?x=1",
    "a#b",
    "../../file:y",
)


@pytest.mark.parametrize("name", ODD)
def test_of_many_locations_those_that_may_lead_elsewhere_are_looked_at(name, monkeypatch):
    folder, looked = "s3://bucket/data/", []
    real = Elsewhere._file
    monkeypatch.setattr(Elsewhere, "_file", lambda self, url: looked.append(url) or real(self, url))
    with Elsewhere(Far(), ()) as elsewhere:
        plain = [f"{folder}t-2020/c/{number}.nc" for number in range(9)]
        elsewhere.refuse_outside(Strings.of(plain))
        assert not looked
        with pytest.raises(UnsupportedError):
            elsewhere.refuse_outside(Strings.of([*plain, folder + name]))
        assert len(looked) == 10


@pytest.mark.parametrize(
    ("known", "proposed"), [("file:///data/", "file:///data/"), ("file:///", "file:///data/in/")]
)
def test_the_whole_disk_is_never_proposed(known, proposed):
    with Elsewhere(Far(), ()) as elsewhere, pytest.raises(UnsupportedError) as error:
        elsewhere.refuse_outside(Strings.of(["file:///data/in/x"]), [known])
    assert f"[{proposed!r}]" in str(error.value)


def test_values_of_a_file_that_changed_since_are_not_taken(virtual, tmp_path):
    os.utime(tmp_path / "a/m.zarr/t/c/0/0/0", (1, 1))
    options = {"allow_references_to": [str(tmp_path / "a")], "variables": ["t"]}
    assert scan_file(virtual, scan_options=options).array("/t")  # its reader will see
    time = next((tmp_path / "a/m.zarr/x/c").rglob("0"))
    os.utime(time, (1, 1))
    with pytest.raises(IcevirtError, match="changed since a repository refers to it"):
        scan_file(virtual, concat_dim="time", scan_options={**options, "variables": ()})


def test_a_branch_a_tag_or_a_snapshot_is_taken(tmp_path):
    repo = repository(tmp_path / "r", 1)
    first = repo.lookup_branch("main")
    repo.create_tag("v1", snapshot_id=first)
    repo.create_branch("dev", snapshot_id=first)
    write(repo, 2, "dev")
    build = {"mode": "w", **HOW}
    for version, number in (("branch=dev", 2), ("tag=v1", 1), (f"snapshot_id={first}", 1)):
        options = {"source_version": version}
        icevirt.build(tmp_path / "r", tmp_path / "out", scan_options=options, **build)
        xr.testing.assert_identical(found(tmp_path / "out", tmp_path), month(number))
    with pytest.raises(ScanError, match="cannot be opened") as error:
        scan_file(tmp_path / "r", scan_options={"source_version": "tag=v9"})
    assert error.value.facts["version"] == "tag=v9"
    with pytest.raises(InvalidInputError, match="not a version of a repository"):
        scan_file(tmp_path / "r", scan_options={"source_version": "v1"})


def test_an_array_that_is_all_of_a_repository_is_data_as_that_of_a_store(tmp_path):
    config = icechunk.RepositoryConfig(inline_chunk_threshold_bytes=0)
    repo = icechunk.Repository.create(
        icechunk.local_filesystem_storage(str(tmp_path / "r")), config
    )
    session = repo.writable_session("main")
    zarr.create_array(session.store, shape=(4,), chunks=(2,), dtype="i4")[...] = [1, 2, 3, 4]
    session.commit("an array")
    icevirt.build(tmp_path / "r", tmp_path / "out", **HOW)
    access = {"authorize_virtual_chunk_access": [tmp_path]}
    store = icevirt.Repository.open(tmp_path / "out", **access).readonly_session("main").store
    np.testing.assert_array_equal(zarr.open_group(store, mode="r")["data"][...], [1, 2, 3, 4])


def test_a_commit_is_an_update(tmp_path):
    repo = repository(tmp_path / "r", 1)
    icevirt.build(tmp_path / "r", tmp_path / "out", **HOW)
    write(repo, 2)
    xr.testing.assert_identical(found(tmp_path / "out", tmp_path), month(1))
    icevirt.update(tmp_path / "out", **HOW)
    xr.testing.assert_identical(found(tmp_path / "out", tmp_path), month(2))


def test_damaged_and_older_repositories_are_named(tmp_path):
    repository(tmp_path / "r")
    next((tmp_path / "r/chunks").iterdir()).unlink()
    with pytest.raises(ScanError, match="chunk that a repository refers to is not there"):
        scan_file(tmp_path / "r")
    snapshot = max((tmp_path / "r/snapshots").iterdir(), key=lambda path: path.stat().st_size)
    with pytest.raises(ScanError, match="a file inside of a repository"):
        scan_file(snapshot)
    snapshot.write_bytes(snapshot.read_bytes()[:80])
    with pytest.raises(ScanError, match=r"cannot be opened|damaged"):
        scan_file(tmp_path / "r")
    (tmp_path / "r/repo").unlink()
    with pytest.raises(IcevirtError, match="Icechunk of version 1"):
        icevirt.plan(tmp_path / "r", **HOW)


@pytest.mark.servers
def test_a_repository_in_a_bucket(s3, tmp_path):
    repository(tmp_path / "r")
    for path in (tmp_path / "r").rglob("*"):
        if path.is_file():
            obstore.put(s3.store(), f"ice/r/{path.relative_to(tmp_path / 'r')}", path.read_bytes())
    access, credentials = access_to(s3)
    report = icevirt.build(f"{s3.url}/ice/r", tmp_path / "out", access=access, **HOW)
    opened = icevirt.Repository.open(
        tmp_path / "out",
        authorize_virtual_chunk_access=dict.fromkeys(report.containers, credentials),
    )
    read = zarr.open_group(opened.readonly_session("main").store, mode="r")["t"][...]
    np.testing.assert_array_equal(read, month(1)["t"].values)
