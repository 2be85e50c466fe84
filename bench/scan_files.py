"""Compare icevirt's HDF5 scanner with VirtualiZarr's parser on the same local files, one core.

Run: ``.venv/bin/python bench/scan_files.py``. Figures are medians; "floor" is plain h5py reading
every attribute and iterating every chunk, without making anything of them.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

from icevirt.api.scan import scan_file

ROWS: list[tuple[str, int, Callable[[Path], object]]] = []


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


def dense(**options: object) -> Callable[[Path], None]:
    """Make a file of 100,000 chunks in one variable."""

    def write(path: Path) -> None:
        with h5py.File(path, "w", **options) as file:
            file.create_dataset("d", shape=(1000, 100), chunks=(1, 1), dtype="f4")[...] = 1

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


def median(call: Callable[[Path], object], path: Path, repeat: int) -> float:
    """Return the median time of a call in milliseconds, after a first one that is not counted."""
    call(path)
    times = []
    for _ in range(repeat):
        begun = time.perf_counter()
        call(path)
        times.append(time.perf_counter() - begun)
    return 1000 * statistics.median(times)


def main() -> None:
    """Print a table."""
    warnings.simplefilter("ignore")
    cases = {
        "10 variables x 10 chunks": (ten_by_ten, 15),
        "100k chunks, default": (dense(), 3),
        "100k chunks, latest": (dense(libver="latest"), 3),
    }
    tools = {
        "h5py floor": floor,
        "icevirt": scan_file,
        "icevirt, concat_dim": lambda path: scan_file(path, concat_dim="time"),
        "VirtualiZarr parser": virtualizarr,
        "open_virtual_dataset": virtual_dataset,
    }
    with tempfile.TemporaryDirectory() as directory:
        for title, (write, repeat) in cases.items():
            path = Path(directory) / "file.nc"
            write(path)
            found = {name: median(tool, path, repeat) for name, tool in tools.items()}
            print(title)
            for name, milliseconds in found.items():
                print(
                    f"  {name:22s} {milliseconds:9.2f} ms"
                    f"  {milliseconds / found['icevirt']:6.2f} x icevirt"
                )
            path.unlink()


if __name__ == "__main__":
    main()
