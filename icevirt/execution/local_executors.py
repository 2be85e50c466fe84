"""Run tasks on this machine: in child processes, or one by one in this process.

Child processes suit work that ends before Spark has started. They run the same functions over the
same pickled tasks, one child per core. A task whose child dies is retried in a new one, as Spark
does it, and its unfinished parts are then scanned apart.

This process suits tests, notebooks, debuggers and tiny archives. An error is raised where it
happens, with its whole traceback. A damaged file that crashes a library ends this process, and the
limits of time and memory of a file are not enforced.
"""

from __future__ import annotations

import os
import pickle
import tempfile
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any, Self

from icevirt.archive.scanned import ATTEMPTS
from icevirt.errors import InvalidInputError, SparkJobError
from icevirt.execution.executor import INTERVAL, Done, Executor, Watch, results_of, run_pickled
from icevirt.storage.protocol import Storage
from icevirt.tasks.forkserver import Child, how
from icevirt.threads import Threads

_TAIL = 4000  # bytes of the cause of a failure
_WAITING = 2  # pickled tasks for each process, so that none is idle and not all are held at once

type _Span = tuple[str, int, int]  # path of a file, offset and length of a row in it


class LocalShuffle:
    """The shuffle of executors on one machine, through files of a private directory.

    Each mapper writes its rows into a new file and returns where they are, so that no row passes
    through the driver.
    """

    def shuffle[M, T, R](
        self: Executor,
        mapper: Callable[[M, int], Iterator[tuple[int, bytes]]],
        maps: Sequence[M],
        function: Callable[[T, list[bytes]], R],
        tasks: Iterable[T],
        *,
        progress: Done | None = None,
        storage: Storage | None = None,
    ) -> list[R]:
        """Run mappers, then every task with the rows for it; see `Executor.shuffle`."""
        del storage  # nothing leaves the machine
        with tempfile.TemporaryDirectory(prefix="icevirt-shuffle-") as folder:
            spans: dict[int, list[_Span]] = defaultdict(list)
            for sent in self.run(partial(_map, mapper, folder), enumerate(maps)):
                for to, span in sent:
                    spans[to].append(span)
            given = ((task, spans[number]) for number, task in enumerate(tasks))
            return self.run(partial(_reduce, function), given, progress=progress)


def _map[M](
    mapper: Callable[[M, int], Iterator[tuple[int, bytes]]], folder: str, numbered: tuple[int, M]
) -> list[tuple[int, _Span]]:
    """Write the rows of a mapper; return the number of the task of each, and its place."""
    number, task = numbered
    sent: list[tuple[int, _Span]] = []
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        for to, row in mapper(task, number):
            sent.append((to, (file.name, file.tell(), len(row))))
            file.write(row)
    return sent


def _reduce[T, R](function: Callable[[T, list[bytes]], R], given: tuple[T, list[_Span]]) -> R:
    task, spans = given
    rows = []
    for path, offset, length in spans:
        with Path(path).open("rb") as file:
            file.seek(offset)
            rows.append(file.read(length))
    return function(task, rows)


class InProcessExecutor(LocalShuffle):
    """Runs tasks where it is called; the first error ends the job.

    Args:
        parallelism: Into how many tasks at a time work is divided, though they run one by one.
    """

    name = "in-process"

    def __init__(self, parallelism: int = 1) -> None:
        self.parallelism = parallelism

    def run[T, R](
        self,
        function: Callable[[T], R],
        tasks: Iterable[T],
        *,
        progress: Done | None = None,
        storage: Storage | None = None,
    ) -> list[R]:
        """Run every task; see `Executor.run`."""
        del storage  # nothing is sent anywhere
        results: list[R] = []
        last = time.monotonic()
        for task in tasks:
            results.append(_copy(function(_copy(task))))
            if progress is not None and time.monotonic() - last >= INTERVAL:
                progress(len(results))
                last = time.monotonic()
        if progress is not None:
            progress(len(results))
        return results

    def close(self) -> None:
        """Do nothing: nothing was started."""


