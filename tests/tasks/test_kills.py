"""A build may be killed at any moment: the repository is as it was, and the next run finishes."""

import itertools
import os
import shutil
from pathlib import Path

import pytest

import icevirt
from builds.support import (
    assert_same_dataset,
    expected_dataset,
    official,
    opened,
    write_days,
)
from icevirt.storage.local import LocalStorage
from long_forms import IS_LONG

pytestmark = [pytest.mark.ci, pytest.mark.slow]

KILLED = 137


class Mortal(LocalStorage):
    """A storage whose process dies after so many changing calls, in place of the next."""

    calls = 0
    limit = 10**9

    def _count(self, do):
        cls = type(self)
        if cls.calls == cls.limit:
            os._exit(KILLED)
        cls.calls += 1
        return do()

    def put(self, path, body):
        return self._count(lambda: LocalStorage.put(self, path, body))

    def put_if(self, path, body, *, was, **more):
        for each, content in more.get("after", {}).items():
            self.put(each, content)
        return self._count(lambda: LocalStorage.put_if(self, path, body, was=was))

    def delete(self, path):
        return self._count(lambda: LocalStorage.delete(self, path))

    def delete_below(self, prefix):
        return self._count(lambda: LocalStorage.delete_below(self, prefix))


def in_child(do, limit):
    """Run ``do`` in a forked child that dies after ``limit`` changing calls; return its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            Mortal.calls, Mortal.limit = 0, limit
            do()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def state_of(repo):
    """Return main's tip, or None where there is no repository; the official client must agree."""
    if not icevirt.Repository.exists(repo):
        assert not (Path(repo) / "repo").exists()
        return None
    assert icevirt.check(repo).problems == ()
    tip = icevirt.Repository.open(repo).lookup_branch("main")
    assert official(repo).lookup_branch("main") == tip
    return tip


@pytest.mark.parametrize("existing", [False, True], ids=["new repository", "existing repository"])
def test_killed_at_every_storage_call(tmp_path, existing, in_process):
    """Enumerated: old state or new, then finished by a second run.

    What is on the disk after a call is what is there before the next. In an existing repository CI
    takes every third call.
    """
    days = write_days(tmp_path / "archive", 2)
    expected = expected_dataset(days, "time").load()
    first, before = tmp_path / "first", None
    if existing:
        before = icevirt.build(days[:1], first, concat_dim="time").snapshot_id
    for number in itertools.count(step=3 if existing and not IS_LONG else 1):
        repo = str(tmp_path / f"repo-{number}")
        if existing:
            shutil.copytree(first, repo)

        def build(repo=repo):
            return icevirt.build(days, Mortal(repo), concat_dim="time", mode="w")

        code = in_child(build, number)
        assert code in (0, KILLED)
        after = state_of(repo)
        report = build()
        if after != before:  # killed behind the commit
            assert report.already_built
            assert report.snapshot_id == after
        assert_same_dataset(opened(repo), expected)
        assert len(list(official(repo).ancestry(branch="main"))) == 2 + existing
        assert not os.path.exists(f"{repo}/icevirt/builds")
        if code == 0:
            break
    assert number > 15


def test_a_resumed_build_scans_no_finished_part_again(tmp_path, in_process, part_of_each_file):
    """What was scanned before the kill is not opened a second time."""
    days = write_days(tmp_path / "archive", 4)
    repo = str(tmp_path / "repo")
    # mark, then six calls for each part: the kill falls into the third part
    code = in_child(lambda: icevirt.build(days, Mortal(repo), concat_dim="time"), 14)
    assert code == KILLED
    report = icevirt.build(days, repo, concat_dim="time")
    assert (report.files_scanned, report.files_reused) == (2, 2)
    assert_same_dataset(opened(repo), expected_dataset(days, "time"))
