"""What a process holds that reads a little of an array of very many references.

    python bench/read_memory.py                      # 100 million, about 2 GB of disk meanwhile
    python bench/read_memory.py --refs 1_000_000 --keep /tmp/references

Makes a repository with one array of days x 100 x 100 chunks, a file for each day, manifests of half
a million references, on local disk. The offsets are random, so that manifests are as large as real
ones. The files are sparse and hold one point's values. Then each program runs in processes of their
own, under icechunk, icevirt's engine of xarray, and icevirt through zarr, in turns: `one
chunk`, and `a point's series`, which is a chunk of each file and so needs every manifest.

Figures are medians. `first s`: seconds from opening the repository to the value, everything being
imported; `cpu s`: of processor time. `peak MiB`: the most memory that the process had resident,
interpreter and imports included; `own MiB`: what of this came after the imports; `PSS MiB`: what it
holds in the end, pages shared with other processes divided among them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

SIDE = 100  # chunks along both sides of a day
PER_FILE = SIDE * SIDE
DAYS = 50  # of a manifest
POINT = (37, 61)
PROGRAMS = ("one chunk", "a point's series")
FIGURES = {
    "wall": "first s",
    "cpu": "cpu s",
    "peak": "peak MiB",
    "own": "own MiB",
    "pss": "PSS MiB",
}
ROW = "{:<18} {:<10} {:>10} {:>10} {:>10}"


# -- the repository --------------------------------------------------------------------------


def make(root: Path, refs: int) -> None:
    """Write manifests and files, and publish the array in one commit."""
    from icevirt.archive.schema import ScannedGroup
    from icevirt.ids import ObjectId8
    from icevirt.model.config.containers import VirtualChunkContainer, local_filesystem_store
    from icevirt.model.snapshot import ManifestFile, ManifestRef
    from icevirt.repo.commits.build_commit import BuildCommit
    from icevirt.storage.local import LocalStorage

    archive = root / "archive"
    archive.mkdir(parents=True)
    storage, node, days = LocalStorage(root / "repo"), ObjectId8.random(), refs // PER_FILE
    parts, infos = [], []
    for first in range(0, days, DAYS):
        last = min(first + DAYS, days)
        encoded = _manifest(node, archive, first, last)
        storage.put(f"manifests/{encoded.id}", encoded.raw)
        parts.append(
            ManifestRef(object_id=encoded.id, extents=((first, last), (0, SIDE), (0, SIDE)))
        )
        infos.append(
            ManifestFile(
                id=encoded.id, size_bytes=len(encoded.raw), num_chunk_refs=encoded.num_chunk_refs
            )
        )
    BuildCommit(
        storage=storage,
        branch="main",
        message="all",
        groups={"/": ScannedGroup(path="/").zarr_json()},
        arrays={"/x": (_document(days), node, parts)},
        manifest_files=infos,
        containers=[
            VirtualChunkContainer(f"file://{archive}/", local_filesystem_store(str(archive)))
        ],
    ).publish()
    size = sum(info.size_bytes for info in infos) / 1e6
    print(f"{days * PER_FILE:,} references in {len(infos)} manifests, {size:,.0f} MB", flush=True)


def _manifest(node: Any, archive: Path, first: int, last: int) -> Any:
    """Return the manifest of some days, and write their files."""
    from icevirt.model.chunks import ChunkTable, Locations
    from icevirt.model.strings import Strings
    from icevirt.wire.manifests import manifest

    shape = (last - first, SIDE, SIDE)
    index = np.indices(shape, np.uint32).reshape(3, -1).T.copy()
    source = index[:, 0].copy()
    index[:, 0] += first
    steps = np.random.default_rng(first).integers(50_000, 90_000, (last - first, PER_FILE))
    offsets = np.cumsum(steps, axis=1)
    at = offsets[:, POINT[0] * SIDE + POINT[1]].tolist()
    for day, offset in zip(range(first, last), at, strict=True):
        with _file(archive, day).open("wb") as file:
            file.seek(offset)
            file.write(np.int32(day).tobytes())
    table = ChunkTable.virtual(
        index=index,
        source=source,
        offset=offsets.reshape(-1),
        length=np.full(len(index), 4),
        locations=Locations(
            url=Strings.of(f"file://{_file(archive, day)}" for day in range(first, last)),
            etag=Strings.empty(last - first),
            last_modified=np.full(last - first, int(time.time()) + 60, np.uint32),
        ),
    )
    return manifest.encode({node: table})


def _file(archive: Path, day: int) -> Path:
    return archive / f"product_v2_{day:09d}.bin"


def _document(days: int) -> bytes:
    return json.dumps(
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [days, SIDE, SIDE],
            "data_type": "int32",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 1, 1]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": -1,
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            "attributes": {},
            "dimension_names": ["day", "y", "x"],
        }
    ).encode()


# -- the programs ----------------------------------------------------------------------------


def with_icechunk(root: Path) -> Any:
    """Open the repository with the official client."""
    import icechunk

    access = {f"file://{root / 'archive'}/": icechunk.credentials.LocalFileSystemAccess}
    storage = icechunk.local_filesystem_storage(str(root / "repo"))
    repo = icechunk.Repository.open(storage, None, access)
    return repo.readonly_session("main").store


def with_zarr(root: Path) -> Any:
    """Open the repository with icevirt, for zarr."""
    import icevirt

    repo = icevirt.Repository.open(root / "repo", authorize_virtual_chunk_access=granted(root))
    return repo.readonly_session("main").store


def with_engine(root: Path) -> Any:
    """Open the repository with icevirt's engine of xarray."""
    import xarray as xr

    return xr.open_dataset(
        root / "repo", engine="icevirt", cache=False, authorize_virtual_chunk_access=granted(root)
    )["x"].variable


