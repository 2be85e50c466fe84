"""Threads that wait for the disk: each call is made once, and threads end when nothing comes."""

import _thread
import os
import random
import signal
import sys
import threading
import time

import pytest

from icevirt.storage import durable
from icevirt.storage.durable import SyncCall, SyncThreads


def threads_of_process():
    return len(os.listdir("/proc/self/task"))


def wait_until(is_true, seconds=20):
    until = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.fixture
def files(tmp_path):
    made = [os.open(tmp_path / f"{n}", os.O_CREAT | os.O_WRONLY) for n in range(5)]
    yield made
    for fd in made:
        os.close(fd)


def test_calls_run_at_the_same_time():
    together = threading.Barrier(3, timeout=20)
    threads = SyncThreads()
    pending = [threads.start(together.wait) for _ in range(2)]
    together.wait()
    for each in pending:
        each.wait()


def test_a_thread_takes_the_next_call(monkeypatch):
    started, real = [], _thread.start_new_thread
    monkeypatch.setattr(
        durable._thread,
        "start_new_thread",
        lambda *call: (started.append(call), real(*call)),
    )
    monkeypatch.setattr(durable, "_IDLE", 20)
    threads, made = SyncThreads(), []
    for number in range(50):
        threads.start(lambda number=number: made.append(number)).wait()
        wait_until(lambda: len(threads._idle) == 1)
    assert made == list(range(50))
    assert len(started) == 1


def test_threads_end_when_nothing_comes():
    before = threads_of_process()
    threads, go = SyncThreads(), threading.Event()
    pending = [threads.start(go.wait) for _ in range(5)]
    assert threads_of_process() >= 5
    go.set()
    for each in pending:
        each.wait()
    wait_until(lambda: not threads._idle)
    wait_until(lambda: threads_of_process() <= before)


def test_no_call_is_lost_while_threads_come_and_go(monkeypatch):
    monkeypatch.setattr(durable, "_IDLE", 0.0005)
    threads, made = SyncThreads(), []

    def some(seed):
        rng = random.Random(seed)
        for number in range(300):
            pending = [threads.start(lambda n=number: made.append(n)) for _ in range(3)]
            for each in pending:
                each.wait()
            time.sleep(rng.choice((0, 0, 0.0004, 0.0005, 0.0006, 0.001)))

    callers = [threading.Thread(target=some, args=(seed,)) for seed in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
        assert not caller.is_alive()
    assert len(made) == 4 * 300 * 3
    wait_until(lambda: not threads._idle)


def test_whatever_line_is_interrupted_later_calls_are_made():
    """As Ctrl-C does; a call that was not started is not waited for."""

    class Interrupted(BaseException):
        pass

    def interrupting(frame, event, _):
        nonlocal left
        if frame.f_code is not SyncThreads.start.__code__:
            return None
        left -= event == "line"
        if left == 0:
            raise Interrupted
        return interrupting

    threads, seen, places = SyncThreads(), set(), 0
    for at in range(1, 30):
        left = at
        threads.start(bool).wait()
        wait_until(lambda: threads._idle)
        seen |= set(threads._idle)
        sys.settrace(interrupting)
        try:
            threads.start(bool)
        except Interrupted:
            places += 1
        finally:
            sys.settrace(None)
        for _ in range(3):
            pending = [threads.start(bool) for _ in range(4)]
            for each in pending:
                each.wait()
    assert places >= 6
    wait_until(lambda: not threads._idle)
    for each in seen:  # those that nobody gave a call to
        each.call = SyncCall(lambda: None)
        each.go.release()


def test_an_error_is_raised_where_the_call_is_waited_for(files):
    with pytest.raises(ZeroDivisionError):
        SyncThreads().start(lambda: 1 // 0).wait()
    closed = os.dup(files[0])
    os.close(closed)
    with pytest.raises(OSError, match="Bad file descriptor"):
        durable.sync([*files, closed])


def test_without_further_threads_files_are_synced_one_after_the_other(files, monkeypatch):
    synced, real = [], os.fsync

    def refused(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(durable, "_OF_PROCESS", SyncThreads())
    monkeypatch.setattr(durable._thread, "start_new_thread", refused)
    monkeypatch.setattr(durable.os, "fsync", lambda fd: (synced.append(fd), real(fd)))
    durable.sync(files)
    assert synced == files


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_syncs_without_the_threads_of_its_parent(files):
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
