"""Files that change after they were scanned: noticed at every later moment, in words that fit."""

import json
import os
from pathlib import Path

import h5py
import numpy as np
import obstore
import pytest
import xarray as xr

import icevirt
from executors import at_most
from grouping import grouped
from icevirt.archive.reports.verification import DifferenceKind
from icevirt.errors import (
    ObjectNotFoundError,
    ScanError,
    SourcesChangedError,
    StaleReferenceError,
    StorageError,
)
from icevirt.tasks.write_manifests import run_write

FILES = 3
VICTIM = 1
HOUR = 3600 * 10**9


def content(number, value):
    """Return the bytes of a file; those of other values are as many."""
    import io

    body = io.BytesIO()
    with h5py.File(body, "w") as file:
        moment = file.create_dataset("time", data=[float(number)])
        moment.make_scale("time")
        file.create_dataset("v", data=np.full((1, 400), value), chunks=(1, 100))
        file["v"].dims[0].attach_scale(moment)
    return body.getvalue()


class Disk:
    """Files on the local disk, an hour old."""

    def __init__(self, folder):
        self.folder = folder
        self.url = str(folder)
        folder.mkdir()

    def put(self, name, body):
        (self.folder / name).write_bytes(body)

    def settle(self):
        for path in self.folder.iterdir():
            os.utime(path, ns=(path.stat().st_mtime_ns - HOUR,) * 2)

    def get(self, name):
        return (self.folder / name).read_bytes()

    def touch(self, name):
        os.utime(self.folder / name)

    def delete(self, name):
        (self.folder / name).unlink()


class Bucket:
    """Files in a bucket."""

    def __init__(self, place):
        self.url, self.store = place.url, place.store()

    def put(self, name, body):
        obstore.put(self.store, name, body)

    def settle(self):
        pass  # etags tell versions of one second apart

    def get(self, name):
        return bytes(obstore.get(self.store, name).bytes())

    def touch(self, name):
        self.put(name, self.get(name))

    def delete(self, name):
        obstore.delete(self.store, name)


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.servers)])
def where(request, tmp_path, monkeypatch, in_process):
    """An archive of three files, in a directory and in a bucket."""
    if request.param == "s3":
        place = request.getfixturevalue("s3")
        for name, value in {
            "AWS_ENDPOINT_URL": place.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }.items():
            monkeypatch.setenv(name, value)
        made = Bucket(place)
    else:
        made = Disk(tmp_path / "archive")
    for number in range(FILES):
        made.put(name_of(number), content(number, number))
    made.settle()
    return made


def name_of(number):
    return f"f{number}.nc"


def rewritten(where):
    where.put(name_of(VICTIM), content(VICTIM, 99))


def touched(where):
    where.touch(name_of(VICTIM))


def truncated(where):
    where.put(name_of(VICTIM), where.get(name_of(VICTIM))[:-300])


def deleted(where):
    where.delete(name_of(VICTIM))


DEEDS = (rewritten, touched, truncated, deleted)
WORDS = {
    rewritten: "it was rewritten",
    touched: "it was rewritten or touched",
    truncated: r"it has \d+ bytes instead of \d+",
    deleted: "it is gone",
}


def unnoticed(deed, where):
    """The same bytes under the same etag are the same file, whatever their time."""
    return deed is touched and isinstance(where, Bucket)


def build(where, repo, **how):
    return icevirt.build(where.url, repo, concat_dim="time", **grouped(how))


def values(repo, report):
    with xr.open_dataset(
        repo, engine="icevirt", authorize_virtual_chunk_access=report.containers
    ) as found:
        return found["v"].values[:, 0].tolist()


@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.__name__)
def test_between_scan_and_commit_a_change_stops_the_build(deed, where, repo_path, in_process):
    in_process.before[run_write] = at_most(1, lambda _: deed(where))
    if unnoticed(deed, where):
        assert values(repo_path, build(where, repo_path)) == [0, 1, 2]
        return
    with pytest.raises(SourcesChangedError, match=WORDS[deed]) as caught:
        build(where, repo_path)
    assert "1 of 3 files changed since the scan" in str(caught.value)
    assert [Path(url).name for url in caught.value.facts["files"]] == [name_of(VICTIM)]
    assert not Path(repo_path).exists()


