"""Commits virtual references and looks them up, the same program under icechunk and icevirt.

    python bench/commit_refs.py                    # 10k, 100k, 1M; 1, 10, 100 references per file
    python bench/commit_refs.py --large --rounds 5 # 5M as well
    python bench/commit_refs.py --table            # what writing takes, as one table of ratios

Each round runs in two processes of its own, in turns. The first opens an empty repository on local
disk, creates one array, sets N references by `set_virtual_refs_arr` and commits them; the second
opens what was committed and asks for two chunks, one after the other (`store.exists`, which looks
into the manifest and nowhere else). Lists and arrays of references are made before the clock
starts. All settings are the defaults.
icevirt waits until the disk has what it wrote: that is in `write s` and not in `write cpu s`.

Figures are medians: seconds of wall clock, seconds of processor time of all threads (which other
work on the machine leaves alone), MiB of memory above what was held before. `x` is icechunk's
figure divided by icevirt's: above 1 where icevirt needs less.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PREFIX = "s3://noaa-goes16/"
PER_FILE = (1, 10, 100)
ROWS = (10_000, 100_000, 1_000_000)
LARGE = 5_000_000
HEAD = "{:>9} {:>8}  {:<14} {:>10} {:>10} {:>7}"
CASES = ((1_000_000, 100), (1_000_000, 1), (10_000, 100))  # of the table
TABLE = ("write", "write_cpu", "write_peak")
FIGURES = {  # name in what a process prints: (label, digits)
    "write": ("write s", 3),
    "write_cpu": ("write cpu s", 3),
    "write_peak": ("write MiB", 0),
    "manifests": ("manifests MB", 3),
    "open": ("open ms", 2),
    "first": ("1st lookup ms", 2),
    "first_cpu": ("1st cpu ms", 2),
    "second": ("2nd lookup ms", 3),
    "lookup_peak": ("lookup MiB", 0),
}


# -- the program -----------------------------------------------------------------------------


def references(rows: int, per_file: int) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return locations, offsets and lengths as a scanner would find them."""
    names = [
        f"{PREFIX}ABI-L2-MCMIPF/2020/{n // 24 % 366:03d}/{n % 24:02d}/"
        f"OR_ABI-L2-MCMIPF-M6_G16_s2020{n * 7919 % 10**10:010d}.nc"
        for n in range(-(-rows // per_file))
    ]
    lengths = np.random.default_rng(7).integers(20_000, 60_000, rows).astype(np.uint64)
    ends = np.cumsum(lengths)
    starts = np.repeat((ends - lengths)[::per_file], per_file)[:rows]
    offsets = (ends - lengths - starts + 4096).astype(np.uint64)
    return [names[row // per_file] for row in range(rows)], offsets, lengths


def write(repo: Any, rows: int, per_file: int) -> dict[str, float]:
    """Set and commit the references."""
    import zarr

    locations, offsets, lengths = references(rows, per_file)
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="x", shape=(rows,), chunks=(1,), dtype="i4")

    def work() -> None:
        session.store.set_virtual_refs_arr("x", (rows,), locations, offsets, lengths)
        session.commit("all")

    return measured("write", work)


def look_up(opened: Callable[[], Any], rows: int) -> dict[str, float]:
    """Open cold and look for two chunks."""
    figures: dict[str, float] = {}
    stores: list[Any] = []

    def find(row: int) -> Callable[[], None]:
        def work() -> None:
            if not asyncio.run(stores[0].exists(f"x/c/{row}")):
                raise SystemExit(f"chunk {row} is not there")

        return work

    figures |= measured("open", lambda: stores.append(opened()))
    held = resident()
    figures |= measured("first", find(rows // 2))
    figures["lookup_peak"] = memory("VmHWM") - held
    figures |= measured("second", find(rows // 3))
    return {name: at if "peak" in name else 1000 * at for name, at in figures.items()}


def with_icechunk(step: str, root: Path, rows: int, per_file: int) -> dict[str, float]:
    """Run a step of the program under the official client."""
    import icechunk

    icechunk.set_logs_filter("error")
    storage = icechunk.local_filesystem_storage(str(root))
    if step == "look_up":
        return look_up(
            lambda: icechunk.Repository.open(storage).readonly_session("main").store, rows
        )
    config = icechunk.RepositoryConfig.default()
    store = icechunk.s3_store(region="us-east-1")
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(PREFIX, store))
    return write(icechunk.Repository.create(storage, config), rows, per_file)


def with_icevirt(step: str, root: Path, rows: int, per_file: int) -> dict[str, float]:
    """Run a step of the program under icevirt."""
    import icevirt
    from icevirt import ObjectStoreConfig, RepositoryConfig, VirtualChunkContainer
    from icevirt.access.store import zarr_store as _  # noqa: F401 - imports are not what is measured

    repository = icevirt.Repository
    storage = icevirt.local_filesystem_storage(str(root))
    if step == "look_up":
        return look_up(lambda: repository.open(storage).readonly_session("main").store, rows)
    config = RepositoryConfig.default()
    store = ObjectStoreConfig("s3", {"region": "us-east-1"})
    config.set_virtual_chunk_container(VirtualChunkContainer(PREFIX, store))
    return write(repository.create(storage, config), rows, per_file)


# -- measuring -------------------------------------------------------------------------------


def measured(name: str, work: Callable[[], None]) -> dict[str, float]:
    """Run and return wall clock, processor time and memory."""
    held = resident()
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return {
        name: time.perf_counter() - wall,
        f"{name}_cpu": time.process_time() - cpu,
        f"{name}_peak": memory("VmHWM") - held,
    }


def resident() -> float:
    """Let the peak begin anew, and return what is held now."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def memory(name: str) -> float:
    """Return a size of this process in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


RUN = {"icechunk": with_icechunk, "icevirt": with_icevirt}


def child(who: str, step: str, root: str, rows: int, per_file: int) -> dict[str, float]:
    """Run a step in a process of its own."""
    command = [sys.executable, __file__, "--child", who, step, root, str(rows), str(per_file)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def one_round(who: str, rows: int, per_file: int, *, look_up: bool = True) -> dict[str, float]:
    """Commit, then look up."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "repo"
        figures = child(who, "write", str(root), rows, per_file)
        if look_up:
            figures |= child(who, "look_up", str(root), rows, per_file)
        sizes = [path.stat().st_size for path in (root / "manifests").iterdir()]
        return {**figures, "manifests": sum(sizes) / 1e6}


def medians(
    rows: int, per_file: int, rounds: int, *, look_up: bool = True
) -> dict[str, dict[str, float]]:
    """Return the figures of both, who take turns."""
    runs: dict[str, list[dict[str, float]]] = {who: [] for who in RUN}
    for turn in range(rounds):
        for who in sorted(RUN, reverse=bool(turn % 2)):
            runs[who].append(one_round(who, rows, per_file, look_up=look_up))
    return {
        who: {name: statistics.median(run[name] for run in each) for name in each[0]}
        for who, each in runs.items()
    }


def print_table(rounds: int) -> None:
    """Print what writing takes, a row for each case: icechunk, icevirt, and how often less."""
    print("| references | per file | seconds | | processor s | | MiB | |")
    print("|---|---|---|---|---|---|---|---|")
    for rows, per_file in CASES:
        found = medians(rows, per_file, rounds, look_up=False)
        cells = [f"{rows:,}", str(per_file)]
        for name in TABLE:
            theirs, ours = found["icechunk"][name], found["icevirt"][name]
            digits = FIGURES[name][1]
            cells += [f"{theirs:.{digits}f} → {ours:.{digits}f}", f"{theirs / ours:.1f}x"]
        print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--per-file", type=int, nargs="+", default=PER_FILE)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--large", action="store_true", help=f"{LARGE:,} references as well")
    parser.add_argument("--table", action="store_true", help="writing alone, as one table")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        who, step, root, rows, per_file = given.child
        print(json.dumps(RUN[who](step, Path(root), int(rows), int(per_file))))
        return
    if given.table:
        print_table(given.rounds)
        return
    print(HEAD.format("rows", "per file", "median", "icechunk", "icevirt", "x"))
    for rows in [*given.rows, *([LARGE] if given.large else [])]:
        for per_file in given.per_file:
            found = medians(rows, per_file, given.rounds)
            for name, (label, digits) in FIGURES.items():
                theirs, ours = found["icechunk"][name], found["icevirt"][name]
                figures = f"{theirs:.{digits}f}", f"{ours:.{digits}f}"
                ratio = f"{theirs / ours:.2f}" if ours > 0 else "-"
                print(HEAD.format(rows, per_file, label, *figures, ratio), flush=True)


if __name__ == "__main__":
    main()
