"""From the start of a process to its first answer, the same program under icechunk and icevirt.

    python bench/start.py                    # 7 rounds
    python bench/start.py --rounds 21

`first value`: import, open a repository on local disk, read one value of an array with zarr.
`1,000 variables`: the same, and open a group of a thousand variables with xarray. `--help` and
`info`: the commands of icevirt, which icechunk has none of; beside them stands a process that
imports numpy and nothing else. Bytecode is there: each program runs once before it counts.

Figures are medians over processes that take turns: milliseconds from start to end by the clock, and
of processor time of all threads. `x` is icechunk's figure divided by icevirt's: above 1 where
icevirt needs less.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

VARIABLES = 1_000
HEAD = "{:<16} {:<8} {:>10} {:>10} {:>7}"

OPENED = {
    "icechunk": """
import icechunk
repo = icechunk.Repository.open(icechunk.local_filesystem_storage({root!r}))
""",
    "icevirt": """
import icevirt
repo = icevirt.Repository.open(icevirt.local_filesystem_storage({root!r}))
""",
}
VALUE = """
import zarr
store = repo.readonly_session("main").store
assert zarr.open_array(store, path="variable_0005", mode="r")[5] == 5
"""
DATASET = """
import xarray as xr
store = repo.readonly_session("main").store
assert len(xr.open_zarr(store, consolidated=False, chunks=None)) == {variables}
"""
COMMAND = """
import sys
sys.argv = ["icevirt", *{arguments!r}]
from icevirt.cli.main import run
run()
"""


def make(root: str, variables: int) -> None:
    """Make a repository of small arrays along one dimension."""
    import numpy as np
    import zarr

    import icevirt

    session = icevirt.Repository.create(root).writable_session("main")
    for number in range(variables):
        array = zarr.create_array(
            session.store,
            name=f"variable_{number:04d}",
            shape=(10,),
            chunks=(10,),
            dtype="i4",
            dimension_names=("x",),
        )
        if number < 10:
            array[:] = np.arange(10)
    session.commit("variables")


def programs(small: str, large: str) -> dict[str, dict[str, str]]:
    """Return the programs by row of the table and client."""
    dataset = DATASET.format(variables=VARIABLES)
    return {
        "first value": {who: text.format(root=small) + VALUE for who, text in OPENED.items()},
        "1,000 variables": {who: text.format(root=large) + dataset for who, text in OPENED.items()},
        "--help": {
            "icechunk": "import numpy",
            "icevirt": COMMAND.format(arguments=["--help"]),
        },
        "info": {
            "icechunk": "import numpy",
            "icevirt": COMMAND.format(arguments=["info", small]),
        },
    }


def run(program: str) -> tuple[float, float]:
    """Run a program in a process of its own; return milliseconds of clock and processor."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return 1000 * took, 1000 * cpu


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    print(HEAD.format("program", "median", "icechunk", "icevirt", "x"))
    with tempfile.TemporaryDirectory() as folder:
        small, large = str(Path(folder) / "small"), str(Path(folder) / "large")
        make(small, 10)
        make(large, VARIABLES)
        for name, both in programs(small, large).items():
            runs: dict[str, list[tuple[float, float]]] = {who: [] for who in both}
            for program in both.values():
                run(program)
            for turn in range(given.rounds):
                for who in sorted(both, reverse=bool(turn % 2)):
                    runs[who].append(run(both[who]))
            for column, label in enumerate(("clock ms", "cpu ms")):
                theirs, ours = (
                    statistics.median(each[column] for each in runs[who]) for who in sorted(both)
                )
                figures = f"{theirs:.0f}", f"{ours:.0f}", f"{theirs / ours:.2f}"
                print(HEAD.format(name, label, *figures), flush=True)


if __name__ == "__main__":
    main()
