"""Commits to repositories with a long history, the same program under icechunk and icevirt.

    python bench/commit_history.py                 # 1, 1,000 and 10,000 snapshots
    python bench/commit_history.py --rounds 5

icevirt makes a repository with one small array and a history of N snapshots on local disk; each
client gets a copy of it. In a process of its own, it opens the copy and commits a few times, one
chunk each time; then it opens it anew for each way to look at the history: open and find the tip,
walk the whole ancestry, read the ops log. Only the tips of the history have files: nobody looks
into the others. All settings are the defaults.

Figures are medians: milliseconds of wall clock and of processor time of all threads, bytes of the
`repo` object after the first commit. icevirt waits until the disk has what it wrote: `commit ms`
holds that, and `commit cpu ms` what the waiting asks of the processor. icechunk does not wait, so a
third side is icevirt with `wait_for_disk=False`. `x` is icechunk's figure divided by that of the
column before it: above 1 where icevirt needs less.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

SNAPSHOTS = (1, 1_000, 10_000)
COMMITS = 15
OPS_LOG = 1_000  # entries, as official clients keep by default
HEAD = "{:>9}  {:<18} {:>10} {:>10} {:>6} {:>12} {:>6}"
FIGURES = {  # name in what a process prints: (label, digits)
    "commit": ("commit ms", 1),
    "commit_cpu": ("commit cpu ms", 1),
    "open": ("open, tip ms", 2),
    "open_cpu": ("open, tip cpu ms", 2),
    "ancestry_cpu": ("ancestry cpu ms", 1),
    "ops_log_cpu": ("ops log cpu ms", 1),
    "size": ("repo bytes", 0),
}


# -- the repository --------------------------------------------------------------------------


def make(root: Path, snapshots: int) -> None:
    """Make a repository whose branch `main` has so many snapshots."""
    import zarr

    import icevirt

    repo = icevirt.Repository.create(icevirt.local_filesystem_storage(str(root)))
    if snapshots > 1:
        session = repo.writable_session("main")
        zarr.create_array(session.store, name="x", shape=(1_000,), chunks=(10,), dtype="i4")
        session.commit("an array")
    file = root / "repo"
    file.write_bytes(with_history(file.read_bytes(), snapshots))


def with_history(raw: bytes, snapshots: int) -> bytes:
    """Return a `repo` object with so many snapshots, most of them before the tip of `main`."""
    from icevirt.ids import ObjectId12
    from icevirt.model.repo_info import OpsLogEntry, SnapshotSummary
    from icevirt.model.updates import NewCommit
    from icevirt.wire.repo_info import file as repo_info

    info = repo_info.decode(raw)
    tip = info.snapshots[info.branches["main"]]
    output, parent, updates = dict(info.snapshots), tip.parent_id, list(info.latest_updates)
    for number in range(snapshots - len(output)):
        now = tip.flushed_at - snapshots + number
        key = ObjectId12(os.urandom(12))
        output[key] = SnapshotSummary(
            id=key, parent_id=parent, flushed_at=now, message=f"add hour {number} of the year"
        )
        backup = f"repo.{number:014d}.{ObjectId12(os.urandom(12))}"
        updates.insert(
            1, OpsLogEntry(kind=NewCommit("main", key), updated_at=now, backup_path=backup)
        )
        parent = key
    output[tip.id] = replace(tip, parent_id=parent)
    latest = tuple(updates[:OPS_LOG])
    before = updates[OPS_LOG].backup_path if len(updates) > OPS_LOG else None
    return repo_info.encode(
        info._replace(snapshots=output, latest_updates=latest, repo_before_updates=before)
    )


# -- the program -----------------------------------------------------------------------------


def run(opened: Callable[[], Any], root: Path) -> dict[str, float]:
    """Commit, and look at the history."""
    import zarr

    repo = opened()
    session = repo.writable_session("main")
    if "x" not in zarr.open_group(session.store, mode="a"):
        zarr.create_array(session.store, name="x", shape=(1_000,), chunks=(10,), dtype="i4")
        session.commit("an array")
    output: dict[str, list[float]] = {}
    size = 0
    for number in range(COMMITS):

        def commit(number: int = number) -> None:
            session = repo.writable_session("main")
            zarr.open_array(session.store, path="x", mode="r+")[10 * number] = 1 + number
            session.commit(f"number {number}")

        measured(output, "commit", commit)
        size = size or (root / "repo").stat().st_size

    for _ in range(5):
        measured(output, "open", lambda: opened().lookup_branch("main"))
        again = opened()
        measured(output, "ancestry", lambda: list(again.ancestry(branch="main")))  # noqa: B023
        measured(output, "ops_log", lambda: next(iter(again.ops_log())))  # noqa: B023
    return {name: statistics.median(each) for name, each in output.items()} | {"size": size}


def measured(output: dict[str, list[float]], name: str, work: Callable[[], object]) -> None:
    """Run and note milliseconds of wall clock and processor."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    output.setdefault(f"{name}_cpu", []).append(1000 * (time.process_time() - cpu))
    output.setdefault(name, []).append(1000 * (time.perf_counter() - wall))


def with_icechunk(root: Path) -> dict[str, float]:
    """Run the program under the official client."""
    import icechunk

    icechunk.set_logs_filter("error")
    storage = icechunk.local_filesystem_storage(str(root))
    return run(lambda: icechunk.Repository.open(storage), root)


def with_icevirt(root: Path, *, wait_for_disk: bool = True) -> dict[str, float]:
    """Run the program under icevirt."""
    import icevirt

    storage = icevirt.local_filesystem_storage(str(root), wait_for_disk=wait_for_disk)
    return run(lambda: icevirt.Repository.open(storage), root)


# -- measuring -------------------------------------------------------------------------------

RUN = {
    "icechunk": with_icechunk,
    "icevirt": with_icevirt,
    "not waiting": partial(with_icevirt, wait_for_disk=False),
}


def child(who: str, made: Path) -> dict[str, float]:
    """Run the program in a process of its own, on a copy."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "repo"
        shutil.copytree(made, root)
        command = [sys.executable, __file__, "--child", who, str(root)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        output: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return output


def medians(snapshots: int, rounds: int) -> dict[str, dict[str, float]]:
    """Return the figures of all, who take turns."""
    runs: dict[str, list[dict[str, float]]] = {who: [] for who in RUN}
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder) / "made", snapshots)
        for turn in range(rounds):
            for who in sorted(RUN, reverse=bool(turn % 2)):
                runs[who].append(child(who, Path(folder) / "made"))
    return {
        who: {name: statistics.median(run[name] for run in each) for name in each[0]}
        for who, each in runs.items()
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--snapshots", type=int, nargs="+", default=SNAPSHOTS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        who, root = given.child
        print(json.dumps(RUN[who](Path(root))))
        return
    print(HEAD.format("snapshots", "median", "icechunk", "icevirt", "x", "not waiting", "x"))
    for snapshots in given.snapshots:
        found = medians(snapshots, given.rounds)
        for name, (label, digits) in FIGURES.items():
            figures = [f"{(theirs := found['icechunk'][name]):.{digits}f}"]
            for side in ("icevirt", "not waiting"):
                ours = found[side][name]
                figures += [f"{ours:.{digits}f}", f"{theirs / ours:.2f}"]
            print(HEAD.format(snapshots, label, *figures), flush=True)


if __name__ == "__main__":
    main()
