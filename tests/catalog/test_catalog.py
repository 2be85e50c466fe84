"""A catalog that is kept: only new and changed files are scanned again, and bad ones are retried."""

import os
import shutil
from pathlib import Path

import h5py
import pytest

import icevirt
from builds.support import write_day
from executors import at_most
from grouping import grouped
from icevirt.errors import BuildError, ScanError, SourcesChangedError
from icevirt.tasks import scan as scanning
from icevirt.tasks.scan import run_scan
from icevirt.tasks.write_manifests import run_write


@pytest.fixture
def days(tmp_path, in_process):
    """Six days, and the names of the files that were scanned."""
    archive = tmp_path / "archive"
    archive.mkdir()
    files = [str(archive / f"day{day}.nc") for day in range(6)]
    for day, path in enumerate(files):
        write_day(path, day)
    return files


@pytest.fixture
def scanned(monkeypatch):
    """Names of the files, in the order in which they are scanned."""
    names, attempt = [], scanning.attempt

    def noted(file, *how):
        names.append(Path(file.url).name)
        return attempt(file, *how)

    monkeypatch.setattr(scanning, "attempt", noted)
    return names


def build(files, tmp_path, repo, **how):
    return icevirt.build(
        files,
        str(tmp_path / repo),
        concat_dim="time",
        catalog=str(tmp_path / "catalog"),
        **grouped(how),
    )


def content(tmp_path, repo, report):
    import xarray as xr

    return xr.open_dataset(
        tmp_path / repo, engine="icevirt", authorize_virtual_chunk_access=report.containers
    ).load()


@pytest.mark.ci
def test_only_new_files_are_scanned_wherever_they_stand(days, tmp_path, scanned):
    build(days[2:4], tmp_path, "a")
    assert sorted(scanned) == ["day2.nc", "day3.nc"]
    scanned.clear()
    report = build(days, tmp_path, "b")
    assert sorted(scanned) == ["day0.nc", "day1.nc", "day4.nc", "day5.nc"]
    assert (report.files_scanned, report.files_reused) == (4, 2)
    scanned.clear()
    part = build(days[1:3], tmp_path, "c")
    assert not scanned
    assert content(tmp_path, "c", part).sizes["time"] == 8
    fresh = icevirt.build(days, str(tmp_path / "d"), concat_dim="time")
    ours, theirs = content(tmp_path, "b", report), content(tmp_path, "d", fresh)
    assert ours.identical(theirs)


@pytest.mark.ci
def test_a_changed_file_is_scanned_again_and_its_old_rows_do_not_count(days, tmp_path, scanned):
    build(days, tmp_path, "a")
    scanned.clear()
    write_day(days[3], 3, steps=3)
    report = build(days, tmp_path, "b")
    assert scanned == ["day3.nc"]
    assert content(tmp_path, "b", report).sizes["time"] == 23
    checked = icevirt.verify(
        str(tmp_path / "b"), full=True, authorize_virtual_chunk_access=report.containers
    ).checked
    assert not checked.differences


def test_other_options_are_another_scan(days, tmp_path, scanned):
    build(days[:2], tmp_path, "a")
    scanned.clear()
    build(days[:2], tmp_path, "b", drop_variables="mask")
    assert len(scanned) == 2


def test_bad_files_are_tried_again_after_a_refusal_and_good_ones_are_not(days, tmp_path, scanned):
    good = Path(days[1]).read_bytes()
    facts = os.stat(days[1])
    Path(days[1]).write_bytes(bytes(len(good)))
    os.utime(days[1], ns=(facts.st_atime_ns, facts.st_mtime_ns))
    for _ in range(2):
        scanned.clear()
        with pytest.raises(ScanError, match="1 of 6 files"):
            build(days, tmp_path, "a")
    assert scanned == ["day1.nc"]
    Path(days[1]).write_bytes(good)  # as after a mount that came back: same size, same time
    os.utime(days[1], ns=(facts.st_atime_ns, facts.st_mtime_ns))
    scanned.clear()
    report = build(days, tmp_path, "a")
    assert scanned == ["day1.nc"]
    assert content(tmp_path, "a", report).sizes["time"] == 24


