"""Where an archive moved, every later command goes by the new place, and old snapshots by the old."""

import os
import shutil
from pathlib import Path

import pytest

import icevirt
from builds.support import assert_same_dataset, expected_dataset, official, opened, write_day
from icevirt.connect.urls import file_url
from icevirt.errors import InvalidInputError
from icevirt.tasks.scan import run_scan

pytestmark = [pytest.mark.usefixtures("in_process"), pytest.mark.ci]
NAMED = {"a prefix": {}, "a named container": {"containers": True}}


class Moved:
    """A dataset whose archive moved, at the time when it is relocated."""

    def __init__(self, tmp_path, executor, *, containers=False, keep_times=True):
        self.old, self.new = tmp_path / "disk" / "old", tmp_path / "disk" / "new"
        self.repo = str(tmp_path / "repo")
        self.old.mkdir(parents=True)
        for day in (1, 2, 4):
            write_day(self.old / f"day{day}.nc", day)
        (self.old / "bad.nc").write_bytes(b"not yet" * 400)
        options = {"containers": {"archive": str(self.old)}} if containers else {}
        icevirt.append(
            [str(self.old / f"day{day}.nc") for day in (1, 2)], self.repo, concat_dim="time",
            commit_options=options,
        )  # fmt: skip
        recipe = tmp_path / "recipe.toml"
        more = f'[commit_options.containers]\narchive = "{self.old}"\n' if containers else ""
        recipe.write_text(f'version = 2\nsources = ["{self.old}"]\n{more}')
        report = icevirt.update(self.repo, recipe=recipe)
        assert (report.files_added, len(report.held)) == (1, 1)
        icevirt.exclude(str(self.old / "never.nc"), self.repo)
        self.before = report.snapshot_id
        shutil.copytree(self.old, self.new)
        if not keep_times:
            for path in self.new.iterdir():
                os.utime(path, (2e9, 2e9))
        self.scanned = []

        def scan(task):
            found = run_scan(task)
            self.scanned += [Path(f.url).name for part in task.parts for f in part.files]
            return found

        executor.instead[run_scan] = scan

    def relocate(self):
        both = [file_url(self.old), file_url(self.new)]
        return icevirt.relocate(
            self.repo, self.old, self.new, authorize_virtual_chunk_access=both, seed=1
        )

    def assert_is(self, *days):
        found = opened(self.repo)
        files = [self.new / f"day{day}.nc" for day in days]
        assert_same_dataset(found, expected_dataset(files, "time"))


@pytest.mark.parametrize("how", NAMED.values(), ids=NAMED)
def test_every_command_goes_on_at_the_new_place(how, tmp_path, in_process):
    moved = Moved(tmp_path, in_process, keep_times=bool(how), **how)
    report = moved.relocate()
    (dataset,) = report.datasets
    assert (dataset.files, dataset.is_trusted, report.snapshot_id is not None) == (3, True, True)
    assert dataset.recipe != dataset.recipe_before
    assert moved.relocate().snapshot_id is None
    shutil.rmtree(moved.old)

    again = icevirt.update(moved.repo)
    assert again.already_built
    assert [each.url for each in again.held] == [file_url(moved.new / "bad.nc")]
    assert {*moved.scanned} <= {"bad.nc"}  # it is tried each time
    moved.scanned.clear()
    write_day(moved.new / "never.nc", 9)
    write_day(moved.new / "day5.nc", 5)
    report = icevirt.append(
        [str(moved.new / f"{name}.nc") for name in ("never", "day5")], moved.repo
    )
    assert (report.files_appended, report.files_excluded, report.flat) == (1, 1, True)
    write_day(moved.new / "day3.nc", 3)
    report = icevirt.update(moved.repo)
    assert (report.files_added, report.files_corrected, report.files_excluded) == (1, 0, 1)
    assert {*moved.scanned} == {"day3.nc", "bad.nc"}  # day5 was scanned by the append
    moved.assert_is(1, 2, 3, 4, 5)
    assert icevirt.check(moved.repo).ok
    place = {f"{file_url(moved.new)}/": None}
    assert icevirt.verify(moved.repo, authorize_virtual_chunk_access=place).ok
    assert not icevirt.status(moved.repo).notes
    (value,) = icevirt.source(
        moved.repo, "packed", {"time": "2001-01-04T18", "y": 0, "x": 0}
    ).chunks
    assert value.location == file_url(moved.new / "day3.nc")
    different = icevirt.diff(moved.repo, moved.before).files[0]
    assert [Path(url).name for url in different.added] == ["day5.nc", "day3.nc"]
    assert not different.gone

    withdrawn = str(moved.old / "day2.nc")  # as it was called
    report = icevirt.withdraw(withdrawn, moved.repo, authorize=str(moved.new))
    assert (len(report.datasets), len(report.commits)) == (1, 1)
    moved.assert_is(1, 3, 4, 5)
    assert icevirt.update(moved.repo).already_built  # the file is there still, and stays out


@pytest.mark.parametrize("how", NAMED.values(), ids=NAMED)
def test_undo_leads_to_the_old_place_or_says_how_to_go_on(how, tmp_path, in_process, run):
    moved = Moved(tmp_path, in_process, **how)
    moved.relocate()
    icevirt.undo(moved.repo)
    if how:  # the container moved for all versions
        moved.assert_is(1, 2, 4)
        with pytest.raises(InvalidInputError, match="icevirt relocate") as caught:
            icevirt.update(moved.repo)
        command = str(caught.value).partition("icevirt ")[2].split()
        (old, new) = (f"{file_url(each)}/" for each in (moved.old, moved.new))
        assert command[:1] == ["relocate"]
        assert run("relocate", moved.repo, old, new, "--authorize", new)[0] == 0
        moved.assert_is(1, 2, 4)
    shutil.rmtree(moved.new if not how else moved.old)
    assert icevirt.update(moved.repo).already_built


def test_a_stranger_who_relocates_trusts_nothing(tmp_path, in_process, monkeypatch):
    moved = Moved(tmp_path, in_process)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "strangers"))
    both = [file_url(moved.old), file_url(moved.new)]
    plan = icevirt.relocate(moved.repo, moved.old, moved.new, dry_run=True).datasets[0]
    assert not plan.is_trusted
    report = icevirt.relocate(
        moved.repo, moved.old, moved.new, authorize_virtual_chunk_access=both,
        trust_recipe=plan.recipe_before,
    )  # fmt: skip
    assert (report.datasets[0].recipe, report.datasets[0].is_trusted) == (plan.recipe, True)
    assert icevirt.update(moved.repo).already_built


def test_what_others_did_before_it_is_neither_lost_nor_taken_for_the_builds(tmp_path, in_process):
    moved = Moved(tmp_path, in_process)
    session = official(moved.repo).writable_session("main")
    import zarr

    root = zarr.open_group(session.store, mode="a")
    root.attrs["title"] = "ours"
    root["packed"].attrs["note"] = "ours"
    session.commit("theirs")
    moved.relocate()
    shutil.rmtree(moved.old)
    write_day(moved.new / "day3.nc", 3)
    with pytest.raises(icevirt.errors.PlanChangedError, match="attribute note"):
        icevirt.update(moved.repo)
    assert opened(moved.repo).attrs["title"] == "ours"
