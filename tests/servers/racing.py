"""Processes that begin at one moment, and what came of them."""

import multiprocessing
import queue
import traceback
from collections.abc import Callable, Sequence
from typing import Any

# each racer is a fork of one server that has imported already what takes long
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["obstore.store", "icevirt.repo.repository"])


def raced(act: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Call ``act`` with each of the arguments in a process of its own; return what they returned.

    Raises:
        AssertionError: One of them raised, with its traceback; or died.
    """
    start, results = _forks.Barrier(len(arguments)), _forks.Queue()
    racers = [
        _forks.Process(target=_run, args=(act, one, number, start, results), daemon=True)
        for number, one in enumerate(arguments)
    ]
    for racer in racers:
        racer.start()
    try:
        found = [_next(results, racers) for _ in racers]
    finally:
        for racer in racers:
            racer.join(10)
            racer.kill()
    for _, wrong, _ in found:
        assert wrong is None, wrong
    return [made for _, _, made in sorted(found, key=lambda one: one[0])]


def _next(results, racers):
    """Return what one of the racers brings, while all that have not brought it yet are alive."""
    while True:
        died = [racer.exitcode for racer in racers if racer.exitcode]
        try:
            return results.get(timeout=2)
        except queue.Empty:
            assert not died, f"racers died: {died}"


def _run(act, arguments, number, start, results) -> None:
    try:
        start.wait()
        results.put((number, None, act(*arguments)))
    except BaseException:
        results.put((number, traceback.format_exc(), None))
        raise
