"""From a closed catalog to a visible commit on Spark: time, memory and bytes, by references.

    python bench/build_references.py                          # 10 million, 1,000 a file
    python bench/build_references.py --references 100_000_000
    python bench/build_references.py --references 100_000_000 --per-file 10
    python bench/build_references.py --mixed                  # in an order that needs a shuffle
    python bench/build_references.py --per-file 10_000_000    # one file

The catalog is synthetic: ten arrays of (time, y, x), a hundred chunks of each in every file (one
with `--per-file 10`: one reference for each file and array), at random offsets and lengths, and a
coordinate of one value a file. A few parts are made and repeated for all files, with URLs,
checksums and times of their own. A process of its own then does what the driver of a build does
behind the scan, on local[2]; the files that it looks up are made one by one, not held.

Memory is the proportional set size (PSS) of driver, JVM and Python workers together, looked at
every quarter of a second; the peak counts. At the end the official client opens the repository,
reads chunks whose files are made for this, changes one chunk, and looks for garbage.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from icevirt.archive.catalog import ARRAYS as ARRAYS_TABLE

ARRAYS = 10
IDENTITY = "bench"
TEMPLATES = 4
SECOND = 1_000_000_000
SIZE = 1 << 40  # bytes of every file; those that are made have holes
MODIFIED = 1_700_000_000 * SECOND


@dataclass(frozen=True)
class Archive:
    """The files of a synthetic archive."""

    root: Path
    references: int
    per_file: int
    mixed: bool  # files lie in the dataset in another order than in the catalog

    @property
    def files(self) -> int:
        """How many there are."""
        return self.references // self.per_file

    @property
    def grid(self) -> tuple[int, int, int]:
        """Chunks of one array in one file."""
        return (4, 5, 5) if self.per_file == 1000 else (1, 1, self.per_file // ARRAYS)

    def sources(self):
        """Return the files as a listing would, each made when it is looked at."""
        return Listed(url=(self.root / "data").as_uri(), count=self.files)


@dataclass(frozen=True)
class Listed(Sequence):
    """Files in a row, made when they are asked for."""

    url: str
    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, n):
        from icevirt.archive.sources import SourceFile

        if isinstance(n, slice):
            return [self[at] for at in range(*n.indices(self.count))]
        if n >= self.count:
            raise IndexError(n)
        url = f"{self.url}/product/{n // 1000:06d}/granule_v2_{n:08d}.nc"
        return SourceFile(url=url, size=SIZE, last_modified=MODIFIED)


# -- the catalog -------------------------------------------------------------------------------


def make(archive: Archive) -> None:
    """Write the catalog."""
    from icevirt.archive.catalog import size_of_parts
    from icevirt.catalog.parts import PartTables, mark, write_part
    from icevirt.storage.local import LocalStorage

    storage, sources = LocalStorage(archive.root / "catalog"), archive.sources()
    mark(storage)
    size = size_of_parts(archive.files)
    made = [_template(archive, sources[:size], seed) for seed in range(TEMPLATES)]
    moments = np.arange(archive.files, dtype=np.float64)
    if archive.mixed:
        np.random.default_rng(0).shuffle(moments)
    for number, at in enumerate(range(0, archive.files, size)):
        run = sources[at : at + size]
        tables, labelled = made[number % TEMPLATES]
        if len(run) < size:
            tables, labelled = _template(archive, run, number)
        files = dict(tables.files)
        for name in ("url", "size", "etag", "last_modified"):
            files[name] = [getattr(file, name) for file in run]
        labels = np.full(len(tables.arrays["row"]), None, np.object_)
        labels[labelled] = [moment.tobytes() for moment in moments[at : at + len(run)]]
        arrays = {**tables.arrays, "labels": labels}
        part = PartTables(files=files, arrays=arrays, refs=tables.refs)
        write_part(storage, f"{IDENTITY}-{number:032x}", part)


def _template(archive: Archive, files, seed: int):
    """Return tables for some files, and the rows of their times."""
    made = _tables(archive, files, seed)
    kinds = {name: getattr(pa, kind)() for name, kind in ARRAYS_TABLE}
    # a list is turned into a column each time that a part is written
    columns = {name: pa.array(column, kinds[name]) for name, column in made.arrays.items()}
    times = np.flatnonzero(np.array(made.arrays["path"], np.object_) == "/time")
    # references come once, and are written once for each part that repeats the template
    return replace(made, arrays=columns, refs=[*made.refs]), times


def _tables(archive: Archive, files, seed: int):
    from part_tables import tables_of

    from icevirt.archive.scanned import ScannedFile, ScanOutcome
    from icevirt.archive.schema import ScannedGroup

    rng = np.random.default_rng(seed)
    return tables_of(
        [
            ScanOutcome(
                file=file,
                scanned=ScannedFile(
                    source=file,
                    scanner="hdf5",
                    scanner_version="1",
                    groups=(ScannedGroup(path="/"),),
                    arrays=tuple(_arrays(archive, file, rng)),
                ),
                error=None,
                seconds=0.01,
            )
            for file in files
        ]
    )


def _arrays(archive: Archive, file, rng):
    from icevirt.archive.scanned import ScannedArray
    from icevirt.model.chunks import ChunkTable, Locations
    from icevirt.model.strings import Strings

    grid = archive.grid
    numbers = ({"name": "bytes", "configuration": {"endian": "little"}},)
    yield ScannedArray(
        path="/time",
        dimension_names=("time",),
        shape=(grid[0],),
        chunk_shape=(grid[0],),
        data_type="float64",
        codecs=numbers,
        fill_value="NaN",
        references=ChunkTable.of_inline(index=np.zeros((1, 1), int), chunks=[bytes(8 * grid[0])]),
        whole=True,
        labels=bytes(8),
        labels_dtype="<f8",
        digest="",
    )
    count = int(np.prod(grid))
    length = rng.integers(20_000, 40_000, (ARRAYS, count))
    # as writers leave them: a chunk of each variable in turn, now and then something between
    taken = (length + 8 * rng.integers(0, 300, length.shape)).T
    offset = (4096 + np.cumsum(taken) - taken.ravel()).reshape(taken.shape).T
    index = np.stack(np.unravel_index(np.arange(count), grid), axis=1)
    where = Locations(
        url=Strings.of([file.url]),
        etag=Strings.of([""]),
        last_modified=np.array([MODIFIED // SECOND], np.uint32),
    )
    for number in range(ARRAYS):
        yield ScannedArray(
            path=f"/v{number}",
            dimension_names=("time", "y", "x"),
            shape=(grid[0], 100 * grid[1], 100 * grid[2]),
            chunk_shape=(1, 100, 100),
            data_type="float32",
            codecs=(*numbers, {"name": "numcodecs.zlib", "configuration": {"level": 4}}),
            fill_value="NaN",
            references=ChunkTable.virtual(
                index=index, offset=offset[number], length=length[number], locations=where
            ),
        )


# -- the build ---------------------------------------------------------------------------------


def build(archive: Archive) -> dict:
    """Do what a build does behind its scan; return what it took."""
    from icevirt.api.dataset.records import METADATA
    from icevirt.api.dataset.replacing import Replacing
    from icevirt.api.dataset.scanning import Scan
    from icevirt.api.dataset.target import Target
    from icevirt.api.dataset.writing import Job, commit, refuse_losses, write_all
    from icevirt.archive.sources import SourceFiles
    from icevirt.catalog.facts_reader import read_facts
    from icevirt.catalog.lookup import look_up_files
    from icevirt.execution.executor import give_back
    from icevirt.execution.spark_executor import SparkExecutor
    from icevirt.execution.spark_session import local_session
    from icevirt.planning.combine.options import CombineSpec
    from icevirt.planning.eras.group_plan import combine_eras
    from icevirt.planning.schedule.write_tasks import route_of
    from icevirt.scan.contract import ScannerOptions
    from icevirt.storage.local import LocalStorage

    files = SourceFiles(archive.sources())  # as a listing leaves them
    marks = {"begin": time.perf_counter()}

    def mark(name: str) -> None:
        marks[name] = time.perf_counter()

    spark = local_session(cores=2)
    mark("spark")
    catalog = LocalStorage(archive.root / "catalog")
    known = look_up_files(catalog, IDENTITY, files)
    closed = read_facts(catalog, files, *known.chosen)
    mark("facts")
    plan = combine_eras(closed.facts, CombineSpec(build_id="b" * 20, concat_dim=("time",)))
    del closed, known  # as a build does
    files.fold()
    give_back()
    mark("plan")
    target = Target.look(LocalStorage(archive.root / "repo"), branch="main", group="/", mode="w-")
    scan = Scan(
        files=files, options=ScannerOptions(), catalog=catalog, max_bad_files=0, progress=None
    )
    job = Job(build_id="b" * 20, scan=scan, target=target, record=target.record("b" * 20))
    results = write_all(SparkExecutor(spark), job, plan)
    mark("write")
    refuse_losses(plan, results)
    commit(
        Replacing.of(target, plan, None),
        results,
        message="bench",
        metadata={METADATA: {"build_id": job.build_id, "group": "/"}},
        allow_changes=False,
    )
    mark("commit")
    figures = _spark_figures(spark)
    driver = _pss(os.getpid())
    spark.stop()
    names = list(marks)
    return {
        "route": route_of(plan).describe(),
        "seconds": {b: round(marks[b] - marks[a], 1) for a, b in itertools.pairwise(names)},
        "total_s": round(marks["commit"] - marks["begin"], 1),
        "manifests": sum(result.manifest_id is not None for result in results),
        "repo_MiB": sum(result.size_bytes for result in results) >> 20,
        "driver_end_MiB": driver >> 20,
        **figures,
    }


def _spark_figures(spark) -> dict:
    """Return the bytes that Spark moved."""
    store = spark.sparkContext._jsc.sc().statusStore()  # noqa: SLF001 - no public way
    executors = store.executorList(False)
    each = [executors.apply(n) for n in range(executors.size())]
    return {
        "shuffle_MiB": round(sum(one.totalShuffleWrite() for one in each) / 2**20, 2),
        "results_MiB": round(_result_bytes(store) / 2**20, 3),
        "tasks": sum(one.completedTasks() for one in each),
    }


def _result_bytes(store) -> int:
    """Return what all tasks sent to the driver; their metrics are in it, 2 KiB or so for each."""
    jobs = store.jobsList(None)
    stages = {
        job.stageIds().apply(at)
        for job in (jobs.apply(n) for n in range(jobs.size()))
        for at in range(job.stageIds().size())
    }
    return sum(store.lastStageAttempt(stage).resultSize() for stage in stages)


def _pss(pid: int) -> int:
    """Return the proportional set size of a process, in bytes."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("Pss:"))


