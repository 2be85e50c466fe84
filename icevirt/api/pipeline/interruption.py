"""End a long call by a signal: jobs are cancelled, what is finished stays and is named."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NoReturn

from icevirt.api.pipeline.events import Clock, telling_failures

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
