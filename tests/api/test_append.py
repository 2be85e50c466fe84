"""Appended files make the dataset that one build of all files makes, whatever was repeated."""

import os
import re
import shutil
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr

import icevirt
from builds.support import assert_same_dataset, expected_dataset, opened, write_day, write_days
from icevirt import errors
from icevirt.api.dataset.files_held import difference, files_of_build
from icevirt.archive.sources import SourceFile
from icevirt.planning.records import METADATA
from icevirt.repo import made_here
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.storage.local import LocalStorage
from icevirt.tasks.scan import run_scan
from icevirt.tasks.write_manifests import run_write
from icevirt.versioning import lookup

pytestmark = pytest.mark.usefixtures("in_process")


@pytest.fixture
def days(tmp_path):
    return write_days(tmp_path / "days", 4)


@pytest.fixture
def repo(tmp_path):
    return str(tmp_path / "repo")


def history(repo):
    return [each.id for each in icevirt.Repository.open(repo).ancestry(branch="main")]


def built_whole(days, tmp_path, **options):
    """Return the dataset that one build makes."""
    icevirt.build(days, tmp_path / "whole", **({"concat_dim": "time"} | options))
    return opened(str(tmp_path / "whole")).load()


def test_a_dataset_grows_by_what_is_new_and_each_file_is_scanned_once(days, repo, tmp_path):
    first = icevirt.append(days[:1], repo)
    assert (first.files_appended, first.files_scanned) == (1, 1)
    late = icevirt.append([days[0], days[3]], repo)
    assert (late.files_appended, late.files_known, late.files_scanned) == (1, 1, 1)
    rest = icevirt.append(str(Path(days[0]).parent), repo)
    assert (rest.files_appended, rest.files_known, rest.files_scanned) == (2, 2, 2)
    assert_same_dataset(opened(repo), expected_dataset(days, "time"))
    xr.testing.assert_identical(opened(repo).load(), built_whole(days, tmp_path))
    messages = [each.message for each in icevirt.Repository.open(repo).ancestry(branch="main")]
    assert messages[:3] == ["Append 2 files", "Append 1 file", "Append 1 file"]


def test_a_plain_build_grows_too_as_it_was_combined(days, repo, tmp_path):
    options = {
        "scan_options": {"drop_variables": "mask", "variable_policy": {"time_bnds": "native"}},
        "combine_options": {
            "rename": {"packed": "temperature"},
            "attrs": {"temperature": {"units": "kelvin", "valid_min": np.int16(3)}},
            "spacing": {"time": "6h"},
            "tolerance": {"x": 1e-6},
        },
    }
    icevirt.build(days[:2], repo, concat_dim="time", **options)
    report = icevirt.append(days[2], repo)
    assert (report.flat, report.files_scanned) == (True, 1)
    assert icevirt.append(days[2], repo).already_built
    report = icevirt.append(days[3], repo)
    assert (report.flat, report.files_scanned) == (True, 1)
    whole = built_whole(days, tmp_path, **options)
    xr.testing.assert_identical(opened(repo).load(), whole)
    assert whole.temperature.attrs["valid_min"].dtype == np.int16


@pytest.mark.parametrize("files", [[], "known"], ids=["an empty list", "only known files"])
def test_nothing_new_makes_no_commit_and_says_so(files, days, repo):
    icevirt.append(days[:2], repo, concat_dim="time")
    before = history(repo)
    report = icevirt.append(files and days[:2], repo)
    assert history(repo) == before
    assert report.already_built
    assert report.snapshot_id == before[0]
    assert report.findings[0].startswith("nothing was committed")
    assert report.files_known == (2 if files else 0)


def test_nothing_for_no_repository_makes_none(repo):
    assert icevirt.append([], repo).snapshot_id == ""
    assert not os.path.exists(repo)


def test_others_commits_stay(days, repo):
    icevirt.append(days[:2], repo, concat_dim="time")
    session = icevirt.Repository.open(repo).writable_session("main")
    xr.Dataset({"n": 1}).to_zarr(session.store, group="other", zarr_format=3, consolidated=False)
    session.commit("a group of others")
    session = icevirt.Repository.open(repo).writable_session("main")
    import zarr

    zarr.open_group(session.store, mode="a").attrs["note"] = "theirs"
    session.commit("an attribute of others")
    icevirt.append(days[2], repo)
    found = opened(repo)
    assert (found.sizes["time"], found.attrs["note"]) == (12, "theirs")
    assert int(opened(repo, group="other").n) == 1


