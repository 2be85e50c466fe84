"""Plan the combination of many scanned files: time and memory of the driver, by number of files.

    python bench/plan_files.py                 # 10,000 and 100,000 files
    python bench/plan_files.py --large         # and 1,000,000

The catalog is synthetic: one small NetCDF file of ten variables is scanned for real, and its rows
are repeated for every file with another URL and another time. A process of its own then does what
the driver of a build does between scan and write: it looks the files up in the catalog, reads their
facts, combines them, and deals the work to tasks. References are not in it; nobody reads them here.

Printed are seconds of processor time by step, the peak of the process's memory beyond what it has
after its imports (the list of files is part of it), and bytes of the catalog. `x` divides by the
row above and by the ratio of files: 1.0 is linear. The last two steps stand beside the total and
the peak: the same files with four eras and a deviating file in every thousand, refused with a
report, and planned as four groups.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import netCDF4
import numpy as np
import pytest
from part_tables import tables_of

from icevirt import scan_file
from icevirt.archive.facts import CatalogFacts, Coded
from icevirt.archive.plan import FileRows
from icevirt.archive.scanned import ScanOutcome, SourceFile
from icevirt.archive.schema import ArraySchema
from icevirt.archive.sources import SourceFiles
from icevirt.catalog.facts_reader import read_facts
from icevirt.catalog.lookup import settled
from icevirt.catalog.parts import mark, write_part
from icevirt.errors import CombineError
from icevirt.model.attributes import Attributes
from icevirt.planning.combine.options import CombineOptions, CombineSpec
from icevirt.planning.eras.group_plan import combine_eras
from icevirt.planning.schedule.manifest_units import drafts
from icevirt.planning.schedule.write_tasks import bundles, dealt
from icevirt.storage.local import LocalStorage
from icevirt.tasks.write_manifests import PackedTasks

PART = 256
IDENTITY = "bench"
STEPS = ("look up", "read facts", "combine", "deal", "refused", "grouped")


def sources(count: int) -> SourceFiles:
    """Return the files, as a listing would."""
    return SourceFiles(
        SourceFile(
            url=f"s3://archive/product/2024/{n // 1000:04d}/granule_{n:07d}.nc",
            size=1_000_000 + n % 1000,
            etag=f"{n:032x}",
        )
        for n in range(count)
    )


def scanned(folder: str) -> ScanOutcome:
    """Scan one file of ten variables."""
    path = Path(folder) / "one.nc"
    with netCDF4.Dataset(path, "w") as file:
        for name, length in (("time", None), ("lat", 20), ("lon", 30)):
            file.createDimension(name, length)
        file.createVariable("time", "f8", ("time",))[:] = [0.0]
        for name, length in (("lat", 20), ("lon", 30)):
            file.createVariable(name, "f4", (name,))[:] = np.arange(length)
        for number in range(7):
            data = file.createVariable(
                f"v{number}", "f4", ("time", "lat", "lon"), zlib=True, chunksizes=(1, 20, 30)
            )
            data[:] = number
    found = scan_file(path, concat_dim="time")
    return ScanOutcome(file=found.source, scanned=found, error=None, seconds=0.01)


def make(folder: str, files: list[SourceFile]) -> int:
    """Write the catalog; return its bytes."""
    storage = LocalStorage(Path(folder) / "catalog")
    mark(storage)
    tables = tables_of([scanned(folder)] * PART)
    is_time = [path == "/time" for path in tables.arrays["path"]]
    for at in range(0, len(files), PART):
        run = files[at : at + PART]
        urls = {
            name: [getattr(file, name) for file in run]
            for name in ("url", "size", "etag", "last_modified")
        }
        rows = {name: list(column[: len(run)]) for name, column in tables.files.items()} | urls
        kept = sum(row < len(run) for row in tables.arrays["row"])
        arrays = {name: list(column[:kept]) for name, column in tables.arrays.items()}
        arrays["labels"] = [
            np.float64(at + row).tobytes() if timed else None
            for row, timed in zip(arrays["row"], is_time, strict=False)
        ]
        part = type(tables)(files=rows, arrays=arrays, refs=[])
        write_part(storage, f"{IDENTITY}-{at:09d}", part)
    return sum(info.size for info in storage.list())


def with_eras(facts: CatalogFacts, count: int) -> list[float]:
    """Plan the same files with three eras and single ones apart; refused first, then grouped."""
    arrays, schemas = facts.arrays, list(facts.arrays.schema.values)
    row = int(np.argmax(arrays.path.codes == arrays.path.values.index("/v0")))
    plain = ArraySchema.loads(arrays.schema[row])
    codes = arrays.schema.codes.astype(np.int32)
    mine = arrays.path.codes == arrays.path.values.index("/v0")
    for number, chosen in enumerate(
        (arrays.file >= count // 2, arrays.file >= count * 3 // 4, arrays.file % 1000 == 7)
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


def peak_memory() -> int:
    """Return the most that this process held, in KiB; `getrusage` counts its parent's before it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def measure(folder: str, count: int) -> None:
    """Plan in this process, and print what it took."""
    storage = LocalStorage(Path(folder) / "catalog")
    before = peak_memory()
    files = sources(count)
    marks = [time.process_time()]
    known = settled(storage, IDENTITY, files)
    assert not len(known.missing)
    marks.append(time.process_time())
    closed = read_facts(storage, files, *known.chosen)
    marks.append(time.process_time())
    plan = combine_eras(closed.facts, CombineSpec(build_id="b", concat_dim=("time",)))
    marks.append(time.process_time())
    items = list(drafts(plan))
    files = FileRows.of(plan.files)
    for pile in dealt(plan, items, 2):
        list(map(PackedTasks.of, bundles(plan, pile, files)))
    marks.append(time.process_time())
    assert {array.shape[0] for array in plan.arrays if array.path.startswith("/v")} == {count}
    peak = peak_memory()
    eras = with_eras(closed.facts, count)
    print(
        json.dumps(
            {
                "seconds": [*np.diff(marks).round(3).tolist(), *np.diff(eras).round(3).tolist()],
                "mib": (peak - before) // 1024,
                "items": len(items),
            }
        )
    )


def main() -> None:
    """Measure each size in a process of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--files", type=int, nargs="*")
    parser.add_argument("--measure", nargs=2)
    given = parser.parse_args()
    if given.measure:
        measure(given.measure[0], int(given.measure[1]))
        return
    sizes = given.files or [10_000, 100_000, *([1_000_000] if given.large else [])]
    print(f"{'files':>9} {'catalog MiB':>12} " + " ".join(f"{s:>11}" for s in STEPS), end="")
    print(f" {'total s':>9} {'x':>5} {'peak MiB':>9} {'items':>6}")
    before = None
    for count in sizes:
        with tempfile.TemporaryDirectory(prefix="icevirt-bench-") as folder:
            size = make(folder, sources(count))
            command = [sys.executable, __file__, "--measure", folder, str(count)]
            figures = json.loads(subprocess.check_output(command))
        total = sum(figures["seconds"][:-2])
        linear = "" if before is None else f"{total / before[1] / (count / before[0]):.2f}"
        steps = " ".join(f"{each:>11.2f}" for each in figures["seconds"])
        print(
            f"{count:>9,} {size / 2**20:>12.1f} {steps} {total:>9.2f} {linear:>5}"
            f" {figures['mib']:>9} {figures['items']:>6}",
            flush=True,
        )
        before = (count, total)


if __name__ == "__main__":
    main()
