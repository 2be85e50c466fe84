"""Run tasks in local processes, where starting Spark would take longer than the work.

The same functions run over the same pickled tasks, one child per core. A task whose child dies is
retried in a new one, as Spark does it, and its unfinished parts are then scanned apart. A shuffle
needs Spark: its rows would have to pass through this process.
"""

from __future__ import annotations

import os
import pickle
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from queue import SimpleQueue
from types import TracebackType
from typing import IO, Any, Self

from icevirt.archive.shares import ATTEMPTS
from icevirt.errors import SparkJobError
from icevirt.execution.executor import Done, Watch, results_of, run_pickled
from icevirt.execution.local_shuffle import LocalShuffle
from icevirt.storage.protocol import Storage
from icevirt.tasks.forkserver import Child, how

_TAIL = 4000  # bytes of the cause of a failure
_WAITING = 2  # pickled tasks for each process, so that none is idle and not all are held at once


class ProcessExecutor(LocalShuffle):
    """Runs tasks in child processes; a context that ends them.

    Args:
        count: How many there are at a time. They start at once, since what they import takes longer
            than what usually comes before their first tasks.
    """

    name = "processes"

    def __init__(self, count: int) -> None:
        self.parallelism = count
        self._stopped = False
        self._lock = threading.Lock()
        self._idle: SimpleQueue[Child] = SimpleQueue()
        self._children: list[Child] = []
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # `close` closes it
        for _ in range(count):
            self._add()

    def run[T, R](
        self,
        function: Callable[[T], R],
        tasks: Iterable[T],
        *,
        progress: Done | None = None,
        storage: Storage | None = None,
    ) -> list[R]:
        """Run every task; see `Executor.run`."""
        del storage  # a pipe takes tasks of any size
        futures: list[Future[tuple[bool, bytes]]] = []
        room = threading.Semaphore(_WAITING * self.parallelism)
        broken = threading.Event()

        def finished(future: Future[tuple[bool, bytes]]) -> None:
            if not future.cancelled() and future.exception() is not None:
                broken.set()
            room.release()

        with (
            Watch(progress, lambda: sum(future.done() for future in futures)),
            ThreadPoolExecutor(self.parallelism, "icevirt-task") as pool,
        ):
            try:
                for task in tasks:
                    room.acquire()
                    if broken.is_set():
                        break
                    futures.append(pool.submit(self._try, function, pickle.dumps(task)))
                    futures[-1].add_done_callback(finished)
                wait(futures, return_when=FIRST_EXCEPTION)
                for future in futures:
                    if future.done():
                        future.result()
            except BaseException:
                self.close()  # a child at work does not hear that its driver stopped waiting
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        if progress is not None:
            progress(len(futures))
        return results_of([(number, *future.result()) for number, future in enumerate(futures)])

    def _try(self, function: Callable[[Any], Any], payload: bytes) -> tuple[bool, bytes]:
        cause = ""
        for _ in range(ATTEMPTS):
            child = self._idle.get()
            try:
                ok, found = child.ask(None, _run, function, payload)
            except (EOFError, OSError):
                if self._stopped:
                    self._idle.put(child)  # for another thread that waits for one, to hear the same
                    raise
                cause = f"a process ended with {how(child.end())}: {self._last_said()}"
                self._add()
                continue
            self._idle.put(child)
            if ok is not None:
                return ok, found
            cause = found.decode()
        raise SparkJobError(
            "a task failed",
            do="The text above gives the cause; run the build again to continue where it stopped.",
            cause=cause[-_TAIL:],
        )

    def _add(self) -> None:
        with self._lock:
            if self._stopped:  # meanwhile, and nothing would end this one
                raise InterruptedError("the processes are stopped")
            child = Child(__name__, self._said.fileno())
            self._children.append(child)
        self._idle.put(child)

    def _last_said(self) -> str:
        """Return what the processes said last."""
        with self._lock:
            if self._said.closed:
                return ""
            size = os.fstat(self._said.fileno()).st_size
            last = os.pread(self._said.fileno(), _TAIL, max(0, size - _TAIL))
        return last.decode(errors="replace").strip()

    def close(self) -> None:
        """End all children at once."""
        with self._lock:
            self._stopped = True
        for child in self._children:
            child.end()
        with self._lock:
            self._said.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _run(function: Callable[[Any], Any], payload: bytes) -> tuple[bool | None, bytes]:
    """Run a task in a child; (None, a traceback) where it raised what no task should."""
    try:
        return run_pickled(function, payload)
    except Exception:  # noqa: BLE001  # the parent tries again, as Spark would
        return None, traceback.format_exc().encode()


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # where a process may be confined to some
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
