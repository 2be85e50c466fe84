"""Reads whole variables of many files: each reader in a process of its own, in turns.

    python bench/read_whole.py                                 # 60 files, all layouts and readers
    python bench/read_whole.py --files 20 --rounds 3 --layout small --reader icevirt --reader h5py

HDF5 files of 24 steps of one variable (3.4 MB of values each) in three layouts: `small` has chunks
of 7 kB with deflate and shuffle, `plain` the same chunks without filters, `large` chunks of 260 kB
with deflate and shuffle. h5py reads the files; the others read one repository of references to
them, or VirtualiZarr's ManifestStore of each file. `fused` is zarr's FusedCodecPipeline in place of
its default.

Each process has opened and read the first file before the clock starts; then it opens once more and
reads all of them. What is read must equal, byte by byte, what was written. Figures are medians of
rounds in which all readers take turns: seconds by the clock, processor time of all threads, and
both divided by h5py's. `plain mean` is a mean over the variable in icevirt's engine, `dask mean`
the same on dask's threads with `chunks={}`, which is a task for each chunk of the files,
`dask mean, columns` with `chunks={"time": 120}`, in which xarray keeps the chunks of the files
along the other axes, and `dask mean, blocks` with blocks of 120 whole steps.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perf_inputs import module_of, opened

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

type Read = Callable[[int], NDArray[np.float32]]  # the values of the first files

FILES = 60
STEPS, SIDES = 24, (240, 150)  # of a file
FILTERS = {"compression": 4, "shuffle": True}
LAYOUTS: dict[str, dict[str, Any]] = {
    "small": {"chunks": (1, 12, 150), **FILTERS},
    "plain": {"chunks": (1, 12, 150)},
    "large": {"chunks": (2, 216, 150), **FILTERS},
}
FUSED = {"codec_pipeline.path": "zarr.core.codec_pipeline.FusedCodecPipeline"}


@dataclass(frozen=True, slots=True)
class Case:
    """Files of one layout, in a folder, and a repository of references to them."""

    folder: Path

    @property
    def paths(self) -> list[str]:
        """The files."""
        return sorted(str(each) for each in (self.folder / "files").iterdir())

    @property
    def prefix(self) -> str:
        """What has to be authorized."""
        return (self.folder / "files").as_uri() + "/"

    @property
    def written(self) -> dict[str, Any]:
        """What all readers have to find."""
        found: dict[str, Any] = json.loads((self.folder / "written.json").read_text())
        return found


def make(folder: Path, layout: str, files: int) -> None:
    """Write the files of a layout, and build a repository over them."""
    import h5py
    import numpy as np

    import icevirt

    case = Case(folder / layout)
    (case.folder / "files").mkdir(parents=True)
    shape = STEPS, *SIDES
    steps = np.random.default_rng(0).normal(size=np.prod(shape))
    base = np.cumsum(steps).astype("f4").round(1).reshape(shape)
    digest, total = 0, 0.0
    for number in range(files):
        with h5py.File(case.folder / "files" / f"f{number:03}.nc", "w") as file:
            hours = np.arange(STEPS, dtype="f8") + STEPS * number
            times = file.create_dataset("time", data=hours, maxshape=(None,))
            times.attrs["units"] = "hours since 2000-01-01"
            times.make_scale()
            values = base + np.float32(number)
            data = file.create_dataset("v", data=values, maxshape=(None, *SIDES), **LAYOUTS[layout])
            data.dims[0].attach_scale(times)
        digest = zlib.crc32(values, digest)
        total += float(values.sum(dtype="f8"))
    written = {"files": files, "crc32": digest, "mean": total / (files * base.size)}
    (case.folder / "written.json").write_text(json.dumps(written))
    icevirt.build(case.paths, case.folder / "repo", concat_dim="time", executor="in-process")


# -- readers ---------------------------------------------------------------------------------------


def with_h5py(case: Case) -> Read:
    """Read the files one after the other into one array."""
    import h5py
    import numpy as np

    def read(files: int) -> NDArray[np.float32]:
        out = np.empty((files * STEPS, *SIDES), "f4")
        for number, path in enumerate(case.paths[:files]):
            with h5py.File(path) as file:
                file["v"].read_direct(out[number * STEPS : (number + 1) * STEPS])
        return out

    return read


def _dataset(case: Case, **options: Any) -> Any:
    import xarray as xr

    return xr.open_dataset(
        case.folder / "repo",
        engine="icevirt",
        authorize_virtual_chunk_access=[case.prefix],
        decode_times=False,
        **options,
    )


def with_icevirt(case: Case) -> Read:
    """Read through the engine of xarray."""
    return lambda files: _dataset(case)["v"][: files * STEPS].values


def with_xarray(client: str) -> Callable[[Case], Read]:
    """Read the store of a client through xarray's engine for zarr."""

    def reader(case: Case) -> Read:
        import xarray as xr

        def read(files: int) -> NDArray[np.float32]:
            repo = opened(client, case.folder / "repo", authorized=case.prefix)
            store = repo.readonly_session("main").store
            found = xr.open_zarr(store, chunks=None, consolidated=False, decode_times=False)
            values: NDArray[np.float32] = found["v"][: files * STEPS].values
            return values

        return read

    return reader


