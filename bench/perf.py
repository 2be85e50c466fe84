"""Run short forms of the benchmarks beside the peers, and print one table of ratios.

    python bench/perf.py                      # all rows, seven minutes on two cores
    python bench/perf.py --rounds 9 --only start --only references
    python bench/perf.py --write              # and put the table into docs/performance.md

Each measurement runs in a process of its own, icevirt and the peer in turns, over the same files.
Rows that say "process" measure from the start of the process to its end; the others have imported
what they need before the clock starts. Clock and processor time (of all threads and children) are
medians. "x" is the peer's figure divided by icevirt's: above 1 where icevirt needs less. The last
column is the floor: the least that the work takes by plain h5py, zarr or a plain write.

Nothing fails by time. What must not grow is counted by tests: modules at import, requests, hashed
bytes, Python calls.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
MARKS = "<!-- made by bench/perf.py -->", "<!-- end of what bench/perf.py makes -->"
FILES, CHUNKS = 100, 48  # of the archive: files, and chunks in each
HISTORY = 300  # snapshots
LOOKED_UP = 2_000_000  # references of the array in which one chunk is looked up
VARIABLES = 1_000
READS = 500


@dataclass(frozen=True)
class Row:
    """What is measured: sides by name, each a function of the folder with the inputs."""

    what: str
    sides: dict[str, Callable[[Path], Any]]
    whole: bool = False  # the process from start to end


# -- what is measured ------------------------------------------------------------------------------


class Clock:
    """Measures a part of a process."""

    took: tuple[float, float] | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Measure what happens inside, by the clock and by processor time."""
        begin, spent = time.perf_counter(), _spent()
        yield
        self.took = time.perf_counter() - begin, _spent() - spent


CLOCK = Clock()


def _spent() -> float:
    kinds = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    return sum(each.ru_utime + each.ru_stime for each in map(resource.getrusage, kinds))


def nothing(folder: Path) -> None:
    """Do nothing: the start of Python."""


def first_value(client: str) -> Callable[[Path], None]:
    """Import, open, read one value that is stored in the repository."""

    def work(folder: Path) -> None:
        import zarr

        repo = _opened(client, folder / "small")
        array = zarr.open_array(repo.readonly_session("main").store, path="native", mode="r")
        assert array[0] == 7

    return work


def zarr_alone(folder: Path) -> None:
    """Import zarr and read the same value from a directory."""
    import zarr

    assert zarr.open_array(folder / "plain", path="native", mode="r")[0] == 7