def touched(path):
    facts = os.stat(path)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns + 10**10))


def test_a_changed_file_is_refused_unless_the_caller_says_what_to_do(days, repo, tmp_path):
    icevirt.append(days[:3], repo, concat_dim="time")
    write_day(days[1], 2, scale=0.01)
    with netCDF4.Dataset(days[1], "a") as file:
        file["packed"].set_auto_maskandscale(False)
        file["packed"][1] = 1234
    touched(days[1])
    with pytest.raises(errors.SourcesChangedError, match="on_changed") as caught:
        icevirt.append(days, repo)
    assert 'mode="w"' in str(caught.value)
    assert list(caught.value.facts["files"]) == [f"file://{days[1]}"]
    kept = icevirt.append(days, repo, on_changed="keep")
    assert (kept.files_appended, kept.files_replaced) == (1, 0)
    assert icevirt.append(days, repo, on_changed="keep").already_built
    with pytest.raises(errors.StaleReferenceError):
        opened(repo).packed.load()
    replaced = icevirt.append(days, repo, on_changed="replace")
    assert (replaced.files_appended, replaced.files_replaced) == (0, 1)
    assert_same_dataset(opened(repo), expected_dataset(days, "time"))
    assert icevirt.append(days, repo).already_built


def other_units(path):
    return write_day(path, 3, units="hours since 2001-01-01", scale=0.5)


def same_steps(path):
    return write_day(path, 1)


def other_grid(path):
    return write_day(path, 3, nx=9)


@pytest.mark.ci
@pytest.mark.parametrize("write", [other_units, same_steps, other_grid])
def test_what_does_not_fit_is_refused_and_the_dataset_stays(write, days, repo, tmp_path):
    icevirt.append(days[:2], repo, concat_dim="time")
    before, odd = history(repo), write(tmp_path / "days" / "odd.nc")
    with pytest.raises(errors.CombineError, match="Nothing was appended") as caught:
        icevirt.append([odd], repo)
    assert caught.value.facts["new_files"] == [f"file://{odd}"]
    assert history(repo) == before
    icevirt.append(days, repo)
    assert_same_dataset(opened(repo), expected_dataset(days, "time"))


def test_options_of_the_call_go_before_those_of_the_build(days, repo, tmp_path):
    icevirt.append(days[:2], repo, concat_dim="time")
    again = write_day(tmp_path / "days" / "day1_v2.nc", 1)
    icevirt.append(again, repo, combine_options={"duplicates": "version"})
    assert opened(repo).sizes["time"] == 8
    more = write_day(tmp_path / "days" / "day1_v3.nc", 1)
    icevirt.append(more, repo)  # as the last build did
    assert opened(repo).sizes["time"] == 8


def test_bad_files_are_left_out_once_and_taken_when_they_are_repaired(days, repo):
    whole = Path(days[1]).read_bytes()
    Path(days[1]).write_bytes(whole[:2000])
    with pytest.raises(errors.ScanError):
        icevirt.append(days[:3], repo, concat_dim="time")
    some = {"max_bad_files": 1}
    report = icevirt.append(days[:3], repo, concat_dim="time", scan_options=some)
    assert len(report.bad_files) == 1
    assert icevirt.append(days[:3], repo).already_built
    icevirt.append(days[3], repo)  # allows no bad file, and there is no new one
    Path(days[1]).write_bytes(whole)
    report = icevirt.append(days, repo)
    assert (report.files_appended, report.files_replaced) == (0, 1)
    assert_same_dataset(opened(repo), expected_dataset(days, "time"))


def test_a_group_that_no_build_made_is_refused(days, repo):
    session = icevirt.Repository.create(repo).writable_session("main")
    xr.Dataset({"n": 1}).to_zarr(session.store, zarr_format=3, consolidated=False)
    session.commit("somebody's")
    with pytest.raises(errors.AlreadyExistsError, match="group="):
        icevirt.append(days, repo, concat_dim="time")
    icevirt.append(days, repo, concat_dim="time", group="days")
    assert opened(repo, group="days").sizes["time"] == 16


def test_files_that_vanished_since_do_not_stop_an_append(days, repo):
    """What the dataset holds is not looked at again: readers say that the file is gone."""
    icevirt.append(days[:3], repo, concat_dim="time")
    os.remove(days[0])
    icevirt.append(days[3], repo)
    assert opened(repo).sizes["time"] == 16


