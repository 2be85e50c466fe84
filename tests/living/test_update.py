"""`icevirt update` commits how an archive differs from its dataset, and asks whom to trust."""

import json
import os
import re
import shlex
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr

import icevirt
from builds.support import (
    assert_same_dataset,
    expected_dataset,
    official,
    opened,
    write_day,
)
from icevirt import errors
from icevirt.api.dataset import flat, trial, update_change
from icevirt.api.dataset.left_out import read_held
from icevirt.api.dataset.planning import plan_files
from icevirt.api.dataset.target import Target
from icevirt.errors import InvalidInputError, RepositoryNotFoundError
from icevirt.scan.registry import scanners
from icevirt.storage.local import LocalStorage
from icevirt.tasks.scan import run_scan

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]


def tip(repo):
    return icevirt.Repository.open(repo).lookup_branch("main")


def held(repo):
    storage = LocalStorage(repo)
    target = Target.look(storage, branch="main", group="/", mode="w")
    found = read_held(storage, target.find_held_back()[0])
    return {Path(each.url).name: each.code for each in found}


def test_what_is_new_is_committed_and_what_does_not_fit_is_held_back(repo, archive, run):
    """A dry run shows it; the next update tries it again."""
    write_day(archive / "day3.nc", 3)
    write_day(archive / "odd.nc", 4, nx=9)
    (archive / "bad.nc").write_bytes(b"not yet" * 400)
    before = tip(repo)
    status, output, _ = run("plan", "--update", repo)
    assert (status, tip(repo)) == (0, before)
    for line in (
        "+ 1 new file",
        "! 2 files held back: left out, and tried again by the next update",
        "time ends at 2001-01-04T18:00:00; it ended at 2001-01-03T18:00:00",
    ):
        assert f"  {line}\n" in output
    assert "manifests" in output
    status, output, _ = run("update", repo, "--output", "json", "--fail-on-held")
    found = json.loads(output)
    assert (status, found["files_added"], found["files_scanned"]) == (5, 1, 1)
    assert held(repo) == {"odd.nc": "combine", "bad.nc": "scan"}
    days = [archive / f"day{day}.nc" for day in (1, 2, 3)]
    assert_same_dataset(opened(repo), expected_dataset(days, "time"))
    committed = tip(repo)
    assert run("update", repo)[0] == 0
    assert tip(repo) == committed  # what is held back is as before
    write_day(archive / "odd.nc", 4)
    (archive / "bad.nc").unlink()
    report = icevirt.update(repo)
    assert (report.summary.partition(" · ")[0], held(repo)) == ("+ 1 file", {})
    assert opened(repo).sizes["time"] == 16


@pytest.mark.ci
def test_files_delivered_twice_hold_back_no_file_between_them(repo, archive):
    for name, day in (("new0", 1), ("new1", 3), ("new2", 4), ("new3", 5), ("new4", 2)):
        write_day(archive / f"{name}.nc", day)
    report = icevirt.update(repo)
    assert report.files_added == 3
    assert held(repo) == {"new0.nc": "combine", "new4.nc": "combine"}
    assert all("time" in each.error for each in report.held)


def test_files_alone_that_are_held_back_are_recorded_without_another_commit_each_time(
    repo, archive, run
):
    (archive / "bad.nc").write_bytes(b"not yet" * 400)
    report = icevirt.update(repo)
    assert report.already_built
    said = run("update", repo)[1]
    assert said.startswith("Unchanged ")
    assert "bad.nc" in said
    assert "no file is new" not in said
    assert run("update", repo, "--dry-run")[1].startswith("Unchanged ")
    assert (held(repo), report.snapshot_id) == ({"bad.nc": "scan"}, tip(repo))
    assert icevirt.update(repo).snapshot_id == report.snapshot_id
    session = official(repo).writable_session("main")
    xr.Dataset({"n": 1}).to_zarr(session.store, group="other", zarr_format=3, consolidated=False)
    session.commit("theirs")
    assert held(repo) == {"bad.nc": "scan"}


