"""Log what happens in a call to the logger ``icevirt``, time its phases, and end it by a signal.

A record's message is a line for people; its ``event`` is a stable word, and its ``fields`` are for
programs. Only the driver makes records, and none shows a secret.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict
from typing import Any, NoReturn

from icevirt.archive.reports.build import BadFile, BuildReport, Progress
from icevirt.errors import IcevirtError
from icevirt.redaction import redact

LOG = logging.getLogger("icevirt")
LOG.addHandler(logging.NullHandler())  # silent without a handler of the application
_INTERVAL = 10.0  # seconds between two records of a phase in the log
_FIXES = "fixes"  # a field that lines for people do not repeat: the error says it
_NAMED = 100  # bad files, a record each


def tell(event: str, level: int = logging.INFO, /, **fields: Any) -> None:
    """Log an event.

    Args:
        event: Its name, for programs.
        level: Of `logging`.
        fields: Values that JSON knows; secrets in texts are cut out.
    """
    if not LOG.isEnabledFor(level):
        return
    shown = redact(fields)
    text = ", ".join(f"{name}={value}" for name, value in shown.items() if name != _FIXES)
    extra = {"event": event, "fields": shown}
    LOG.log(level, "%s", f"{event}: {text}" if text else event, extra=extra)


def tell_bad_files(bad: Sequence[BadFile]) -> None:
    """Log files that were left out: the first hundred by name, then how many there are."""
    for file in bad[:_NAMED]:
        tell("file-left-out", logging.WARNING, url=file.url, code=file.code, error=file.error)
    if bad:
        tell("files-left-out", logging.WARNING, files=len(bad))


def tell_committed(report: BuildReport) -> None:
    """Log what a build committed, or that it was committed before."""
    tell(
        "already-built" if report.already_built else "committed",
        repo=report.repo,
        branch=report.branch,
        group=report.group,
        snapshot_id=report.snapshot_id,
        build_id=report.build_id,
        files_scanned=report.files_scanned,
        files_reused=report.files_reused,
        bad_files=len(report.bad_files),
        references=report.references.total,
        bytes_referenced=report.references.bytes_referenced,
        bytes_stored=report.references.bytes_stored,
        manifests=report.manifests,
        manifest_bytes=report.manifest_bytes,
    )


@contextmanager
def telling_failures(what: str, clock: Clock) -> Iterator[None]:
    """Log the error that ends the block; where a signal ends it, what is kept."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        kept = {"kept": clock.kept, "do": "run the same again to continue"} if clock.kept else {}
        tell(f"{what}-interrupted", logging.WARNING, **kept)
        raise
    except IcevirtError as error:
        fixes = {_FIXES: [asdict(each) for each in error.fixes]} if error.fixes else {}
        tell(f"{what}-failed", logging.ERROR, code=error.code, error=str(error), **fixes)
        raise
    except BaseException as error:
        tell(f"{what}-failed", logging.ERROR, code=type(error).__name__, error=str(error))
        raise


def telling_tasks(
    progress: Callable[[Progress], None] | None, phase: str, total: int
) -> Callable[[int], None] | None:
    """Return what an executor calls with the number of tasks of a phase that are done."""
    if progress is None:
        return None
    begin = time.perf_counter()

    def tell_done(done: int) -> None:
        seconds = time.perf_counter() - begin
        progress(Progress(phase=phase, done=done, total=total, seconds=seconds))

    return tell_done


class Clock:
    """Seconds by phase, in the order in which phases began.

    ``progress`` and the log get each phase, and of the steps that stages give to `step`.
    """

    def __init__(self, progress: Callable[[Progress], None] | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self.kept = ""  # URL of what is finished and found by the next run, once there may be any
        self._progress = progress
        self._last: Progress | None = None  # step of the phase that runs
        self._inside = 0.0  # seconds of the phases within the one that runs
        self._logged = 0.0

    @property
    def step(self) -> Callable[[Progress], None] | None:
        """What takes the steps of stages; None without listeners, as looking costs a listing."""
        is_heard = self._progress is not None or LOG.isEnabledFor(logging.INFO)
        return self._step if is_heard else None

    def _step(self, step: Progress) -> None:
        """Take a step. Called from any thread."""
        if self._last is None and step.found:
            tell("resumed", phase=step.phase, found=step.found, total=step.total, unit=step.unit)
        self._last = step
        if self._progress is not None:
            self._progress(step)
        now = time.monotonic()
        if now - self._logged >= _INTERVAL:
            self._logged = now
            tell("progress", phase=step.phase, **step.amounts)

    def _done(self) -> dict[str, Any]:
        return {} if self._last is None else self._last.amounts

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the block to a phase, less that of phases in the block."""
        begin, before, self._inside = time.perf_counter(), self._inside, 0.0
        self.seconds.setdefault(name, 0.0)
        self._last, self._logged = None, time.monotonic()
        if self._progress is not None:
            self._progress(Progress(phase=name, done=0, total=0))
        tell("phase-begun", phase=name)
        try:
            yield
        finally:
            whole = time.perf_counter() - begin
            took, self._inside = whole - self._inside, before + whole
            self.seconds[name] = round(self.seconds[name] + took, 4)
            tell("phase-ended", **({"phase": name} | self._done() | {"seconds": round(took, 3)}))


_EXIT = 128  # of shells, to which the number of a signal is added


_running: ContextVar[bool] = ContextVar("icevirt-running", default=False)


class _Terminated(SystemExit):
    """SIGTERM came."""


@contextmanager
def long_running(what: str, clock: Clock) -> Iterator[None]:
    """Run a call that may take hours: SIGTERM ends it in order, and what ends it is logged.

    A call that another one makes, as a build verifies, is a part of that one.

    Args:
        what: The word that events begin with: ``build-interrupted``, ``build-failed``.
        clock: Of the call; it knows what is kept.
    """
    if _running.get():
        yield
        return
    token = _running.set(True)
    try:
        with _ending_by_signal(), telling_failures(what, clock):
            yield
    finally:
        _running.reset(token)


@contextmanager
def _ending_by_signal() -> Iterator[None]:
    """Let SIGTERM end the block in order, and then this process as it would have.

    Nothing changes where the application handles the signal itself, or in another thread.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _stop)
    try:
        yield
    except _Terminated:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
        raise  # the first process of a container, which the kernel spares: it exits with 143
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _stop(number: int, _frame: object) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)  # a second one ends the process at once
    raise _Terminated(_EXIT + number)