def _copy[T](value: T) -> T:
    """Return the value as another process would get it: no task shares state with its caller."""
    copy: T = pickle.loads(pickle.dumps(value))  # noqa: S301  # made here
    return copy


class ProcessExecutor(LocalShuffle):
    """Runs tasks in child processes; a context that ends them.

    Args:
        count: How many there are at a time. They start at once, since what they import takes longer
            than what usually comes before their first tasks. A job that fails ends them; the next
            one starts others.
    """

    name = "processes"

    def __init__(self, count: int) -> None:
        self.parallelism = count
        self._lock = threading.Lock()
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # `close` closes it
        self._stopped = True
        self._children: list[Child] = []
        self._start()

    def run[T, R](
        self,
        function: Callable[[T], R],
        tasks: Iterable[T],
        *,
        progress: Done | None = None,
        storage: Storage | None = None,
    ) -> list[R]:
        """Run every task; see `Executor.run`.

        Raises:
            InvalidInputError: The executor is closed.
        """
        del storage  # a pipe takes tasks of any size
        self._start()
        futures: list[Future[tuple[bool, bytes]]] = []
        room = threading.Semaphore(_WAITING * self.parallelism)
        broken = threading.Event()

        def release(future: Future[tuple[bool, bytes]]) -> None:
            if not future.cancelled() and future.exception() is not None:
                broken.set()
            room.release()

        with (
            Watch(progress, lambda: sum(future.done() for future in futures)),
            Threads(self.parallelism, "icevirt-task") as pool,
        ):
            try:
                for task in tasks:
                    room.acquire()
                    if broken.is_set():
                        break
                    futures.append(pool.submit(self._try, function, pickle.dumps(task)))
                    futures[-1].add_done_callback(release)
                wait(futures, return_when=FIRST_EXCEPTION)
                for future in futures:
                    if future.done():
                        future.result()
            except BaseException:
                self._stop()  # a child at work does not hear that its driver stopped waiting
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
                    self._idle.put(child)  # for another thread that waits for one, to end as this
                    raise
                cause = f"a process ended with {how(child.end())}: {self._last_output()}"
                with self._lock:
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

    def _start(self) -> None:
        """Start the processes, unless they are there."""
        with self._lock:
            if self._output.closed:
                raise InvalidInputError(
                    "the executor is closed",
                    do='Pass executor="processes" to have icevirt start one, or make another.',
                )
            if self._stopped:
                self._output.seek(0)
                self._output.truncate()  # an error shows what its own job printed
                self._stopped = False
                self._children = []
                self._idle: SimpleQueue[Child] = SimpleQueue()
                for _ in range(self.parallelism):
                    self._add()

    def _add(self) -> None:
        if self._stopped:  # meanwhile, and nothing would end this one
            raise InterruptedError("the processes are stopped")
        self._children.append(Child(__name__, self._output.fileno()))
        self._idle.put(self._children[-1])

    def _last_output(self) -> str:
        with self._lock:
            if self._output.closed:
                return ""
            size = os.fstat(self._output.fileno()).st_size
            last = os.pread(self._output.fileno(), _TAIL, max(0, size - _TAIL))
        return last.decode(errors="replace").strip()

    def _stop(self) -> None:
        with self._lock:
            self._stopped = True
        for child in self._children:
            child.end()

    def close(self) -> None:
        """End all children; a job that runs meanwhile fails."""
        self._stop()
        with self._lock:
            self._output.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _run(function: Callable[[Any], Any], payload: bytes) -> tuple[bool | None, bytes]:
    """Run a task in a child; (None, a traceback) where it raised what no task should."""
    try:
        return run_pickled(function, payload)
    except Exception:  # noqa: BLE001  # the parent tries again, as Spark would
        return None, traceback.format_exc().encode()
