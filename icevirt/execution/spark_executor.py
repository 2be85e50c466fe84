"""Run tasks on Spark, one per partition, and collect their results.

Spark gets numbers, one per partition, and a function that holds all tasks pickled: no task list is
shuffled, and every version from 3.5 on, classic or Connect, deals them alike. Results come back
pickled inside Arrow batches; an `IcevirtError` comes back as itself and is raised in the driver,
anything else is Spark's to retry. Results are small by contract.
"""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from icevirt.errors import IcevirtError, InvalidInputError, JobsCancelledError
from icevirt.execution.executor import (
    Done,
    add_host,
    current,
    describe_jobs,
    results_of,
    run_pickled,
)
from icevirt.execution.installation import Batches, guard
from icevirt.execution.spark_failures import explain, host_of_failure, is_stopped
from icevirt.execution.spark_session import check_session, collect, errors_of_spark, words_of
from icevirt.execution.task_transport import pack, unpack
from icevirt.storage.protocol import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASKS = "ICEVIRT_TASKS"
"""Environment variable: how many tasks may run at a time."""

UNKNOWN = 64
"""Tasks that may run at a time where Spark does not say how large the cluster may grow."""

MOST = 4096
"""More tasks at a time bring nothing: the driver starts some hundred in a second."""

_UNBOUNDED = (1 << 31) - 1  # what Spark says in place of no bound

# Spark's own words, classic and Connect; those of 3.5 have no code
_CANCELLED = re.compile(
    r"\[(?:SPARK_JOB_CANCELLED|OPERATION_CANCELED)\]"
    r"|Job \d+ cancelled(?! because SparkContext was shut down)"
)

_RESULT = "id int, ok boolean, payload binary"
_ROW = "id int, spread int, sent boolean, payload binary"

type Sender = Callable[[Iterator[pa.RecordBatch]], Iterator[tuple[int, bytes | None]]]
"""What makes rows of the batches of a partition: the number of the task each is for, and its bytes;
None starts a task to which no row may come."""


