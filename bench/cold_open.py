"""Opens repositories cold, the same program under icechunk and icevirt.

    python bench/cold_open.py                      # 5 rounds
    python bench/cold_open.py --rounds 11 --refs 5000000

`first value`: open a repository on local disk, open an array of a million virtual chunks, 100 of
each file, and read one value. `dataset`: open 100 variables of a million steps along a shared
time coordinate, a thousand virtual chunks each, with xarray, and make the repr.

icevirt writes both repositories. Each round runs in two processes of its own, in turns, with
everything imported before the clock starts; files are in the page cache. Figures are medians:
milliseconds of wall clock, of processor time of all threads, MiB of memory above what was held
before. `x` is icechunk's figure divided by icevirt's: above 1 where icevirt needs less. `requests`
are the calls of icevirt to the repository's storage, which are what an object store would be
asked; the official client's cannot be counted from outside.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PER_FILE = 100
VARIABLES, STEPS, CHUNK = 100, 1_000_000, 1_000
HEAD = "{:<12} {:<14} {:>10} {:>10} {:>7}"
FIGURES = {  # name in what a process prints: (label, digits)
    "wall": ("wall ms", 1),
    "cpu": ("cpu ms", 1),
    "peak": ("MiB", 0),
    "requests": ("requests", 0),
}


# -- the repositories ------------------------------------------------------------------------


def make(root: Path, refs: int) -> None:
    """Make both repositories, and the files they refer to."""
    archive = root / "archive"
    archive.mkdir()
    values = np.arange(PER_FILE * 16, dtype="<i4").tobytes()
    files = -(-refs // PER_FILE)
    for number in (0, refs // 2 // PER_FILE):  # those that are read
        (archive / f"{number}.bin").write_bytes(values)
    codes = np.arange(refs) // PER_FILE
    offsets = np.arange(refs) % PER_FILE * 64
    urls = [f"file://{archive}/{number}.bin" for number in range(files)]
    _make(root / "first value", archive, {"x": (refs, 16)}, urls, codes, offsets)
    chunks = STEPS // CHUNK
    places = np.arange(chunks) * CHUNK * 4
    names = {f"variable_{number:03d}": (STEPS, CHUNK) for number in range(VARIABLES)}
    _make(root / "dataset", archive, names, urls[:1], np.zeros(chunks, np.int64), places)


def _make(
    root: Path,
    archive: Path,
    arrays: dict[str, tuple[int, int]],
    urls: list[str],
    codes: np.ndarray,
    offsets: np.ndarray,
) -> None:
    import zarr

    import icevirt

    config = icevirt.RepositoryConfig.default()
    store = icevirt.local_filesystem_store(str(archive))
    config.set_virtual_chunk_container(icevirt.VirtualChunkContainer(f"file://{archive}/", store))
    storage = icevirt.local_filesystem_storage(str(root))
    session = icevirt.Repository.create(storage, config).writable_session("main")
    zarr.create_group(session.store)
    if len(arrays) > 1:
        steps = zarr.create_array(
            session.store,
            name="time",
            data=np.arange(STEPS),
            chunks=(STEPS,),
            dimension_names=("time",),
        )
        steps.attrs["units"] = "seconds since 2000-01-01"
    for name, (length, chunk) in arrays.items():
        shape = (len(codes) * 16,) if len(arrays) == 1 else (length,)
        zarr.create_array(
            session.store,
            name=name,
            shape=shape,
            chunks=(chunk,),
            dtype="<i4",
            compressors=None,
            fill_value=0,
            dimension_names=("time",),
        )
        lengths = np.full(len(codes), 4 * chunk)
        session.store.set_virtual_refs_arr(name, (len(codes),), urls, offsets, lengths, codes=codes)
    session.commit("all")


# -- the programs ----------------------------------------------------------------------------


class Counted:
    """A storage that counts what it is asked."""

    def __init__(self, storage: Any) -> None:
        self._storage = storage
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._storage, name)
        if not callable(found):
            return found

        def counted(*given: Any, **named: Any) -> Any:
            self.calls.append(f"{name} {given[0] if given else ''}")
            return found(*given, **named)

        return counted


def first_value(opened: Callable[[], Any]) -> None:
    """Read one value in the middle."""
    import zarr

    array = zarr.open_array(opened(), path="x", mode="r")
    middle = array.shape[0] // 32 * 16
    if int(array[middle]) != middle // 16 % PER_FILE * 16:
        raise SystemExit(f"a wrong value: {array[middle]}")


def with_icechunk(what: str, root: Path) -> dict[str, float]:
    """Run a program under the official client."""
    import icechunk
    import xarray as xr

    icechunk.set_logs_filter("error")
    access = {f"file://{root / 'archive'}/": icechunk.credentials.LocalFileSystemAccess}

    def opened() -> Any:
        storage = icechunk.local_filesystem_storage(str(root / what))
        repo = icechunk.Repository.open(storage, None, access)
        return repo.readonly_session("main").store

    if what == "first value":
        return measured(lambda: first_value(opened))
    return measured(lambda: repr(xr.open_zarr(opened(), consolidated=False, chunks=None)))


def with_icevirt(what: str, root: Path) -> dict[str, float]:
    """Run a program under icevirt."""
    import xarray as xr

    import icevirt
    from icevirt.access.store import zarr_store as store
    from icevirt.access.xarray import backend, datastore

    # what is not there until it is asked for; imports are not what is measured
    _ = icevirt.Repository, icevirt.local_filesystem_storage, backend, datastore, store

    prefixes = [f"file://{root / 'archive'}/"]
    storages = []

    def storage() -> Any:
        storages.append(Counted(icevirt.local_filesystem_storage(str(root / what))))
        return storages[0]

    def opened() -> Any:
        repo = icevirt.Repository.open(storage(), authorize_virtual_chunk_access=prefixes)
        return repo.readonly_session("main").store

    def dataset() -> None:
        xr.set_options(display_max_rows=12)
        repr(xr.open_dataset(storage(), engine="icevirt", authorize_virtual_chunk_access=prefixes))

    figures = measured((lambda: first_value(opened)) if what == "first value" else dataset)
    print("\n".join(storages[0].calls), file=sys.stderr)
    return figures | {"requests": len(storages[0].calls)}


RUN = {"icechunk": with_icechunk, "icevirt": with_icevirt}


# -- measuring -------------------------------------------------------------------------------


def measured(work: Callable[[], object]) -> dict[str, float]:
    """Run and return wall clock, processor time and memory."""
    import dask.array  # noqa: F401 - xarray does, for a repr
    import xarray.backends.zarr  # noqa: F401
    import zarr  # noqa: F401

    Path("/proc/self/clear_refs").write_text("5")
    held = memory("VmRSS")
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return {
        "wall": 1000 * (time.perf_counter() - wall),
        "cpu": 1000 * (time.process_time() - cpu),
        "peak": memory("VmHWM") - held,
    }


def memory(name: str) -> float:
    """Return a size of this process in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def child(who: str, what: str, root: Path) -> dict[str, float]:
    """Run a program in a process of its own."""
    command = [sys.executable, __file__, "--child", who, what, str(root)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--refs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        who, what, root = given.child
        print(json.dumps(RUN[who](what, Path(root))))
        return
    print(HEAD.format("program", "median", "icechunk", "icevirt", "x"))
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), given.refs)
        for what in ("first value", "dataset"):
            runs: dict[str, list[dict[str, float]]] = {who: [] for who in RUN}
            for turn in range(given.rounds):
                for who in sorted(RUN, reverse=bool(turn % 2)):
                    runs[who].append(child(who, what, Path(folder)))
            for name, (label, digits) in FIGURES.items():
                ours = statistics.median(run[name] for run in runs["icevirt"])
                if name not in runs["icechunk"][0]:
                    print(HEAD.format(what, label, "-", f"{ours:.{digits}f}", "-"))
                    continue
                theirs = statistics.median(run[name] for run in runs["icechunk"])
                figures = f"{theirs:.{digits}f}", f"{ours:.{digits}f}"
                print(HEAD.format(what, label, *figures, f"{theirs / ours:.2f}"), flush=True)


if __name__ == "__main__":
    main()
