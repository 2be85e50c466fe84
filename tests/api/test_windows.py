"""A dataset is kept to its last steps, and is what a build of the files that stay makes."""

from pathlib import Path

import pytest
import xarray as xr
import zarr

import icevirt
from builds.support import official, opened, write_days
from icevirt.errors import InvalidInputError, PlanChangedError

pytestmark = pytest.mark.usefixtures("in_process")


@pytest.fixture(scope="module")
def days(tmp_path_factory):
    return write_days(tmp_path_factory.mktemp("window") / "days", 8)


@pytest.fixture
def repo(days, tmp_path):
    repo = str(tmp_path / "repo")
    icevirt.append(days[:7], repo, concat_dim="time")
    return repo


def folder(days):
    return str(Path(days[0]).parent)


def keep(repo, days, window, **options):
    return icevirt.maintain(repo, window=window, authorize=folder(days), **options).window


def test_what_stays_is_what_was_and_the_window_counts_from_the_newest_step(repo, days, tmp_path):
    before = opened(repo).load()
    plan = keep(repo, days, "60h", dry_run=True)  # 2.5 days before the last step: five files
    assert (plan.steps, plan.steps_dropped, plan.files, plan.files_dropped) == (28, 16, 7, 4)
    assert plan.snapshot_id is None
    assert opened(repo).sizes["time"] == 28
    done = keep(repo, days, {"time": "60h"})
    assert done.snapshot_id == next(icevirt.Repository.open(repo).ancestry(branch="main")).id
    after = opened(repo).load()
    xr.testing.assert_equal(after, before.isel(time=slice(16, None)))
    theirs = official(repo).readonly_session("main").store
    with xr.open_zarr(theirs, consolidated=False, mask_and_scale=False) as found:
        xr.testing.assert_equal(found.load(), opened(repo, mask_and_scale=False).load())
    whole = tmp_path / "whole"
    icevirt.build(days[4:7], whole, concat_dim="time")
    assert icevirt.status(repo).files == 3
    xr.testing.assert_identical(after, opened(str(whole)).load())

    again = icevirt.append(folder(days), repo)  # the dropped ones do not come back
    assert (again.files_excluded, again.files_known, again.files_appended) == (4, 3, 1)
    assert opened(repo).sizes["time"] == 16
    few = keep(repo, days, "84h")  # of 16 steps, one is older: it is not worth it
    assert (few.is_due, few.snapshot_id) == (False, None)
    icevirt.undo(repo)
    icevirt.undo(repo)
    xr.testing.assert_identical(opened(repo).load(), before)
    assert icevirt.append(folder(days), repo).files_known == 7


def test_what_others_stored_or_added_is_not_taken_away(repo, days):
    session = icevirt.Repository.open(repo).writable_session("main")
    zarr.create_array(
        session.store, name="score", shape=28, chunks=7, dtype="f4", dimension_names=["time"]
    )[:] = 1
    session.commit("scores")
    with pytest.raises(PlanChangedError, match="score"):
        keep(repo, days, "2D")
    icevirt.undo(repo)
    where = {"y": slice(0, 0)}
    icevirt.materialize(repo, "packed", where=where, authorize_virtual_chunk_access=[folder(days)])
    with pytest.raises(PlanChangedError, match="packed"):
        keep(repo, days, "2D")
    assert opened(repo).sizes["time"] == 28


BAD = {
    "another dimension": ("x=3", "one after another along this dimension"),
    "no length": ("all", "neither a time nor a number"),
    "a number for times": (5, "does not fit the labels"),
}


@pytest.mark.parametrize(("window", "words"), BAD.values(), ids=BAD.keys())
def test_a_window_that_does_not_fit_is_refused(repo, days, window, words):
    with pytest.raises(InvalidInputError, match=words):
        keep(repo, days, window)


def test_files_are_read_only_where_the_caller_says(repo):
    with pytest.raises(InvalidInputError, match="elsewhere than those that you name"):
        icevirt.maintain(repo, window="2D")
