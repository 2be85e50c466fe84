"""Record a build that is killed and run again: ``python docs/site/recording.py [FILES]``.

It writes an archive of small files, kills the build with SIGKILL in the scan and once more in the
write, runs it a third time, and puts what the program printed into ``docs/scale.md``.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import netCDF4
import numpy as np

DOCS = Path(__file__).parents[1]
PAGE = DOCS / "scale.md"
STEPS, VARIABLES = 24, 4
_LEFT_OUT = (
    "repo|build_id|level|logger|message|branch|group|per_second|references_per_second|seconds_left"
    "|bytes|files|bytes_referenced|bytes_stored|manifest_bytes"
)


def main() -> int:
    """Make the recording and write it into the page."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/archive")
        for day in range(count):
            _write(f"{folder}/archive/day_{day:04}.nc", day)
        command = [f"{Path(sys.executable).parent}/icevirt", "--progress", "json"]
        command += ["build", "archive/*.nc", "repo"]
        lines = ["$ icevirt --progress json build 'archive/*.nc' repo"]
        lines += [*_killed(command, folder, "scan", count // 2), "Killed", ""]
        lines += [lines[0], *_killed(command, folder, "write", 0), "Killed", ""]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        lines += [lines[0], *_shown(done.stderr.splitlines())]
        report = done.stdout.split("\n\n")[0].replace(f"file://{folder}", "file:///data")
        lines += report.splitlines()
    text = PAGE.read_text()
    block = "```text\n" + "\n".join(line.rstrip() for line in lines) + "\n```"
    text = re.sub(r"```text\n(?:.*?\n)?```", lambda _: block, text, count=1, flags=re.DOTALL)
    PAGE.write_text(text)
    return 0


def _write(path: str, day: int) -> None:
    with netCDF4.Dataset(path, "w") as file:
        for name, size in (("time", None), ("lat", 20), ("lon", 40)):
            file.createDimension(name, size)
        time_ = file.createVariable("time", "i4", ("time",))
        time_.units = "hours since 2001-01-01"
        time_[:] = np.arange(STEPS) + day * STEPS
        for number in range(VARIABLES):
            values = file.createVariable(
                f"v{number}", "f4", ("time", "lat", "lon"), zlib=True, chunksizes=(1, 20, 40)
            )
            values[:] = np.full((STEPS, 20, 40), day + number)


def _killed(command: list[str], folder: str, phase: str, done: int) -> list[str]:
    """Run a command and kill it when a phase has come so far; return what it said."""
    said: list[str] = []
    with subprocess.Popen(
        command, cwd=folder, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr
        began = time.monotonic()
        for line in process.stderr:
            said.append(line)
            found = re.search(r'"event": "progress", "phase": "(\w+)", "done": (\d+)', line)
            if found and found[1] == phase and int(found[2]) >= done:
                break
            if time.monotonic() - began > 300:
                raise TimeoutError(phase)
        os.killpg(process.pid, signal.SIGKILL)
    return _shown(said)


def _shown(said: list[str]) -> list[str]:
    """Return the events that tell the story, without their times and long URLs."""
    return [
        re.sub(rf', "({_LEFT_OUT})": [^,}}]*|"time": [^,]*, ', "", line).strip()
        for line in said
        if re.search(r'"event": "(progress", .*"done"|resumed"|committed")', line)
    ]


if __name__ == "__main__":
    sys.exit(main())
