"""Run as a child of `icevirt.execution.forkserver`: the fork server, or a task process.

The server imports what tasks need before it forks, so no child imports it again and all share its
memory. It runs no task itself: it reports to the driver how children ended, and kills them on
request, since only the parent knows that a process id still belongs to its child.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

from icevirt.execution.executor import run_pickled
from icevirt.execution.preload import prepare
from icevirt.tasks.limit_enforcement import become_worker


def main(*descriptors: str) -> None:
    """Fork a child for each line to the driver, and look after them until the last has ended.

    Args:
        descriptors: Of the line on which children are spoken about, and of those to each of them.
    """
    control, *lines = map(int, descriptors)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's, who ends its children
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    prepare()
    pids: list[int] = []
    lives: dict[int, int] = {}  # what is at its end when a child is -> its number
    for number, line in enumerate(lines):
        life, held = os.pipe()
        pid = os.fork()
        if not pid:
            for other in (control, life, *lives, *lines[number + 1 :]):
                os.close(other)
            _serve(line)
        os.close(held)
        os.close(line)
        pids.append(pid)
        lives[life] = number
    try:
        _look_after(Connection(control), pids, lives)
    except (EOFError, OSError):  # the driver is gone, and nobody waits for what they do
        for number in lives.values():
            os.kill(pids[number], signal.SIGKILL)


def _look_after(driver: Connection[Any, Any], pids: list[int], lives: dict[int, int]) -> None:
    while lives:
        for ready in wait([driver, *lives]):
            if not isinstance(ready, int):
                number = driver.recv()
                if number in lives.values():
                    os.kill(pids[number], signal.SIGKILL)
                continue
            number = lives.pop(ready)
            os.close(ready)
            _, status = os.waitpid(pids[number], 0)
            driver.send((number, os.waitstatus_to_exitcode(status)))


def _serve(fileno: int) -> NoReturn:
    """Run one task after the other until nobody sends more."""
    become_worker()
    code = 1
    try:
        line: Connection[Any, Any] = Connection(fileno)
        with suppress(EOFError, BrokenPipeError, ConnectionResetError):
            while True:
                function, payload = line.recv()
                try:
                    line.send(run_pickled(function, payload))
                except Exception:  # noqa: BLE001  # the parent tries again, as Spark would
                    line.send((None, traceback.format_exc().encode()))
        code = 0
    except BaseException:  # noqa: BLE001  # nothing of the process that forked it may run here
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
