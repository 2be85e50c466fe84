"""Commits to other groups of a branch are taken in: no append or update plans again for them."""

import logging

import numpy as np
import pytest
import zarr

import icevirt
from builds.support import assert_same_dataset, expected_dataset, opened, write_day, write_days
from icevirt.api.dataset import flat
from icevirt.repo.repo_info_file import RepoInfoFile

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]
MANY = 12  # commits of others before one of ours: more than an append has tries to plan


class Dataset:
    """A dataset in a group, and others who are faster."""

    def __init__(self, tmp_path, monkeypatch, caplog, group):
        self.group, self.repo, self.caplog = group, str(tmp_path / "repo"), caplog
        self.folder = tmp_path / "days"
        self.files = write_days(self.folder, 3)
        caplog.set_level(logging.INFO, logger="icevirt")
        icevirt.build(str(self.folder), self.repo, concat_dim="time", group=group)
        self.swap, self.left, self.plans = RepoInfoFile.swap, [], 0
        monkeypatch.setattr(RepoInfoFile, "swap", self._swap())
        self._count(monkeypatch)

    def _swap(self):
        def swap(head, *args, **how):
            if self.left:
                act, self.left = self.left[0], self.left[1:]
                rest, self.left = self.left, []  # not before theirs
                act()
                self.left = rest
            return self.swap(head, *args, **how)

        return swap

    def _count(self, monkeypatch):
        real = flat.plan_ends

        def planned(*args, **how):
            self.plans += 1
            return real(*args, **how)

        monkeypatch.setattr(flat, "plan_ends", planned)

    def again(self):
        return [each for each in self.caplog.messages if "-again" in each]

    def new(self, day):
        self.files.append(write_day(self.folder / f"day{day}.nc", day))
        self.files.sort(key=lambda path: int(path.rpartition("day")[2][:-3]))
        return self.files[-1]

    def assert_is(self):
        found = opened(self.repo, group=self.group)
        assert_same_dataset(found, expected_dataset(self.files, "time"))
        assert not self.left


def by_session(repo, group):
    """Return a commit of an array to a group, by a session."""
    number = iter(range(100))

    def act():
        session = icevirt.Repository.open(repo).writable_session("main")
        root = zarr.open_group(session.store, mode="a").require_group(group)
        root.create_array(f"n{next(number)}", data=np.arange(3))
        session.commit("theirs")

    return act


def by_append(repo, tmp_path):
    """Return an append to the dataset of another group."""
    days = iter(range(50, 100))

    def act():
        path = write_day(tmp_path / f"other{(day := next(days))}.nc", day)
        icevirt.append(path, repo, group="/second", concat_dim="time")

    return act


PLACES = {
    "a sibling group": ("/own", "/second"),
    "a group below the dataset": ("/", "/second"),
    "the group above the dataset": ("/own/deep", "/own"),
}


@pytest.mark.parametrize(("group", "theirs"), PLACES.values(), ids=PLACES)
def test_an_append_is_planned_once_whoever_commits_beside_it(
    group, theirs, tmp_path, monkeypatch, caplog
):
    dataset = Dataset(tmp_path, monkeypatch, caplog, group)
    dataset.left = [by_session(dataset.repo, theirs)] * MANY
    report = icevirt.append(dataset.new(5), dataset.repo, group=group)
    assert (report.flat, dataset.plans, dataset.again()) == (True, 1, [])
    dataset.assert_is()
    store = icevirt.Repository.open(dataset.repo).readonly_session("main").store
    root = zarr.open_group(store, mode="r")
    assert len([*root[theirs].array_keys()]) >= MANY
    assert icevirt.append(dataset.new(6), dataset.repo, group=group).flat  # it goes on from there
    dataset.assert_is()
    assert icevirt.check(dataset.repo).ok