def test_an_archive_that_is_not_there_takes_nothing_away(repo, archive):
    before = tip(repo)
    os.rename(archive / "day1.nc", archive / "gone")
    with pytest.raises(InvalidInputError, match='vanished="missing"'):
        icevirt.update(repo)
    os.rename(archive / "day2.nc", archive / "also")
    for vanished in ("refuse", "missing", "remove"):
        with pytest.raises(InvalidInputError, match="name no files"):
            icevirt.update(repo, vanished=vanished, max_vanished="100%")
    assert tip(repo) == before


def test_young_files_wait_and_older_names_are_not_looked_at(repo, archive):
    write_day(archive / "day3.nc", 3)
    report = icevirt.update(repo, settle="1h")
    assert (report.files_waiting, report.already_built) == (1, True)
    os.remove(archive / "day1.nc")
    report = icevirt.update(repo, since="day3")
    assert (report.files_added, report.files_vanished) == (1, 0)
    write_day(archive / "day25.nc", 25)
    assert icevirt.update(repo, since="day3").already_built


def test_files_are_scanned_again_by_request_alone(repo, archive, in_process):
    scanned = []
    in_process.before[run_scan] = lambda: scanned.append(1)
    assert icevirt.update(repo).already_built
    assert not scanned
    report = icevirt.update(repo, rescan="day1.*")
    assert (report.files_corrected, len(scanned)) == (1, 1)


def _while_scanning(monkeypatch, act):
    """Act when new files were scanned, before they are appended."""

    def scan(*given, **more):
        found = scanned(*given, **more)
        act()
        return found

    scanned = flat.scan_ends
    monkeypatch.setattr(flat, "scan_ends", scan)


def test_a_file_that_changes_while_it_is_read_waits(repo, archive, monkeypatch):
    write_day(archive / "day3.nc", 3)
    write_day(archive / "day4.nc", 4)

    def write_on():
        monkeypatch.undo()
        with (archive / "day4.nc").open("ab") as file:
            file.write(b"more")

    _while_scanning(monkeypatch, write_on)
    report = icevirt.update(repo)
    assert (report.files_added, report.files_waiting) == (1, 1)
    assert opened(repo).sizes["time"] == 12


def test_an_update_that_others_overtake_plans_again(repo, archive, monkeypatch):
    """An appender, and a user who writes another group."""
    write_day(archive / "day4.nc", 4)
    left = [1]

    def overtake():
        if left:
            left.clear()
            icevirt.append(write_day(archive / "day3.nc", 3), repo)
            session = official(repo).writable_session("main")
            area = xr.Dataset({"area": (("y", "x"), np.ones((5, 6)))})
            area.to_zarr(session.store, mode="a", zarr_format=3, consolidated=False)
            session.commit("theirs")

    _while_scanning(monkeypatch, overtake)
    report = icevirt.update(repo)
    assert (report.files_added, report.files_known) == (1, 3)
    found = opened(repo)
    assert (found.sizes["time"], int(found.area.sum())) == (16, 30)


@pytest.mark.ci
def test_touched_files_are_distinguished_from_rewritten_ones(repo, archive, run):
    """Only one of them holds other bytes; both have another time."""
    write_day(archive / "day3.nc", 3)
    icevirt.update(repo)
    before = opened(repo).load()
    os.utime(archive / "day1.nc", (2e9, 2e9))
    write_day(archive / "day2.nc", 22)  # of the same shape, with other labels
    write_day(archive / "day2.nc", 2)
    with netCDF4.Dataset(archive / "day2.nc", "a") as file:
        file["packed"][:] = 7
    status, output, _ = run("update", repo, "--dry-run", "--rescan", "day3.nc")
    assert status == 0
    assert (
        "~ 3 changed files: 1 with other content, 1 touched or rewritten in place,"
        " 1 scanned again by request"
    ) in output
    status, output, _ = run("update", repo, "--output", "json")
    found = json.loads(output)
    counts = [
        found[f"files_{name}"] for name in ("corrected", "same_layout", "rescanned", "scanned")
    ]
    assert (status, counts) == (0, [2, 1, 0, 0])  # the dry run scanned them
    now = opened(repo).load()
    assert (now.packed[4:8] == 7).all()
    xr.testing.assert_equal(now.isel(time=slice(4)), before.isel(time=slice(4)))


