"""Files that are synced together: in threads, each once, and whatever fails is raised."""

import os
import signal
import threading

import pytest

from icevirt.storage import durable


def threads_of_process():
    return len(os.listdir("/proc/self/task"))


@pytest.fixture
def files(tmp_path):
    made = [os.open(tmp_path / f"{n}", os.O_CREAT | os.O_WRONLY) for n in range(5)]
    yield made
    for fd in made:
        os.close(fd)


def test_files_are_synced_at_the_same_time(files, monkeypatch):
    together = threading.Barrier(len(files), timeout=20)
    synced = []
    monkeypatch.setattr(durable.os, "fsync", lambda fd: (together.wait(), synced.append(fd)))
    before = threads_of_process()
    durable.sync(files)
    assert sorted(synced) == sorted(files)
    assert threads_of_process() <= before + len(files)


def test_nothing_to_sync_is_done_at_once():
    durable.sync([])


@pytest.mark.parametrize("at", [0, 1, 4])
def test_an_error_is_raised_when_all_others_are_synced(files, at, monkeypatch):
    synced, real = [], os.fsync
    monkeypatch.setattr(durable.os, "fsync", lambda fd: (real(fd), synced.append(fd)))
    closed = os.dup(files[0])
    os.close(closed)
    with pytest.raises(OSError, match="Bad file descriptor"):
        durable.sync([*files[:at], closed, *files[at:]])
    assert sorted(synced) == sorted(files)


@pytest.mark.parametrize("some", [0, 2])
def test_without_further_threads_files_are_synced_one_after_the_other(files, some, monkeypatch):
    synced, left, real = [], [None] * some, durable._thread.start_new_thread

    def refused(*call):
        if not left:
            raise RuntimeError("can't start new thread")
        left.pop()
        return real(*call)

    monkeypatch.setattr(durable._thread, "start_new_thread", refused)
    monkeypatch.setattr(durable.os, "fsync", synced.append)
    durable.sync(files)
    assert sorted(synced) == sorted(files)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_syncs_too(files):
    durable.sync(files)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        status = 1
        try:
            durable.sync(files)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
