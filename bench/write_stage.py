"""Processor time of the write stage alone: from a closed catalog to manifests, in one process.

    python bench/write_stage.py                                  # 10 million, 1,000 a file
    python bench/write_stage.py --references 1_000_000 --per-file 10
    python bench/write_stage.py --profile                        # where the time is

The catalog is that of `build_references.py`. Tasks run one after the other, as on one core of an
executor; reading the catalog, encoding and writing manifests count, planning does not. The digest
of the ids of all manifests says whether the same bytes were written.
"""

from __future__ import annotations

import argparse
import cProfile
import hashlib
import pstats
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from build_references import IDENTITY, Archive, make

from icevirt.api.dataset.scanning import Scan
from icevirt.api.dataset.target import Target
from icevirt.api.dataset.writing import Job, write_all
from icevirt.archive.plan import BuildPlan
from icevirt.archive.sources import SourceFiles
from icevirt.catalog.facts_reader import read_facts
from icevirt.catalog.lookup import look_up_files
from icevirt.execution.local_executors import InProcessExecutor
from icevirt.planning.combine.options import CombineSpec
from icevirt.planning.eras.group_plan import combine_eras
from icevirt.scan.contract import ScannerOptions
from icevirt.storage.local import LocalStorage

BUILD = "b" * 20


class Timed(InProcessExecutor):
    """Runs tasks and adds up their processor time."""

    def __init__(self, profile: cProfile.Profile | None) -> None:
        super().__init__(2)
        self.seconds = 0.0
        self._profile = profile

    def run(self, function: Callable[[Any], Any], tasks: Iterable[Any], **how: Any) -> list[Any]:
        """Run every task."""

        def timed(task: Any) -> Any:
            begin = time.process_time()
            if self._profile is not None:
                self._profile.enable()
            try:
                return function(task)
            finally:
                if self._profile is not None:
                    self._profile.disable()
                self.seconds += time.process_time() - begin

        return super().run(timed, tasks, **how)


def planned(root: Path, files: SourceFiles) -> BuildPlan:
    """Plan the files of a catalog."""
    catalog = LocalStorage(root / "catalog")
    closed = read_facts(catalog, files, *look_up_files(catalog, IDENTITY, files).chosen)
    return combine_eras(closed.facts, CombineSpec(build_id=BUILD, concat_dim=("time",)))


def write(
    root: Path, plan: BuildPlan, files: SourceFiles, profile: cProfile.Profile | None = None
) -> str:
    """Write all manifests of a plan into a new repository; return what it took."""
    catalog = LocalStorage(root / "catalog")
    repo = Path(tempfile.mkdtemp(dir=root))
    target = Target.look(LocalStorage(repo), branch="main", group="/", mode="w-")
    scan = Scan(
        files=files, options=ScannerOptions(), catalog=catalog, max_bad_files=0, progress=None
    )
    job = Job(build_id=BUILD, scan=scan, target=target, record=target.record(BUILD))
    executor = Timed(profile)
    results = write_all(executor, job, plan)
    shutil.rmtree(repo)
    ids = sorted(result.manifest_id for result in results if result.manifest_id is not None)
    digest = hashlib.sha256(b"".join(ids)).hexdigest()[:16]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return f"{executor.seconds:6.2f} s, {len(ids)} manifests {digest}, process {peak} MiB at most"


def main() -> None:
    """Make a catalog, plan, and write as often as asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--references", type=int, default=10_000_000)
    parser.add_argument("--per-file", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--root", help="where the catalog is kept; by default made anew each time")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    root = Path(given.root or tempfile.mkdtemp(prefix="icevirt-bench-"))
    archive = Archive(root, given.references, given.per_file, mixed=False)
    if not (root / "catalog").exists():
        make(archive)
    files = SourceFiles(archive.sources())
    plan = planned(root, files)
    profile = cProfile.Profile(time.process_time) if given.profile else None
    for _ in range(1 if given.profile else given.runs):
        print(write(root, plan, files, profile), flush=True)
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(40)
    if not given.root:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
