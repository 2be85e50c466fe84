"""Define the protocol of executors, which run the tasks of builds, plans, scans and checks.

There are three, in `icevirt.execution.spark_executor` and `icevirt.execution.local_executors`. They
run the same functions on the same pickled tasks and return the same results, so that stages know
none of them. `icevirt.execution.selection` decides which runs.

A call marks all that it runs with `job_tags`, and each stage says what it does with `described`,
for the Spark UI and for who wants to cancel jobs; other executors take no notice.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import pyarrow as pa

from icevirt.archive.reports.build import Progress
from icevirt.errors import IcevirtError
from icevirt.redaction import without_secrets
from icevirt.storage.protocol import Storage
from icevirt.threads import MOMENT

INTERVAL = 0.5
"""Seconds between two reports of progress."""

EXECUTOR = "executor"
"""The fact of an error that names the machine it was raised on."""

type Done = Callable[[int], None]
"""Called now and then with the number of tasks that are done, and once when all are."""


@runtime_checkable
class Executor(Protocol):
    """Runs tasks, and returns what they return."""

    @property
    def name(self) -> str:
        """The word that chooses such an executor: "spark", "processes" or "in-process"."""

    @property
    def parallelism(self) -> int:
        """How many tasks run at a time; work is divided into a few tasks for each.

        Raises:
            SparkJobError: Spark's JVM died.
        """

    def run[T, R](
        self,
        function: Callable[[T], R],
        tasks: Iterable[T],
        *,
        progress: Done | None = None,
        storage: Storage | None = None,
    ) -> list[R]:
        """Run every task and return the results in the order of the tasks.

        Args:
            function: A function of a module, given a task.
            tasks: They pickle, like results, which are small; one at a time is held unpickled.
            progress: Called from any thread.
            storage: Where tasks may lie that are too large to be sent otherwise.

        Raises:
            IcevirtError: The one a task raised; that of the first task, where several did.
            SparkJobError: A task failed for another reason, as often as it is tried.
        """

    def shuffle[M, T, R](
        self,
        mapper: Callable[[M, int], Iterator[tuple[int, bytes]]],
        maps: Sequence[M],
        function: Callable[[T, list[bytes]], R],
        tasks: Iterable[T],
        *,
        progress: Done | None = None,
        storage: Storage | None = None,
    ) -> list[R]:
        """Run every task with the rows that mappers sent to it, as `run` does.

        Args:
            mapper: Given one of ``maps`` and its number, yields rows: the number of the task each
                is for, and its bytes.
            maps: What mappers are given.
            function: Given a task and its rows, which come in any order. It is not called where a
                mapper raised.
            tasks: They pickle, like results.
            progress: Called from any thread, of ``tasks`` alone.
            storage: Where tasks may lie that are too large to be sent otherwise.
        """

    def close(self) -> None:
        """End what was started for this executor; it runs no task afterwards."""


def run_pickled[T, *Ts, R](
    function: Callable[[T, *Ts], R],
    payload: bytes,
    load: Callable[[bytes], T] = pickle.loads,
    *args: *Ts,
    names_host: bool = False,
) -> tuple[bool, bytes]:
    """Run a function on a pickled task and other arguments, in a worker.

    Args:
        function: What is run.
        payload: The task, pickled.
        load: Unpickles it.
        args: Further arguments.
        names_host: Say on which machine an error was raised.

    Returns:
        Whether there is a result, and that, or the `IcevirtError` that was raised, pickled.
    """
    try:
        return True, pickle.dumps(function(load(payload), *args))
    except IcevirtError as error:
        return False, pickle.dumps(add_host(error) if names_host else error)


def add_host(error: IcevirtError) -> IcevirtError:
    """Return the error, with the machine it was raised on among its facts."""
    error.facts = {**error.facts, EXECUTOR: error.facts.get(EXECUTOR, socket.gethostname())}
    return error


def results_of[R](rows: Sequence[tuple[int, bool, bytes]]) -> list[R]:
    """Return the results in the order of the tasks, or raise the first task's error.

    Args:
        rows: The number of each task, whether it has a result, and that or its error, pickled.
    """
    results: list[R] = []
    for _, ok, payload in sorted(rows, key=lambda row: row[0]):
        value = pickle.loads(payload)  # noqa: S301  # made by `run_pickled`
        if not ok:
            raise value
        results.append(value)
    return results


class Watch:
    """Call ``progress`` now and then while the block runs, from another thread.

    Args:
        progress: Called with the number of tasks that are done; None: nothing happens.
        done: Returns that number.
    """

    def __init__(self, progress: Done | None, done: Callable[[], int]) -> None:
        self._progress, self._done = progress, done
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="icevirt-progress", daemon=True)

    def __enter__(self) -> None:
        if self._progress is not None:
            self._thread.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._over.set()
        if self._progress is not None:  # it may look into a bucket that does not answer
            self._thread.join(None if kind is None else MOMENT)

    def _run(self) -> None:
        took = 0.0
        # looking is a listing, which takes a while in a bucket of many objects
        while not self._over.wait(max(INTERVAL, 10 * took)):
            if self._progress is not None:
                begin = time.perf_counter()
                self._progress(self._done())
                took = time.perf_counter() - begin


def reporter(
    progress: Callable[[Progress], None] | None, look: Callable[[], Progress]
) -> Done | None:
    """Return what an executor calls: it looks at what is done and passes it to ``progress``."""
    if progress is None:
        return None
    tell = progress
    begin = time.perf_counter()
    first = look()
    tell(replace(first, found=first.done))

    def report(_: int) -> None:
        step = look()
        tell(replace(step, found=first.done, seconds=time.perf_counter() - begin))

    return report


def give_back() -> None:
    """Return freed memory to the system, where the C library knows how.

    glibc keeps what was freed below the top of its heap: after a million files were planned that is
    a hundred mebibytes, while the driver only waits for tasks.
    """
    pa.default_memory_pool().release_unused()
    with suppress(OSError, TypeError, AttributeError):  # another system, another C library
        ctypes.CDLL(None).malloc_trim(0)


EVERY = "icevirt"
"""The tag of every job."""


@dataclass(slots=True)
class JobLabel:
    """What the jobs of a call are, and where it writes."""

    place: str = ""
    tags: list[str] = field(default_factory=lambda: [EVERY])
    stage: str = ""

    @property
    def text(self) -> str:
        """The description of a job: ``icevirt scan: 300 files → s3://bucket/repo``."""
        what = f"icevirt {self.stage or 'tasks'}"
        return without_secrets(f"{what} → {self.place}" if self.place else what)

    @property
    def name(self) -> str:
        """The name of a job and its stages: ``icevirt scan``."""
        return f"icevirt {self.stage.partition(':')[0] or 'tasks'}"

    def tag(self, build_id: str) -> None:
        """Mark all further jobs as those of a build; it may have several ids."""
        if (tag := f"{EVERY}:{build_id}") not in self.tags:
            self.tags.append(tag)


_label: ContextVar[JobLabel | None] = ContextVar("icevirt-jobs", default=None)


def current() -> JobLabel:
    """Return what the jobs are that are begun now."""
    return _label.get() or JobLabel()


@contextmanager
def job_tags(place: str, build_id: str | None = None) -> Iterator[JobLabel]:
    """Mark the jobs of the block.

    Args:
        place: The URL of what the call writes to, or looks at.
        build_id: Of a build.
    """
    label = JobLabel(place=place)
    if build_id is not None:
        label.tag(build_id)
    token = _label.set(label)
    try:
        yield label
    finally:
        _label.reset(token)


@contextmanager
def describe_jobs(stage: str, place: str = "") -> Iterator[None]:
    """Say what the jobs of the block do.

    Args:
        stage: A word, a colon, and what of: ``scan: 300 files``.
        place: Where to, if the call did not say.
    """
    label = current()
    mine = JobLabel(place=label.place or place, tags=label.tags, stage=stage)
    token = _label.set(mine)
    try:
        yield
    finally:
        _label.reset(token)


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # where a process may be confined to some
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