class Watch:
    """Look at the memory of a process and all its children until it is stopped."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.peak = self.driver = self.java = 0  # bytes at most
        self.workers = 0  # bytes when all together were most
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.25):
            sizes = {pid: _pss(pid) for pid in _family(self.pid)}
            driver = sizes.get(self.pid, 0)
            java = sum(size for pid, size in sizes.items() if _name(pid) == "java")
            if (total := sum(sizes.values())) > self.peak:
                self.peak = total
                self.workers = total - driver - java
            self.driver = max(self.driver, driver)
            self.java = max(self.java, java)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _family(pid: int) -> list[int]:
    found, new = [], [pid]
    while new:
        found += new
        new = [child for parent in new for child in _children(parent)]
    return found


def _children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(c) for task in tasks for c in (task / "children").read_text().split()]
    except OSError:
        return []


# -- what the official client makes of it ------------------------------------------------------


def official(archive: Archive) -> dict:
    """Open, read, change and clean the repository with the official client."""
    import asyncio
    from datetime import UTC, datetime

    import icechunk
    import zarr

    from icevirt import Repository

    mine = Repository.open(archive.root / "repo").readonly_session("main")
    grid = archive.grid
    rng = np.random.default_rng(5)
    wanted = {}
    for _ in range(5):
        file = int(rng.integers(archive.files))
        inside = [int(rng.integers(n)) for n in grid]
        key = f"v{rng.integers(ARRAYS)}/c/{file * grid[0] + inside[0]}/{inside[1]}/{inside[2]}"
        wanted[key] = _make_source(mine, key, rng)
    storage = icechunk.local_filesystem_storage(str(archive.root / "repo"))
    containers = icechunk.Repository.fetch_config(storage).virtual_chunk_containers
    access = dict.fromkeys(containers, icechunk.credentials.LocalFileSystemAccess)
    begin = time.perf_counter()
    storage = icechunk.local_filesystem_storage(str(archive.root / "repo"))
    repo = icechunk.Repository.open(storage, authorize_virtual_chunk_access=access)
    session = repo.readonly_session("main")
    group = zarr.open_group(session.store, mode="r")
    assert group["v0"].shape[0] == archive.files * grid[0]
    opened = time.perf_counter()
    first = None
    for key, raw in wanted.items():
        got = asyncio.run(_get(session.store, key))
        first = first or time.perf_counter()
        assert got == raw, key
    writing = time.perf_counter()
    before = {name.name for name in (archive.root / "repo/manifests").iterdir()}
    session = repo.writable_session("main")
    zarr.open_group(session.store)["v0"][0, :100, :100] = 1.0
    session.commit("one chunk")
    written = time.perf_counter()
    after = {name.name for name in (archive.root / "repo/manifests").iterdir()}
    garbage = repo.garbage_collect(datetime.now(tz=UTC), dry_run=True)
    return {
        "open_s": round(opened - begin, 2),
        "first_chunk_s": round(first - opened, 2),
        "one_chunk_commit_s": round(written - writing, 2),
        "new_manifests": len(after - before),
        "garbage_manifests": garbage.manifests_deleted,
        "equal_chunks": len(wanted),
    }


async def _get(store, key: str) -> bytes:
    from zarr.core.buffer import default_buffer_prototype

    return (await store.get(key, default_buffer_prototype())).to_bytes()


def _make_source(session, key: str, rng) -> bytes:
    """Make the file behind a chunk, with random bytes where the chunk lies."""
    from icevirt.access.references import source_of_chunk

    path, _, index = key.partition("/c/")
    found = source_of_chunk(session, f"/{path}", tuple(int(n) for n in index.split("/")))
    raw = rng.bytes(found.length)
    file = Path(found.url.removeprefix("file://"))
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("r+b" if file.exists() else "wb") as opened:
        opened.truncate(SIZE)
        opened.seek(found.offset)
        opened.write(raw)
    os.utime(file, ns=(MODIFIED, MODIFIED))
    return raw


# -- in processes of their own -----------------------------------------------------------------


def step(name: str, archive: Archive) -> dict:
    """Run one step in a new process, and add the peak of its memory."""
    command = [sys.executable, __file__, "--step", name, "--root", str(archive.root)]
    command += ["--references", str(archive.references), "--per-file", str(archive.per_file)]
    command += ["--mixed"] * archive.mixed
    begin = time.perf_counter()
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child,
        Watch(child.pid) as watch,
    ):
        out = child.communicate()[0]
    if child.returncode:
        raise SystemExit(f"{name} failed")
    figures = {"wall_s": round(time.perf_counter() - begin, 1), **json.loads(out or "{}")}
    memory = {"peak_MiB": watch.peak, "driver_MiB": watch.driver, "java_MiB": watch.java}
    memory["workers_MiB"] = watch.workers
    figures |= {name: size >> 20 for name, size in memory.items()}
    print(f"{name:9s} {json.dumps(figures)}", flush=True)
    return figures


def main() -> None:
    """Make a catalog, build from it, and let the official client look."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--references", type=int, default=10_000_000)
    parser.add_argument("--per-file", type=int, default=1000)
    parser.add_argument("--mixed", action="store_true")
    parser.add_argument("--root", help="where all is kept; by default a temporary directory")
    parser.add_argument("--step", choices=["make", "build", "official"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        archive = Archive(Path(given.root), given.references, given.per_file, given.mixed)
        figures = {"make": make, "build": build, "official": official}[given.step](archive)
        print(json.dumps(figures or {}))
        return
    root = Path(given.root or tempfile.mkdtemp(prefix="icevirt-bench-"))
    archive = Archive(root, given.references, given.per_file, given.mixed)
    try:
        if not (root / "catalog").exists():
            step("make", archive)
        size = sum(file.stat().st_size for file in (root / "catalog").rglob("*.parquet"))
        print(f"catalog   {size / archive.references:.1f} bytes a reference, {size >> 20} MiB")
        shutil.rmtree(root / "repo", ignore_errors=True)
        step("build", archive)
        step("official", archive)
    finally:
        if not given.root:
            shutil.rmtree(root)


if __name__ == "__main__":
    main()
