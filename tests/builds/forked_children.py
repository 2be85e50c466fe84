"""Children of `icevirt.tasks.scan_subprocess` that are forked from a process with all imports made.

A child that imports anew takes half a second, and each comparison of values has one of its own.
What starts children, limits them and notices how they end is tested by `tasks/test_containment.py`,
with children as users have them.
"""

import multiprocessing
import os
import subprocess
from multiprocessing.connection import Connection

from icevirt.tasks.scan_subprocess_child import main

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["builds.forked_children", "icevirt.tasks.verify_values", "icevirt_scanners.hdf5.scanner"]
)


class Forked:
    """What the parent uses of `subprocess.Popen`."""

    def __init__(self, line: Connection, memory: int, seconds: float) -> None:
        self._process = _FORKS.Process(
            target=_serve, args=(line, memory, seconds, dict(os.environ), os.getcwd()), daemon=True
        )
        self._process.start()

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("a forked child", timeout or 0.0)
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()


def _serve(line: Connection, memory: int, seconds: float, env: dict[str, str], cwd: str) -> None:
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    with open(os.devnull, "r+b") as nothing:
        for stream in (0, 1):
            os.dup2(nothing.fileno(), stream)
    main(str(os.dup(line.fileno())), str(memory), str(seconds))


def fork_children(monkeypatch) -> None:
    """Fork the children of this process's scans and comparisons."""
    from icevirt.tasks import scan_subprocess

    def start(self):
        ours, theirs = multiprocessing.Pipe()
        with theirs:
            self._child = Forked(theirs, self._limits.memory, self._limits.seconds)
        return ours

    monkeypatch.setattr(scan_subprocess.Apart, "_start", start)