# -- writers at the same time ------------------------------------------------------------------


@pytest.mark.parametrize("stage", [run_scan, run_write], ids=["scan", "write"])
def test_an_append_that_another_one_overtakes_plans_again_on_top(stage, days, repo, in_process):
    icevirt.append([days[0], days[3]], repo, concat_dim="time")
    left = [1]

    def overtake():
        if left:
            left.clear()
            icevirt.append(days[1], repo)

    in_process.after[stage] = overtake
    report = icevirt.append(days[1:3], repo)
    assert (report.files_appended, report.files_known, report.flat) == (1, 1, False)
    assert_same_dataset(opened(repo), expected_dataset(days, "time"))
    assert len(history(repo)) == 4
    assert any("do not all lie behind" in each for each in report.findings)


def test_the_same_append_twice_at_once_is_one(days, repo, in_process):
    """As by a driver that was given up and goes on, while another took its place."""
    icevirt.append(days[:1], repo, concat_dim="time")
    left = [1]

    def overtake():
        if left:
            left.clear()
            assert icevirt.append(days, repo).files_appended == 3

    in_process.after[run_scan] = overtake
    icevirt.append(days, repo)
    assert len(history(repo)) == 3
    assert_same_dataset(opened(repo), expected_dataset(days, "time"))


def test_appenders_of_a_new_repository_come_one_after_the_other(days, repo, in_process):
    left = [1]

    def overtake():
        if left:
            left.clear()
            icevirt.append(days[:2], repo, concat_dim="time")

    in_process.after[run_write] = overtake
    icevirt.append(days, repo, concat_dim="time")
    assert_same_dataset(opened(repo), expected_dataset(days, "time"))
    assert len(history(repo)) == 3


# -- what a repository says is data --------------------------------------------------------------


def test_files_of_the_dataset_are_read_where_the_caller_says(days, repo, tmp_path):
    elsewhere = write_days(tmp_path / "elsewhere", 2)
    icevirt.append(elsewhere[1], repo, concat_dim="time")
    assert icevirt.append(days[2], repo).flat  # files before are not looked at
    with pytest.raises(errors.InvalidInputError, match="authorize=") as caught:
        icevirt.append(days[0], repo)
    (fix,) = caught.value.fixes
    assert fix.arguments == {"authorize": [f"file://{tmp_path}/elsewhere/"]}
    icevirt.append([days[0], days[3]], repo, **fix.arguments)
    assert opened(repo).sizes["time"] == 16


@pytest.mark.ci
def test_what_may_not_be_read_is_not_verified_and_the_report_says_so(
    days, repo, tmp_path, monkeypatch
):
    elsewhere = write_days(tmp_path / "elsewhere", 2)
    icevirt.append(elsewhere[1], repo, concat_dim="time")
    monkeypatch.setattr(made_here, "_file", lambda: str(tmp_path / "of another user"))
    verify = {"commit_options": {"verify": 5}}
    report = icevirt.append(days[2], repo, **verify)
    assert report.snapshot_id == icevirt.Repository.open(repo).lookup_branch("main")
    (note,) = [each for each in report.findings if each.startswith("not verified")]
    assert f"--authorize file://{tmp_path}/elsewhere/" in note
    place = f"file://{tmp_path}/elsewhere/"
    report = icevirt.append(days[3], repo, authorize=[place], **verify)
    assert not [each for each in report.findings if each.startswith("not verified")]


def recorded(repo):
    info = RepoInfoFile(LocalStorage(repo)).read().info
    return next(iter(lookup.ancestry(info, info.branches["main"]))).metadata[METADATA]


def saying(repo, **changes):
    """Commit that the last build had other options."""
    held = recorded(repo)
    session = icevirt.Repository.open(repo).writable_session("main")
    import zarr

    zarr.open_group(session.store, mode="a").attrs["n"] = len(history(repo))
    output = {
        name: {**held[name], **each} if isinstance(each, dict) else each
        for name, each in changes.items()
    }
    session.commit("somebody's", metadata={METADATA: {**held, **output}})


def run_me(_):
    raise AssertionError("a name in a repository was run")


