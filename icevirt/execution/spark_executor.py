"""Run tasks on Spark, one per partition, and collect their results.

A task and its result travel pickled inside Arrow batches; an `IcevirtError` comes back as itself
and is raised in the driver, anything else is Spark's to retry. Results are small by contract.
"""

from __future__ import annotations

import pickle
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from icevirt.errors import IcevirtError, SparkJobError
from icevirt.execution.executor import Done, Watch, results_of, run_pickled
from icevirt.execution.spark_session import errors_of_spark, words_of
from icevirt.execution.task_transport import packed, unpacked
from icevirt.storage.protocol import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RESULT = "id int, ok boolean, payload binary"
_ROW = "id int, sent boolean, payload binary"


def stage[T, R](
    function: Callable[[T], R],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function from Arrow batches to Arrow batches that runs ``function`` on each row."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                ok, payload = run_pickled(function, row["payload"], unpacked)
                yield _result(row["id"], ok=ok, payload=payload)

    return run


def _result(number: int, *, ok: bool, payload: bytes) -> pa.RecordBatch:
    return _batch(id=(number, pa.int32()), ok=(ok, pa.bool_()), payload=(payload, pa.binary()))


def _sent(to: int, payload: bytes, *, ok: bool | None = True) -> pa.RecordBatch:
    """Return a row of a mapper; what is neither true nor false is an error."""
    return _batch(id=(to, pa.int32()), sent=(ok, pa.bool_()), payload=(payload, pa.binary()))


def _batch(**columns: tuple[Any, pa.DataType]) -> pa.RecordBatch:
    arrays: list[Any] = [pa.array([value], kind) for value, kind in columns.values()]
    return pa.RecordBatch.from_arrays(arrays, names=[*columns])


def batch_of[T](tasks: Iterable[T]) -> pa.Table:
    """Return the table of tasks that a stage takes."""
    return _table(map(pickle.dumps, tasks))


def _table(payloads: Iterable[bytes]) -> pa.Table:
    rows = list(payloads)
    return pa.table(
        {"id": pa.array(range(len(rows)), pa.int32()), "payload": pa.array(rows, pa.binary())}
    )


class SparkExecutor:
    """Runs tasks in the Python workers of a Spark session, a partition each.

    Args:
        session: The session, of this process or of Spark Connect.
        ending: Called with the session when the executor is closed.
    """

    name = "spark"

    def __init__(
        self, session: SparkSession, *, ending: Callable[[SparkSession], None] | None = None
    ) -> None:
        self.session, self._ending = session, ending

    @property
    def parallelism(self) -> int:
        """How many tasks run at a time.

        Raises:
            SparkJobError: Spark's JVM died.
        """
        try:
            return int(self.session.sparkContext.defaultParallelism)
        except Exception:  # noqa: BLE001  # Spark Connect has no context to ask
            with _failing():
                return int(self.session.conf.get("spark.default.parallelism", "8") or 8)

    def run[T, R](
        self,
        function: Callable[[T], R],
        tasks: Iterable[T],
        *,
        progress: Done | None = None,
        storage: Storage | None = None,
    ) -> list[R]:
        """Run every task; see `Executor.run`."""
        with _failing(), packed(tasks, storage) as payloads:
            table = _table(payloads)
            if not len(table):
                return []
            spread = self.session.createDataFrame(table).repartitionById(len(table), "id")
            done = spread.mapInArrow(stage(function), _RESULT)
            return self._collected(done, len(table), progress)

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
        with _failing(), packed(maps, storage) as mapped, packed(tasks, storage) as payloads:
            table = _table(payloads)
            if not len(table):
                return []
            sent = (
                self.session.createDataFrame(_table(mapped))
                .repartitionById(max(1, len(maps)), "id")
                .mapInArrow(_mapping(mapper, len(table)), _ROW)
            )
            given = self.session.createDataFrame(table).selectExpr("id", "false AS sent", "payload")
            frame = given.union(sent).repartitionById(len(table), "id")
            done = frame.mapInArrow(_reducing(function), _RESULT)
            return self._collected(done, len(table), progress)

    def _collected(self, done: DataFrame, count: int, progress: Done | None) -> list[Any]:
        if progress is None:
            rows = done.collect()
        else:
            with counted(self.session) as finished, Watch(progress, finished):
                rows = done.collect()
            progress(count)
        return results_of([(row["id"], row["ok"], bytes(row["payload"])) for row in rows])

    def close(self) -> None:
        """Stop the session, where it was started for this executor."""
        if self._ending is not None:
            self._ending(self.session)


@contextmanager
def _failing() -> Iterator[None]:
    """Turn what Spark raises, and what is raised where its JVM died, into one error."""
    try:
        yield
    except errors_of_spark() as error:
        raise SparkJobError(
            "a Spark task failed",
            do="The text above gives the cause; run the build again to continue where it stopped.",
            cause=_short(words_of(error)),
        ) from error


def _mapping[M](
    mapper: Callable[[M, int], Iterator[tuple[int, bytes]]], tasks: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function of the mappers' partitions; an error goes to every one of the tasks.

    A task that did not hear of it would finish with what came so far, and be recorded as finished.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                try:
                    for to, payload in mapper(unpacked(row["payload"]), row["id"]):
                        yield _sent(to, payload)
                except IcevirtError as error:
                    payload = pickle.dumps(error)
                    for to in range(tasks):
                        yield _sent(to, payload, ok=None)

    return run


def _reducing[T, R](
    function: Callable[[T, list[bytes]], R],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows: dict[int, list[bytes]] = defaultdict(list)
        tasks: dict[int, bytes] = {}
        failed: list[bytes] = []
        for batch in batches:
            for row in batch.to_pylist():
                if row["sent"] is None:
                    failed.append(row["payload"])
                elif row["sent"]:
                    rows[row["id"]].append(row["payload"])
                else:
                    tasks[row["id"]] = row["payload"]
        for number, task in sorted(tasks.items()):
            if failed:
                yield _result(number, ok=False, payload=failed[0])
            else:
                ok, payload = run_pickled(function, task, unpacked, rows.pop(number, []))
                yield _result(number, ok=ok, payload=payload)

    return run


def _short(text: str) -> str:
    """Return the last lines of a traceback through two languages, where the cause is."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [line for line in lines if not line.startswith(("at ", "File ", "..."))]
    return " | ".join(python[-6:])[:2000]


@contextmanager
def counted(spark: SparkSession) -> Iterator[Callable[[], int]]:
    """Yield a function that counts the finished tasks of the block's job; it never raises.

    The job is found by a tag, which belongs to this thread and ends with the block. Spark Connect
    reports only to the thread that waits for the job; there the count is 0 until the job ends.
    """
    try:
        context = spark.sparkContext
    except errors_of_spark():
        yield lambda: 0
        return
    tag = f"icevirt-{secrets.token_hex(8)}"
    context.addJobTag(tag)
    try:
        yield lambda: _done(context, tag)
    finally:
        context.removeJobTag(tag)


def _done(context: Any, tag: str) -> int:
    """Return how many tasks of the last stage are done, after the one that deals the tasks."""
    done = 0
    try:
        # a way that Python has for groups of jobs alone, which would replace the caller's own
        jobs = list(context._jsc.sc().statusTracker().getJobIdsForTag(tag))  # noqa: SLF001
        tracker = context.statusTracker()
        for job in filter(None, map(tracker.getJobInfo, jobs)):
            stages = sorted(job.stageIds)
            if len(stages) > 1 and (stage := tracker.getStageInfo(stages[-1])) is not None:
                done += stage.numCompletedTasks
    except errors_of_spark():  # Spark is gone: the thread that waits for the job raises
        return 0
    return done
