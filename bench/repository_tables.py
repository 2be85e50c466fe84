"""Tables of a repository on Spark: seconds, and memory of a worker, by references.

    python bench/repository_tables.py                            # 1 million
    python bench/repository_tables.py --references 10_000_000
    python bench/repository_tables.py --references 10_000_000 --per-file 1
    python bench/repository_tables.py --write                    # writes them back, too
    python bench/repository_tables.py --repo DIR --tables locations  # of bench/build_references.py

The repository is synthetic: ten arrays, a thousand references a file, half a million references a
manifest, as builds make them. Memory is the proportional set size (PSS) of the largest Python
worker of local[2], of this process and of its JVM, looked at every half second. Each table is read
once, by a job that counts rows, after a first job that starts the workers.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

ARRAYS = 10
WINDOW = 500_000
FORMAT = "by format"
TABLES = ("locations", "files", "arrays", "references", FORMAT)


def make(repo: str, references: int, per_file: int) -> None:
    """Write a repository of so many references."""
    from icevirt.ids import ObjectId8
    from icevirt.model.chunks import ChunkTable, Locations
    from icevirt.model.config.containers import VirtualChunkContainer, local_filesystem_store
    from icevirt.model.snapshot import ManifestRef
    from icevirt.model.strings import Strings
    from icevirt.repo.assets import Assets
    from icevirt.repo.commits.build_commit import BuildCommit
    from icevirt.storage.local import LocalStorage
    from icevirt.versioning.merge.build_merge import BuiltArray

    storage, rng = LocalStorage(repo), np.random.default_rng(0)
    assets = Assets(storage)
    each, own = references // ARRAYS, max(1, per_file // ARRAYS)
    arrays, files = {}, []
    for number in range(ARRAYS):
        node, refs = ObjectId8.random(), []
        for low in range(0, each, WINDOW):
            index = np.arange(low, min(low + WINDOW, each))
            file = index // own
            names = np.arange(file[0], file[-1] + 1)
            length = rng.integers(20_000, 40_000, len(index))
            table = ChunkTable.virtual(
                index=index[:, None],
                offset=np.cumsum(length) - length,
                length=length,
                source=file - file[0],
                locations=Locations(
                    url=Strings.of(
                        [
                            f"file:///data/product/{n // 1000:06d}/granule_v2_{n:08d}.nc"
                            for n in names
                        ]
                    ),
                    etag=Strings.empty(len(names)),
                    last_modified=np.full(len(names), 1_700_000_000, np.uint32),
                ),
            )
            files.append(assets.put_manifest({node: table}))
            refs.append(ManifestRef(object_id=files[-1].id, extents=table.extents()))
        arrays[f"/v{number}"] = BuiltArray(json.dumps(document(each)).encode(), node, refs)
    container = VirtualChunkContainer("file:///data/", local_filesystem_store("/data/"))
    BuildCommit(
        storage=storage,
        branch="main",
        message="bench",
        groups={},
        arrays=arrays,
        manifest_files=files,
        containers=[container],
    ).publish()


def document(chunks: int) -> dict:
    """Return the metadata of an array of so many chunks."""
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [chunks],
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0.0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": {},
        "dimension_names": ["time"],
        "storage_transformers": [],
    }


class Processes:
    """Look at this process, its JVM and its Python workers, until it is stopped."""

    def __init__(self) -> None:
        self.peaks = dict.fromkeys(("worker", "driver", "java"), 0)  # bytes of the largest
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.before = cpu_of_all()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()
        self.cpu = dict.fromkeys(self.peaks, 0.0)
        for pid, (kind, seconds) in cpu_of_all().items():
            self.cpu[kind] += seconds - self.before.get(pid, (kind, 0.0))[1]

    def _run(self) -> None:
        while not self._over.wait(0.5):
            for pid, kind in below(os.getpid()).items():
                self.peaks[kind] = max(self.peaks[kind], pss(pid))


def below(pid: int) -> dict[int, str]:
    """Return a process and those that descend from it, and what they are."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split()
                name = (entry / "comm").read_text().strip()
            except OSError:
                continue
            parents[int(entry.name)] = int(words[1]), name
    found, level = {pid: "driver"}, {pid}
    while level:
        level = {child for child, (parent, _) in parents.items() if parent in level}
        found |= {child: "java" if parents[child][1] == "java" else "worker" for child in level}
    return found


def cpu_of_all() -> dict[int, tuple[str, float]]:
    """Return the processor time of each process so far, in seconds; children that ended count."""
    found = {}
    for pid, kind in below(os.getpid()).items():
        try:
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found[pid] = kind, sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")
    return found


def pss(pid: int) -> int:
    """Return the proportional set size of a process, in bytes."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("Pss:"))


def measure(name: str, deed) -> None:
    """Print how long a deed takes, and what memory."""
    with Processes() as seen:
        begin = time.perf_counter()
        found = deed()
        seconds = time.perf_counter() - begin
    figures = ", ".join(
        f"{kind} {seen.cpu[kind]:.1f} s CPU {size >> 20} MiB" for kind, size in seen.peaks.items()
    )
    print(f"{name:12} {seconds:7.1f} s  {figures}  {found}", flush=True)


def main() -> None:
    """Make a repository, and read its tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--references", type=int, default=1_000_000)
    parser.add_argument("--per-file", type=int, default=1000)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--folder")
    parser.add_argument("--repo", help="a repository that is there")
    parser.add_argument("--tables", nargs="*", default=[*TABLES])
    given = parser.parse_args()
    root = tempfile.mkdtemp(prefix="icevirt-bench-", dir=given.folder)
    repo = f"{root}/repo"
    try:
        if given.repo is None:
            make(repo, given.references, given.per_file)
        read(given.repo or repo, given, root)
    finally:
        shutil.rmtree(root)


def read(repo: str, given: argparse.Namespace, root: str) -> None:
    """Read all tables of a repository, and write its references into another."""
    import icevirt
    import icevirt.spark
    from icevirt.execution.spark_session import local_session

    spark = local_session(cores=2)
    measure("snapshots", lambda: icevirt.spark.table(spark, repo, "snapshots").count())
    for name in [each for each in given.tables if each != FORMAT]:
        measure(name, lambda name=name: icevirt.spark.table(spark, repo, name).count())
    if FORMAT in given.tables:
        icevirt.spark.register(spark)
        source = spark.read.format("icevirt").option("table", "locations")
        measure(FORMAT, lambda: source.load(os.path.abspath(repo)).count())
    if given.write:
        session = icevirt.Repository.open(repo).readonly_session("main")
        measure(
            "write",
            lambda: icevirt.spark.write_references(
                icevirt.spark.table(spark, repo, "references"),
                f"{root}/copy",
                arrays={node.path: node.user_data for node in session.snapshot.arrays()},
                containers=session.config.virtual_chunk_containers.values(),
            ),
        )
    spark.stop()


if __name__ == "__main__":
    main()
