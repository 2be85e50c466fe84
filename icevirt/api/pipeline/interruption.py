"""End a build or scan by a signal: jobs are cancelled, what is finished stays and is named."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

_EXIT = 128  # of shells, to which the number of a signal is added


class _Terminated(SystemExit):
    """SIGTERM came."""


@contextmanager
def ending_by_signal() -> Iterator[None]:
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
