"""Write a catalog of many files and read its facts back: time, memory and bytes by number of files.

    python bench/catalog_files.py                 # 10,000 and 100,000 files
    python bench/catalog_files.py --large         # and 1,000,000

The files are synthetic: one small NetCDF file of ten variables, seven of them with four chunks, is
scanned for real, and what was found is given to every file with a URL, an etag and a time of its
own, and chunks of other lengths. Rows and packed references are made (`rows`: of 16 parts, for all
in proportion) and written as scan tasks do, by one process here, on many executors there; scanning
itself is not in it. Another process then does what the driver does first: it looks the files up in
the tables and writes their index, looks them up again in that, and reads the facts. A third one
looks at all rows of the view's files, and a fourth one looks 10 files up, and 10,000, that lie
anywhere.

Printed are seconds of processor time and microseconds for each file, peaks of memory beyond what a
process has after its imports (of the reader: beside the list of files that it is asked for), and
bytes of the catalog. `x` divides by the row above and by the ratio of files: 1.0 is linear. A line
of its own says what some files took: objects and ranges that were read, their bytes, processor
time, and memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
from part_tables import tables_of

from icevirt import catalog_view, scan_file
from icevirt.archive.catalog import parts_of
from icevirt.archive.scanned import ScannedFile, ScanOutcome
from icevirt.archive.sources import SourceFile, SourceFiles
from icevirt.catalog.facts_reader import read_facts
from icevirt.catalog.lookup import look_up_files
from icevirt.catalog.part_index import IndexWriter
from icevirt.catalog.parts import mark, write_part
from icevirt.model.chunks import ChunkType, Locations
from icevirt.model.strings import Strings
from icevirt.storage.local import LocalStorage

IDENTITY = "bench"
MODIFIED = 1_700_000_000 * 10**9
TEMPLATES = 16  # parts whose rows are made
STEPS = ("rows", "write", "look up", "again", "read facts", "view")
SOME = (10, 10_000)  # files that are looked up beside all of them


def sources(count: int) -> Iterator[SourceFile]:
    """Yield the files, as a listing would."""
    for n in range(count):
        yield SourceFile(
            url=f"s3://archive/product/2024/{n // 1000:04d}/granule_{n:07d}.nc",
            size=1_000_000 + n % 1000,
            etag=f"{n * 0x9E3779B97F4A7C15 % (1 << 128):032x}",
            last_modified=MODIFIED,
        )


def scanned(folder: str) -> ScannedFile:
    """Scan one file of ten variables."""
    path = Path(folder) / "one.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.title, file.institution = "made for a benchmark", "none"
        for name, length in (("time", None), ("lat", 20), ("lon", 30)):
            file.createDimension(name, length)
        file.createVariable("time", "f8", ("time",))[:] = [0.0]
        for name, length in (("lat", 20), ("lon", 30)):
            file.createVariable(name, "f4", (name,))[:] = np.arange(length)
        rng = np.random.default_rng(1)
        for number in range(7):
            data = file.createVariable(
                f"v{number}", "f4", ("time", "lat", "lon"), zlib=True, chunksizes=(1, 10, 15)
            )
            data.units, data.long_name = "K", f"variable {number}"
            data[:] = rng.random((1, 20, 30))
    return scan_file(path, concat_dim="time")


def found_in(file: SourceFile, one: ScannedFile, rng: np.random.Generator) -> ScanOutcome:
    """Return what scanning a file would find: its chunks lie elsewhere, other lengths."""
    where = Locations(
        url=Strings.of([file.url]),
        etag=Strings.of([file.etag]),
        last_modified=np.array([file.last_modified_seconds], np.uint32),
    )
    arrays = []
    at = 4096
    for array in one.arrays:
        table = array.references
        if table.count(ChunkType.virtual):
            length = rng.integers(20_000, 40_000, len(table)).astype(np.uint64)
            ends = at + np.cumsum(length)
            at = int(ends[-1]) + 8 * int(rng.integers(0, 100))
            table = replace(table, offset=ends - length, length=length, locations=where)
        arrays.append(replace(array, references=table))
    made = replace(one, source=file, arrays=tuple(arrays))
    return ScanOutcome(file=file, scanned=made, error=None, seconds=0.01, requests=3)


def write(folder: str, count: int) -> dict:
    """Write the catalog: rows are made for some parts, and given to others under other names."""
    storage = LocalStorage(Path(folder) / "catalog")
    mark(storage)
    one, parts = scanned(folder), parts_of([*sources(count)], identity=IDENTITY)
    rng = np.random.default_rng(2)
    made, rows, files = [], 0.0, 0
    for part in parts[:TEMPLATES]:
        outcomes = [found_in(file, one, rng) for file in part.files]
        begin = time.process_time()
        made.append(tables_of(outcomes))
        rows += time.process_time() - begin
        files += len(part.files)
    last = tables_of([found_in(file, one, rng) for file in parts[-1].files])
    before, seconds, number = peak(), 0.0, 0
    for at, part in enumerate(parts):
        tables = last if part is parts[-1] else made[at % len(made)]
        columns = dict(tables.files)
        for name in ("url", "size", "etag", "last_modified"):
            columns[name] = [getattr(file, name) for file in part.files]
        arrays = dict(tables.arrays)
        arrays["labels"] = [
            np.float64(number + row).tobytes() if path == "/time" else None
            for row, path in zip(arrays["row"], arrays["path"], strict=True)
        ]
        number += len(part.files)
        begin = time.process_time()
        write_part(storage, part.name, replace(tables, files=columns, arrays=arrays))
        seconds += time.process_time() - begin
    return {"rows": rows / files * count, "write": seconds, "write MiB": peak() - before}


def read(folder: str, count: int) -> dict:
    """Read the facts as the driver does."""
    storage, files = LocalStorage(Path(folder) / "catalog"), SourceFiles(sources(count))
    before, begin = peak(), time.process_time()
    known = look_up_files(storage, IDENTITY, files, writer=IndexWriter(storage))
    assert not len(known.missing)
    marks = [begin, time.process_time()]
    again = look_up_files(storage, IDENTITY, files)
    assert np.array_equal(again.part, known.part)
    assert np.array_equal(again.row, known.row)
    marks.append(time.process_time())
    closed = read_facts(storage, files, *known.chosen)
    marks.append(time.process_time())
    assert len(closed.facts.files) == count
    assert len(closed.facts.arrays.file) == 10 * count
    steps = dict(zip(("look up", "again", "read facts"), np.diff(marks).tolist(), strict=True))
    return {**steps, "read MiB": peak() - before}


class CountingStorage(LocalStorage):
    """Counts what is read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.sizes: list[int] = []

    def get(self, path: str) -> bytes:
        found = super().get(path)
        self.sizes.append(len(found))
        return found

    def get_range(self, path: str, *, offset: int, length: int) -> bytes:
        self.sizes.append(length)
        return super().get_range(path, offset=offset, length=length)