AUTHORITY = {
    "a function": ({"combine": {"edits": {"preprocess": f"{__name__}:run_me"}}}, "preprocess"),
    "a scanner": ({"scan": {"scanner": f"{__name__}:run_me"}}, "scanner"),
    "a directory": ({"scan": {"allow_references_to": ["file:///etc/"]}}, "allow_references_to"),
    "a publication": ({"combine": {"publish_as": [["file:///a/", "s3://b/"]]}}, "publish_as"),
}


@pytest.mark.parametrize(("output", "name"), AUTHORITY.values(), ids=AUTHORITY)
def test_a_recorded_option_that_reads_or_runs_something_is_not_taken(output, name, days, repo):
    icevirt.append(days[:2], repo, concat_dim="time")
    saying(repo, **output)
    with pytest.raises(errors.InvalidInputError, match=name):
        icevirt.append(days[2], repo)


LISTED = {"a list of labels": ({"combine": {"labels": {"time": ["a", "b"]}}}, "labels")}


@pytest.mark.parametrize(("output", "name"), (AUTHORITY | LISTED).values(), ids=AUTHORITY | LISTED)
def test_a_window_names_no_option_that_only_an_append_takes(output, name, days, repo):
    icevirt.append(days[:2], repo, concat_dim="time")
    saying(repo, **output)
    with pytest.raises(errors.InvalidInputError, match=name) as caught:
        icevirt.maintain(repo, window="1h", authorize=str(Path(days[0]).parent), dry_run=True)
    assert not caught.value.fixes
    call = rf'icevirt.build\(files, repo, mode="w", \w+_options=.*{name}'
    assert re.search(call, str(caught.value))


UNUSABLE = {
    "no mapping": {"scan": {"policy": 5}},
    "no option": {"combine": {"missing": "always"}},
    "no dimension": {"scan": {"concat_dim": [5]}},
    "no list": {"listing": "../../x"},
    "another list": {"listing": "0" * 20},
}


@pytest.mark.parametrize("output", UNUSABLE.values(), ids=UNUSABLE)
def test_what_no_build_records_is_refused(output, days, repo):
    icevirt.append(days[:2], repo, concat_dim="time")
    saying(repo, **output)
    with pytest.raises((errors.FormatError, errors.InvalidInputError), match='mode="w"'):
        icevirt.append(days[2], repo)


def test_a_list_of_other_files_is_refused(days, repo, tmp_path):
    icevirt.append([days[0], days[3]], repo, concat_dim="time")
    icevirt.build(days[:3], tmp_path / "other", concat_dim="time")
    (theirs,) = (tmp_path / "other" / "icevirt" / "listings").iterdir()
    (ours,) = Path(repo, "icevirt", "listings").iterdir()
    shutil.copy(theirs, ours)
    with pytest.raises(errors.FormatError, match="not the one that its snapshot names"):
        icevirt.append(days[1], repo)


def test_the_list_of_a_dataset_that_grows_by_single_files_stays_in_few_objects(tmp_path, repo):
    days = write_days(tmp_path / "days", 9)
    for day in days:
        icevirt.append(day, repo, concat_dim="time")
    found = files_of_build(LocalStorage(repo), recorded(repo))
    assert list(found.files.urls) == [f"file://{day}" for day in days]
    assert len(found.pieces) <= 4
    sizes = [at.stat().st_size for at in Path(repo, "icevirt", "listings").iterdir()]
    assert len(sizes) == 9


FACTS = {
    "the same": ({}, {}, None),
    "an etag that only one listing knows": ({"etag": "a"}, {}, None),
    "a fraction of a second that only one knows": ({"last_modified": 5_500_000_000}, {}, None),
    "another fraction": (
        {"last_modified": 5_500_000_000},
        {"last_modified": 5_600_000_000},
        "modification time",
    ),
    "another second": ({"last_modified": 6_000_000_000}, {}, "modification time"),
    "another etag": ({"etag": "a"}, {"etag": "b"}, "etag"),
    "the same etag at another time": (
        {"etag": "a"},
        {"etag": '"a"', "last_modified": 9_000_000_000},
        None,
    ),
    "another size": ({"size": 2}, {}, "2 bytes"),
}


@pytest.mark.parametrize(("now", "before", "how"), FACTS.values(), ids=FACTS)
def test_a_file_is_the_same_as_far_as_listings_tell(now, before, how):
    facts = {"url": "s3://b/k.nc", "size": 1, "last_modified": 5_000_000_000}
    found = difference(SourceFile(**(facts | now)), SourceFile(**(facts | before)))
    assert (found is None) if how is None else (how in found)
