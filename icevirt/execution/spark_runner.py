"""Run tasks on Spark, a partition each, and bring home what they return.

A task and its result travel pickled inside Arrow batches; an `IcevirtError` comes back as itself
and is raised in the driver, anything else is Spark's to retry. Results are small by contract.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from icevirt.archive.reports.build import Progress
from icevirt.errors import IcevirtError, SparkJobError
from icevirt.execution.process_pool import ProcessPool
from icevirt.execution.spark_jvm import errors_of_spark, words_of
from icevirt.execution.task_transport import packed, unpacked
from icevirt.storage.protocol import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS: dict[str, Any] = {"id": pa.int32(), "ok": pa.bool_(), "payload": pa.binary()}
_OUT = pa.schema(_COLUMNS)
_INTERVAL = 0.5  # seconds between two looks at the progress


def stage[T, R](
    function: Callable[[T], R],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function from Arrow batches to Arrow batches that runs ``function`` on each row."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                ok, payload = run_one(function, row["payload"])
                yield _result(row["id"], ok=ok, payload=payload)

    return run


def _result(number: int, *, ok: bool, payload: bytes) -> pa.RecordBatch:
    columns: list[list[Any]] = [[number], [ok], [payload]]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, _OUT, strict=True)], schema=_OUT
    )


def run_one[T, R](function: Callable[[T], R], payload: bytes) -> tuple[bool, bytes]:
    """Run a function on a pickled task; (False, the pickled error) where it raised one of ours."""
    try:
        return True, pickle.dumps(function(unpacked(payload)))
    except IcevirtError as error:
        return False, pickle.dumps(error)


def batch_of[T](tasks: Iterable[T]) -> pa.Table:
    """Return the table of tasks that a stage takes."""
    return _table(map(pickle.dumps, tasks))


def _table(payloads: Iterable[bytes]) -> pa.Table:
    rows = list(payloads)
    return pa.table(
        {"id": pa.array(range(len(rows)), pa.int32()), "payload": pa.array(rows, pa.binary())}
    )


def results_of[R](rows: Sequence[tuple[int, bool, bytes]]) -> list[R]:
    """Return the results in the order of the tasks, or raise the first task's error."""
    results: list[R] = []
    for _, ok, payload in sorted(rows, key=lambda row: row[0]):
        value = pickle.loads(payload)  # noqa: S301  # made by `stage`
        if not ok:
            raise value
        results.append(value)
    return results


def run_on_spark[T, R](
    spark: SparkSession | ProcessPool,
    function: Callable[[T], R],
    tasks: Iterable[T],
    *,
    progress: Callable[[], None] | None = None,
    aside: Storage | None = None,
) -> list[R]:
    """Run every task in a partition of its own and return the results in their order.

    Args:
        spark: The session.
        function: Given a task.
        tasks: They pickle, like results, and no more than one is held otherwise.
        progress: Called now and then.
        aside: Where tasks lie that together are too large for Spark.

    Raises:
        IcevirtError: The one a task raised.
        SparkJobError: A task failed for another reason, as often as Spark retries it.
    """
    if isinstance(spark, ProcessPool):
        with _Watch(progress):
            rows = spark.run(function, [pickle.dumps(task) for task in tasks])
        return results_of(rows)
    with _failing(), packed(tasks, aside) as payloads:
        table = _table(payloads)
        if not len(table):
            return []
        spread = spark.createDataFrame(table).repartitionById(len(table), "id")
        done = spread.mapInArrow(stage(function), "id int, ok boolean, payload binary")
        return _collected(done, progress)


def _collected(done: DataFrame, progress: Callable[[], None] | None) -> list[Any]:
    with _Watch(progress):
        rows = done.collect()
    return results_of([(row["id"], row["ok"], bytes(row["payload"])) for row in rows])


@contextmanager
def _failing() -> Iterator[None]:
    """Turn what Spark raises, and what is raised where its JVM died, into one error."""
    try:
        yield
    except errors_of_spark() as error:
        raise SparkJobError(
            "a Spark task failed",
            do="The cause is in the text; a build that is run again continues where it was.",
            cause=_short(words_of(error)),
        ) from error


