"""A lease keeps two updates apart, and nobody for ever."""

import json
import threading
import time
from contextlib import contextmanager

import pytest

from icevirt.api import update
from icevirt.api.update import hold_lease
from icevirt.errors import StorageError
from icevirt.storage.memory import MemoryStorage


@contextmanager
def held(storage, *, seconds=60.0, branch="main"):
    """Yield who held the lease before, if anybody."""
    with hold_lease(storage, branch=branch, group="/", seconds=seconds) as lease:
        yield lease.find_other()


def test_one_update_runs_and_others_are_reported_who_it_is():
    storage = MemoryStorage()
    with held(storage) as first:
        assert first == ""
        with held(storage) as second:
            assert "process" in second
        with held(storage, branch="other") as elsewhere:
            assert elsewhere == ""
    with held(storage) as later:
        assert later == ""


def test_who_waits_goes_on_when_the_other_one_ends(monkeypatch):
    monkeypatch.setattr(update, "_POLL", 0.01)
    storage, order = MemoryStorage(), []

    def second():
        with hold_lease(storage, branch="main", group="/") as lease:
            lease.wait()
            assert not lease.find_other()  # any more
            order.append("second")

    with held(storage):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.05)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_a_lease_is_renewed_while_its_holder_lives_and_taken_over_when_it_was_killed():
    storage = MemoryStorage()
    with held(storage, seconds=0.2):
        time.sleep(0.5)
        with held(storage) as other:
            assert other
    (path,) = [info.path for info in storage.list()]
    killed = {"id": "x", "holder": "a host, process 1", "until": time.time() + 0.2}
    storage.put(path, json.dumps(killed).encode())
    with held(storage) as other:
        assert other == "a host, process 1"
    with hold_lease(storage, branch="main", group="/", seconds=0.2) as mine:
        mine.wait()
        assert json.loads(storage.get(path))["id"] != "x"


def test_a_lease_that_says_nothing_usable_holds_up_nobody():
    storage = MemoryStorage()
    with held(storage):
        pass
    (path,) = [info.path for info in storage.list()]
    for body in (b"", b"[]", b'{"until": "NaN"}', b'{"holder": "x", "until": 1e300}'):
        storage.put(path, body)
        with held(storage) as other:
            assert other == ""


def test_a_lease_that_is_given_back_early_is_free_at_once():
    storage = MemoryStorage()
    with hold_lease(storage, branch="main", group="/") as lease:
        assert not lease.find_other()
        lease.give_back()
        until = time.monotonic() + 10
        while time.monotonic() < until:
            with held(storage) as other:
                if not other:
                    break
        assert not other


def test_who_cannot_ask_for_a_lease_says_why():
    class Broken(MemoryStorage):
        def get_versioned(self, path):
            raise StorageError("no answer", do="Ask again.")

    with hold_lease(Broken(), branch="main", group="/") as lease:
        for ask in (lease.find_other, lease.wait):
            with pytest.raises(StorageError, match="no answer"):
                ask()
