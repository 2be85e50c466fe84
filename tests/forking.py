"""Programs that are forked from a process with their imports, which each would take a second for."""

import json
import os
import select
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

PARENT = """
import gc, json, os, sys, time
exec(sys.argv[1])
gc.freeze()  # else each fork copies all that was imported, to collect it at its end
for line in sys.stdin:
    task = json.loads(line)
    if not (pid := os.fork()):
        break
    print(pid, flush=True)
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    status = ended.si_status * (1 if ended.si_code == os.CLD_EXITED else -1)
    print(json.dumps([status, time.monotonic()]), flush=True)
    sys.stdin.readline()  # until then /proc tells about it
    os.waitpid(pid, 0)
else:
    sys.exit()
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
for number, path in enumerate(task["output"], start=1):
    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
sys.argv[1:] = task["arguments"]
os.chdir(task["cwd"])
exec(task["program"])
"""  # whose forks end as programs do: behind their last line, or by an exception


class Parent:
    """A process that imports once, and forks one program after the other."""

    def __init__(self, imports: str, folder: Path) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PARENT, imports],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # its threads would be lost
            text=True,
            bufsize=1,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate(timeout=100)

    def fork(self, program: str, *arguments: object, cwd: Path | None = None) -> "Fork":
        """Begin a program, which has to end before the next one begins."""
        output = [self._folder / name for name in ("stdout", "stderr")]
        for path in output:
            path.write_bytes(b"")
        task = {
            "program": program,
            "arguments": [*map(str, arguments)],
            "output": [*map(str, output)],
            "cwd": str(cwd or Path.cwd()),
        }
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(task) + "\n")
        return Fork(int(self._process.stdout.readline()), self._process, output)


@dataclass
class Fork:
    """A program that its parent waits for."""

    pid: int
    parent: "subprocess.Popen[str]"
    output: list[Path]
    returncode: int | None = None
    ended: float = 0.0
    """When, by the monotonic clock."""
    is_over: bool = False

    def poll(self, seconds: float = 0) -> int | None:
        """Return the status if the program ends within this time."""
        assert self.parent.stdout
        if self.returncode is None and select.select([self.parent.stdout], [], [], seconds)[0]:
            self.returncode, self.ended = json.loads(self.parent.stdout.readline())
        return self.returncode

    def communicate(self, timeout: float = 100) -> tuple[str, str]:
        """Return what the program wrote, and let the next begin; kill it if it does not end."""
        if self.poll(timeout) is None:
            self.kill()
        if not self.is_over:
            self.is_over = True
            assert self.parent.stdin
            self.parent.stdin.write("\n")
        out, error = (path.read_text() for path in self.output)
        return out, error

    def send_signal(self, number: int) -> None:
        """Send a signal, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it, if it runs."""
        self.send_signal(signal.SIGKILL)
        self.poll(100)