def test_appends_to_two_groups_repeat_nothing_of_each_other(tmp_path, monkeypatch, caplog):
    dataset = Dataset(tmp_path, monkeypatch, caplog, "/own")
    act = by_append(dataset.repo, tmp_path)
    act()
    dataset.plans, dataset.left = 0, [act, act]
    assert icevirt.append(dataset.new(5), dataset.repo, group="/own").flat
    assert (dataset.plans, dataset.again()) == (3, [])  # one of ours, two of theirs
    dataset.assert_is()
    assert opened(dataset.repo, group="/second").sizes["time"] == 3 * 4


WAYS = {
    "a step that belongs between others": (lambda d: d.new(0), {}),
    "a corrected file": (lambda d: write_day(d.files[1], 2, ny=5), {}),
    "a file that is held back": (lambda d: (d.folder / "bad.nc").write_bytes(b"not yet" * 500), {}),
    "variables that are made anew": (lambda d: None, {"variables": "packed"}),
    "a new file": (lambda d: d.new(7), {}),
}


@pytest.mark.ci
@pytest.mark.parametrize(("act", "how"), WAYS.values(), ids=WAYS)
def test_an_update_does_its_work_once_whoever_commits_beside_it(
    act, how, tmp_path, monkeypatch, caplog
):
    dataset = Dataset(tmp_path, monkeypatch, caplog, "/")
    act(dataset)
    dataset.left = [by_session(dataset.repo, "/second")] * MANY
    icevirt.update(dataset.repo, **how)
    assert dataset.again() == []
    dataset.assert_is()


def steps(repo):
    session = icevirt.Repository.open(repo).writable_session("main")
    array = zarr.open_group(session.store, mode="a").create_array(
        "theirs", shape=(12,), dtype="f4", dimension_names=("time",)
    )
    array[:] = 1
    session.commit("an array along the dimension that grows")


def attribute(repo):
    session = icevirt.Repository.open(repo).writable_session("main")
    zarr.open_group(session.store, mode="a")["packed"].attrs["note"] = "theirs"
    session.commit("an attribute")


OURS = {
    "an append to the same group": lambda d: icevirt.append(d.new(6), d.repo),
    "an attribute of a variable": lambda d: attribute(d.repo),
    "files that are held back": lambda d: (
        (d.folder / "bad.nc").write_bytes(b"not yet" * 500),
        icevirt.update(d.repo),
    ),
}


@pytest.mark.parametrize("what", OURS)
def test_what_changes_the_dataset_is_planned_again(what, tmp_path, monkeypatch, caplog):
    dataset = Dataset(tmp_path, monkeypatch, caplog, "/")
    new = dataset.new(5)
    dataset.left = [lambda: OURS[what](dataset)]
    icevirt.append(new, dataset.repo)
    assert len(dataset.again()) == 1
    found = opened(dataset.repo)
    assert found.packed.attrs.pop("note", "") == ("theirs" if "attribute" in what else "")
    assert_same_dataset(found, expected_dataset(dataset.files, "time"))


def test_an_array_of_others_that_would_lack_the_new_steps_stops_it(tmp_path, monkeypatch, caplog):
    dataset = Dataset(tmp_path, monkeypatch, caplog, "/")
    new = dataset.new(5)
    dataset.left = [lambda: steps(dataset.repo)]
    with pytest.raises(icevirt.errors.PlanChangedError, match="theirs"):
        icevirt.append(new, dataset.repo)
    assert len(dataset.again()) == 1


def test_a_branch_that_was_reset_is_planned_again(tmp_path, monkeypatch, caplog):
    dataset = Dataset(tmp_path, monkeypatch, caplog, "/")
    icevirt.append(dataset.new(5), dataset.repo)
    new = dataset.new(6)
    dataset.left = [lambda: icevirt.undo(dataset.repo)]
    icevirt.append(new, dataset.repo)
    assert len(dataset.again()) == 1
    dataset.files.remove(str(dataset.folder / "day5.nc"))
    dataset.assert_is()
