"""A process says what it does not reach, and leaves notes only where the driver's note is."""

import subprocess
import sys
import time

import pytest

from icevirt.errors import StorageError
from icevirt.storage.local import LocalStorage
from icevirt.storage.memory import MemoryStorage
from icevirt.tasks import reachability
from icevirt.tasks.reachability import DRIVER, ReachTask, finds, load, reach

FOLDER, NOTE = "preflight/1", b"note"


class Refusing(MemoryStorage):
    """A storage that may be read only."""

    def put(self, path, body):
        raise StorageError("the storage refused", do="Ask for permission.", path=path)


class Silent(MemoryStorage):
    """A storage whose server does not answer for a while."""

    def get(self, path):
        time.sleep(3)
        return super().get(path)


def task_of(**needs):
    return ReachTask(folder=FOLDER, note=NOTE, **needs)


def with_note(storage, note=NOTE):
    MemoryStorage.put(storage, f"{FOLDER}/{DRIVER}", note)
    return storage


LOADED = """
import sys
sys.modules["h5py"] = None  # importing it fails
from icevirt.tasks.reachability import load
load(has_hdf5=False)
try:
    load(has_hdf5=True)
except ImportError as error:
    print(error.name)
"""


@pytest.mark.ci
def test_what_tasks_import_is_imported_and_hdf5_where_the_driver_has_it():
    load(has_hdf5=True)
    ran = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert ran.stdout == "h5py\n"


def test_where_everything_is_reached_a_note_is_left(tmp_path):
    storage = LocalStorage(tmp_path / "repo")
    storage.put(f"{FOLDER}/{DRIVER}", NOTE)
    storage.put("snapshots/1", b"snapshot")
    (tmp_path / "file.nc").write_bytes(b"x")
    task = task_of(
        written=(storage,),
        read=((storage, "snapshots/1"),),
        sources=((tmp_path / "file.nc").as_uri(),),
    )
    assert reach(task, "7") == []
    assert finds(storage, f"{FOLDER}/7", NOTE)


@pytest.mark.parametrize("note", [None, b"of another build"], ids=["nothing", "another note"])
def test_where_the_drivers_note_is_missing_nothing_is_written(tmp_path, note, monkeypatch):
    monkeypatch.setattr(reachability, "_PATIENCE", 0.1)
    storage = LocalStorage(tmp_path / "repo")
    if note is not None:
        storage.put(f"{FOLDER}/{DRIVER}", note)
    (output,) = reach(task_of(written=(storage,)), "7")
    assert (output["kind"], output["role"], output["url"]) == ("unshared", "storage", storage.url)
    assert not finds(storage, f"{FOLDER}/7", NOTE)
    assert (tmp_path / "repo").exists() is (note is not None)


def test_each_thing_that_is_not_reached_is_reported_with_its_cause(tmp_path):
    refusing, silent = with_note(Refusing()), with_note(Silent())
    gone = (tmp_path / "gone.nc").as_uri()
    task = task_of(
        written=(refusing, silent),
        read=((with_note(MemoryStorage()), "snapshots/1"),),
        sources=(gone,),
        seconds=1.0,
    )
    found = reach(task, "7")
    assert [(each["kind"], each["role"]) for each in found] == [
        ("unwritable", "storage"),
        ("silent", "storage"),
        ("unshared", "storage"),
        ("unread", "source"),
    ]
    assert found[0]["cause"].startswith("the storage refused")
    assert "no answer in 1 s" in found[1]["cause"]
    assert "no such file" in found[3]["cause"]
    assert found[3]["url"] == gone