@pytest.mark.ci
@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.__name__)
def test_between_scan_and_commit_a_change_is_scanned_where_asked(
    deed, where, repo_path, in_process
):
    in_process.before[run_write] = at_most(1, lambda _: deed(where))
    report = build(where, repo_path, rescan_changed=True, max_bad_files=1)
    expected = {rewritten: [0, 99, 2], touched: [0, 1, 2]}.get(deed, [0, 2])
    assert values(repo_path, report) == expected
    bad = [(Path(each.url).name, each.code) for each in report.bad_files]
    assert bad == ([(name_of(VICTIM), "scan")] if deed is truncated else [])
    checked = icevirt.verify(
        repo_path,
        full=deed is rewritten and isinstance(where, Disk),  # by processes that are started for it
        references=True,
        authorize_virtual_chunk_access=report.containers,
    )
    assert checked.ok


def test_a_damaged_file_is_not_scanned_again_behind_the_back_of_the_limit(
    where, repo_path, in_process
):
    in_process.before[run_write] = at_most(1, lambda _: truncated(where))
    with pytest.raises(ScanError, match=r"1 of 3 files cannot be scanned.*f1\.nc"):
        build(where, repo_path, rescan_changed=True)


ERRORS = {
    rewritten: (StaleReferenceError, "changed after it was scanned"),
    touched: (StaleReferenceError, "changed after it was scanned"),
    truncated: (StaleReferenceError, "changed after it was scanned"),
    deleted: (ObjectNotFoundError, "does not exist"),
}


@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.__name__)
def test_between_commit_and_read_a_change_is_an_error_of_the_read(deed, where, repo_path):
    report = build(where, repo_path)
    assert values(repo_path, report) == [0, 1, 2]
    deed(where)
    if unnoticed(deed, where):
        assert values(repo_path, report) == [0, 1, 2]
        return
    error, words = ERRORS[deed]
    with pytest.raises(error, match=words) as caught:
        values(repo_path, report)
    assert name_of(VICTIM) in caught.value.facts["location"]
    with xr.open_dataset(
        repo_path, engine="icevirt", authorize_virtual_chunk_access=report.containers
    ) as found:  # what lies in the other files is as readable as before
        assert found["v"][[0, 2], 0].values.tolist() == [0, 2]


KINDS = {
    rewritten: DifferenceKind.changed,
    touched: DifferenceKind.changed,
    truncated: DifferenceKind.changed,
    deleted: DifferenceKind.missing,
}


@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.__name__)
def test_verification_tells_what_became_of_a_file(deed, where, repo_path, run):
    report = build(where, repo_path)
    deed(where)
    authorized = [word for each in report.containers for word in ("--authorize", each)]
    words = ["verify", repo_path, "--references", *authorized, "--output", "json", "--quiet"]
    status, output, _ = run(*words)
    differences = json.loads(output)["checked"]["differences"]
    assert status == (0 if unnoticed(deed, where) else 1)
    assert [(each["kind"], Path(each["file"]).name) for each in differences] == (
        [] if unnoticed(deed, where) else [(KINDS[deed], name_of(VICTIM))]
    )


def test_a_file_cut_behind_its_own_time_is_found_by_its_end(
    tmp_path, repo_path, monkeypatch, in_process
):
    """As a copy that was interrupted and given the time of the original is."""
    where = Disk(tmp_path / "archive")
    for number in range(FILES):
        where.put(name_of(number), content(number, number))
    where.settle()
    victim = where.folder / name_of(VICTIM)
    was = victim.stat()

    def cut(where):
        victim.write_bytes(victim.read_bytes()[:2000])
        os.utime(victim, ns=(was.st_mtime_ns,) * 2)

    report = build(where, repo_path)
    cut(where)
    with pytest.raises(StorageError, match="ends too early"):
        values(repo_path, report)
    differences = icevirt.verify(
        repo_path, references=True, authorize_virtual_chunk_access=report.containers
    ).checked.differences
    assert [each.kind for each in differences] == [DifferenceKind.truncated]
    victim.write_bytes(content(VICTIM, VICTIM))
    os.utime(victim, ns=(was.st_mtime_ns,) * 2)
    assert values(repo_path, report) == [0, 1, 2]
    in_process.before[run_write] = at_most(1, lambda _: cut(where))
    with pytest.raises(SourcesChangedError, match=r"it has 2000 bytes instead of \d+"):
        build(where, str(tmp_path / "other"))
