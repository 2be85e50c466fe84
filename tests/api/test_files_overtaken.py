"""Whoever rewrites a dataset from a list of its files loses nothing that others commit meanwhile.

Others act at two moments: when the files were looked at, and right before the commit.
"""

import logging

import pytest
import zarr

import icevirt
from builds.support import assert_same_dataset, expected_dataset, opened, write_day, write_days
from icevirt.api.dataset import left_out, transaction
from icevirt.api.dataset.target import Target
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.storage.local import LocalStorage

pytestmark = pytest.mark.usefixtures("in_process")


class Overtaken:
    """Datasets of the same days, and others who are faster."""

    def __init__(self, tmp_path, monkeypatch, caplog, groups=("/",)):
        self.repo, self.folder, self.caplog = str(tmp_path / "repo"), tmp_path / "days", caplog
        self.files = write_days(self.folder, 6)
        self.note, self.held, self.acts = "", (), {}
        for group in groups:
            icevirt.build(str(self.folder), self.repo, concat_dim="time", group=group)
        icevirt.append(self.new(7), self.repo, group=groups[-1])
        caplog.set_level(logging.INFO, logger="icevirt")
        self._before(monkeypatch, RepoInfoFile, "swap", "before the commit")
        self._before(monkeypatch, transaction, "_attempt", "behind the list")

    def _before(self, monkeypatch, owner, name, moment):
        real = getattr(owner, name)

        def late(*args, **how):
            acts, self.acts = self.acts, {}  # theirs are not overtaken
            act = acts.pop(moment, None)
            if act is not None:
                act(self)
            self.acts = self.acts or acts
            return real(*args, **how)

        monkeypatch.setattr(owner, name, late)

    def new(self, day):
        self.files.append(write_day(self.folder / f"day{day}.nc", day))
        return self.files[-1]

    def again(self):
        return [each for each in self.caplog.messages if "-again" in each]

    def target(self, group="/"):
        return Target.look(LocalStorage(self.repo), branch="main", group=group, mode="w")

    def assert_is(self, files, group="/"):
        found = opened(self.repo, group=group)
        assert found.attrs.pop("note", "") == self.note
        assert_same_dataset(found, expected_dataset(files, "time"))
        name = self.target(group).find_held_back()[0]
        held = left_out.read_held(LocalStorage(self.repo), name)
        assert tuple(each.url.rpartition("/")[2] for each in held) == self.held
        assert not self.acts
        assert icevirt.check(self.repo).ok

    def days(self, *days):
        return [str(self.folder / f"day{day}.nc") for day in days]


def append(d):
    icevirt.append(d.new(8), d.repo)


def update(d):
    d.new(8)
    assert icevirt.update(d.repo).files_added == 1


def hold_back(d):
    (d.folder / "bad.nc").write_bytes(b"not yet" * 500)
    assert icevirt.update(d.repo).snapshot_id
    d.held = ("bad.nc",)


def amend(d):
    session = icevirt.Repository.open(d.repo).writable_session("main")
    zarr.open_group(session.store, mode="a").attrs["note"] = d.note = "theirs"
    session.amend("an attribute")


def reset(d):
    icevirt.undo(d.repo)
    d.files.pop()


OTHERS = [append, update, hold_back, amend, reset]
MOMENTS = ["behind the list", "before the commit"]


def withdraw(d):
    icevirt.withdraw(d.files[1], d.repo, authorize=str(d.folder))
    return [d.files[0], *d.files[2:]]


def window(d):
    icevirt.maintain(d.repo, window="36h", authorize=str(d.folder))
    return d.files[-2:]


FLOWS = [withdraw, window]


def named(function):
    return function.__name__


@pytest.mark.ci
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("act", OTHERS, ids=named)
@pytest.mark.parametrize("flow", FLOWS, ids=named)
def test_what_others_commit_meanwhile_is_there_behind_it(
    flow, act, moment, tmp_path, monkeypatch, caplog
):
    dataset = Overtaken(tmp_path, monkeypatch, caplog)
    dataset.acts = {moment: act}
    files = flow(dataset)
    dataset.assert_is(files)


@pytest.mark.parametrize("flow", [withdraw, window], ids=named)
def test_steps_that_were_appended_behind_the_list_are_kept(flow, tmp_path, monkeypatch, caplog):
    dataset = Overtaken(tmp_path, monkeypatch, caplog)
    dataset.acts = {"behind the list": append}
    files = flow(dataset)
    assert len(dataset.again()) == 1
    dataset.assert_is(files)