def helped(*words: str) -> Callable[[Path], None]:
    """Run the command in this process."""

    def work(folder: Path) -> None:
        from icevirt.cli.entry import run

        sys.argv = ["icevirt", *(each.format(folder) for each in words)]
        out = os.dup(1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        status: object = None
        try:
            run()
        except SystemExit as stop:
            status = stop.code
        finally:
            sys.stdout.flush()
            os.dup2(out, 1)
        assert not status

    return work


def references(client: str, count: int, per_file: int) -> Callable[[Path], None]:
    """Set references of an array from a list of strings, and commit them."""

    def work(folder: Path) -> None:
        import numpy as np
        import zarr

        repo = _created(client, folder)
        session = repo.writable_session("main")
        zarr.create_array(
            session.store, name="v", shape=(count,), chunks=(1,), dtype="i8", compressors=None
        )
        number = np.arange(count)
        prefix = (folder / "data").as_uri()
        locations = [f"{prefix}/granule_{each:08d}.nc" for each in (number // per_file).tolist()]
        offsets = (number % per_file * 8).astype(np.uint64)
        lengths = np.full(count, 8, np.uint64)
        with CLOCK.running():
            session.store.set_virtual_refs_arr(
                "/v",
                chunk_grid_shape=[count],
                locations=locations,
                offsets=offsets,
                lengths=lengths,
                validate_containers=True,
            )
            session.commit("references")

    return work


def small_commits(client: str) -> Callable[[Path], None]:
    """Commit one chunk, ten times, in a repository with a history."""

    def work(folder: Path) -> None:
        import shutil

        import zarr

        with tempfile.TemporaryDirectory(dir=folder) as own:
            shutil.copytree(folder / "history", Path(own) / "repo")
            repo = _opened(client, Path(own) / "repo")
            with CLOCK.running():
                for number in range(10):
                    session = repo.writable_session("main")
                    zarr.open_array(session.store, path="v", mode="r+")[0] = number
                    session.commit(f"commit {number}")

    return work


def one_of_many(client: str) -> Callable[[Path], None]:
    """Open a repository and read one chunk of an array of millions."""

    def work(folder: Path) -> None:
        import zarr

        prefix = folder.as_uri() + "/"
        with CLOCK.running():
            repo = _opened(client, folder / "many", authorized=prefix)
            array = zarr.open_array(repo.readonly_session("main").store, path="v", mode="r")
            assert array[LOOKED_UP // 3] == LOOKED_UP // 3 % 1000

    return work


def scattered(client: str) -> Callable[[Path], None]:
    """Read chunks of an array here and there."""

    def work(folder: Path) -> None:
        import numpy as np
        import zarr

        prefix = folder.as_uri() + "/"
        repo = _opened(client, folder / "many", authorized=prefix)
        array = zarr.open_array(repo.readonly_session("main").store, path="v", mode="r")
        at = np.sort(np.random.default_rng(0).choice(LOOKED_UP, READS, replace=False))
        with CLOCK.running():
            found = array.oindex[at]
        assert (found == at % 1000).all()

    return work


def many_variables(client: str) -> Callable[[Path], None]:
    """Open a dataset of a thousand variables in xarray, and make its repr."""

    def work(folder: Path) -> None:
        import xarray as xr

        repo = _opened(client, folder / "wide")
        store = repo.readonly_session("main").store
        xr.open_zarr(store, group="warm", consolidated=False, zarr_format=3, chunks=None)
        with CLOCK.running():
            found = xr.open_zarr(
                store, group="wide", consolidated=False, zarr_format=3, chunks=None
            )
            assert len(found.data_vars) == VARIABLES
            repr(found)

    return work


def scans(tool: str) -> Callable[[Path], None]:
    """Scan twenty files of 48 chunks, after another one."""

    def work(folder: Path) -> None:
        files = _archive(folder)
        scan = _SCANS[tool]()
        scan(files[-1])
        with CLOCK.running():
            for each in files[:20]:
                scan(each)

    return work


def _icevirt_scan() -> Callable[[str], object]:
    from icevirt import scan_file

    return scan_file


def _virtualizarr_scan() -> Callable[[str], object]:
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr.parsers import HDFParser

    parser, registry = HDFParser(), ObjectStoreRegistry({"file://": LocalStore()})
    return lambda path: parser(url=f"file://{path}", registry=registry)


def _h5py_scan() -> Callable[[str], object]:
    import h5py

    def look(path: str) -> None:
        with h5py.File(path) as file:
            for dataset in [file[name] for name in file]:
                dict(dataset.attrs.items())
                if dataset.chunks:
                    dataset.id.chunk_iter(lambda _: None)

    return look


_SCANS = {"icevirt": _icevirt_scan, "VirtualiZarr": _virtualizarr_scan, "floor": _h5py_scan}


def builds(tool: str) -> Callable[[Path], None]:
    """Build a repository over all files of the archive."""

    def work(folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as own:
            if tool == "icevirt":
                import icevirt

                icevirt.build(_archive(folder), f"{own}/repo", concat_dim="time")
                return
            from obspec_utils.registry import ObjectStoreRegistry
            from obstore.store import LocalStore
            from virtualizarr import open_virtual_mfdataset
            from virtualizarr.parsers import HDFParser

            found = open_virtual_mfdataset(
                _archive(folder),
                parser=HDFParser(),
                registry=ObjectStoreRegistry({"file://": LocalStore()}),
                combine="by_coords",
                coords="minimal",
                data_vars="minimal",
                compat="override",
            )
            session = _created("icechunk", folder).writable_session("main")
            found.vz.to_icechunk(session.store)
            session.commit("build")

    return work


def _both(work: Callable[..., Callable[[Path], None]], *given: Any) -> dict[str, Any]:
    return {client: work(client, *given) for client in ("icevirt", "icechunk")}


ROWS = {
    "start": Row(
        "first value of an array, process",
        {**_both(first_value), "floor": zarr_alone},
        whole=True,
    ),
    "help": Row("icevirt --help, process", {"icevirt": helped("--help"), "floor": nothing}, True),
    "info": Row(
        "icevirt info REPO, process",
        {"icevirt": helped("info", "{0}/small"), "floor": nothing},
        True,
    ),
    "references": Row("a million references, 100 a file", _both(references, 1_000_000, 100)),
    "files": Row("a million references, one a file", _both(references, 1_000_000, 1)),
    "few": Row("10,000 references, 100 a file", _both(references, 10_000, 100)),
    "commit": Row(f"10 commits behind {HISTORY} snapshots", _both(small_commits)),
    "lookup": Row(f"one chunk of {LOOKED_UP:,}", _both(one_of_many)),
    "scattered": Row(f"{READS} chunks of {LOOKED_UP:,}, local file", _both(scattered)),
    "variables": Row(f"{VARIABLES:,} variables in xarray", _both(many_variables)),
    "scan": Row(
        "20 files of 48 chunks scanned", {tool: scans(tool) for tool in _SCANS}
    ),
    "build": Row(
        f"build over {FILES} files, process",
        {tool: builds(tool) for tool in ("icevirt", "VirtualiZarr")},
        whole=True,
    ),
}  # fmt: skip


# -- what it is measured with ----------------------------------------------------------------------


def _client(name: str) -> Any:
    if name == "icechunk":
        import icechunk

        icechunk.set_logs_filter("error")
        return icechunk
    import icevirt.icechunk

    return icevirt.icechunk


def _opened(client: str, path: Path, authorized: str = "") -> Any:
    module = _client(client)
    access = module.credentials.LocalFileSystemAccess
    granted = {authorized: access} if authorized else None
    storage = module.local_filesystem_storage(str(path))
    return module.Repository.open(storage, authorize_virtual_chunk_access=granted)


def _created(client: str, folder: Path) -> Any:
    module = _client(client)
    config = module.RepositoryConfig.default()
    prefix = folder.as_uri() + "/"
    store = module.local_filesystem_store(str(folder))
    config.set_virtual_chunk_container(module.VirtualChunkContainer(prefix, store))
    place = tempfile.mkdtemp(dir=folder)
    return module.Repository.create(module.local_filesystem_storage(place), config=config)


def _archive(folder: Path) -> list[str]:
    return sorted(str(each) for each in (folder / "archive").iterdir())


def make(folder: Path) -> None:
    """Write the inputs of all rows."""
    import icechunk
    import netCDF4
    import numpy as np
    import xarray as xr
    import zarr

    (folder / "archive").mkdir()
    (folder / "data").mkdir()
    for number in range(FILES):
        with netCDF4.Dataset(folder / "archive" / f"day{number:04}.nc", "w") as file:
            for name, length in (("time", None), ("lat", 24), ("lon", 36)):
                file.createDimension(name, length)
            times = file.createVariable("time", "f8", ("time",))
            times.units = "hours since 2000-01-01"
            times[:] = np.arange(CHUNKS // 2) + number * CHUNKS // 2
            for name, length in (("lat", 24), ("lon", 36)):
                file.createVariable(name, "f4", (name,))[:] = np.arange(length)
            for name in ("tas", "pr"):
                data = file.createVariable(
                    name, "f4", ("time", "lat", "lon"), zlib=True, chunksizes=(1, 24, 36)
                )
                data.units = "K"
                data[:] = np.random.default_rng(number).random((CHUNKS // 2, 24, 36))

    def repository(name: str) -> Any:
        storage = icechunk.local_filesystem_storage(str(folder / name))
        return icechunk.Repository.create(storage)

    session = repository("small").writable_session("main")
    for store in (session.store, folder / "plain"):
        zarr.create_array(store, name="native", data=np.full(10, 7), chunks=(10,))
    session.commit("small")
    repo = repository("history")
    for number in range(HISTORY):
        session = repo.writable_session("main")
        if not number:
            zarr.create_array(session.store, name="v", shape=(10,), chunks=(1,), dtype="i8")
        zarr.open_array(session.store, path="v")[1] = number
        session.commit(f"commit {number}")
    session = repository("wide").writable_session("main")
    for group, count in (("warm", 1), ("wide", VARIABLES)):
        columns = {f"v{number:04}": ("x", np.zeros(4)) for number in range(count)}
        dataset = xr.Dataset(columns, attrs={"title": group})
        dataset.to_zarr(session.store, group=group, consolidated=False, zarr_format=3)
    session.commit("wide")
    (folder / "data" / "values").write_bytes(np.arange(1000, dtype="i8").tobytes())
    made = _created("icevirt", folder)
    session = made.writable_session("main")
    zarr.create_array(
        session.store, name="v", shape=(LOOKED_UP,), chunks=(1,), dtype="i8", compressors=None
    )
    session.store.set_virtual_refs_arr(
        "/v",
        chunk_grid_shape=[LOOKED_UP],
        locations=[(folder / "data" / "values").as_uri()] * LOOKED_UP,
        offsets=(np.arange(LOOKED_UP) % 1000 * 8).astype(np.uint64),
        lengths=np.full(LOOKED_UP, 8, np.uint64),
        validate_containers=True,
    )
    session.commit("many")
    place = next(each for each in folder.iterdir() if each.name.startswith("tmp"))
    place.rename(folder / "many")


# -- processes and the table -----------------------------------------------------------------------


def measured(name: str, side: str, folder: Path) -> tuple[float, float]:
    """Run one side of a row in a process of its own; return clock and processor time, seconds."""
    command = [sys.executable, __file__, "--child", name, side, str(folder)]
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    took = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{name}, {side}: ended with {process.returncode}")
    if ROWS[name].whole:
        return took, usage.ru_utime + usage.ru_stime
    clock, processor = json.loads(printed)
    return clock, processor


def child(name: str, side: str, folder: Path) -> None:
    """Run one side of a row in this process."""
    row = ROWS[name]
    row.sides[side](folder)
    if not row.whole:
        assert CLOCK.took is not None
        print(json.dumps(CLOCK.took))


def line_of(name: str, folder: Path, rounds: int) -> list[str]:
    """Measure a row; return its cells."""
    row = ROWS[name]
    found: dict[str, list[tuple[float, float]]] = {side: [] for side in row.sides}
    for number in range(rounds + 1):
        for side, taken in found.items():
            took = measured(name, side, folder)
            if number:  # the first one fills caches, and compiles modules
                taken.append(took)
    middle = {
        side: tuple(statistics.median(column) for column in zip(*taken, strict=True))
        for side, taken in found.items()
    }
    clock, processor = middle.pop("icevirt")
    floor = middle.pop("floor", None)
    peer = next(iter(middle.items()), None)
    cells = [row.what, shown(clock), shown(processor)]
    if peer is None:
        cells += ["", "", "", "", ""]
    else:
        (their_clock, their_processor) = peer[1]
        cells += [peer[0], shown(their_clock), shown(their_processor)]
        cells += [f"{their_clock / clock:.2f}", f"{their_processor / processor:.2f}"]
    return [*cells, "" if floor is None else shown(floor[1])]


def shown(seconds: float) -> str:
    """Return a time for people."""
    return f"{1000 * seconds:,.0f} ms" if seconds < 10 else f"{seconds:,.1f} s"


HEAD = [
    *("measured", "icevirt, clock", "processor", "peer", "clock", "processor"),
    *("x clock", "x processor", "floor, processor"),
]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", action="append", choices=list(ROWS))
    parser.add_argument("--write", action="store_true", help="the table into docs/performance.md")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(asked.child[0], asked.child[1], Path(asked.child[2]))
        return
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # no start is timed without bytecode
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    with tempfile.TemporaryDirectory(prefix="icevirt-perf-") as name:
        folder = Path(name).resolve()
        make(folder)
        print("\n".join(lines), flush=True)
        for row in asked.only or ROWS:
            lines.append("| " + " | ".join(line_of(row, folder, asked.rounds)) + " |")
            print(lines[-1], flush=True)
    if asked.write:
        text = PAGE.read_text()
        before, _, rest = text.partition(MARKS[0])
        after = rest.partition(MARKS[1])[2]
        table = "\n".join(lines)
        PAGE.write_text(f"{before}{MARKS[0]}\n\n{table}\n\n{MARKS[1]}{after}")


if __name__ == "__main__":
    main()
