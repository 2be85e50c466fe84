"""Compare icevirt's HDF5 scanner with VirtualiZarr and kerchunk on the same local files, one core.

Run: ``.venv/bin/python bench/scan_files.py``. Figures are medians of processor time; "floor" is
plain h5py reading every attribute and iterating every chunk, without making anything of them.
"""

from __future__ import annotations

import gc
import os
import resource
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

from icevirt.api.scan import scan_file

type Tools = dict[str, Callable[[Path], object]]


def ten_by_ten(path: Path) -> None:
    """10 variables of 10 chunks with CF attributes and scales: a typical model file."""
    with h5py.File(path, "w", track_order=True) as file:
        for name, length in (("time", 10), ("lat", 20), ("lon", 40)):
            file[name] = np.arange(length, dtype="f8")
            file[name].make_scale(name)
        for number in range(10):
            variable = file.create_dataset(
                f"v{number}",
                data=np.random.default_rng(number).random((10, 20, 40), "f4"),
                chunks=(1, 20, 40),
                compression="gzip",
                shuffle=True,
            )
            for axis, name in enumerate(("time", "lat", "lon")):
                variable.dims[axis].attach_scale(file[name])
            for text in ("units", "long_name", "standard_name", "cell_methods"):
                variable.attrs[text] = "some text"
            variable.attrs["_FillValue"] = np.float32(1e20)


def one_variable(
    shape: tuple[int, int], chunks: tuple[int, int], **options: object
) -> Callable[[Path], None]:
    """Make a file of one variable without filters."""

    def write(path: Path) -> None:
        with h5py.File(path, "w", **options) as file:
            file.create_dataset("d", shape=shape, chunks=chunks, dtype="f4")[...] = 1

    return write


def floor(path: Path) -> None:
    """Read all attributes and chunk locations with h5py, and keep nothing."""
    with h5py.File(path, "r") as file:

        def visit(_: str, found: object) -> None:
            dict(found.attrs)
            if isinstance(found, h5py.Dataset) and found.chunks:
                rows: list[object] = []
                found.id.chunk_iter(rows.append)

        file.visititems(visit)


def virtualizarr(path: Path) -> None:
    """Parse with VirtualiZarr's HDFParser."""
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr.parsers import HDFParser

    HDFParser()(f"file://{path}", ObjectStoreRegistry({"file://": LocalStore()}))


def virtual_dataset(path: Path) -> None:
    """Open with VirtualiZarr's open_virtual_dataset, nothing loaded."""
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr import open_virtual_dataset
    from virtualizarr.parsers import HDFParser

    registry = ObjectStoreRegistry({"file://": LocalStore()})
    open_virtual_dataset(
        f"file://{path}", registry=registry, parser=HDFParser(), loadable_variables=[]
    )


def kerchunk(path: Path) -> None:
    """Translate with kerchunk, nothing inlined."""
    from kerchunk.hdf import SingleHdf5ToZarr

    SingleHdf5ToZarr(str(path), inline_threshold=0).translate()


def medians(
    tools: dict[str, Callable[[Path], object]], path: Path, repeat: int
) -> dict[str, float]:
    """Return the median processor time of each tool in milliseconds.

    The tools take turns, because the speed of a shared machine drifts. A first turn is not counted.
    """
    times: dict[str, list[float]] = {name: [] for name in tools}
    for _ in range(repeat + 1):
        for name, tool in tools.items():
            gc.collect()  # what the others left behind
            begun = time.process_time()
            tool(path)
            times[name].append(time.process_time() - begun)
    return {name: 1000 * statistics.median(found[1:]) for name, found in times.items()}


PAGED = {"fs_strategy": "page", "fs_page_size": 4 * 1024 * 1024}
FORMATS = {"default": {}, "latest": {"libver": "latest"}, "paged": PAGED}
CASES: dict[str, tuple[Callable[[Path], None], int]] = {
    "10 variables x 10 chunks": (ten_by_ten, 41),
    "48 chunks": (one_variable((48, 1000), (1, 1000)), 41),
    **{
        f"5,000 chunks, {name}": (one_variable((500, 100), (1, 10), **options), 15)
        for name, options in FORMATS.items()
    },
    **{
        f"100,000 chunks, {name}": (one_variable((1000, 100), (1, 1), **options), 5)
        for name, options in FORMATS.items()
    },
}
TOOLS: Tools = {
    "h5py floor": floor,
    "icevirt": scan_file,
    "icevirt, concat_dim": lambda path: scan_file(path, concat_dim="time"),
    "VirtualiZarr parser": virtualizarr,
    "open_virtual_dataset": virtual_dataset,
    "kerchunk": kerchunk,
}


def compare(directory: Path) -> None:
    """Print what each tool takes for each case."""
    for title, (write, repeat) in CASES.items():
        path = directory / "file.nc"
        write(path)
        found = medians(TOOLS, path, repeat)
        print(title)
        for name, milliseconds in found.items():
            ratio = milliseconds / found["icevirt"]
            print(f"  {name:22s} {milliseconds:9.2f} ms  {ratio:6.2f} x icevirt")
        path.unlink()


def in_a_row(directory: Path) -> None:
    """Print what a file takes where one process scans ten such files one after the other."""
    for title in list(CASES)[:2]:
        write, repeat = CASES[title]
        paths = [directory / f"{number}.nc" for number in range(10)]
        for path in paths:
            write(path)
        tools = {name: over(paths, TOOLS[name]) for name in ("h5py floor", "icevirt")}
        floor, ours = (each / len(paths) for each in medians(tools, directory, repeat).values())
        print(f"ten in a row, {title}: h5py {floor:.2f} ms a file, icevirt {ours:.2f} ms")


def over(paths: list[Path], tool: Callable[[Path], object]) -> Callable[[Path], object]:
    """Return what runs a tool over all of some files."""
    return lambda _: [tool(path) for path in paths]


def endure(directory: Path) -> None:
    """Print how open files and memory grow over many scans, and what a dense file takes."""
    small, dense = directory / "small.nc", directory / "dense.nc"
    ten_by_ten(small)
    scan_file(small)
    before = len(os.listdir("/proc/self/fd")), kibibytes()
    for _ in range(5000):
        scan_file(small)
    after = len(os.listdir("/proc/self/fd")), kibibytes()
    print(
        f"5,000 files: open files {before[0]} -> {after[0]}, memory {before[1]} -> {after[1]} KiB"
    )
    one_variable((1000, 1000), (1, 1))(dense)
    before_dense = kibibytes()
    scan_file(dense)
    print(f"1,000,000 chunks: {kibibytes() - before_dense} KiB more at the peak")


def kibibytes() -> int:
    """Return the peak of this process's memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    """Print all figures."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as directory:
        endure(Path(directory))
        in_a_row(Path(directory))
        compare(Path(directory))


if __name__ == "__main__":
    main()
