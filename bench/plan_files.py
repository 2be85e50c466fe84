"""Plan the combination of many scanned files: time and memory of the driver, by number of files.

    python bench/plan_files.py                 # 10,000 and 100,000 files
    python bench/plan_files.py --large         # and 1,000,000
    python bench/plan_files.py --files 10_000_000 --steps     # memory by step, too
    python bench/plan_files.py --files 10_000_000 --arrays 2  # one variable and the time

The catalog is synthetic: one small NetCDF file of ten arrays is scanned for real, and its rows are
repeated for every file with another URL, etag and time, and chunks of other lengths. Parts are as
large as a scan makes them, and have an index, as a scan leaves them. A process of its own then does
what the driver of a build does between scan and write: it lists the files, looks them up in the
catalog, reads their facts, resolves them for the way of combining, combines them, and deals the
work to tasks. References are not in it.

Printed are seconds of processor time by step, the peak of the process's memory beyond what it has
after its imports (the list of files is part of it), and bytes of the catalog. `x` divides by the
row above and by the ratio of files: 1.0 is linear. The last two steps stand beside the total and
the peak: the same files with four eras and a deviating file in every thousand, refused with a
report, and planned as four groups; files of fewer arrays than three, and more than a million files,
are not planned so.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import netCDF4
import numpy as np
import pyarrow as pa
import pytest
from part_tables import tables_of

from icevirt import scan_file
from icevirt.archive.catalog import ARRAYS, FILES, size_of_parts
from icevirt.archive.facts import CatalogFacts, Coded
from icevirt.archive.plan import FileRows
from icevirt.archive.scanned import ScanOutcome
from icevirt.archive.schema import ArraySchema
from icevirt.archive.sources import SourceFile, SourceFiles
from icevirt.catalog.facts_reader import read_facts
from icevirt.catalog.lookup import look_up_files
from icevirt.catalog.part_index import IndexWriter
from icevirt.catalog.parts import PartTables, mark, write_part
from icevirt.errors import CombineError
from icevirt.model.attributes import Attributes
from icevirt.planning.combine.hints import CombineHints
from icevirt.planning.combine.needs import resolve_needs
from icevirt.planning.combine.options import CombineOptions, CombineSpec
from icevirt.planning.eras.group_plan import combine_eras
from icevirt.planning.schedule.write_tasks import bundles, deal_items, drafts
from icevirt.storage.local import LocalStorage
from icevirt.tasks.write_manifests import PackedTasks

IDENTITY = "bench"
STEPS = ("list", "look up", "read facts", "resolve", "combine", "deal")
BESIDE = ("refused", "grouped")
MOST_WITH_ERAS = 1_000_000
DIMENSIONS = {"time": None, "lat": 20, "lon": 30}


def listed(count: int) -> Iterator[SourceFile]:
    """Yield the files, as a listing would."""
    for n in range(count):
        yield SourceFile(
            url=f"s3://archive/product/2024/{n // 1000:04d}/granule_{n:07d}.nc",
            size=1_000_000 + n % 1000,
            etag=hashlib.md5(b"%d" % n, usedforsecurity=False).hexdigest(),
        )


def scanned(folder: str, arrays: int) -> ScanOutcome:
    """Scan one file of some arrays, the last of which are coordinates."""
    path = Path(folder) / "one.nc"
    coordinates = list(DIMENSIONS)[: arrays - 1]
    with netCDF4.Dataset(path, "w") as file:
        for name, length in DIMENSIONS.items():
            file.createDimension(name, length)
        for name in coordinates:
            values = np.arange(DIMENSIONS[name] or 1)
            file.createVariable(name, "f8" if name == "time" else "f4", (name,))[:] = values
        for number in range(arrays - len(coordinates)):
            data = file.createVariable(
                f"v{number}", "f4", ("time", "lat", "lon"), zlib=True, chunksizes=(1, 20, 30)
            )
            data[:] = number
    found = scan_file(path, concat_dim="time")
    return ScanOutcome(file=found.source, scanned=found, error=None, seconds=0.01)


def make(folder: str, count: int, arrays: int) -> int:
    """Write the catalog; return its bytes."""
    storage = LocalStorage(Path(folder) / "catalog")
    mark(storage)
    size = size_of_parts(count)
    tables = tables_of([scanned(folder, arrays)] * size)
    is_time = np.array([path == "/time" for path in tables.arrays["path"]])
    is_data = np.array([path.startswith("/v") for path in tables.arrays["path"]])
    kinds = {name: getattr(pa, kind)() for name, kind in (*FILES, *ARRAYS)}
    held = {
        table: {name: pa.array(column, kinds[name]) for name, column in columns.items()}
        for table, columns in (("files", tables.files), ("arrays", tables.arrays))
    }
    rng, files = np.random.default_rng(1), listed(count)
    for at in range(0, count, size):
        run = list(islice(files, size))
        rows = {name: column[: len(run)] for name, column in held["files"].items()}
        for name in ("url", "size", "etag", "last_modified"):
            rows[name] = pa.array([getattr(file, name) for file in run], kinds[name])
        kept = arrays * len(run)
        columns = {name: column[:kept] for name, column in held["arrays"].items()}
        labels = np.full(kept, None, np.object_)
        labels[is_time[:kept]] = [np.float64(at + row).tobytes() for row in range(len(run))]
        columns["labels"] = pa.array(labels, pa.binary())
        lengths = np.array(columns["virtual_bytes"])
        columns["virtual_bytes"] = pa.array(
            np.where(is_data[:kept], rng.integers(20_000, 40_000, kept), lengths)
        )
        part = PartTables(files=rows, arrays=columns, refs=[])
        write_part(storage, f"{IDENTITY}-{at:09d}", part)
    return sum(info.size for info in storage.list())


def index(folder: str, count: int) -> None:
    """Look all files up in the tables, as the end of a scan does, which writes their index."""
    storage = LocalStorage(Path(folder) / "catalog")
    files = SourceFiles(listed(count))
    assert not len(look_up_files(storage, IDENTITY, files, writer=IndexWriter(storage)).missing)


def with_eras(facts: CatalogFacts, count: int) -> list[float]:
    """Plan the same files with three eras and single ones apart; refused first, then grouped."""
    arrays, schemas = facts.arrays, list(facts.arrays.schema.values)
    row = int(np.argmax(arrays.path.codes == arrays.path.values.index("/v0")))
    plain = ArraySchema.loads(arrays.schema[row])
    codes = arrays.schema.codes.astype(np.int32)
    mine = arrays.path.codes == arrays.path.values.index("/v0")
    for number, chosen in enumerate(
        (
            arrays.file >= count // 2,
            arrays.file >= count * 3 // 4,
            np.asarray(arrays.file) % 1000 == 7,
        )
    ):
        packed = {**plain.attributes.values, "scale_factor": 0.5 * (1 + number)}
        schemas.append(replace(plain, attributes=Attributes(values=packed)).dumps())
        codes[mine & chosen] = len(schemas) - 1
    changed = replace(facts, arrays=replace(arrays, schema=Coded(codes, tuple(schemas))))
    wish = CombineSpec(build_id="b", concat_dim=("time",))
    marks = [time.process_time()]
    with pytest.raises(CombineError) as refused:
        combine_eras(changed, wish)
    assert refused.value.facts["eras"].count == 4
    marks.append(time.process_time())
    grouped = replace(wish, options=CombineOptions(on_mismatch="eras"))
    assert combine_eras(changed, grouped).eras.count == 4
    marks.append(time.process_time())
    return marks


def memory(of: str) -> int:
    """Return what this process holds or held at most, in MiB."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{of}:")[2].split()[0]) // 1024


