"""Run tasks in child processes forked from a server process, as the driver sees them.

All children are forked from one process that has imported what they need; see
`icevirt.execution.forkserver_child`.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import IO, Any

from icevirt.import_path import command, environment

_PATIENCE = 0.5  # seconds
_TAIL = 4000  # bytes of what was said last


class ForkServer:
    """Children that run a task at a time.

    Args:
        count: How many there are.
    """

    def __init__(self, count: int) -> None:
        lines = [multiprocessing.Pipe() for _ in range(count)]
        control: Connection[Any, Any]
        control, theirs = multiprocessing.Pipe()
        self._control = control
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        self._ended: dict[int, int] = {}  # exit codes by the number of the child
        self._lock = threading.Lock()
        given = [theirs, *(line for _, line in lines)]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, a module of ours
                command(
                    "icevirt.execution.forkserver_child", *(str(each.fileno()) for each in given)
                ),
                pass_fds=[each.fileno() for each in given],
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                env=environment(OMP_NUM_THREADS="1"),  # as Spark has it: threads are not forked
            )
        finally:
            for each in given:
                each.close()
        self.children = [Child(self, number, line) for number, (line, _) in enumerate(lines)]

    def exit_code(self, number: int, patience: float | None) -> int | None:
        """Wait for a child to end; None where it does not in ``patience`` seconds."""
        with self._lock:
            try:
                while number not in self._ended:
                    if not self._control.poll(patience):
                        return None
                    one, code = self._control.recv()
                    self._ended[one] = code
            except (EOFError, OSError):  # who forked it is gone
                return self._process.wait()
            return self._ended[number]

    def kill(self, number: int) -> None:
        """Kill a child."""
        with self._lock, suppress(OSError):
            self._control.send(number)

    def said(self) -> str:
        """Return what the processes said last."""
        if self._said.closed:
            return ""
        size = os.fstat(self._said.fileno()).st_size
        last = os.pread(self._said.fileno(), _TAIL, max(0, size - _TAIL))
        return last.decode(errors="replace").strip()

    def close(self) -> None:
        """Wait for the process that forked the children, which have ended."""
        self._control.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._said.close()


class Child:
    """One process of a family."""

    def __init__(self, family: ForkServer, number: int, line: Connection[Any, Any]) -> None:
        self.family, self._number, self._line = family, number, line

    def ask(self, function: Callable[[Any], Any], payload: bytes) -> tuple[bool | None, bytes]:
        """Run a task; (None, a traceback) where it raised what no task should."""
        self._line.send((function, payload))
        found: tuple[bool | None, bytes] = self._line.recv()
        return found

    def end(self) -> str:
        """End it, and return how it ended and what was said last."""
        self._line.close()  # an idle one leaves then
        code = self.family.exit_code(self._number, _PATIENCE)
        if code is None:
            self.family.kill(self._number)
            code = self.family.exit_code(self._number, None)
        assert code is not None, "no child is being waited for"
        how = signal.strsignal(-code) if code < 0 else f"exit code {code}"
        return f"a process ended with {how}: {self.family.said()}"
