"""A driver in a session of its own, and that session's processes as /proc shows them."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """One process of a session."""

    pid: int
    parent: int
    command: str

    @property
    def descriptors(self):
        """How many files it has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    @property
    def resident(self):
        """Bytes of memory that it holds."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf(
            "SC_PAGE_SIZE"
        )


def processes_of(session):
    """Return the processes of a session that are alive."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            # behind the name, which may hold anything: state, parent, group, session
            facts = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            command = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue  # it ended meanwhile
        if int(facts[3]) == session and facts[0] != "Z":
            found.append(Process(int(entry), int(facts[1]), command))
    return found


def python_of(session):
    """Return its processes that run Python: the driver, workers, children of workers."""
    return [each for each in processes_of(session) if "java" not in each.command.split(" ")[0]]


def workers_of(session):
    """Return Spark's Python workers: children of our daemon, which itself is a child of the JVM."""
    daemons = [
        each
        for each in processes_of(session)
        if " -m icevirt.execution.spark_daemon " in each.command
    ]
    pids = {each.pid for each in daemons}
    return [each for each in daemons if each.parent in pids]


class Driver:
    """A program that starts Spark, in a session of its own.

    ``site`` is a directory that it and its workers import from, besides the usual ones.
    """

    def __init__(self, program, *arguments, site=None, **environment):
        path = os.pathsep.join(filter(None, [site and str(site), os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": path, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.pid = self._process.pid

    @property
    def lives(self):
        """Whether it runs yet."""
        return self._process.poll() is None

    def processes(self):
        """Return what is alive of its session."""
        return processes_of(self.pid)

    def workers(self):
        """Return its workers' process ids."""
        return [each.pid for each in workers_of(self.pid)]

    def executors(self):
        """Return the process ids of executors that have a JVM of their own."""
        java = [each for each in self.processes() if is_java(each)]
        return [each.pid for each in java if "CoarseGrainedExecutorBackend" in each.command]

    def wait(self):
        """Wait until it is gone; Spark may not be yet."""
        self._process.wait()

    def end(self, seconds=300):
        """Wait for it, and for Spark to follow it; return its status and words."""
        try:
            _, words = self._process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            kill(each.pid for each in self.processes())
            raise
        patience = time.monotonic() + 60
        while left := self.processes():
            assert time.monotonic() < patience, left
            time.sleep(0.05)
        return self._process.returncode, words


def is_java(process):
    """Say whether a process is a JVM."""
    return "java" in Path(process.command.split(" ")[0]).name


def kill(pids):
    """Kill processes, of which some may be gone already."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