def plain(path, day, values):
    """Write a file whose layout does not depend on its values."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", 40)
        file.createVariable("time", "i4", ("time",))[:] = [day]
        file.createVariable("field", "f4", ("time", "x"), chunksizes=(1, 40))[:] = values
        file.createVariable("small", "i4", ("time",))[:] = [values]
    os.utime(path, (1.6e9 + 10 * day + values,) * 2)


@pytest.mark.parametrize("values", [1, 8], ids=["touched", "rewritten in place"])
def test_the_same_layout_says_nothing_of_values_and_all_of_them_are_the_files(values, tmp_path):
    """What was copied of the file is copied again; before that it is what it was, as pages say."""
    archive, repo = tmp_path / "plain", str(tmp_path / "repo")
    archive.mkdir()
    for day in (1, 2, 3):
        plain(archive / f"day{day}.nc", day, 1)
    icevirt.build(str(archive), repo, concat_dim="time")
    plain(archive / "day2.nc", 2, values)
    os.utime(archive / "day2.nc", (1.7e9, 1.7e9))
    with pytest.raises(icevirt.errors.StaleReferenceError):
        opened(repo).field.load()
    assert opened(repo).small.values.tolist() == [1, 1, 1]
    report = icevirt.update(repo)
    assert (report.files_corrected, report.files_same_layout) == (1, 1)
    assert "1 touched or rewritten in place" in report.summary
    found = opened(repo).load()
    assert found.field.values[:, 0].tolist() == found.small.values.tolist() == [1, values, 1]


def test_variables_of_others_along_the_growing_dimension_stop_it_with_a_remedy(repo, archive, run):
    """They are to blame, and no file is held back for them."""
    ours = opened(repo)
    session = official(repo).writable_session("main")
    steps = xr.Dataset({"steps": ("time", np.arange(8.0))}, attrs=ours.attrs)
    steps.to_zarr(session.store, mode="a", zarr_format=3, consolidated=False)
    session.commit("theirs")
    apart = steps.assign_coords(time=ours.time)
    session = official(repo).writable_session("main")
    apart.to_zarr(session.store, group="derived", zarr_format=3, consolidated=False)
    session.commit("theirs, apart")
    before = tip(repo)
    write_day(archive / "day3.nc", 3)
    for words in (("update", repo), ("update", repo, "--dry-run")):
        status, _, output = run(*words)
        assert (status, tip(repo), held(repo)) == (1, before, {})
        assert "/steps (its time has 8 steps, in the build 12)" in output
        assert 'group="derived"' in output
    (command,) = re.findall(r"icevirt (update .*--drop-others)", output)
    assert run(*command.replace("--dry-run ", "").split())[0] == 0
    found = opened(repo)
    assert (found.sizes["time"], "steps" in found) == (12, False)
    xr.testing.assert_identical(opened(repo, group="derived").load(), apart)


def test_a_group_that_no_build_made_has_nothing_to_update(repo):
    with pytest.raises(InvalidInputError, match="icevirt build"):
        icevirt.update(repo, group="other")
    with pytest.raises(RepositoryNotFoundError):
        icevirt.update(f"{repo}-that-is-not-there")
    for wrong in ({"vanished": "ignore"}, {"if_running": "fight"}, {"settle": "soon"}):
        with pytest.raises(InvalidInputError):
            icevirt.update(repo, **wrong)


@pytest.mark.ci
def test_newer_scanners_scan_nothing_again(repo, archive, in_process, monkeypatch):
    """Neither an append behind the last step nor a plan of all files; a request does."""
    scanned = []

    def scan(task):
        scanned.extend(Path(file.url).name for part in task.parts for file in part.files)
        return run_scan(task)

    in_process.instead[run_scan] = scan
    for scanner in scanners():
        monkeypatch.setattr(scanner, "version", "999", raising=False)
    write_day(archive / "day3.nc", 3)
    assert icevirt.update(repo).manifests < 5  # flat
    for day in (6, 5):
        write_day(archive / f"day{day}.nc", day)
        assert icevirt.update(repo).files_added == 1
    write_day(archive / "day7.nc", 7)
    assert icevirt.append(str(archive), repo).flat
    assert not {"day1.nc", "day2.nc"} & {*scanned}
    report = icevirt.update(repo, rescan="day[12].nc")
    assert (report.files_corrected, {*scanned} >= {"day1.nc", "day2.nc"}) == (2, True)


@pytest.mark.ci
def test_variables_are_made_anew_from_all_files_and_nothing_else_is_touched(
    repo, archive, run, in_process, monkeypatch
):
    """A scanner wrote references that are wrong; its new version is right."""
    icevirt.append(write_day(archive / "day3.nc", 3), repo)
    session = official(repo).writable_session("main")
    area = xr.Dataset({"area": (("y", "x"), np.ones((5, 6)))}, attrs=opened(repo).attrs)
    area.to_zarr(session.store, mode="a", zarr_format=3, consolidated=False)
    session.commit("theirs")
    scanned = []

    def scan(task):
        scanned.extend(Path(file.url).name for part in task.parts for file in part.files)
        return run_scan(task)

    in_process.instead[run_scan] = scan
    with pytest.raises(InvalidInputError, match="Did you mean 'packed'"):
        icevirt.update(repo, variables=["pakked"])
    with pytest.raises(InvalidInputError, match="since means nothing"):
        icevirt.update(repo, variables="packed", since="day3")
    before, first = nodes(repo), tip(repo)
    write_day(archive / "day9.nc", 9)  # new files are another update's
    status, output, _ = run("update", repo, "--variables", "packed,time_bnds", "--dry-run")
    assert (status, tip(repo), scanned) == (0, first, [])
    assert "2 variables: /packed, /time_bnds" in output
    assert "3 files would be scanned again" in output
    status, output, _ = run("update", repo, "--variables", "packed", "--output", "json")
    report = json.loads(output)
    assert (status, report["variables"], report["files_scanned"]) == (0, ["/packed"], 3)
    assert sorted(scanned) == ["day1.nc", "day2.nc", "day3.nc"]
    after = nodes(repo)
    changed = {path for path in before if before[path] != after[path]}
    assert (changed, before.keys()) == ({"/packed"}, after.keys())
    days = [archive / f"day{day}.nc" for day in (1, 2, 3)]
    assert_same_dataset(opened(repo).drop_vars("area"), expected_dataset(days, "time"))
    assert icevirt.check(repo).ok
    scanned.clear()
    icevirt.update(repo, variables="packed", rescan="day1.nc")
    assert scanned == ["day1.nc"]
    assert icevirt.append(str(archive / "day9.nc"), repo).flat
    assert opened(repo).sizes["time"] == 16
    os.utime(archive / "day2.nc", (2e9, 2e9))
    with pytest.raises(errors.SourcesChangedError, match="Update the dataset first"):
        icevirt.update(repo, variables="packed")
    assert icevirt.update(repo).files_corrected == 1
    icevirt.undo(repo)
    assert opened(repo).sizes["time"] == 16


def nodes(repo):
    snapshot = icevirt.Repository.open(repo).readonly_session("main").snapshot
    return {node.path: node for node in snapshot.nodes}


def test_a_scan_that_fails_takes_away_nothing_that_was_known(repo, archive, in_process):
    """A file that is scanned again by request, and that no scanner reads any more."""

    def scan(task):
        raise_for = {file.url for part in task.parts for file in part.files}
        for url in raise_for:
            path = Path(url.removeprefix("file://"))
            facts = path.stat()
            path.write_bytes(b"not yet" * (facts.st_size // 7) + b"n" * (facts.st_size % 7))
            os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        return run_scan(task)

    raw = (archive / "day2.nc").read_bytes()
    facts = (archive / "day2.nc").stat()
    in_process.instead[run_scan] = scan
    with pytest.raises(errors.ScanError, match="cannot be scanned any more"):
        icevirt.update(repo, variables="packed", rescan="day2.nc")
    (archive / "day2.nc").write_bytes(raw)
    os.utime(archive / "day2.nc", ns=(facts.st_atime_ns, facts.st_mtime_ns))
    in_process.instead.clear()
    write_day(archive / "day0.nc", 0)
    report = icevirt.update(repo)
    assert (report.files_added, report.files_scanned) == (1, 1)


@pytest.mark.ci
def test_what_an_update_costs_follows_what_is_new(repo, archive, in_process, monkeypatch):
    """Held files, and more files than this process scans: the others are not planned again."""
    planned = []
    monkeypatch.setattr(
        trial, "plan_files", lambda *given, **how: planned.append(1) or plan_files(*given, **how)
    )
    monkeypatch.setattr(update_change, "FEW", 2)
    for number in range(5):
        write_day(archive / f"odd{number}.nc", 50 + number, nx=9)
    (archive / "bad.nc").write_bytes(b"not yet" * 400)
    report = icevirt.update(repo)
    assert (len(report.held), report.already_built) == (6, True)
    assert len(planned) <= 6  # and not two for each of them
    planned.clear()
    assert icevirt.update(repo).already_built
    for day in range(3, 9):
        write_day(archive / f"day{day}.nc", day)
    report = icevirt.update(repo)
    assert (report.files_added, len(report.held)) == (6, 6)
    assert not planned
    assert held(repo).keys() == {*(f"odd{number}.nc" for number in range(5)), "bad.nc"}
    days = [archive / f"day{day}.nc" for day in range(1, 9)]
    assert_same_dataset(opened(repo), expected_dataset(days, "time"))
    write_day(archive / "day99.nc", 99)
    assert icevirt.append(str(archive / "day99.nc"), repo).flat
    assert held(repo).keys() >= {"bad.nc"}
    write_day(archive / "odd1.nc", 51)
    report = icevirt.update(repo)
    assert (report.files_added, len(report.held)) == (1, 5)


@pytest.mark.ci
def test_a_build_keeps_its_scans_for_updates(archive, tmp_path, in_process):
    """A late file takes a plan of all files, and no scan of those that were built."""
    made = str(tmp_path / "other")
    write_day(archive / "day9.nc", 9)
    icevirt.build(str(archive), made, concat_dim="time")
    scanned = []
    in_process.instead[run_scan] = lambda task: (
        scanned.extend(Path(file.url).name for part in task.parts for file in part.files)
        or run_scan(task)
    )
    write_day(archive / "day3.nc", 3)
    report = icevirt.update(made)
    assert (report.files_added, report.files_scanned, scanned) == (1, 1, [])
    os.remove(archive / "day1.nc")
    assert icevirt.update(made, vanished="missing").files_vanished == 1
    write_day(archive / "day2.nc", 2, nx=9)
    report = icevirt.update(made)
    assert ([Path(each.url).name for each in report.held], scanned) == (["day2.nc"], ["day2.nc"])


@pytest.mark.ci
def test_a_list_that_an_append_wrote_is_named_by_the_next_commit_too(repo, archive):
    """No file comes or goes: only one of them reads as missing, and does not any more."""
    write_day(archive / "day3.nc", 3)
    assert icevirt.append(str(archive), repo).flat
    os.rename(archive / "day2.nc", archive.parent / "away")
    assert icevirt.update(repo, vanished="missing").files_vanished == 1
    os.rename(archive.parent / "away", archive / "day2.nc")
    icevirt.update(repo)
    assert icevirt.update(repo).already_built
    days = [archive / f"day{day}.nc" for day in (1, 2, 3)]
    assert_same_dataset(opened(repo), expected_dataset(days, "time"))


def write_large(path, day, add=0.0):
    """Write a file whose values are too many to be copied into the repository."""
    with h5py.File(path, "w") as file:
        file["time"] = np.array([float(day)])
        file["time"].make_scale("time")
        file["time"].attrs["units"] = "days since 2001-01-01"
        file["v"] = np.arange(4000.0)[None] + day + add
        file["v"].dims[0].attach_scale(file["time"])


def rewrite(path):
    write_large(path, 2, add=0.5)
    os.utime(path, (2e9, 2e9))


def lengthen(path):
    with open(path, "ab") as file:
        file.write(bytes(100))
    os.utime(path, (2e9, 2e9))


HARMS = {
    "rewritten": rewrite,
    "touched": lambda path: os.utime(path, (2e9, 2e9)),
    "longer": lengthen,
    "gone": os.remove,
}


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
def test_the_call_that_an_error_of_reading_names_makes_the_dataset_readable(harm, tmp_path):
    """One command keeps all data and takes the file as it is."""
    (tmp_path / "large").mkdir()
    files = [tmp_path / "large" / f"day{day}.nc" for day in (1, 2, 3)]
    for day, path in enumerate(files, 1):
        write_large(path, day)
    repo = str(tmp_path / "repo")
    icevirt.build(str(tmp_path / "large"), repo, concat_dim="time")
    harm(files[1])
    with pytest.raises(errors.StorageError) as caught, opened(repo) as dataset:
        dataset.load()
    assert "icevirt build" not in str(caught.value)
    (call,) = re.findall(r"icevirt\.update\([^()]*\)", str(caught.value))
    eval(call, {"icevirt": icevirt, "repo": repo})
    with opened(repo) as dataset:
        days = dataset["v"].load()
    there = [1, 2, 3] if files[1].exists() else [1, 3]
    for day in there:
        with h5py.File(files[day - 1]) as file:
            np.testing.assert_array_equal(days[day - 1], file["v"][0])
    assert np.isnan(days[1]).all() == (len(there) == 2)


@pytest.mark.parametrize(
    ("group", "branch"), [("/", "main"), ("/a/b", "main"), ("/", "dev"), ("/a b", "it's")]
)
def test_a_build_that_is_repeated_names_the_update_first(archive, tmp_path, run, group, branch):
    """What it names adds the file of today."""
    repo = str(tmp_path / "a repo")
    made = icevirt.Repository.create(repo)
    for name in ("dev", "it's"):
        made.create_branch(name, tip(repo))
    options = {"concat_dim": "time", "group": group, "commit_options": {"branch": branch}}
    icevirt.build(str(archive), repo, **options)
    write_day(archive / "day3.nc", 3)
    with pytest.raises(errors.AlreadyExistsError) as caught:
        icevirt.build(str(archive), repo, **options)
    first = caught.value.fixes[0]
    assert str(caught.value).startswith("the group of the repository is not empty")
    assert f"Run {first.python}: " in str(caught.value)
    assert "icevirt.append(files, repo)" in caught.value.do
    status, text, _ = run(*shlex.split(first.command)[1:])
    assert (status, "1 new file" in text) == (0, True), text
    write_day(archive / "day4.nc", 4)
    assert eval(first.python, {"icevirt": icevirt}).files_added == 1


def test_a_group_that_no_build_made_is_not_said_to_be_updated(archive, tmp_path):
    repo = str(tmp_path / "repo")
    session = icevirt.Repository.create(repo).writable_session("main")
    zarr.create_array(session.store, name="mine", shape=(1,), dtype="f8")
    session.commit("by hand")
    with pytest.raises(errors.AlreadyExistsError) as caught:
        icevirt.build(str(archive), repo, concat_dim="time")
    assert not [each for each in caught.value.fixes if each.command]
    assert not caught.value.do
