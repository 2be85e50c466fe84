"""Run short forms of the benchmarks beside the peers, and print one table of ratios.

    python bench/perf.py                      # all rows, ten minutes on two cores
    python bench/perf.py --rounds 9 --only start --only references
    python bench/perf.py --write              # and put the table into docs/performance.md
    python bench/perf.py --write --only start # that row only; the others stay
    python bench/perf.py --only whole         # the rows of whole variables

Each measurement runs in a process of its own, icevirt and the peer in turns, over the same files.
Rows that say "process" measure from the start of the process to its end; the others have imported
what they need before the clock starts. Clock and processor time (of all threads and children) are
medians. "x" is the peer's figure divided by icevirt's: above 1 where icevirt needs less. The last
column is the floor: the least that the work takes by plain h5py, zarr or a plain write.

Nothing fails by time. What must not grow is counted by tests: modules at import, requests, hashed
bytes, Python calls.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perf_inputs import (
    CATALOG_FILES,
    CATALOGED,
    FILES,
    HISTORY,
    LOOKED_UP,
    READS,
    SPLIT,
    VARIABLES,
    make,
)
from perf_work import (
    CLOCK,
    SCANS,
    WHOLE,
    builds,
    first_value,
    from_catalog,
    helped,
    many_variables,
    nothing,
    one_of_each,
    one_of_many,
    over_http,
    plain_files,
    references,
    scans,
    scattered,
    small_commits,
    spark_job,
    whole_variable,
    zarr_alone,
)

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
MARKS = "<!-- made by bench/perf.py -->", "<!-- end of what bench/perf.py makes -->"


@dataclass(frozen=True)
class Row:
    """What is measured: sides by name, each a function of the folder with the inputs."""

    what: str
    sides: dict[str, Callable[[Path], Any]]
    whole: bool = False  # the process from start to end
    make: Callable[[Path], None] = make  # writes the inputs


def _both(work: Callable[..., Callable[[Path], None]], *given: Any) -> dict[str, Any]:
    return {client: work(client, *given) for client in ("icevirt", "icechunk")}


def _reads(work: Callable[..., Callable[[Path], None]], *given: Any) -> dict[str, Any]:
    """Read by icevirt's engine, beside what goes through zarr."""
    return {
        "icevirt": work("engine", *given),
        "icechunk": work("icechunk", *given),
        "icevirt, zarr.open": work("icevirt", *given),
    }


def _variable(what: str, layout: str, **readers: str) -> Row:
    sides = {side: whole_variable(layout, reader) for side, reader in readers.items()}
    return Row(what, sides, make=WHOLE[layout])


_READERS = {each: each for each in ("icevirt", "icechunk", "h5py")}

ROWS = {
    "start": Row(
        "first value of an array, process",
        {**_both(first_value), "floor": zarr_alone},
        whole=True,
    ),
    "help": Row("icevirt --help, process", {"icevirt": helped("--help"), "floor": nothing}, True),
    "info": Row(
        "icevirt info REPO, process",
        {"icevirt": helped("info", "{0}/small"), "floor": nothing},
        True,
    ),
    "references": Row("a million references, 100 a file", _both(references, 1_000_000, 100)),
    "files": Row("a million references, one a file", _both(references, 1_000_000, 1)),
    "few": Row("10,000 references, 100 a file", _both(references, 10_000, 100)),
    "commit": Row(
        f"10 commits behind {HISTORY} snapshots", {**_both(small_commits), "floor": plain_files}
    ),
    "lookup": Row(f"one chunk of {LOOKED_UP:,}", _both(one_of_many)),
    "scattered": Row(f"{READS} chunks of {LOOKED_UP:,}, local file", _reads(scattered)),
    "manifests": Row(f"a chunk of each of {LOOKED_UP // SPLIT} manifests", _reads(one_of_each)),
    "http": Row(f"{READS} scattered chunks over HTTP, 5 ms", _reads(over_http)),
    "http-20": Row(f"{READS} scattered chunks over HTTP, 20 ms", _reads(over_http, 20)),
    "variables": Row(f"{VARIABLES:,} variables in xarray", _both(many_variables)),
    "scan": Row(
        "20 files of 48 chunks scanned", {tool: scans(tool) for tool in SCANS}
    ),
    "build": Row(
        f"build over {FILES} files, process",
        {tool: builds(tool) for tool in ("icevirt", "VirtualiZarr")},
        whole=True,
    ),
    "catalog": Row(
        f"manifests of {CATALOGED:,} references of {CATALOG_FILES:,} files, from their catalog",
        {"icevirt": from_catalog},
    ),
    "spark": Row(
        "first job of a Spark session, process",
        {tool: spark_job(tool) for tool in ("icevirt", "PySpark")},
        whole=True,
    ),
    "whole-small": _variable("variable in chunks of 7 kB, deflate", "small", **_READERS),
    "whole-plain": _variable("variable in chunks of 7 kB, no filter", "plain", **_READERS),
    "whole-large": _variable("variable in chunks of 260 kB, deflate", "large", **_READERS),
    "whole-zarr": _variable(
        "the same of 7 kB, zarr.open(session.store)", "small", icevirt="zarr.open", h5py="h5py"
    ),
    "whole-fused": _variable(
        "the same, FusedCodecPipeline", "small", icevirt="zarr.open, fused", h5py="h5py"
    ),
    "whole-dask": _variable(
        "its mean on dask, blocks of 120 steps", "small",
        icevirt="dask mean, blocks", **{"icevirt without dask": "plain mean"},
    ),
    "whole-dask-columns": _variable(
        "the same, blocks of one chunk of latitudes", "small",
        icevirt="dask mean, columns", **{"icevirt without dask": "plain mean"},
    ),
}  # fmt: skip
GROUPS = {"whole": [name for name in ROWS if name.startswith("whole-")]}

