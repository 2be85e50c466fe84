"""Threads that no end of a block or process waits for, and waits that Ctrl-C ends.

A server that hangs is asked for minutes before it is given up. Threads of the standard library's
pools are joined when an error leaves their block, and again when the process ends: a failed or
interrupted call would go on for as long. Libraries in Rust block without a look at signals. So
threads here are daemons; who leaves by an error waits a moment for them, and by Ctrl-C the end of
the process does so once; and what blocks the main thread outside Python runs in a thread, while the
main one waits where signals are heard. Threads of others that the end of a process waits for, as
those of dask, wait for one of ours too: it lets them go where Ctrl-C ends the process.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread  # noqa: F401 - it registers what waits for its threads
import os
import signal
import sys
import threading
import time
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, InvalidStateError
from concurrent.futures import wait as wait_for_futures
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from itertools import takewhile
from queue import SimpleQueue
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

MOMENT = 0.5
"""Seconds in which all is done that waits for no server."""

_IDLE = 10.0  # seconds for which a thread waits for more
_AT_ONCE = 32  # threads of an event loop
_FOR_OTHERS = 1024  # threads of what blocks those that wait for one each


class Threads(Executor):
    """A few threads, as a pool of the standard library has them, but none outlives the process.

    A block that ends in order waits for all that was submitted.

    Args:
        most: How many there are at a time.
        name: Of each, with a number.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._changed = threading.Condition(threading.Lock())
        self._work: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._under_way: set[Future[Any]] = set()
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self.is_over = False
        self._is_awaited = False  # by the end of the process
        _pools.add(self)

    def submit[**P, T](self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Do work in a thread.

        Raises:
            RuntimeError: The pool takes no more work, or there can be no thread.
        """
        future: Future[T] = Future()
        with self._changed:
            if self.is_over:
                raise RuntimeError("these threads take no more work")
            if self._idle <= len(self._work) and len(self._threads) < self._most:
                self._start()
            self._work.append((future, partial(fn, *args, **kwargs)))
            self._changed.notify()
        return future

    def map[T](self, fn: Callable[..., T], *iterables: Iterable[Any], **_: Any) -> Iterator[T]:
        """Do work for each item now; see `take_results`."""
        return take_results([self.submit(fn, *each) for each in zip(*iterables, strict=False)])

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work; wait for what was submitted."""
        with self._changed:
            self.is_over = True
            self._changed.notify_all()
        if cancel_futures:
            self.drop()
        if wait:
            self._join(None)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for what was submitted; where an error ends the block, a moment for what began."""
        self.shutdown(wait=kind is None, cancel_futures=kind is not None)
        if kind is not None and issubclass(kind, Exception):
            self._join(time.monotonic() + MOMENT)

    def _join(self, end: float | None) -> None:
        for thread in [*self._threads]:
            thread.join(None if end is None else max(0.0, end - time.monotonic()))

    def drop(self) -> None:
        """Cancel what did not begin."""
        with self._changed:
            doomed = [future for future, _ in self._work]
            self._work.clear()
        for future in doomed:
            future.cancel()

    def let_go(self) -> None:
        """Let nobody wait for what is not done."""
        with self._changed:
            self.is_over = True
            left = [*self._under_way, *(future for future, _ in self._work)]
            self._work.clear()
        for future in left:
            with suppress(InvalidStateError):
                future.set_exception(KeyboardInterrupt())

    def wait_until(self, end: float) -> None:
        """Wait for what began, but not longer."""
        with self._changed:
            self._is_awaited = True
            self._changed.wait_for(lambda: not self._under_way, max(0.0, end - time.monotonic()))

    def _start(self) -> None:
        name = f"{self._name}_{len(self._threads)}"
        thread = threading.Thread(target=self._run, name=name, daemon=True)
        thread.start()
        self._threads.add(thread)

    def _run(self) -> None:
        while (taken := self._take()) is not None:
            future, work = taken
            if future.set_running_or_notify_cancel():
                try:
                    result = work()
                except BaseException as error:  # noqa: BLE001 - whoever waits gets it
                    with suppress(InvalidStateError):  # nobody waits
                        future.set_exception(error)
                else:
                    with suppress(InvalidStateError):
                        future.set_result(result)
                    del result
            with self._changed:
                self._under_way.discard(future)
                if self._is_awaited:
                    self._changed.notify_all()
            del taken, future, work  # nothing is kept alive while this thread waits

    def _take(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        """Return the next work; None where this thread ends."""
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._work or self.is_over, _IDLE)
            self._idle -= 1
            if self._work:
                taken = self._work.popleft()
                self._under_way.add(taken[0])
                return taken
            self._threads.discard(threading.current_thread())
            return None


_pools: WeakSet[Threads] = WeakSet()
_outside = Threads(_FOR_OTHERS, "icevirt-outside")
_of_loops: WeakKeyDictionary[AbstractEventLoop, Threads] = WeakKeyDictionary()


def run_interruptibly[T](act: Callable[[], T], *, is_python: bool = False) -> T:
    """Do what blocks, so that Ctrl-C ends the wait; what was begun goes on in its thread then.

    Args:
        act: Does it.
        is_python: It waits in Python, where the main thread hears of Ctrl-C.
    """
    thread = threading.current_thread()
    if thread is threading.main_thread():
        is_awaited = not is_python and callable(signal.getsignal(signal.SIGINT))
    else:
        is_awaited = not thread.daemon
    if not is_awaited:
        return act()  # nobody interrupts it
    try:
        future = _outside.submit(copy_context().run, act)
    except RuntimeError:
        if _outside.is_over:
            raise KeyboardInterrupt from None
        return act()
    try:
        return future.result()
    finally:
        del future  # an error refers to this frame


async def run_in_thread[T](work: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Do what `asyncio.to_thread` does; the end of the loop waits for no thread.

    Raises:
        RuntimeError: There can be no thread.
    """
    loop = asyncio.get_running_loop()
    if (threads := _of_loops.get(loop)) is None:
        threads = _of_loops.setdefault(loop, Threads(_AT_ONCE, "icevirt-loop"))
    return await asyncio.wrap_future(threads.submit(copy_context().run, work, *arguments, **named))


def take_results[T](futures: Sequence[Future[T]]) -> Iterator[T]:
    """Yield results in order; raise an error as soon as it is known, and cancel the others."""
    finished: SimpleQueue[Future[T]] = SimpleQueue()
    left = deque(futures)
    for each in left:
        each.add_done_callback(finished.put)
    try:
        while left:
            while not left[0].done():
                raise_failure(finished.get(), left)
            yield left.popleft().result()
    finally:
        for each in left:
            each.cancel()


def raise_failure(one: Future[Any], among: Iterable[Future[Any]]) -> None:
    """Raise the error of what is done, or of one before it that fails in a moment as well."""
    if one.cancelled() or one.exception() is None:
        return
    before = [*takewhile(lambda each: each is not one, among)]
    wait_for_futures(before, MOMENT)
    for each in [*before, one]:
        if each.done():
            each.result()


interruption_callbacks: list[Callable[[], None]] = []
"""What is called where Ctrl-C ends the process, before it waits for threads of others."""


_is_failed = threading.Event()


def is_failed() -> bool:
    """Say whether this process ends by an error, and goes on only for threads that read."""
    return _is_failed.is_set()


def _let_others_go() -> None:
    if (error := getattr(sys, "last_exc", None)) is not None:
        _is_failed.set()
    if isinstance(error, KeyboardInterrupt):
        for each in interruption_callbacks:
            each()
        for pool in [*_pools]:
            pool.let_go()


def _end() -> None:
    # a thread that wakes up while the interpreter is taken down may not come back from a library
    end = time.monotonic() + MOMENT
    for pool in [*_pools]:
        pool.drop()
    for pool in [*_pools]:
        pool.wait_until(end)


def _reset() -> None:
    """Forget in a forked child what threads of the parent hold."""
    global _outside  # noqa: PLW0603
    _pools.clear()
    _of_loops.clear()
    _outside = Threads(_FOR_OTHERS, "icevirt-outside")


atexit.register(_end)
# the function is not public, but what is registered otherwise is called after that wait; and the
# last is called first, so that the standard library has to register its pools before
getattr(threading, "_register_atexit", atexit.register)(_let_others_go)
os.register_at_fork(after_in_child=_reset)
