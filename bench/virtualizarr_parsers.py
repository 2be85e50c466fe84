"""Compare icevirt's parser for VirtualiZarr with VirtualiZarr's own, on the same files.

    python bench/virtualizarr_parsers.py
    python bench/virtualizarr_parsers.py --rounds 21 --latency 50
    python bench/virtualizarr_parsers.py --only dmrpp

Both open a file through the same registry: on local disk, and through a server on loopback that
waits before it answers. They take turns. Times are medians in milliseconds, by the clock and of the
processor. "opened" is ``open_virtual_dataset`` with nothing loaded, "parsed" the parser alone, and
"many" is ``open_virtual_mfdataset`` over fifty files with their coordinates loaded. "beside" is our
scan of a file by the DMR++ document beside it, of a kind that is known, and "itself" our scan
without it, both held against VirtualiZarr's parser of the document, which does not open the file.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
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

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import icevirt
from icevirt.virtualizarr import Hdf5Parser
from icevirt_scanners.dmrpp import granule
from scanners.dmrpp.document_of import write_document

ROW = "{:<32} {:<8} {:>12} {:>12} {:>12} {:>12} {:>8}"
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


def of_documents(url: str, registry: Any) -> dict[str, Tools]:
    """Return what is compared of a file with a document, in the same form."""
    from virtualizarr.parsers import DMRPPParser

    parser = DMRPPParser()

    def scan(sidecar: str) -> Callable[[], object]:
        return lambda: icevirt.scan_file(url, scan_options={"sidecar": sidecar})

    def theirs() -> object:
        return parser(f"{url}.dmrpp", registry)

    return {
        "beside": {"theirs": theirs, "ours": scan("require")},
        "itself": {"theirs": theirs, "ours": scan("ignore")},
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


def scattered(path: Path) -> None:
    """200 MB of 8 variables, whose headers and chunk indices lie all over the file."""
    with h5py.File(path, "w") as file:
        for number in range(8):
            made = file.create_dataset(f"v{number}", (24, 512, 512), "f4", chunks=(1, 256, 256))
            made[...] = np.float32(number)
            made.attrs["units"] = "K"


def name_dimensions(path: Path) -> None:
    """Give each dimension a name, without which documents leave variables to their files."""
    with h5py.File(path, "r+") as file:
        for found in [each for each in file.values() if not each.is_scale]:
            for axis, length in enumerate(found.shape):
                if not len(found.dims[axis]):
                    name = f"{found.name[1:]}_{axis}"
                    file[name] = np.arange(float(length))
                    file[name].make_scale(name)
                    found.dims[axis].attach_scale(file[name])


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
    options.add_argument("--only", choices=["files", "dmrpp"])
    given = options.parse_args()
    warnings.simplefilter("ignore")
    granule._ONE_IN = 1 << 62  # noqa: SLF001 - what a sample takes is not measured
    print(ROW.format("", "", "clock: vz", "icevirt", "cpu: vz", "icevirt", "ratio"))
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        local: Any = ObjectStoreRegistry({"file://": LocalStore()})
        compared = [given.only] if given.only else ["files", "dmrpp"]
        kinds = [{"files": tools, "dmrpp": of_documents}[each] for each in compared]

        def compare_all(site: str, registry: Any, more: str) -> None:
            for title, write in CASES.items():
                write(folder / "file.nc")
                for kind in kinds:
                    if kind is of_documents:
                        name_dimensions(folder / "file.nc")
                        write_document(folder / "file.nc")
                    compare(f"{title}{more}", kind(f"{site}/file.nc", registry), given.rounds)

        compare_all(f"file://{folder}", local, "")
        if tools in kinds:
            files = write_many(folder)
            compare(f"{FILES} files", many([f"file://{path}" for path in files], local), 3)
        with serving(folder, given.latency) as site:
            store = HTTPStore.from_url(site, client_options={"allow_http": True})
            there: Any = ObjectStoreRegistry({site: store})
            compare_all(site, there, ", server")
            if of_documents in kinds:
                scattered(folder / "file.nc")
                name_dimensions(folder / "file.nc")
                write_document(folder / "file.nc")
                found = of_documents(f"{site}/file.nc", there)
                compare("8 variables, 200 MB, server", found, given.rounds)


if __name__ == "__main__":
    main()
