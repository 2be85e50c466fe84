"""Time to the first job of a new Spark session, without and with an archive of its classes.

    python bench/spark_start.py                                   # five rounds, in turns
    JAVA_HOME=/usr/lib/jvm/temurin-25 python bench/spark_start.py --rounds 9

Runs `icevirt spark-classes` first, in a cache of its own. Each round starts both kinds of session,
each in a process of its own, and runs a job. Processor time is that of Python, the JVM and their
children.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SESSION = """
import json, resource, time
begin = time.perf_counter()
from icevirt.execution.selection import executor_of
from icevirt.execution.spark_session import forget_jvm

with executor_of("spark") as executor:
    started = time.perf_counter() - begin
    executor.run(str, [1, 2])
    worked = time.perf_counter() - begin
    jvm = executor.session.sparkContext._gateway.proc.pid
    status = open(f"/proc/{jvm}/status").read()
    peak = int(status.partition("VmHWM:")[2].split()[0]) >> 10
forget_jvm()
spent = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print(json.dumps([started, worked, sum(each.ru_utime + each.ru_stime for each in spent), peak]))
"""
SHOWN = ("session", "first job", "processor", "MiB of the JVM")


def run(*words: str, cache: Path) -> str:
    """Run Python with a cache of its own; return what it prints."""
    env = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    command = [sys.executable, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout


def main() -> None:
    """Make the archive, start sessions in turns, and print medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="icevirt-bench-") as folder:
        without, with_archive = Path(folder) / "without", Path(folder) / "with"
        begin = time.perf_counter()
        made = json.loads(
            run("-m", "icevirt", "spark-classes", "--output", "json", cache=with_archive)
        )["archive"]
        print(
            f"Java {made['java_version']}, {made['size'] >> 20} MiB,"
            f" made in {time.perf_counter() - begin:.0f} s"
        )
        found: dict[Path, list[list[float]]] = {without: [], with_archive: []}
        for each in [without, with_archive] * rounds:
            found[each].append(json.loads(run("-c", SESSION, cache=each)))
    for cache, rows in found.items():
        medians = map(statistics.median, zip(*rows, strict=True))
        shown = ", ".join(f"{name} {value:.1f}" for name, value in zip(SHOWN, medians, strict=True))
        print(f"{cache.name:8} {shown}")


if __name__ == "__main__":
    main()
