"""Run tasks in processes of this machine, where starting Spark would take longer than the work.

The same functions, over the same pickled tasks, one child for each core. A task whose child dies is
tried again in a new one, as Spark does it, and what its journal then knows of is read apart. A
shuffle needs Spark: its rows would have to pass through this process.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from multiprocessing.connection import Connection
from queue import SimpleQueue
from types import TracebackType
from typing import IO, Any, Self

from icevirt.errors import SparkJobError
from icevirt.spark.limits import ATTEMPTS

FEW_FILES = 5000
"""Up to so many files, nobody who has no Spark session waits for one."""

LARGE = 1 << 26
"""Bytes of a file that count as another file."""

FILES_OF_WORKER = 64
"""Fewer files are scanned before another process has imported what it needs."""

_PATIENCE = 0.5  # seconds
_TAIL = 4000  # bytes of what a child said last


class Workers:
    """Child processes that run tasks; a context that ends them.

    Args:
        count: How many there are at a time.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._stopped = False
        self._idle: SimpleQueue[_Child] = SimpleQueue()
        self._children: list[_Child] = []

    def run(
        self, function: Callable[[Any], Any], payloads: Sequence[bytes]
    ) -> list[tuple[int, bool, bytes]]:
        """Run a function of a module on pickled tasks.

        Returns the number of each task, whether it has a result, and that or its error, pickled.

        Raises:
            SparkJobError: A task failed otherwise, as often as it is tried.
        """
        while len(self._children) < min(self.count, len(payloads)):
            self._add()
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
                self._children.remove(child)
                self._add()
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

    def _add(self) -> None:
        child = _Child()
        self._children.append(child)
        self._idle.put(child)

    def stop(self) -> None:
        """End all children at once."""
        self._stopped = True
        for child in self._children:
            child.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class _Child:
    """One process, which runs `icevirt.spark.worker`."""

    def __init__(self) -> None:
        self._line: Connection[Any, Any]
        self._line, theirs = multiprocessing.Pipe()
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - `end` closes it
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, a module of ours
                [sys.executable, "-m", "icevirt.spark.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )

    def ask(self, function: Callable[[Any], Any], payload: bytes) -> tuple[bool | None, bytes]:
        """Run a task; (None, a traceback) where it raised what no task should."""
        self._line.send((function, payload))
        found: tuple[bool | None, bytes] = self._line.recv()
        return found

    def end(self) -> str:
        """End it, and return how it ended and what it said last."""
        self._line.close()  # an idle one leaves then
        try:
            code = self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if self._said.closed:
            return ""
        with self._said:
            self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - _TAIL))
            said = self._said.read().decode(errors="replace").strip()
        how = signal.strsignal(-code) if code < 0 else f"exit code {code}"
        return f"a process ended with {how}: {said}"