def test_bad_files_that_were_allowed_are_settled(days, tmp_path, scanned):
    Path(days[1]).write_bytes(b"nothing")
    report = build(days, tmp_path, "a", max_bad_files="17%")
    assert [Path(each.url).name for each in report.bad_files] == ["day1.nc"]
    scanned.clear()
    build(days, tmp_path, "b", max_bad_files=1)
    assert not scanned


@pytest.mark.parametrize("allowed", ["16%", 0, "0%"])
def test_a_share_is_rounded_down(days, tmp_path, allowed):
    Path(days[1]).write_bytes(b"nothing")
    with pytest.raises(ScanError, match="1 of 6"):
        build(days, tmp_path, "a", max_bad_files=allowed)


def test_files_that_change_meanwhile_stop_the_build(days, repo_path, in_process):
    in_process.before[run_write] = at_most(1, lambda n: write_day(days[2], 2, steps=3))
    with pytest.raises(SourcesChangedError, match=r"1 of 6.*day2\.nc.*rescan_changed"):
        icevirt.build(days, repo_path, concat_dim="time")
    assert not Path(repo_path).exists()


def test_files_that_change_meanwhile_are_scanned_again_where_asked(
    days, tmp_path, in_process, scanned
):
    in_process.before[run_write] = at_most(2, lambda n: write_day(days[2], 2, steps=2 + n))
    report = build(days, tmp_path, "a", rescan_changed=True)
    assert scanned.count("day2.nc") == 3
    assert scanned.count("day1.nc") == 1
    assert content(tmp_path, "a", report).sizes["time"] == 22


@pytest.mark.ci
def test_a_file_that_never_rests_stops_the_build_in_the_end(days, repo_path, in_process):
    in_process.before[run_write] = at_most(100, lambda n: write_day(days[2], 2, steps=1 + n % 3))
    with pytest.raises(SourcesChangedError):
        icevirt.build(days, repo_path, concat_dim="time", commit_options={"rescan_changed": True})


def test_a_catalog_that_loses_its_parts_is_reported(days, tmp_path, in_process):
    in_process.after[run_scan] = lambda: shutil.rmtree(tmp_path / "catalog" / "files")
    with pytest.raises(BuildError, match="the catalog lacks files"):
        build(days, tmp_path, "a")


def test_what_was_built_is_given_by_the_snapshot(days, tmp_path):
    report = build(days, tmp_path, "a", duplicates="newest")
    repo = icevirt.Repository.open(str(tmp_path / "a"))
    output = repo.lookup_snapshot(report.snapshot_id).metadata["icevirt_build"]
    assert output["scan"]["concat_dim"] == "time"
    chosen = {"combine_attrs": "override", "duplicates": "newest", "missing": "refuse"}
    assert chosen.items() <= output["combine"].items()
    assert output["catalog"].endswith("/catalog")
    assert output["files"] == 6
    assert len(output["plan"]) == 32


def test_a_finding_says_how_many_files_have_it(days, tmp_path):
    for path in (days[1], days[4]):
        with h5py.File(path, "a") as file:
            file["link"] = h5py.SoftLink("/nowhere")
    report = icevirt.scan_files(days, tmp_path / "catalog")
    (found,) = (each for each in report.findings if "link" in each)
    assert found.endswith(" (2 of 6 files, first day1.nc)")
    for path in set(days) - {days[1], days[4]}:
        with h5py.File(path, "a") as file:
            file["link"] = h5py.SoftLink("/nowhere")
    report = icevirt.scan_files(days, tmp_path / "catalog")
    (found,) = (each for each in report.findings if "link" in each)
    assert found.endswith(" (all files)")
