"""Limit the parallel requests to one host, and run blocking requests in threads.

A forked child starts without threads.
"""

from __future__ import annotations

import asyncio
import os
import threading
from asyncio import AbstractEventLoop, Semaphore
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

AT_ONCE = 64
"""Requests to one host that are under way at a time, in each thread pool or event loop."""


class Hosts:
    """The thread pools and limits of this process, by host."""

    def __init__(self) -> None:
        self.reset()
        os.register_at_fork(after_in_child=self.reset)

    def reset(self) -> None:
        """Forget them, with a lock that no thread of a parent can be holding."""
        self._lock = threading.Lock()
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._limits: dict[AbstractEventLoop, dict[str, Semaphore]] = {}

    def submit[T](self, host: str, work: Callable[[], T]) -> Future[T]:
        """Do what blocks in a thread, when fewer than `AT_ONCE` wait for this host.

        Raises:
            RuntimeError: The interpreter is ending.
        """
        with self._lock:
            if host not in self._pools:
                name = f"icevirt-{host}"
                self._pools[host] = ThreadPoolExecutor(AT_ONCE, thread_name_prefix=name)
            pool = self._pools[host]
        return pool.submit(work)

    def limit(self, host: str) -> Semaphore:
        """Return what limits the requests of the running event loop to a host."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._limits:  # limits know their loop, so none goes away by itself
                for ended in [each for each in self._limits if each.is_closed()]:
                    del self._limits[ended]
            return self._limits.setdefault(loop, {}).setdefault(host, Semaphore(AT_ONCE))


HOSTS = Hosts()
