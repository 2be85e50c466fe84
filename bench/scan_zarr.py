"""Commit the chunks of Zarr stores by icevirt and by VirtualiZarr's ZarrParser, on the same stores.

    python bench/scan_zarr.py
    python bench/scan_zarr.py --chunks 1000000 --folder /data/stores

One store has one array of many chunks of a byte each, the other is a plate: 5,760 arrays of two
chunks in 1,249 groups. Both tools list, make references with modification times, and commit to a
repository of Icechunk on local disk; icevirt also compares the store with its listing before the
commit. They take turns, each in a process of its own. Times are medians of what comes after the
imports, by the clock and of all processors; memory is the most that the process held. Stores are
made once for a folder.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROW = "{:<28} {:<14} {:>10} {:>10} {:>10}"


def put(path: Path, document: dict[str, Any]) -> None:
    """Write a metadata document."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))


def array(shape: tuple[int, int], chunks: tuple[int, int], data_type: str) -> dict[str, Any]:
    """Return the document of an array."""
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": {},
        "dimension_names": ["y", "x"],
    }


GROUP = {"zarr_format": 3, "node_type": "group", "attributes": {}}


def write_chunks(path: Path, count: int) -> None:
    """Write one array of so many chunks, nearly."""
    edge = round(count**0.5)
    put(path / "zarr.json", GROUP)
    put(path / "a/zarr.json", array((edge, edge), (1, 1), "uint8"))
    for row in range(edge):
        folder = path / f"a/c/{row}"
        folder.mkdir(parents=True)
        for column in range(edge):
            (folder / str(column)).write_bytes(b"x")


def plate_groups() -> list[str]:
    """Return the groups of a plate that hold arrays."""
    return [
        f"{row}/{column}/{f}" for row in "ABCDEFGH" for column in range(1, 13) for f in range(12)
    ]


def write_plate(path: Path) -> None:
    """Write the plate."""
    put(path / "zarr.json", GROUP)
    for row in "ABCDEFGH":
        put(path / row / "zarr.json", GROUP)
        for column in range(1, 13):
            put(path / row / str(column) / "zarr.json", GROUP)
    for group in plate_groups():
        put(path / group / "zarr.json", GROUP)
        for level in range(5):
            put(path / group / str(level) / "zarr.json", array((16, 8), (8, 8), "uint16"))
            for chunk in "01":
                (path / group / str(level) / "c" / chunk).mkdir(parents=True)
                (path / group / str(level) / "c" / chunk / "0").write_bytes(bytes(128))


def now() -> tuple[float, float]:
    """Return the time of the clock, and of the processors in this process and its children."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.perf_counter(), sum(each.ru_utime + each.ru_stime for each in used)


def since(begin: tuple[float, float]) -> list[float]:
    """Return how much of both went by."""
    return [end - start for end, start in zip(now(), begin, strict=True)]


def ours(store: Path, repo: str, groups: list[str]) -> list[float]:  # noqa: ARG001
    """Build by icevirt."""
    import xarray  # noqa: F401
    import zarr  # noqa: F401

    import icevirt

    icevirt.build  # noqa: B018  # imports it
    begin = now()
    icevirt.build(store, repo, executor="in-process")
    return since(begin)


def theirs(store: Path, repo: str, groups: list[str]) -> list[float]:
    """Parse by VirtualiZarr, each group that holds arrays, and commit by icechunk."""
    import icechunk
    import virtualizarr  # noqa: F401
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr.parsers import ZarrParser

    registry = ObjectStoreRegistry({"file://": LocalStore()})
    url = store.as_uri()
    begin = now()
    config = icechunk.RepositoryConfig.default()
    place = icechunk.local_filesystem_store(str(store))
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(f"{url}/", place))
    storage = icechunk.local_filesystem_storage(repo)
    session = icechunk.Repository.create(storage, config).writable_session("main")
    for group in groups:
        parsed = ZarrParser(group=group or None)(url=url, registry=registry)
        dataset = parsed.to_virtual_dataset(loadable_variables=[])
        dataset.vz.to_icechunk(session.store, group=group or None)
    session.commit("by VirtualiZarr")
    return since(begin)


TOOLS: dict[str, Callable[[Path, str, list[str]], list[float]]] = {
    "icevirt": ours,
    "VirtualiZarr": theirs,
}


def measure(store: Path, tool: str, groups: list[str]) -> None:
    """Print seconds and memory of one tool, in this process."""
    with tempfile.TemporaryDirectory() as folder:
        seconds, processor = TOOLS[tool](store, f"{folder}/repo", groups)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([seconds, processor, most]))


def main() -> None:
    """Make the stores and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--measure", nargs=2)
    given = parser.parse_args()
    if given.measure:
        store, tool = Path(given.measure[0]), given.measure[1]
        measure(store, tool, plate_groups() if store.name.startswith("plate") else [""])
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        stores = {
            f"{given.chunks:,} chunks": folder / f"chunks{given.chunks}.zarr",
            "plate of 5,760 arrays": folder / "plate.zarr",
        }
        for store in stores.values():
            if not store.exists() and store.name.startswith("plate"):
                write_plate(store)
            elif not store.exists():
                write_chunks(store, given.chunks)
        print(ROW.format("", "", "seconds", "processor", "MiB"))
        for name, store in stores.items():
            taken = {tool: [measured(store, tool)] for tool in TOOLS}
            for _ in range(given.times - 1):
                for tool in TOOLS:
                    taken[tool].append(measured(store, tool))
            for tool, each in taken.items():
                seconds, processor, most = map(statistics.median, zip(*each, strict=True))
                row = ROW.format(name, tool, f"{seconds:.1f}", f"{processor:.1f}", f"{most:.0f}")
                print(row, flush=True)


def measured(store: Path, tool: str) -> list[float]:
    """Return what `measure` prints in a process of its own."""
    command = [sys.executable, __file__, "--measure", os.fspath(store), tool]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: list[float] = json.loads(out.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
