"""Count finished tasks of Spark jobs that leave nothing else to count."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from icevirt.execution.spark_jvm import errors_of_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def counted(spark: SparkSession) -> Iterator[Callable[[], int]]:
    """Yield what says how many tasks are done of the job that the block runs; it never raises.

    The job is found by a tag, which is this thread's and goes with the block. Spark Connect tells
    only the thread that waits for the job; there it stays at 0 until the job ends.
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
    """Return how many tasks of the last stage are done, behind the one that deals the tasks."""
    done = 0
    try:
        # a way that Python has for groups of jobs alone, which would replace the caller's own
        jobs = list(context._jsc.sc().statusTracker().getJobIdsForTag(tag))  # noqa: SLF001
        told = context.statusTracker()
        for job in filter(None, map(told.getJobInfo, jobs)):
            stages = sorted(job.stageIds)
            if len(stages) > 1 and (stage := told.getStageInfo(stages[-1])) is not None:
                done += stage.numCompletedTasks
    except errors_of_spark():  # that Spark is gone is told by who waits for the job
        return 0
    return done