def find(folder: str, count: int) -> dict:
    """Look some of the files up."""
    every = [*sources(count)]
    found = {}
    for some in SOME:
        at = np.random.default_rng(3).permutation(count)[:some]
        files = SourceFiles(every[n] for n in at.tolist())
        storage = CountingStorage(Path(folder) / "catalog")
        before, begin = peak(), time.process_time()
        assert not len(look_up_files(storage, IDENTITY, files).missing)
        seconds = time.process_time() - begin
        found[f"find {some}"] = (len(storage.sizes), sum(storage.sizes), seconds, peak() - before)
    return found


def view(folder: str, count: int) -> dict:
    """Look at the row of every file."""
    before, begin = peak(), time.process_time()
    shown = catalog_view(str(Path(folder) / "catalog"))
    rows = sum(batch.num_rows for batch in shown.files())
    assert rows == count
    return {"view": time.process_time() - begin, "view MiB": peak() - before}


def peak() -> int:
    """Return the most memory that this process had so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


DEEDS = {"write": write, "read": read, "view": view, "find": find}


def main() -> None:
    """Measure each size, each deed in a process of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--files", type=int, nargs="*")
    parser.add_argument("--measure", nargs=3)
    given = parser.parse_args()
    if given.measure:
        deed, folder, count = given.measure
        print(json.dumps(DEEDS[deed](folder, int(count))))
        return
    heads = [f"{step + ' s':>13} {'us':>5} {'x':>5}" for step in STEPS]
    print(f"{'files':>9} {'catalog MiB':>12} {'B/file':>7}", *heads, "   write/read/view MiB")
    before = None
    for count in given.files or [10_000, 100_000, *([1_000_000] if given.large else [])]:
        with tempfile.TemporaryDirectory(prefix="icevirt-bench-") as folder:
            output: dict[str, Any] = {}
            for deed in DEEDS:
                command = [sys.executable, __file__, "--measure", deed, folder, str(count)]
                output |= json.loads(subprocess.check_output(command))
            size = sum(info.size for info in LocalStorage(Path(folder) / "catalog").list())
        cells = []
        for step in STEPS:
            linear = before and output[step] / before[1][step] / (count / before[0])
            ratio = f"{linear:.2f}" if linear else ""
            cells.append(f"{output[step]:>13.2f} {output[step] / count * 1e6:>5.0f} {ratio:>5}")
        memory = "/".join(f"{output[f'{deed} MiB']:.0f}" for deed in ("write", "read", "view"))
        print(
            f"{count:>9,} {size / 2**20:>12.1f} {size / count:>7.0f}",
            *cells,
            f"   {memory}",
            flush=True,
        )
        for some in SOME:
            reads, size, seconds, held = output[f"find {some}"]
            print(
                f"{'':>9} {some:,} files: {reads} reads, {size / 2**20:.2f} MiB,"
                f" {seconds:.2f} s, {held} MiB of memory",
                flush=True,
            )
        before = (count, output)


if __name__ == "__main__":
    main()
