"""What an update that follows another one in the same process asks of its repository, and when."""

import os
import threading
from collections import Counter

import pytest

import icevirt
from builds.support import assert_same_dataset, expected_dataset, opened, write_day
from icevirt.api import update as updates
from icevirt.catalog import lookup, part_index
from icevirt.errors import InvalidInputError
from icevirt.storage.local import LocalStorage

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("in_process")]


def assert_as_archive(repo, archive):
    with opened(repo) as found:
        assert_same_dataset(found, expected_dataset(sorted(archive.glob("*.nc")), "time"))


def asked_by(monkeypatch):
    """Return what storages are asked for from now on, in order: the method, and the folder."""
    calls = []

    def watch(name):
        method = getattr(LocalStorage, name)

        def watched(self, path="", *args, **named):
            calls.append((name, path if name == "list" else os.path.dirname(path) or path))
            return method(self, path, *args, **named)

        monkeypatch.setattr(LocalStorage, name, watched)

    for name in ("get", "get_range", "list", "put_if"):
        watch(name)
    return calls


def test_an_update_behind_another_reads_no_object_but_repo(repo, archive, monkeypatch):
    write_day(archive / "day3.nc", 3)
    icevirt.update(repo)
    write_day(archive / "day4.nc", 4)
    calls = asked_by(monkeypatch)
    report = icevirt.update(repo)
    assert (report.files_added, report.ends["time"][1]) == (1, "2001-01-05T18:00:00")
    asked = Counter(calls)
    assert not {folder for name, folder in asked if name in ("get", "get_range")}
    assert asked["put_if", "repo"] == 1
    assert asked["put_if", "icevirt/leases"] == 2
    assert {count for (name, _), count in asked.items() if name == "list"} == {1}
    assert_as_archive(repo, archive)


def test_who_waits_for_another_update_looks_again(repo, archive, monkeypatch):
    """It lists meanwhile; what it saw then counts for nothing, not even an error."""
    monkeypatch.setattr(updates, "_POLL", 0.01)
    begin, seen, output = updates.DatasetUpdate.begin, threading.Event(), []

    def watched(*args):
        try:
            return begin(*args)
        finally:
            seen.set()

    monkeypatch.setattr(updates.DatasetUpdate, "begin", watched)
    write_day(archive / "day3.nc", 3)
    (archive / "day1.nc").rename(archive.parent / "day1.nc")  # it refuses that
    with updates.hold_lease(LocalStorage(repo), branch="main", group="/") as other:
        assert not other.find_other()
        waiting = threading.Thread(target=lambda: output.append(icevirt.update(repo)))
        waiting.start()
        assert seen.wait(60)
        (archive.parent / "day1.nc").rename(archive / "day1.nc")
        icevirt.append(str(archive), repo)
    waiting.join()
    assert output[0].already_built
    assert_as_archive(repo, archive)


def test_who_holds_the_lease_refuses_at_once(repo, archive):
    (archive / "day1.nc").unlink()
    with pytest.raises(InvalidInputError, match="gone"):
        icevirt.update(repo)
    with updates.hold_lease(LocalStorage(repo), branch="main", group="/") as lease:
        assert not lease.find_other()  # it was given back


def test_an_update_that_is_stopped_behind_its_lease_leaves_what_there_was(
    repo, archive, monkeypatch
):
    write_day(archive / "day3.nc", 3)
    given_back = []
    put_if = LocalStorage.put_if

    def stopped(self, path, *args, **named):
        if path == "repo":
            raise KeyboardInterrupt
        given_back.append(path)
        return put_if(self, path, *args, **named)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "put_if", stopped)
        with pytest.raises(KeyboardInterrupt):
            icevirt.update(repo)
    assert len(given_back) == 2
    with opened(repo) as found:
        assert found.sizes["time"] == 8
    assert icevirt.update(repo, if_running="skip").files_added == 1
    assert_as_archive(repo, archive)


def test_an_update_lists_indexes_of_parts_beside_the_parts(repo, archive, monkeypatch):
    """From as many files on as parts have an index; a long history waits no longer than a short."""
    monkeypatch.setattr(lookup, "FEWEST", 3)
    monkeypatch.setattr(part_index, "FEWEST", 3)
    for day in range(3, 6):
        write_day(archive / f"day{day}.nc", day)
        icevirt.update(repo)
    read, by = lookup.read_indexes, []
    monkeypatch.setattr(
        lookup,
        "read_indexes",
        lambda *args: by.append(threading.current_thread().name) or read(*args),
    )
    write_day(archive / "day6.nc", 6)
    assert icevirt.update(repo).files_added == 1
    assert len(by) == 1
    assert by[0].startswith("icevirt-look-up")
    assert_as_archive(repo, archive)