def with_zarr(client: str) -> Callable[[Case], Read]:
    """Read the store of a client through zarr alone."""

    def reader(case: Case) -> Read:
        import zarr

        def read(files: int) -> NDArray[np.float32]:
            repo = opened(client, case.folder / "repo", authorized=case.prefix)
            array: Any = zarr.open(repo.readonly_session("main").store, path="v", mode="r")
            values: NDArray[np.float32] = array[: files * STEPS]
            return values

        return read

    return reader


def with_virtualizarr(case: Case) -> Read:
    """Read the ManifestStore of each file, which was parsed before the clock starts."""
    import numpy as np
    import zarr
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr.parsers import HDFParser

    parser, registry = HDFParser(), ObjectStoreRegistry({"file://": LocalStore()})
    stores = [parser(url=f"file://{path}", registry=registry) for path in case.paths]

    def read(files: int) -> NDArray[np.float32]:
        out = np.empty((files * STEPS, *SIDES), "f4")
        for number, store in enumerate(stores[:files]):
            array: Any = zarr.open_group(store, mode="r", zarr_format=3)["v"]
            out[number * STEPS : (number + 1) * STEPS] = array[:]
        return out

    return read


def _in_fused_pipeline(reader: Callable[[Case], Read]) -> Callable[[Case], Read]:
    def fused(case: Case) -> Read:
        import zarr

        zarr.config.set(FUSED)
        return reader(case)

    return fused


def with_mean(*, chunks: dict[int, int] | None = None) -> Callable[[Case], Read]:
    """Return the mean of the variable, in chunks of dask along some axes if they are given."""

    def reader(case: Case) -> Read:
        options: dict[str, Any] = {}
        if chunks is not None:
            import dask

            dask.config.set(scheduler="threads")
            dims = _dataset(case)["v"].dims
            options["chunks"] = {dims[axis]: size for axis, size in chunks.items()}
        return lambda files: _dataset(case, **options)["v"][: files * STEPS].mean(dtype="f8").values

    return reader


READERS = {
    "h5py": with_h5py,
    "icevirt": with_icevirt,
    "zarr.open": with_zarr("icevirt"),
    "zarr.open, fused": _in_fused_pipeline(with_zarr("icevirt")),
    "icechunk": with_xarray("icechunk"),
    "icechunk, fused": _in_fused_pipeline(with_xarray("icechunk")),
    "VirtualiZarr": with_virtualizarr,
    "plain mean": with_mean(),
    "dask mean": with_mean(chunks={}),
    "dask mean, columns": with_mean(chunks={0: 120}),
    "dask mean, blocks": with_mean(chunks={0: 120, 1: -1, 2: -1}),
}


def read_all(reader: str, case: Case, run: Callable[[Callable[[], Any]], Any]) -> None:
    """Read everything; ``run`` measures. What was read must be what was written."""
    if reader.startswith("icechunk"):
        module_of("icechunk")  # quietly
    read, written = READERS[reader](case), case.written
    read(1)
    values = run(lambda: read(written["files"]))
    if values.shape:
        is_same = zlib.crc32(values.tobytes()) == written["crc32"]
    else:
        is_same = abs(float(values) - written["mean"]) < 1e-6 * abs(written["mean"])
    if not is_same:
        raise SystemExit(f"{reader} reads other values of {case.folder.name} than were written")


# -- processes and the table -----------------------------------------------------------------------


def child(reader: str, folder: Path) -> None:
    """Read in this process, and print clock and processor time."""
    taken: list[float] = []

    def run(work: Callable[[], Any]) -> Any:
        clock, processor = time.perf_counter(), time.process_time()
        values = work()
        taken.extend((time.perf_counter() - clock, time.process_time() - processor))
        return values

    read_all(reader, Case(folder), run)
    print(json.dumps(taken))


def measured(reader: str, folder: Path) -> tuple[float, float]:
    """Read in a process of its own; return clock and processor time, seconds."""
    command = [sys.executable, __file__, "--child", reader, str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    clock, processor = json.loads(done.stdout)
    return clock, processor


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--layout", action="append", choices=list(LAYOUTS))
    parser.add_argument("--reader", action="append", choices=list(READERS))
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.child[0], Path(given.child[1]))
        return
    readers = ["h5py", *(each for each in given.reader or READERS if each != "h5py")]
    print("| chunks | reader | clock | processor | clock / h5py | processor / h5py |")
    print("|---|---|---|---|---|---|")
    for layout in given.layout or LAYOUTS:
        with tempfile.TemporaryDirectory(prefix="icevirt-whole-") as name:
            folder = Path(name).resolve()
            make(folder, layout, given.files)
            for line in lines_of(layout, folder / layout, readers, given.rounds):
                print(line, flush=True)


def lines_of(layout: str, folder: Path, readers: list[str], rounds: int) -> list[str]:
    """Measure all readers of a layout; return lines of the table."""
    taken: dict[str, list[tuple[float, float]]] = {each: [] for each in readers}
    for number in range(rounds + 1):
        for reader, found in taken.items():
            took = measured(reader, folder)
            if number:  # the first one fills caches, and compiles modules
                found.append(took)
    middle = {
        reader: [statistics.median(column) for column in zip(*found, strict=True)]
        for reader, found in taken.items()
    }
    floor = middle["h5py"]
    return [
        f"| {layout} | {reader} | {clock:.2f} s | {processor:.2f} s |"
        f" {clock / floor[0]:.2f} | {processor / floor[1]:.2f} |"
        for reader, (clock, processor) in middle.items()
    ]


if __name__ == "__main__":
    main()