def run_shuffled[M, T, R](
    spark: SparkSession,
    mapper: Callable[[M, int], Iterator[tuple[int, bytes]]],
    maps: Sequence[M],
    function: Callable[[T, list[bytes]], R],
    tasks: Iterable[T],
    *,
    progress: Callable[[], None] | None = None,
    aside: Storage | None = None,
) -> list[R]:
    """Run every task with the rows that mappers sent to it; return the results in their order.

    Args:
        spark: The session.
        mapper: Given one of ``maps`` and its number, yields rows: the number of the task each is
            for, and its bytes.
        maps: What mappers are given.
        function: Given a task and its rows, which come in any order.
        tasks: The tasks, a partition each, no more than one of which is held otherwise.
        progress: Called now and then.
        aside: Where tasks lie that together are too large for Spark.

    Raises:
        IcevirtError: The one a mapper or a task raised.
        SparkJobError: A task failed for another reason, as often as Spark retries it.
    """
    kinds = "id int, sent boolean, payload binary"
    with _failing(), packed(maps, aside) as mapped, packed(tasks, aside) as payloads:
        table = _table(payloads)
        if not len(table):
            return []
        sent = (
            spark.createDataFrame(_table(mapped))
            .repartitionById(max(1, len(maps)), "id")
            .mapInArrow(_mapping(mapper, len(table)), kinds)
        )
        given = spark.createDataFrame(table).selectExpr("id", "false AS sent", "payload")
        frame = given.union(sent).repartitionById(len(table), "id")
        done = frame.mapInArrow(_reducing(function), "id int, ok boolean, payload binary")
        return _collected(done, progress)


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
                    told = pickle.dumps(error)
                    for to in range(tasks):
                        yield _sent(to, told, ok=None)

    return run


def _sent(to: int, payload: bytes, *, ok: bool | None = True) -> pa.RecordBatch:
    """Return a row of a mapper; what is neither true nor false is an error."""
    types = [pa.int32(), pa.bool_(), pa.binary()]
    columns = [pa.array([v], t) for v, t in zip((to, ok, payload), types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=["id", "sent", "payload"])


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
                mine = rows.pop(number, [])
                ok, payload = run_one(partial(_with_rows, function, mine), task)
                yield _result(number, ok=ok, payload=payload)

    return run


def _with_rows[T, R](function: Callable[[T, list[bytes]], R], rows: list[bytes], task: T) -> R:
    return function(task, rows)


def run_in_process[T, R](function: Callable[[T], R], tasks: Iterable[T]) -> list[R]:
    """Run tasks here, through the same Arrow batches that Spark would hand to the stage."""
    rows = [
        (row["id"], row["ok"], row["payload"])
        for batch in stage(function)(iter(batch_of(tasks).to_batches(max_chunksize=1)))
        for row in batch.to_pylist()
    ]
    return results_of(rows)


def slots(spark: SparkSession | ProcessPool) -> int:
    """Return how many tasks run at a time.

    Raises:
        SparkJobError: Spark's JVM died.
    """
    if isinstance(spark, ProcessPool):
        return spark.count
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # noqa: BLE001  # Spark Connect has no context to ask
        with _failing():
            return int(spark.conf.get("spark.default.parallelism", "8") or 8)


def _short(text: str) -> str:
    """Return the last lines of a traceback through two languages, where the cause is."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [line for line in lines if not line.startswith(("at ", "File ", "..."))]
    return " | ".join(python[-6:])[:2000]


class _Watch:
    """Call ``look`` every now and then while the block runs, from a thread of its own."""

    def __init__(self, look: Callable[[], None] | None) -> None:
        self._look = look
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="icevirt-progress", daemon=True)

    def __enter__(self) -> None:
        if self._look is not None:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._look is not None:
            self._thread.join()
            self._look()

    def _run(self) -> None:
        took = 0.0
        # looking is a listing, which takes a while in a bucket of many objects
        while not self._done.wait(max(_INTERVAL, 10 * took)):
            if self._look is not None:
                begin = time.perf_counter()
                self._look()
                took = time.perf_counter() - begin


def reporter(
    progress: Callable[[Progress], None] | None, look: Callable[[], Progress]
) -> Callable[[], None] | None:
    """Return what a watch calls: it looks at what is done and tells ``progress``."""
    if progress is None:
        return None
    tell = progress
    begin = time.perf_counter()
    first = look()
    tell(replace(first, found=first.done))

    def report() -> None:
        step = look()
        tell(replace(step, found=first.done, seconds=time.perf_counter() - begin))

    return report
