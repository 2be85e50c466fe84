"""Collect a frame in a thread of its own, whose jobs are named, tagged, counted and cancelled.

The thread has copies of what the caller set for its own jobs (pool, group, tags), so that nothing
of the caller's changes. The caller's thread only waits, as a signal must not come into the middle
of a call to Java: PySpark would wait for the end of the job, and mix up the answers of later calls.
Here the signal's exception ends the waiting, and the job is cancelled.

Marks are for people: a platform that refuses them gets none.
"""

from __future__ import annotations

import inspect
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from icevirt.execution.executor import Done, Watch
from icevirt.execution.job_labels import JobLabel, current
from icevirt.execution.spark_session import errors_of_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PATIENCE = 10  # seconds for a cancelled job to end
_DESCRIPTION = "spark.job.description"


def collected(session: SparkSession, frame: DataFrame, progress: Done | None) -> list[Any]:
    """Return the rows of a frame, as its ``collect`` does; an exception meanwhile cancels the job.

    Args:
        session: Of the frame.
        frame: Its plan is made; its job begins now.
        progress: Called now and then with the number of finished tasks of the last stage. Spark
            Connect reports only to the thread that waits for the job; there it is 0 to the end.
    """
    context = context_of(session)
    own = f"icevirt-{secrets.token_hex(8)}"
    label = current()
    marks = _marked_on_connect if context is None else _marked
    over = threading.Event()
    rows: list[list[Any]] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            with marks(session, context, label, (own, *label.tags)):
                rows.append(frame.collect())
        except BaseException as error:  # noqa: BLE001  # raised where it is waited for
            failed.append(error)
        finally:
            over.set()

    _thread(session, context, run).start()
    try:
        with Watch(progress, lambda: 0 if context is None else done_of(context, own)):
            over.wait()
    except BaseException:
        for _ in range(_PATIENCE):  # a job that has not begun yet is not there to be cancelled
            _cancel(session, context, own)
            if over.wait(1):
                break
        raise
    if failed:
        raise failed.pop()
    return rows[0]


def context_of(session: SparkSession) -> Any:
    """Return the context of a session, None for Spark Connect and where the platform hides it."""
    try:
        return session.sparkContext
    except errors_of_spark():
        return None


def done_of(context: Any, tag: str) -> int:
    """Return how many tasks are done of the last stages of a tag's jobs; it never raises.

    The stages of mappers come before, and do not count.
    """
    done = 0
    try:
        # a way that Python has for groups of jobs alone, which would replace the caller's own
        jobs = list(context._jsc.sc().statusTracker().getJobIdsForTag(tag))  # noqa: SLF001
        tracker = context.statusTracker()
        for job in filter(None, map(tracker.getJobInfo, jobs)):
            stages = sorted(job.stageIds)
            if stages and (stage := tracker.getStageInfo(stages[-1])) is not None:
                done += stage.numCompletedTasks
    except errors_of_spark():  # Spark is gone: the thread that waits for the job raises
        return 0
    return done


def _thread(session: SparkSession, context: Any, run: Callable[[], None]) -> threading.Thread:
    """Return a thread with what the caller's set for its jobs."""
    if context is None:
        tags = _tags(session)

        def tagged() -> None:
            with _refused():
                for tag in tags:
                    session.addTag(tag)
            run()

        return threading.Thread(target=tagged, name="icevirt-job", daemon=True)
    from pyspark import InheritableThread

    # which Spark 3.5 finds itself
    known = "session" in inspect.signature(InheritableThread).parameters
    given: dict[str, Any] = {"session": session} if known else {}
    return InheritableThread(target=run, name="icevirt-job", daemon=True, **given)


def _tags(session: SparkSession) -> Iterable[str]:
    try:
        return tuple(session.getTags())
    except _refusals():
        return ()


@contextmanager
def _refused() -> Iterator[None]:
    """Go on without a mark where a platform or version refuses it."""
    with suppress(*_refusals()):
        yield


def _refusals() -> tuple[type[Exception], ...]:
    return *errors_of_spark(), RuntimeError, AttributeError, TypeError


@contextmanager
def _marked(
    session: SparkSession, context: Any, label: JobLabel, tags: Iterable[str]
) -> Iterator[None]:
    """Mark the jobs of this thread, which ends with the block.

    Tags are the context's: those of a classic session cancel nothing from another thread.
    """
    del session
    with ExitStack() as stack:
        with _refused():
            context.setJobDescription(label.text)
        for tag in tags:
            with _refused():
                context.addJobTag(tag)
        with _refused():
            from pyspark.traceback_utils import SCCallSiteSync

            sync: Any = SCCallSiteSync
            stack.enter_context(sync(context))
            context._jsc.setCallSite(label.name)  # noqa: SLF001 - in place of a line of ours
        yield


@contextmanager
def _marked_on_connect(
    session: SparkSession, context: Any, label: JobLabel, tags: Iterable[str]
) -> Iterator[None]:
    """Mark the jobs of this thread; the description is the whole session's, and is put back."""
    del context
    for tag in tags:
        with _refused():
            session.addTag(tag)
    before: str | None = None
    with _refused():
        before = session.conf.get(_DESCRIPTION, None)
        session.conf.set(_DESCRIPTION, label.text)
    try:
        yield
    finally:
        with _refused():
            if before is None:
                session.conf.unset(_DESCRIPTION)
            else:
                session.conf.set(_DESCRIPTION, before)


def _cancel(session: SparkSession, context: Any, tag: str) -> None:
    with _refused():
        if context is None:
            session.interruptTag(tag)
        else:
            context.cancelJobsWithTag(tag)