def _numbers_in(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from map(int, batch.column("id").to_numpy())


def _batch(**columns: tuple[Any, pa.DataType]) -> pa.RecordBatch:
    arrays: list[Any] = [pa.array([value], kind) for value, kind in columns.values()]
    return pa.RecordBatch.from_arrays(arrays, names=[*columns])


def _result(number: int, ok: bool, payload: bytes) -> pa.RecordBatch:
    return _batch(id=(number, pa.int32()), ok=(ok, pa.bool_()), payload=(payload, pa.binary()))


@cache
def spread(count: int) -> tuple[int, ...]:
    """Return a number for each of ``count`` partitions that Spark's hash sends there.

    Hashing the partitions' own numbers would leave a third of them without rows. The hash is that
    of `org.apache.spark.sql.catalyst.expressions.Murmur3Hash` for an int, seed 42. An engine that
    hashes in another way balances worse, and loses nothing.
    """
    found = np.full(count, -1, np.int64)
    begin, size = 0, 16 * count + 64
    while (found < 0).any():
        tried = np.arange(begin, begin + size, dtype=np.uint32)
        found[_murmur3(tried) % count] = tried  # of Python's sign, as Spark's pmod
        begin += size
    return tuple(found.tolist())


def _murmur3(values: NDArray[np.uint32]) -> NDArray[np.int64]:
    def rotate(x: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
        return (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))

    mixed = rotate(values * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    made = rotate(mixed ^ np.uint32(42), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    made ^= np.uint32(4)  # bytes of an int
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        made = (made ^ (made >> np.uint32(shift))) * np.uint32(factor)
    return (made ^ (made >> np.uint32(16))).view(np.int32).astype(np.int64)


class SparkExecutor:
    """Runs tasks in the Python workers of a Spark session, a partition each.

    Args:
        session: The session, of this process or of Spark Connect.
        ending: Called with the session when the executor is closed.

    Raises:
        InvalidInputError: It is not a session.
    """

    name = "spark"
    first: Callable[[], object] | None = None
    """Called once, before the first job; see `icevirt.execution.preflight`."""

    def __init__(
        self, session: SparkSession, *, ending: Callable[[SparkSession], None] | None = None
    ) -> None:
        check_session(session)
        self.session, self._ending = session, ending
        self.reached: set[str] = set()  # URLs of storages that executors were seen to share

    @property
    def parallelism(self) -> int:
        """How many tasks run at a time, or may once the cluster has grown.

        `TASKS` wins over what Spark says. With dynamic allocation the executors of now say little:
        a cluster that waits for work has none.

        Raises:
            SparkJobError: Spark's JVM died.
        """
        if asked := os.environ.get(TASKS):
            if (number := _count(asked)) is None:
                raise InvalidInputError(
                    f"{TASKS} must be a positive number",
                    do=f"Set {TASKS}=64, or unset it.",
                    value=asked,
                )
            return number
        now = self._now or _count(self._setting("spark.default.parallelism")) or 0
        return max(now, min(self._grown, MOST)) or UNKNOWN

    @property
    def _now(self) -> int | None:
        """Slots of the executors of now; None where Spark does not say."""
        try:
            return int(self.session.sparkContext.defaultParallelism)
        except Exception:  # noqa: BLE001  # Spark Connect has no context to ask
            return None

    @property
    def _grown(self) -> int:
        """Slots of a cluster that has grown as far as it may; 0 where its size is fixed."""
        if self._setting("spark.dynamicAllocation.enabled") != "true":
            return 0
        most = _count(self._setting("spark.dynamicAllocation.maxExecutors"))
        # without this setting an executor has one core, or on a standalone cluster all of a worker
        cores = _count(self._setting("spark.executor.cores")) or 1
        each = max(1, cores // (_count(self._setting("spark.task.cpus")) or 1))
        return UNKNOWN if most is None else most * each

    @cached_property
    def is_local(self) -> bool:
        """Whether tasks run on this machine, in processes that the driver's own JVM started."""
        try:
            master = str(self.session.sparkContext.master)
        except Exception:  # noqa: BLE001  # a server of Spark Connect may run anywhere
            return False
        return master == "local" or master.startswith("local[")

    def _setting(self, name: str) -> str | None:
        """Return a setting, None where it has none, or where the platform shows it to no one."""
        from pyspark.errors import PySparkException

        with _failing():
            try:
                found = self.session.conf.get(name, None)
            except PySparkException:  # serverless Databricks refuses even to look
                return None
        return None if found is None else str(found)

    def run[T, R](
        self,
        function: Callable[[T], R],
        tasks: Iterable[T],
        *,
        progress: Done | None = None,
        storage: Storage | None = None,
    ) -> list[R]:
        """Run every task; see `Executor.run`."""
        with _failing(self.session), pack(tasks, storage) as payloads:
            waiting = [*payloads]
            if not waiting:
                return []
            self._begin()
            named = not self.is_local

            def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                for number in _numbers_in(batches):
                    payload = waiting[number]
                    yield _result(number, *run_pickled(function, payload, unpack, names_host=named))

            done = self._numbers(len(waiting)).mapInArrow(self.guard(work), _RESULT)
            return self._collect_results(done, len(waiting), progress)

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
        """Run every task with its rows; see `Executor.shuffle`."""
        with (
            _failing(self.session),
            pack(maps, storage) as mapped,
            pack(tasks, storage) as payloads,
        ):
            senders, waiting = [*mapped], [*payloads]
            if not waiting:
                return []
            count = len(waiting)

            def send(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, bytes | None]]:
                for number in _numbers_in(batches):
                    if number == 0:
                        yield from ((to, None) for to in range(count))
                    if number < len(senders):
                        yield from mapper(unpack(senders[number]), number)

            numbers = self._numbers(max(1, len(senders)))
            return self.shuffle_frame(numbers, send, function, waiting, progress=progress)

    def shuffle_frame[T, R](
        self,
        frame: DataFrame,
        send: Sender,
        function: Callable[[T, list[bytes]], R],
        tasks: Sequence[bytes],
        *,
        progress: Done | None = None,
    ) -> list[R]:
        """Run every task that is sent rows from the partitions of a frame; see `Executor.shuffle`.

        Args:
            frame: Of this session.
            send: Makes the rows.
            function: Given a task and its rows.
            tasks: They are pickled.
            progress: As for `Executor.shuffle`.
        """
        with _failing(self.session):
            self._begin()
            named = not self.is_local
            mapping = _mapping(send, len(tasks), names_host=named)
            sent = frame.mapInArrow(self.guard(mapping), _ROW)
            moved = sent.repartition(len(tasks), "spread")
            reducing = _reducing(function, tasks, names_host=named)
            done = moved.mapInArrow(self.guard(reducing), _RESULT)
            return self._collect_results(done, len(tasks), progress)

    def collect(self, work: Batches, schema: str, count: int) -> list[Any]:
        """Run ``work`` as it is on ``count`` partitions, and return the rows it makes.

        Raises:
            SparkJobError: A task failed, as often as it is tried.
        """
        with _failing(self.session), describe_jobs("check: executors"):
            frame = self._numbers(count).mapInArrow(work, schema)
            return collect(self.session, frame, None)

    def _begin(self) -> None:
        """Do once what comes before the first job."""
        first, self.first = self.first, None
        if first is not None:
            first()

    def guard(self, work: Batches) -> Batches:
        """Return the function with which an executor that has another icevirt is refused first."""
        return guard(work, is_local=self.is_local)

    def _numbers(self, count: int) -> DataFrame:
        """Return the numbers below ``count``, a partition each."""
        return self.session.range(0, count, 1, count)

    def _collect_results(self, done: DataFrame, count: int, progress: Done | None) -> list[Any]:
        rows = collect(self.session, done, progress)
        if progress is not None:
            progress(count)
        return results_of([(row["id"], row["ok"], bytes(row["payload"])) for row in rows])

    def close(self) -> None:
        """Stop the session, where it was started for this executor."""
        if self._ending is not None:
            self._ending(self.session)


def _count(text: str | None) -> int | None:
    """Return a number of a setting, None where it is none, or without bound."""
    number = int(text) if text is not None and text.isdecimal() else 0
    return number if 0 < number < _UNBOUNDED else None


@contextmanager
def _failing(session: SparkSession | None = None) -> Iterator[None]:
    """Turn what Spark raises, and what is raised where its JVM died, into one error.

    Args:
        session: Which knows the executor of a job that failed.
    """
    try:
        yield
    except errors_of_spark() as error:
        if _CANCELLED.search(words_of(error)):
            raise JobsCancelledError(
                "the Spark jobs were cancelled",
                do="Run the same again to continue where it stopped.",
                tags=current().tags,
            ) from error
        host = None if session is None else host_of_failure(session)
        stopped = session is not None and is_stopped(session)
        raise explain(words_of(error), host, is_stopped=stopped) from error


def _mapping(send: Sender, tasks: int, *, names_host: bool) -> Batches:
    """Return the function of the senders' partitions; an error goes to every one of the tasks.

    A task that did not hear of it would finish with what came so far, and be recorded as finished.
    """

    def row(to: int, payload: bytes, *, sent: bool | None) -> pa.RecordBatch:
        """Return a row for a task: true for bytes, false to start it, None for an error."""
        return _batch(
            id=(to, pa.int32()),
            spread=(spread(tasks)[to], pa.int32()),
            sent=(sent, pa.bool_()),
            payload=(payload, pa.binary()),
        )

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for to, payload in send(batches):
                yield row(to, payload or b"", sent=payload is not None)
        except IcevirtError as error:
            raised = pickle.dumps(add_host(error) if names_host else error)
            yield from (row(to, raised, sent=None) for to in range(tasks))

    return run


def _reducing[T, R](
    function: Callable[[T, list[bytes]], R], tasks: Sequence[bytes], *, names_host: bool
) -> Batches:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows: dict[int, list[bytes]] = {}
        failed: list[bytes] = []
        for batch in batches:
            for row in batch.to_pylist():
                held = rows.setdefault(row["id"], [])
                if row["sent"] is None:
                    failed.append(row["payload"])
                elif row["sent"]:
                    held.append(row["payload"])
        for number in sorted(rows):
            if failed:
                yield _result(number, False, min(failed))
            else:
                received, task = rows.pop(number), tasks[number]
                yield _result(
                    number, *run_pickled(function, task, unpack, received, names_host=names_host)
                )

    return run
