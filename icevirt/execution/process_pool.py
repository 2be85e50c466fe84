"""Run tasks in processes of this machine, where starting Spark would take longer than the work.

The same functions, over the same pickled tasks, one child for each core. A task whose child dies is
tried again in a new one, as Spark does it, and what its journal then knows of is read apart. A
shuffle needs Spark: its rows would have to pass through this process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

from icevirt.archive.limits import ATTEMPTS
from icevirt.errors import SparkJobError
from icevirt.execution.forkserver import Child, ForkServer

FEW_FILES = 5000
"""Up to so many files, nobody who has no Spark session waits for one."""

LARGE = 1 << 26
"""Bytes of a file that count as another file."""

FILES_OF_WORKER = 64
"""Fewer files are scanned before another process has imported what it needs."""

_TAIL = 4000  # bytes of the cause of a failure


class ProcessPool:
    """Child processes that run tasks; a context that ends them.

    Args:
        count: How many there are at a time.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._stopped = False
        self._lock = threading.Lock()
        self._idle: SimpleQueue[Child] = SimpleQueue()
        self._families: list[ForkServer] = []

    def run(
        self, function: Callable[[Any], Any], payloads: Sequence[bytes]
    ) -> list[tuple[int, bool, bytes]]:
        """Run a function of a module on pickled tasks.

        Returns the number of each task, whether it has a result, and that or its error, pickled.

        Raises:
            SparkJobError: A task failed otherwise, as often as it is tried.
        """
        with ThreadPoolExecutor(self.count, "icevirt-task") as pool:
            futures = [pool.submit(self._try, function, payload) for payload in payloads]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
                for future in futures:
                    if future.done():
                        future.result()
            except BaseException:
                self.stop()  # who is at work would not hear that nobody waits any more
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return [(number, *future.result()) for number, future in enumerate(futures)]

    def _try(self, function: Callable[[Any], Any], payload: bytes) -> tuple[bool, bytes]:
        cause = ""
        for _ in range(ATTEMPTS):
            child = self._idle.get()
            try:
                ok, found = child.ask(function, payload)
            except (EOFError, OSError):
                if self._stopped:
                    self._idle.put(child)  # for whoever waits for one, to hear the same
                    raise
                cause = child.end()
                child.family.children.remove(child)
                self._add(1)
                continue
            self._idle.put(child)
            if ok is not None:
                return ok, found
            cause = found.decode()
        raise SparkJobError(
            "a task failed",
            do="The cause is in the text; a build that is run again continues where it was.",
            cause=cause[-_TAIL:],
        )

    def _add(self, count: int) -> None:
        with self._lock:
            if self._stopped:  # meanwhile, and nobody would end these
                raise InterruptedError("the workers are stopped")
            family = ForkServer(count)
            self._families.append(family)
        for child in family.children:
            self._idle.put(child)

    def stop(self) -> None:
        """End all children at once."""
        with self._lock:
            self._stopped = True
        for family in self._families:
            for child in family.children:
                child.end()
            family.close()

    def __enter__(self) -> Self:
        self._add(self.count)  # what they import takes longer than what comes before their tasks
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