def granted(root: Path) -> list[str]:
    """Return the prefix of the files."""
    return [f"file://{root / 'archive'}/"]


OPEN = {"icechunk": with_icechunk, "icevirt": with_engine, "zarr.open": with_zarr}


def run(who: str, what: str, root: Path) -> dict[str, float]:
    """Read, and return what it took."""
    import zarr

    if who == "icechunk":
        import icechunk

        icechunk.set_logs_filter("error")
    else:
        import xarray as xr

        import icevirt
        from icevirt.access.store import zarr_store
        from icevirt.access.xarray import backend

        _ = icevirt.Repository, zarr_store, xr, backend  # imports are not what is measured
    Path("/proc/self/clear_refs").write_text("5")
    before = kibibytes("status", "VmRSS")
    wall, cpu = time.perf_counter(), time.process_time()
    opened = OPEN[who](root)
    array = opened if who == "icevirt" else zarr.open_array(opened, path="x", mode="r")
    middle = array.shape[0] // 2
    days = slice(middle, middle + 1) if what == "one chunk" else slice(None)
    values = np.asarray(array[(days, *POINT)])
    taken = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    if not np.array_equal(values, np.arange(array.shape[0])[days]):
        raise SystemExit(f"{who} read wrong values: {values}")
    peak = kibibytes("status", "VmHWM")
    held = {"peak": peak, "own": peak - before, "pss": kibibytes("smaps_rollup", "Pss")}
    return taken | {name: size / 1024 for name, size in held.items()}


def kibibytes(file: str, name: str) -> int:
    """Return a size of this process."""
    lines = Path("/proc/self", file).read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


# -- measuring -------------------------------------------------------------------------------


def child(who: str, what: str, root: Path) -> dict[str, float]:
    """Run a program in a process of its own."""
    command = [sys.executable, __file__, "--child", who, what, str(root)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def table(root: Path, rounds: int) -> None:
    """Print a line for each program and figure."""
    print(ROW.format("program", "median", *OPEN))
    for what in PROGRAMS:
        runs: dict[str, list[dict[str, float]]] = {who: [] for who in OPEN}
        for turn in range(rounds):
            for who in sorted(OPEN, reverse=bool(turn % 2)):
                runs[who].append(child(who, what, root))
        for name, label in FIGURES.items():
            digits = 2 if label.endswith(" s") else 0
            medians = (statistics.median(each[name] for each in runs[who]) for who in OPEN)
            print(ROW.format(what, label, *(f"{each:.{digits}f}" for each in medians)), flush=True)


def main() -> None:
    """Make the repository, or take the one that was kept, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--refs", type=int, default=100_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="where the repository is made, and stays")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        who, what, root = given.child
        print(json.dumps(run(who, what, Path(root))))
        return
    with tempfile.TemporaryDirectory() as folder:
        root = (given.keep or Path(folder)).resolve()
        if not (root / "repo").exists():
            make(root, given.refs)
        table(root, given.rounds)


if __name__ == "__main__":
    main()
