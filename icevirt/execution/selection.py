"""Choose the executor: the caller's choice, the active session, or processes of this machine.

This is the only place that decides. A Spark session that was passed or found is used as it is,
neither configured nor stopped; what is started here ends with the block. Spark is started only
where the caller asks for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Literal, cast

from icevirt.archive.sources import SourceFiles
from icevirt.errors import InvalidInputError
from icevirt.execution.executor import Executor, usable_cores
from icevirt.execution.local_executors import InProcessExecutor, ProcessExecutor
from icevirt.execution.spark_executor import SparkExecutor
from icevirt.execution.spark_session import (
    is_session,
    is_submitted,
    local_session,
    running_session,
    stop,
)
from icevirt.tasks.forkserver import server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

type ExecutorChoice = Executor | SparkSession | Literal["spark", "processes", "in-process"] | None
"""What a caller may pass as executor.

A Spark session; "spark" for the running session or a local one; "processes" for child processes of
this machine; "in-process" for this one; an executor, which the caller closes; None to let icevirt
decide.
"""

LARGE = 1 << 26
"""Bytes of a file that count as another file."""

FILES_OF_PROCESS = 64
"""Fewer files are scanned before another process has imported what it needs."""

_WORDS = ("spark", "processes", "in-process")
_default: ContextVar[ExecutorChoice] = ContextVar("icevirt-executor", default=None)


@contextmanager
def default_executor(choice: ExecutorChoice) -> Iterator[None]:
    """Run what is called in the block, and names no executor itself, on this one."""
    before = _default.set(choice)
    try:
        yield
    finally:
        _default.reset(before)


def work_of(files: SourceFiles) -> int:
    """Return how many usual files would be as much work as these."""
    return len(files) + int((files.sizes // LARGE).sum())


@contextmanager
def executor_of(
    choice: ExecutorChoice = None,
    *,
    work: int | None = None,
    phase: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> Iterator[Executor]:
    """Yield the executor that runs tasks.

    Args:
        choice: What the caller passed.
        work: How many usual files would be as much work; 0 where it is done before a process has
            started, None where it is unknown.
        phase: Enters a phase of the call, by its name, while Spark starts.

    Raises:
        InvalidInputError: ``choice`` is none of the above.
        BuildError: Spark or Java is missing; `SparkJobError` if Spark does not start.
    """
    if choice is None:
        choice = _default.get()
    if isinstance(choice, Executor):
        yield choice
        return
    if is_session(choice):
        yield SparkExecutor(cast("SparkSession", choice))
        return
    if not isinstance(choice, str | None) or choice not in (None, *_WORDS):
        raise InvalidInputError(
            "there is no such executor",
            do=f"Pass {', '.join(map(repr, _WORDS))}, or a Spark session.",
            executor=choice if isinstance(choice, str) else type(choice).__name__,
        )
    made = _make(choice, work, phase)
    try:
        yield made
    finally:
        made.close()


def prepare_for(choice: ExecutorChoice) -> None:
    """Let child processes be prepared where they will probably run tasks.

    What they import takes longer than listing the files, which happens meanwhile.
    """
    word = _default.get() if choice is None else choice
    if word == "processes" or (word is None and not _may_be_running()):
        server()


def suitable(work: int | None, *, has_session: bool) -> str:
    """Return the word of the executor that suits the work, where the caller named none."""
    if work == 0:
        return "in-process"
    return "spark" if has_session else "processes"


def _make(
    word: str | None, work: int | None, phase: Callable[[str], AbstractContextManager[object]]
) -> Executor:
    """Return an executor by its word; None chooses."""
    running = None
    if word == "spark" or (word is None and work != 0 and _may_be_running()):
        running = running_session()
    match word or suitable(work, has_session=running is not None):
        case "in-process":
            return InProcessExecutor()
        case "processes":
            enough = usable_cores() if work is None else 1 + work // FILES_OF_PROCESS
            return ProcessExecutor(min(usable_cores(), enough))
        case _ if running is not None:
            return SparkExecutor(running)
        case _:
            with phase("starting Spark"):
                return SparkExecutor(local_session(), ending=stop)


def _may_be_running() -> bool:
    """Say whether there can be a session, without importing Spark where there cannot."""
    return "pyspark" in sys.modules or is_submitted()
