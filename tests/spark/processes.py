"""The processes of a session, as /proc shows them: a driver, its JVM, Spark's workers."""

import os
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
    """Return Spark's Python workers: children of its daemon, which itself is a child of the JVM."""
    daemons = [each for each in processes_of(session) if "pyspark.daemon" in each.command]
    pids = {each.pid for each in daemons}
    return [each for each in daemons if each.parent in pids]
