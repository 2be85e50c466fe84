"""Looks one chunk up in manifests of icechunk and of icevirt: searched, and decoded as a whole.

    python bench/lookup_manifests.py                    # a million references, 1 and 100 of a file
    python bench/lookup_manifests.py --rows 100_000

Both clients write the same references of one array. `open` is decompressing; `first` is the first
lookup after it, of a chunk that is there; `next` is any other, of ten chunks; `absent` is a first
lookup of a chunk that is not there, which checks the order of all references; `decode` is decoding
all references, decompressing included. Milliseconds of processor time, the best of a few runs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import icechunk
import numpy as np
import zarr
from numpy.typing import NDArray

from icevirt.wire.manifests import manifest
from icevirt.wire.manifests.open_manifest import OpenManifest

ROW = "{:>9} {:>9} {:<9} {:>8} {:>7} {:>7} {:>7} {:>7} {:>8}"
RUNS = 5


def written(rows: int, per_file: int) -> Iterator[tuple[str, bytes]]:
    """Yield who wrote a manifest, and its file."""
    with tempfile.TemporaryDirectory() as folder:
        storage = icechunk.local_filesystem_storage(folder)
        session = icechunk.Repository.create(storage).writable_session("main")
        zarr.create_array(session.store, name="x", shape=(rows,), chunks=(1,), dtype="u1")
        locations = [f"s3://bucket/product/file_{n // per_file:09d}.nc" for n in range(rows)]
        steps = np.random.default_rng(1).integers(50_000, 90_000, rows).astype(np.uint64)
        session.store.set_virtual_refs_arr(
            "x", (rows,), locations, np.cumsum(steps), steps, validate_containers=False
        )
        session.commit("all")
        (path,) = (Path(folder) / "manifests").iterdir()
        raw = path.read_bytes()
    yield "icechunk", raw
    yield "icevirt", manifest.encode(manifest.decode(raw).arrays, level=1).raw


def best(work: Callable[[], object], runs: int = RUNS) -> float:
    """Return the least processor time of a few runs, in milliseconds."""
    taken = []
    for _ in range(runs):
        started = time.process_time()
        work()
        taken.append(time.process_time() - started)
    return 1000 * min(taken)


def figures(raw: bytes) -> list[float]:
    """Return what a row of the table says."""
    node, table = next(iter(manifest.decode(raw).arrays.items()))
    wanted = np.linspace(0, len(table) - 1, 10).astype(np.int64)[:, None]
    opened = OpenManifest(raw)

    def first(chunk: NDArray[np.int64]) -> float:
        fresh = [OpenManifest(raw)]
        return best(lambda: fresh.pop().find(node, chunk), runs=1)

    return [
        best(lambda: OpenManifest(raw)),
        min(first(wanted[:1]) for _ in range(RUNS)),
        best(lambda: opened.find(node, wanted)),
        min(first(wanted[-1:] + 1) for _ in range(RUNS)),
        best(lambda: manifest.decode(raw)),
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    print(
        ROW.format("rows", "per file", "writer", "MB", "open", "first", "next", "absent", "decode")
    )
    for per_file in (1, 100):
        for writer, raw in written(rows, per_file):
            found = [f"{each:.2f}" for each in figures(raw)]
            print(ROW.format(rows, per_file, writer, f"{len(raw) / 1e6:.1f}", *found), flush=True)


if __name__ == "__main__":
    main()
