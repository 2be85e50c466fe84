"""One huge file on Spark: how long its scan takes by one task, and shared by several.

    python bench/scan_huge.py                       # 5 million chunks in one array, 1 and 2 slots
    python bench/scan_huge.py --arrays 50 --chunks 10_000_000 --libver latest

Files are written by HDF5 with all chunks allocated and nothing in them. Times are of the scan stage
behind Spark's start and a first job, wall and processor time of all processes together; memory is
the largest proportional set size (PSS) of one Python worker.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Self
from unittest import mock

import h5py
from h5py import h5d, h5p, h5s, h5t

ROW = 1000  # chunks along the last axis


def write(path: Path, *, arrays: int, chunks: int, libver: str) -> None:
    """Write arrays of so many chunks together, of one value each."""
    with h5py.File(path, "w", libver=libver) as file:
        plist = h5p.create(h5p.DATASET_CREATE)
        plist.set_chunk((1, 1))
        plist.set_alloc_time(h5d.ALLOC_TIME_EARLY)
        plist.set_fill_time(h5d.FILL_TIME_NEVER)
        if libver == "latest":
            plist.set_shuffle()  # a filter, without which chunks have no index
        space = h5s.create_simple((chunks // arrays // ROW, ROW))
        for number in range(arrays):
            h5d.create(file.id, f"v{number:03d}".encode(), h5t.IEEE_F32LE, space, plist)


def below(pid: int) -> list[int]:
    """Return the processes that a process started, and those that they did."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *below(child)]
    return found


class Watch:
    """Looks at the processes of this one while a block runs."""

    def __init__(self) -> None:
        self.peak = 0
        self._cpu: dict[int, float] = {}
        self._done = threading.Event()

    def __enter__(self) -> Self:
        self._first = self._look()
        self._begun = time.perf_counter()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self.wall = time.perf_counter() - self._begun
        self.cpu = self._look() - self._first

    def _run(self) -> None:
        while not self._done.wait(0.05):
            self._look()

    def _look(self) -> float:
        for pid in [os.getpid(), *below(os.getpid())]:
            try:
                stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                self._cpu[pid] = sum(map(int, stat[11:15])) / os.sysconf("SC_CLK_TCK")
                if b"pyspark" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    output = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
                    pss = next(int(line.split()[1]) for line in output if line.startswith("Pss:"))
                    self.peak = max(self.peak, pss)
            except OSError:  # it is gone
                continue
        return sum(self._cpu.values())


def measure(path: Path, slots: int, pieces: int) -> None:
    """Scan the file on so many slots in so many pieces, and print what it took."""
    import icevirt
    from icevirt.api.dataset import scanning
    from icevirt.execution.spark_session import local_session

    session = local_session(app_name="scan-huge", cores=slots)
    session.range(slots, numPartitions=slots).mapInArrow(lambda rows: rows, "id long").collect()
    chosen = {path.as_uri(): pieces} if pieces > 1 else {}
    with (
        tempfile.TemporaryDirectory() as catalog,
        mock.patch.object(scanning, "pieces_of", return_value=chosen),
        Watch() as watch,
    ):
        report = icevirt.scan_files(str(path), catalog, executor=session)
    references = sum(each.references.virtual for each in report.arrays)
    print(
        f"{slots} slots, {pieces:2d} pieces: {references:,} references,"
        f" stage {report.seconds['scan']:5.1f} s, {watch.wall:5.1f} s in all,"
        f" processor {watch.cpu:5.1f} s, worker {watch.peak / 1024:5,.0f} MiB",
        flush=True,
    )
    session.stop()


def main() -> None:
    """Write the file, and measure each way in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--arrays", type=int, default=1)
    parser.add_argument("--chunks", type=int, default=5_000_000)
    parser.add_argument("--libver", choices=["earliest", "latest"], default="earliest")
    parser.add_argument("--pieces", type=int, default=8)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "huge.nc"
        write(path, arrays=given.arrays, chunks=given.chunks, libver=given.libver)
        for slots, pieces in ((1, 1), (1, given.pieces), (2, 1), (2, given.pieces)):
            run = multiprocessing.get_context("spawn").Process(
                target=measure, args=(path, slots, pieces)
            )
            run.start()
            run.join()


if __name__ == "__main__":
    main()