class Steps:
    """Processor time and memory of each step."""

    def __init__(self) -> None:
        self._base, self._begin = memory("VmRSS"), time.process_time()
        self.seconds: list[float] = []
        self.peaks: list[int] = []
        self.held: list[int] = []
        self._again()

    def done(self) -> None:
        """End a step."""
        self.seconds.append(round(time.process_time() - self._begin, 3))
        self.peaks.append(memory("VmHWM") - self._base)
        self.held.append(memory("VmRSS") - self._base)
        self._again()

    def _again(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from now on
        self._begin = time.process_time()


def measure(folder: str, count: int, arrays: int) -> None:
    """Plan in this process, and print what it took."""
    storage = LocalStorage(Path(folder) / "catalog")
    gc.collect()
    steps = Steps()
    files = SourceFiles(listed(count))
    steps.done()
    known = look_up_files(storage, IDENTITY, files)
    assert not len(known.missing)
    steps.done()
    closed = read_facts(storage, files, *known.chosen)
    steps.done()
    facts = resolve_needs(
        closed.facts,
        closed.beside.read(closed.facts.files),
        CombineHints(concat_dim="time"),
        lambda _: True,
        affordable=1 << 20,
    )
    assert isinstance(facts, CatalogFacts)
    steps.done()
    plan = combine_eras(facts, CombineSpec(build_id="b", concat_dim=("time",)))
    steps.done()
    items = list(drafts(plan))
    rows = FileRows.of(plan.files)
    for pile in deal_items(plan, items, 2):
        list(map(PackedTasks.of, bundles(plan, pile, rows)))
    steps.done()
    assert {array.shape[0] for array in plan.arrays if array.path.startswith("/v")} == {count}
    eras: list[float] = []
    if arrays > len(DIMENSIONS) and count <= MOST_WITH_ERAS:
        eras = np.diff(with_eras(facts, count)).round(3).tolist()
    print(
        json.dumps(
            {
                "seconds": steps.seconds,
                "eras": eras,
                "peaks": steps.peaks,
                "held": steps.held,
                "items": len(items),
            }
        )
    )


def main() -> None:
    """Measure each size in a process of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--steps", action="store_true", help="print memory by step")
    parser.add_argument("--files", type=int, nargs="*")
    parser.add_argument("--arrays", type=int, default=10, help="of each file, at least two")
    parser.add_argument("--catalog", help="a directory that keeps the catalog, for one size")
    parser.add_argument("--index", nargs=2)
    parser.add_argument("--measure", nargs=3)
    given = parser.parse_args()
    if given.index:
        folder, count = given.index
        index(folder, int(count))
        return
    if given.measure:
        folder, count, arrays = given.measure
        measure(folder, int(count), int(arrays))
        return
    sizes = given.files or [10_000, 100_000, *([1_000_000] if given.large else [])]
    steps = " ".join(f"{step:>11}" for step in STEPS)
    beside = " ".join(f"{step:>11}" for step in BESIDE)
    print(
        f"{'files':>10} {'catalog MiB':>12} {steps} {'total s':>9} {'x':>5} {'peak MiB':>9}", end=""
    )
    print(f" {'items':>6} {beside}")
    before = None
    for count in sizes:
        with tempfile.TemporaryDirectory(prefix="icevirt-bench-") as made:
            folder = given.catalog or made
            there = LocalStorage(Path(folder) / "catalog")
            if there.exists():
                size = sum(info.size for info in there.list())
            else:
                size = make(folder, count, given.arrays)
            command = [sys.executable, __file__, "--index", folder, str(count)]
            subprocess.check_call(command)
            command[2] = "--measure"
            figures = json.loads(subprocess.check_output([*command, str(given.arrays)]))
        total = sum(figures["seconds"][1:])  # the list is the archive's
        linear = "" if before is None else f"{total / before[1] / (count / before[0]):.2f}"
        seconds = " ".join(f"{each:>11.2f}" for each in figures["seconds"])
        eras = " ".join(f"{each:>11.2f}" for each in figures["eras"])
        print(
            f"{count:>10,} {size / 2**20:>12.1f} {seconds} {total:>9.2f} {linear:>5}"
            f" {max(figures['peaks']):>9} {figures['items']:>6} {eras}",
            flush=True,
        )
        if given.steps:
            for what in ("peaks", "held"):
                cells = " ".join(f"{each:>11}" for each in figures[what])
                print(f"{'':>10} {what + ' MiB':>12} {cells}", flush=True)
        before = (count, total)


if __name__ == "__main__":
    main()
