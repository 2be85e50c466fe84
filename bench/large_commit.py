"""How very large commits become visible in one step, and what the official client makes of them.

Writes N virtual references of new arrays (1,000 per file) straight through the manifest encoder,
publishes them in one commit, and then lets the official client open, read, diff, commit on top,
expire and collect garbage. Prints a line per step: seconds and peak memory of that step's process.

    uv run python bench/large_commit.py 10_000_000 /tmp/large
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import shutil
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

PER_MANIFEST = 500_000
PER_FILE = 1_000
ARRAYS = 10


def step(name, function, *arguments):
    """Run a function in a process of its own; print its time and its peak memory."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=_child, args=(function, arguments, answers))
    process.start()
    process.join()
    output = answers.get() if process.exitcode == 0 else {"failed": process.exitcode}
    print(f"{name:34s} {json.dumps(output)}", flush=True)
    return output


def _child(function, arguments, answers):
    begin = time.perf_counter()
    output = function(*arguments)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    answers.put(
        {"seconds": round(time.perf_counter() - begin, 2), "peak_MiB": peak, **(output or {})}
    )


def write(root, total):
    """Write all manifests and publish them."""
    from icevirt.archive.schema import ScannedGroup
    from icevirt.ids import ObjectId8
    from icevirt.model.config.containers import VirtualChunkContainer, local_filesystem_store
    from icevirt.model.snapshot import ManifestFile, ManifestRef
    from icevirt.planning.schedule.write_tasks import split_rules
    from icevirt.repo.commits.build_commit import BuildCommit
    from icevirt.storage.local import LocalStorage

    storage = LocalStorage(root)
    each = total // ARRAYS
    arrays, infos, rules = {}, [], {}
    size = 0
    begin = time.perf_counter()
    for number in range(ARRAYS):
        path, node = f"/v{number}", ObjectId8.random()
        refs = []
        for first in range(0, each, PER_MANIFEST):
            encoded = _manifest(node, first, min(PER_MANIFEST, each - first))
            storage.put(f"manifests/{encoded.id}", encoded.raw)
            size += len(encoded.raw)
            last = first + encoded.num_chunk_refs
            refs.append(ManifestRef(object_id=encoded.id, extents=((first, last),)))
            infos.append(
                ManifestFile(
                    id=encoded.id,
                    size_bytes=len(encoded.raw),
                    num_chunk_refs=encoded.num_chunk_refs,
                )
            )
        arrays[path] = (_zarr_json(each), node, refs)
        rules[path] = ((each,), (PER_MANIFEST,), 0)
    written = time.perf_counter() - begin
    BuildCommit(
        storage=storage,
        branch="main",
        message="large",
        groups={"/": ScannedGroup(path="/").zarr_json()},
        arrays=arrays,
        manifest_files=infos,
        containers=[VirtualChunkContainer("file:///data/", local_filesystem_store("/data/"))],
        split_rules=split_rules(rules),
    ).publish()
    published = time.perf_counter() - begin - written
    return {
        "write_s": round(written, 2),
        "publish_s": round(published, 2),
        "manifests": len(infos),
        "MB": size // 10**6,
    }


def _manifest(node, first, count):
    from icevirt.model.chunks import ChunkTable, Locations
    from icevirt.model.strings import Strings
    from icevirt.wire.manifests import manifest

    at = np.arange(first, first + count)
    files = np.unique(at // PER_FILE)
    rng = np.random.default_rng(first)
    length = rng.integers(50_000, 90_000, count)
    table = ChunkTable.virtual(
        index=at[:, None],
        source=at // PER_FILE - files[0],
        offset=np.cumsum(length) % (1 << 40),
        length=length,
        locations=Locations(
            url=Strings.of(f"file:///data/archive/product_v2_{n:09d}.nc" for n in files.tolist()),
            etag=Strings.empty(len(files)),
            last_modified=np.full(len(files), 1_700_000_000, np.uint32),
        ),
    )
    return manifest.encode({node: table})


def _zarr_json(length):
    return json.dumps(
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [length],
            "data_type": "int8",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0,
            "codecs": [{"name": "bytes"}],
            "attributes": {},
            "dimension_names": ["time"],
        }
    ).encode()


def _official(root):
    import icechunk

    return icechunk.Repository.open(icechunk.local_filesystem_storage(root))


def open_and_look(root, index):
    """Open cold and look up one chunk."""
    repo = _official(root)
    session = repo.readonly_session("main")
    opened = time.perf_counter()
    kind = session.chunk_type("/v3", [index])
    return {"lookup_s": round(time.perf_counter() - opened, 3), "kind": str(kind)}


def diff(root):
    """Diff the large commit."""
    repo = _official(root)
    ids = [each.id for each in repo.ancestry(branch="main")]
    found = repo.diff(from_snapshot_id=ids[-1], to_snapshot_id=ids[-2])
    return {
        "new_arrays": len(found.new_arrays),
        "chunks_listed": sum(len(v) for v in found.updated_chunks.values()),
    }


def commit_one(root, index):
    """Set one chunk and commit; all other manifests stay."""
    repo = _official(root)
    before = {m.id for m in repo.list_manifest_files(repo.lookup_branch("main"))}
    session = repo.writable_session("main")
    session.store.set_virtual_ref(f"v0/c/{index}", "file:///data/x.nc", offset=0, length=9)
    session.commit("one chunk")
    after = {m.id for m in repo.list_manifest_files(repo.lookup_branch("main"))}
    return {"manifests_replaced": len(before - after)}


def rebase(root, index):
    """Commit from a session that began before another commit, rebasing over it."""
    import icechunk

    repo = _official(root)
    one, other = repo.writable_session("main"), repo.writable_session("main")
    one.store.set_virtual_ref(f"v1/c/{index}", "file:///data/x.nc", offset=0, length=9)
    one.commit("first")
    other.store.set_virtual_ref(f"v2/c/{index}", "file:///data/x.nc", offset=0, length=9)
    other.commit("second, rebased", rebase_with=icechunk.ConflictDetector())
    return {}


def expire(root):
    """Expire everything but the tip."""
    released = _official(root).expire_snapshots(datetime.now(UTC))
    return {"released": len(released)}


def collect(root):
    """Collect garbage, dry run."""
    summary = _official(root).garbage_collect(datetime.now(UTC) - timedelta(hours=1), dry_run=True)
    return {"manifests": summary.manifests_deleted, "snapshots": summary.snapshots_deleted}


def check_it(root):
    """Check all invariants with icevirt."""
    from icevirt.repo.maintenance.check import check

    report = check(root)
    return {"references": report.references, "problems": [str(p) for p in report.problems[:3]]}


def main():
    """Run all steps."""
    total, root = int(sys.argv[1].replace("_", "")), sys.argv[2]
    shutil.rmtree(root, ignore_errors=True)
    Path(root).parent.mkdir(parents=True, exist_ok=True)
    index = total // ARRAYS // 2
    step(f"icevirt writes {total:,}", write, root, total)
    step("official: open, first lookup", open_and_look, root, index)
    step("official: diff", diff, root)
    step("official: one-chunk commit", commit_one, root, index)
    step("official: rebased commit", rebase, root, index)
    step("icevirt: check", check_it, root)
    step("official: expire", expire, root)
    step("official: garbage, dry run", collect, root)


if __name__ == "__main__":
    main()
