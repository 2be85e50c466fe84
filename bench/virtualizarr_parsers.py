"""Compare icevirt's parser for VirtualiZarr with VirtualiZarr's own, on the same files.

    python bench/virtualizarr_parsers.py
    python bench/virtualizarr_parsers.py --rounds 21 --latency 50

Both open a file through the same registry: on local disk, and through a server on loopback that
waits before it answers. They take turns. Times are medians in milliseconds, by the clock and of the
processor. "opened" is ``open_virtual_dataset`` with nothing loaded, "parsed" the parser alone, and
"many" is ``open_virtual_mfdataset`` over fifty files with their coordinates loaded.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from scan_files import one_variable, ten_by_ten
from scan_remote import serving

from icevirt.virtualizarr import Hdf5Parser

ROW = "{:<26} {:<8} {:>12} {:>12} {:>12} {:>12} {:>8}"
FILES = 50
CASES: dict[str, Callable[[Path], None]] = {
    "10 variables x 10 chunks": ten_by_ten,
    "5,000 chunks": one_variable((500, 100), (1, 10)),
    "100,000 chunks": one_variable((1000, 100), (1, 1)),
}

type Tools = dict[str, Callable[[], object]]


def tools(url: str, registry: Any) -> dict[str, Tools]:
    """Return what is compared, by what it does: VirtualiZarr's and icevirt's."""
    from virtualizarr import open_virtual_dataset
    from virtualizarr.parsers import HDFParser

    parsers = {"theirs": HDFParser(), "ours": Hdf5Parser()}

    def opened(parser: Any) -> Callable[[], object]:
        return lambda: open_virtual_dataset(url, registry, parser, loadable_variables=[])

    def parsed(parser: Any) -> Callable[[], object]:
        return lambda: parser(url, registry)

    return {
        "parsed": {name: parsed(parser) for name, parser in parsers.items()},
        "opened": {name: opened(parser) for name, parser in parsers.items()},
    }


def many(urls: list[str], registry: Any) -> dict[str, Tools]:
    """Return the same for many files that are combined."""
    from virtualizarr import open_virtual_mfdataset
    from virtualizarr.parsers import HDFParser

    def opened(parser: Any) -> Callable[[], object]:
        return lambda: open_virtual_mfdataset(
            urls,
            registry,
            parser,
            combine="nested",
            concat_dim="time",
            coords="minimal",
            compat="override",
        )

    return {"many": {"theirs": opened(HDFParser()), "ours": opened(Hdf5Parser())}}


def compare(title: str, found: dict[str, Tools], rounds: int) -> None:
    """Print the medians of each."""
    for what, both in found.items():
        wall: dict[str, list[float]] = {name: [] for name in both}
        cpu: dict[str, list[float]] = {name: [] for name in both}
        for _ in range(rounds + 1):  # a first turn, for what is loaded late
            for name, tool in both.items():
                gc.collect()
                begun = time.perf_counter(), time.process_time()
                tool()
                wall[name].append(1000 * (time.perf_counter() - begun[0]))
                cpu[name].append(1000 * (time.process_time() - begun[1]))
        shown = [
            f"{statistics.median(times[name][1:]):.1f}"
            for times in (wall, cpu)
            for name in ("theirs", "ours")
        ]
        ratio = statistics.median(cpu["theirs"][1:]) / statistics.median(cpu["ours"][1:])
        print(ROW.format(title, what, *shown, f"{ratio:.1f}"), flush=True)


def write_many(folder: Path) -> list[Path]:
    """Write files like the first case, with times that follow one another."""
    made = []
    for number in range(FILES):
        path = folder / f"{number:03}.nc"
        ten_by_ten(path)
        with h5py.File(path, "r+") as file:
            file["time"][...] = np.arange(10) + 10 * number
        made.append(path)
    return made


def main() -> None:
    """Print all figures."""
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import HTTPStore, LocalStore

    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=11)
    options.add_argument("--latency", type=float, default=20.0, help="milliseconds")
    given = options.parse_args()
    warnings.simplefilter("ignore")
    print(ROW.format("", "", "clock: vz", "icevirt", "cpu: vz", "icevirt", "ratio"))
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        local: Any = ObjectStoreRegistry({"file://": LocalStore()})
        for title, write in CASES.items():
            write(folder / "file.nc")
            compare(title, tools(f"file://{folder}/file.nc", local), given.rounds)
        files = write_many(folder)
        compare(f"{FILES} files", many([f"file://{path}" for path in files], local), 3)
        with serving(folder, given.latency) as site:
            store = HTTPStore.from_url(site, client_options={"allow_http": True})
            there: Any = ObjectStoreRegistry({site: store})
            for title, write in CASES.items():
                write(folder / "file.nc")
                compare(f"{title}, server", tools(f"{site}/file.nc", there), given.rounds)


if __name__ == "__main__":
    main()
