"""Writes and looks up virtual references with icechunk and with icevirt's codec, side by side.

    python bench/manifest_codec.py                       # 10k, 100k, 1M; 1, 10, 100 refs per file
    python bench/manifest_codec.py --rows 5000000 --per-file 100 --level 1

icechunk: `set_virtual_refs_arr` and `commit` to local disk, then a cold open and one lookup.
icevirt: the table from the same lists, manifest and transaction log encoded and written, then read,
decoded and one lookup. The snapshot and `repo` files, a millisecond, are not in icevirt's figures.
Every figure comes from a process of its own; the best of a few counts. Peak is that of the whole
process less that of one that only imports.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROW = "{:>9} {:>8} | {:>8} {:>8} {:>6} | {:>8} {:>8} | {:>7} {:>7} | {:>8} {:>8} {:>6}"


def inputs(rows: int, per_file: int):
    """Return locations, offsets and lengths as a scanner would find them."""
    rng = np.random.default_rng(7)
    files = -(-rows // per_file)
    names = [
        f"s3://noaa-goes16/ABI-L2-MCMIPF/2020/{n // 24 % 366:03d}/{n % 24:02d}/"
        f"OR_ABI-L2-MCMIPF-M6_G16_s2020{n * 7919 % 10**10:010d}.nc"
        for n in range(files)
    ]
    lengths = rng.integers(20_000, 60_000, rows).astype(np.uint64)
    ends = np.cumsum(lengths)
    starts = np.repeat((ends - lengths)[::per_file], per_file)[:rows]
    return names, (ends - lengths - starts + 4096).astype(np.uint64), lengths


class Clock:
    """Collects wall and CPU seconds by name."""

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}

    def time(self, name: str, action):
        """Run and time an action."""
        wall, cpu = time.perf_counter(), time.process_time()
        result = action()
        self.figures[name] = time.perf_counter() - wall
        self.figures[name + "_cpu"] = time.process_time() - cpu
        return result


def with_icechunk(root: Path, rows: int, per_file: int, level: int) -> dict[str, float]:
    import icechunk
    import zarr

    names, offsets, lengths = inputs(rows, per_file)
    config = icechunk.RepositoryConfig.default()
    config.compression = icechunk.CompressionConfig(level=level)
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer("s3://noaa-goes16/", icechunk.s3_store(region="us-east-1"))
    )
    storage = icechunk.local_filesystem_storage(str(root))
    repo = icechunk.Repository.create(storage, config)
    session = repo.writable_session("main")
    zarr.create_array(session.store, shape=(rows,), chunks=(1,), dtype="i4", compressors=None)
    locations = [names[row // per_file] for row in range(rows)]
    clock = Clock()

    def write() -> None:
        session.store.set_virtual_refs_arr("/", (rows,), locations, offsets, lengths)
        session.commit("all")

    clock.time("write", write)

    def look_up() -> None:
        again = icechunk.Repository.open(icechunk.local_filesystem_storage(str(root)))
        again.readonly_session("main").chunk_type("/", (rows // 2,))

    clock.time("lookup", look_up)
    sizes = [path.stat().st_size for path in (root / "manifests").iterdir()]
    return {**clock.figures, "bytes": sum(sizes)}


def with_icevirt(root: Path, rows: int, per_file: int, level: int) -> dict[str, float]:
    from icevirt.ids import ObjectId8, ObjectId12
    from icevirt.model.chunks import ChunkTable, Locations
    from icevirt.model.strings import Strings
    from icevirt.model.transaction_log import TransactionLog
    from icevirt.wire import transaction_log
    from icevirt.wire.manifests import manifest

    names, offsets, lengths = inputs(rows, per_file)
    node, clock = ObjectId8.random(), Clock()

    def write() -> None:
        table = ChunkTable.virtual(
            index=np.arange(rows, dtype=np.uint32)[:, None],
            offset=offsets,
            length=lengths,
            source=np.arange(rows) // per_file,
            locations=Locations(
                url=Strings.of(names),
                etag=Strings.empty(len(names)),
                last_modified=np.zeros(len(names), np.uint32),
            ),
        )
        made = manifest.encode({node: table}, level=level)
        (root / "manifest").write_bytes(made.raw)
        log = TransactionLog(
            id=ObjectId12.random(),
            new_arrays=frozenset({node}),
            updated_chunks={node: table.index},
        )
        (root / "log").write_bytes(transaction_log.encode(log, level=level))

    clock.time("write", write)

    def look_up() -> None:
        table = manifest.decode((root / "manifest").read_bytes()).arrays[node]
        row = table.rows_of(np.array([[rows // 2]]))[0]
        assert table.locations.url[table.source[row]] == names[rows // 2 // per_file]

    clock.time("lookup", look_up)
    return {**clock.figures, "bytes": (root / "manifest").stat().st_size}


def child(args: argparse.Namespace) -> None:
    """Measure one case in this process and print what was found."""
    run = {"icechunk": with_icechunk, "icevirt": with_icevirt}[args.child]
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder) / "warm" if args.child == "none" else mkdir(folder, "warm"), 10, 1, 3)
        idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found = run(mkdir(folder, "cold"), args.rows[0], args.per_file[0], args.level)
    found["peak"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - idle) / 1024
    print(json.dumps(found))


def mkdir(folder: str, name: str) -> Path:
    path = Path(folder) / name
    path.mkdir()
    return path


def measured(who: str, rows: int, per_file: int, args: argparse.Namespace) -> dict[str, float]:
    """Return the best of a few runs, figure by figure."""
    options = ["--rows", rows, "--per-file", per_file, "--level", args.level, "--child", who]
    command = [sys.executable, __file__, *map(str, options)]
    runs = []
    for _ in range(args.repeat):
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    return {name: min(run[name] for run in runs) for name in runs[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--per-file", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--level", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--child", choices=["icechunk", "icevirt"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args)
        return
    print(f"zstd level {args.level}, best of {args.repeat}; CPU seconds, MiB of peak, MB of file")
    print(
        ROW.format(
            "rows",
            "per file",
            *("write", "virt", "x"),
            "peak",
            "virt",
            "MB",
            "virt",
            *("lookup", "virt", "x"),
        )
    )
    for rows in args.rows:
        for per_file in args.per_file:
            chunk, virt = (measured(who, rows, per_file, args) for who in ("icechunk", "icevirt"))
            print(
                ROW.format(
                    rows,
                    per_file,
                    f"{chunk['write_cpu']:.3f}",
                    f"{virt['write_cpu']:.3f}",
                    f"{chunk['write_cpu'] / virt['write_cpu']:.1f}",
                    f"{chunk['peak']:.0f}",
                    f"{virt['peak']:.0f}",
                    f"{chunk['bytes'] / 1e6:.2f}",
                    f"{virt['bytes'] / 1e6:.2f}",
                    f"{chunk['lookup_cpu']:.3f}",
                    f"{virt['lookup_cpu']:.3f}",
                    f"{chunk['lookup_cpu'] / virt['lookup_cpu']:.1f}",
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