_MEMORY = 1 << 30  # bytes

# -- processes and the table -----------------------------------------------------------------------


def measured(name: str, side: str, folder: Path) -> tuple[float, float]:
    """Run one side of a row in a process of its own; return clock and processor time, seconds."""
    command = [sys.executable, __file__, "--child", name, side, str(folder)]
    take_memory()
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said)
        assert process.stdout is not None
        printed = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        took = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            sys.exit(f"{name}, {side} ended with {process.returncode}\n{said.read().decode()}")
    if ROWS[name].whole:
        return took, usage.ru_utime + usage.ru_stime
    clock, processor = json.loads(printed)
    return clock, processor


def take_memory() -> None:
    """Use as much memory as a row takes, and free it.

    What is free for seconds goes back to the host of a virtual machine. Whoever takes it then waits
    for up to two seconds a gibibyte, and would be measured with that.
    """
    block = mmap.mmap(-1, _MEMORY, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.madvise(mmap.MADV_HUGEPAGE)
    for at in range(0, _MEMORY, mmap.PAGESIZE):
        block[at] = 1
    block.close()


def child(name: str, side: str, folder: Path) -> None:
    """Run one side of a row in this process."""
    row = ROWS[name]
    row.sides[side](folder)
    if not row.whole:
        assert CLOCK.took is not None
        print(json.dumps(CLOCK.took))


def lines_of(name: str, folder: Path, rounds: int) -> list[list[str]]:
    """Measure a row; return the cells of a line for each peer."""
    row = ROWS[name]
    found: dict[str, list[tuple[float, float]]] = {side: [] for side in row.sides}
    for number in range(rounds + 1):
        for side, taken in found.items():
            took = measured(name, side, folder)
            if number:  # the first one fills caches, and compiles modules
                taken.append(took)
    middle = {
        side: tuple(statistics.median(column) for column in zip(*taken, strict=True))
        for side, taken in found.items()
    }
    clock, processor = middle.pop("icevirt")
    floor = middle.pop("floor", None)
    ours = [row.what, shown(clock), shown(processor)]
    least = "" if floor is None else shown(floor[1])
    if not middle:
        return [[*ours, "", "", "", "", "", least]]
    return [
        [
            *(*ours, peer, shown(their_clock), shown(their_processor)),
            *(f"{their_clock / clock:.2f}", f"{their_processor / processor:.2f}", least),
        ]
        for peer, (their_clock, their_processor) in middle.items()
    ]


def shown(seconds: float) -> str:
    """Return a time for people."""
    return f"{1000 * seconds:,.0f} ms" if seconds < 10 else f"{seconds:,.1f} s"


HEAD = [
    *("measured", "icevirt, clock", "processor", "peer", "clock", "processor"),
    *("x clock", "x processor", "floor, processor"),
]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", action="append", choices=[*ROWS, *GROUPS])
    parser.add_argument("--write", action="store_true", help="the rows into docs/performance.md")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(asked.child[0], asked.child[1], Path(asked.child[2]))
        return
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # no start is timed without bytecode
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    with tempfile.TemporaryDirectory(prefix="icevirt-perf-") as root:
        folder = Path(root).resolve()
        rows = [name for each in asked.only or ROWS for name in GROUPS.get(each, [each])]
        for maker in dict.fromkeys(ROWS[name].make for name in rows):
            maker(folder)
        print("\n".join(lines), flush=True)
        for name in rows:
            for cells in lines_of(name, folder, asked.rounds):
                lines.append("| " + " | ".join(cells) + " |")
                print(lines[-1], flush=True)
    if asked.write:
        write(lines)


def write(lines: list[str]) -> None:
    """Put measured rows into the page; those that were not measured stay as they are."""
    before, _, rest = PAGE.read_text().partition(MARKS[0])
    there, _, after = rest.partition(MARKS[1])
    rows = {_key(line): line for line in there.splitlines() if line.startswith("|")}
    rows |= {_key(line): line for line in lines}
    table = "\n".join(rows.values())
    PAGE.write_text(f"{before}{MARKS[0]}\n\n{table}\n\n{MARKS[1]}{after}")


def _key(line: str) -> tuple[str, str]:
    """Return what is measured, and the peer."""
    cells = [each.strip() for each in line.split("|")]
    return cells[1], cells[4]


if __name__ == "__main__":
    main()
