"""The cache of decoded objects: bounded, fetched once, and harmless in a forked child."""

import os
import threading

import pytest

from icevirt.repo.manifest_lookup import Cache


def test_a_value_is_made_once():
    cache, made = Cache(100), []
    for _ in range(3):
        assert cache.get("a", lambda: (made.append(1) or "value", 10)) == "value"
    assert made == [1]


def test_the_least_recently_used_goes_first():
    cache, made = Cache(100), []

    def get(key):
        return cache.get(key, lambda: (made.append(key) or key, 40))

    for key in "ababcacb":
        get(key)
    assert "".join(made) == "abcab"


def test_a_value_larger_than_the_bound_is_kept_while_it_is_the_newest():
    cache, made = Cache(10), []
    for _ in range(2):
        cache.get("big", lambda: (made.append(1) or "big", 1000))
    assert made == [1]
    cache.put("small", "small", 1)
    cache.get("big", lambda: (made.append(1) or "big", 1000))
    assert made == [1, 1]


def test_threads_that_ask_at_once_wait_for_one_fetch():
    cache, made, gate = Cache(100), [], threading.Event()

    def make():
        made.append(1)
        gate.wait(5)
        return "value", 1

    threads = [threading.Thread(target=cache.get, args=("a", make)) for _ in range(8)]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join()
    assert made == [1]


def test_a_fetch_that_fails_is_tried_again():
    cache = Cache(100)

    def fail():
        raise OSError("no network")

    with pytest.raises(OSError, match="no network"):
        cache.get("a", fail)
    assert cache.get("a", lambda: ("value", 1)) == "value"


def test_a_child_forked_while_a_fetch_runs_is_not_blocked():
    cache, started, gate = Cache(100), threading.Event(), threading.Event()

    def make():
        started.set()
        gate.wait(10)
        return "parent", 1

    thread = threading.Thread(target=cache.get, args=("a", make))
    thread.start()
    started.wait(5)
    child = os.fork()
    if child == 0:
        os._exit(0 if cache.get("a", lambda: ("child", 1)) == "child" else 1)
    gate.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
