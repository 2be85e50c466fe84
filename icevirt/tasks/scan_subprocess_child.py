"""Run as the child of `icevirt.tasks.scan_subprocess`: scan or compare files.

Its memory is limited, and an alarm ends it when a file takes too long, even when its parent is gone
and the library never returns to Python.
"""

from __future__ import annotations

import resource
import signal
from contextlib import suppress
from multiprocessing.connection import Connection

from icevirt.scan.registry import scanners
from icevirt.tasks.limits import limited_memory

_GRACE = 5.0  # seconds in which the parent's deadline comes first


def main(fileno: str, memory: str, seconds: str) -> None:
    """Serve the parent at the other end of ``fileno``."""
    line = Connection(int(fileno))
    deadline = float(seconds) + _GRACE
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, who ends its child
    scanners()  # what they import is not counted
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    line.send(True)
    with limited_memory(int(memory)), suppress(EOFError, BrokenPipeError):
        while True:
            work, args, kwargs = line.recv()
            signal.setitimer(signal.ITIMER_REAL, deadline)
            found = work(*args, **kwargs)
            signal.setitimer(signal.ITIMER_REAL, 0)
            line.send(found)
