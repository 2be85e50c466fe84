"""Enforce the limits of a file in a Spark worker.

A worker that hangs in a library is ended, so that Spark retries its task. The clock runs outside of
Python, which a library that never returns blocks. A worker that wants too much memory gets a
MemoryError. Limits apply to workers only: a process of the user's own that runs a stage is never
ended. A system alarm does it, with a handler outside Python: a thread per file, which the clock of
`faulthandler` needs, would cost as much as a small file. Memory is limited on Linux only, where a
process can see how much it has.
"""

from __future__ import annotations

import faulthandler
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from icevirt.archive.shares import ScanLimits

_STATM = Path("/proc/self/statm")
_STDERR = 2
_AT_ONCE = 1e-6  # seconds; 0 would mean never
_IS_WORKER = [False]


@contextmanager
def held_to(limits: ScanLimits) -> Iterator[None]:
    """Run the block within the limits, in a Spark worker; too much time ends the process."""
    if not in_worker():
        yield
        return
    with _alarm_after(limits.seconds), limited_memory(limits.memory):
        yield


@contextmanager
def _alarm_after(seconds: float) -> Iterator[None]:
    """End this process, with its traceback, where the block takes longer.

    Spark uses a worker again for other functions of its user, who may have an alarm of their own:
    its handler and what is left of its time are put back.
    """
    handler = signal.getsignal(signal.SIGALRM)
    is_main = threading.current_thread() is threading.main_thread()
    may_replace = is_main and handler is not None  # else it is as it is by default, or of C
    if may_replace:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    faulthandler.register(signal.SIGALRM, file=_STDERR, chain=True)
    begin = time.monotonic()
    left, again = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.unregister(signal.SIGALRM)
        if may_replace:
            signal.signal(signal.SIGALRM, handler)
        if left:  # one that is due rings now, in its own handler
            took = time.monotonic() - begin
            signal.setitimer(signal.ITIMER_REAL, max(left - took, _AT_ONCE), again)


def become_worker() -> None:
    """Note that this process runs tasks and nothing else."""
    _IS_WORKER[0] = True


def in_worker() -> bool:
    """Say whether this process runs tasks for Spark or for another driver."""
    module = sys.modules.get("pyspark.taskcontext")
    return _IS_WORKER[0] or (module is not None and module.TaskContext.get() is not None)


@contextmanager
def limited_memory(memory: int) -> Iterator[None]:
    """Let this process take no more than ``memory`` bytes beside what it has, in the block."""
    if not _STATM.exists():
        yield
        return
    held = int(_STATM.read_bytes().split(maxsplit=1)[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    known = (each for each in (soft, hard) if each != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_AS, (min([held + memory, *known]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
