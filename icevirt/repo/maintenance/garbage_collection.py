"""Delete old files that no branch or tag refers to.

The repo info drops unreachable snapshots, then every kept file is read, and only if all could be
read are files deleted. Memory is bounded by one manifest and the ids of old files. Files not named
like an object of the format belong to other programs and stay, as do ``overwritten/`` and the work
folder of builds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import batched

import numpy as np

from icevirt.ids import INITIAL_SNAPSHOT_ID, ObjectId12
from icevirt.model.chunks import ChunkType
from icevirt.model.repo_info import GCRan, RepoInfo, SnapshotSummary
from icevirt.repo import layout
from icevirt.repo.assets import Assets
from icevirt.repo.maintenance import content_names
from icevirt.repo.maintenance.chunk_sizes import ChunkSizes
from icevirt.repo.repo_info_file import RepoInfoFile, refuse_read_only
from icevirt.versioning.history import garbage_collection
from icevirt.versioning.history.garbage_collection import Candidates
from icevirt.versioning.id_columns import column, of_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class GCSummary:
    """What was deleted, or would be deleted."""

    bytes_deleted: int = 0
    snapshots_deleted: int = 0
    transaction_logs_deleted: int = 0
    manifests_deleted: int = 0
    chunks_deleted: int = 0


def collect(assets: Assets, head: RepoInfoFile, older_than: int, *, dry_run: bool) -> GCSummary:
    """Delete the garbage that was written before a time, and count it.

    Raises:
        ReadOnlyError: The repository is read-only.
        FormatError: Something that is kept cannot be read; no file was deleted.
    """
    # listed first: what is written from now on is not in the list, and what is committed until
    # the repo info is rewritten is kept
    old = {path: Candidates.of(key for key, _ in _old(assets, path, older_than)) for path in _NAMES}
    kept = _forget(head, older_than, dry_run=dry_run).snapshots
    size, counts = 0, {}
    surely = older_than - head.watch.lag  # by the storage's clock, which dates the files
    for path, candidates in _garbage(assets, old, kept).items():
        number, freed = _sweep(assets, path, candidates, surely, dry_run=dry_run)
        counts[f"{_NAMES[path]}_deleted"] = number
        size += freed
    if not dry_run and next(iter(assets.storage.list(layout.CONTENT_NAMES)), None) is not None:
        sizes = ChunkSizes.of(assets.storage.list(layout.CHUNKS))
        content_names.compact(assets.storage, sizes.ids, surely)
    return GCSummary(bytes_deleted=size, **counts)


def _sweep(
    assets: Assets, path: _Path, candidates: Candidates, older_than: int, *, dry_run: bool
) -> tuple[int, int]:
    """Delete files and count them, looking at their age once more right before.

    What is named by its content may have been written again since it was listed first.
    """
    number = freed = 0
    for batch in batched(_old(assets, path, older_than), _AT_ONCE):
        going = candidates.among([key for key, _ in batch])
        sizes = dict(batch)
        if not dry_run:
            assets.storage.delete_many([path(key) for key in going])
        number += len(going)
        freed += sum(sizes[key] for key in going)
    return number, freed


def _forget(head: RepoInfoFile, older_than: int, *, dry_run: bool) -> RepoInfo:
    """Take unreachable snapshots out of the repo info, or say what would be left."""
    if dry_run:
        info = head.read().info
        refuse_read_only(info)
        return garbage_collection.swept(info, older_than)
    return head.update(lambda info: (garbage_collection.swept(info, older_than), GCRan()))


type _Path = Callable[[ObjectId12], str]

_AT_ONCE = 1000  # files between a look at their age and the end of their deletion

_NAMES: Mapping[_Path, str] = {
    layout.snapshot: "snapshots",
    layout.transaction_log: "transaction_logs",
    layout.manifest: "manifests",
    layout.chunk: "chunks",
}


def _old(assets: Assets, path: _Path, older_than: int) -> Iterator[tuple[ObjectId12, int]]:
    """Yield the files of one kind that are old enough, with their sizes."""
    folder = path(INITIAL_SNAPSHOT_ID).partition("/")[0]
    for found in assets.storage.list(folder):
        try:
            key = ObjectId12.parse(found.path.removeprefix(folder + "/"))
        except ValueError:
            continue  # of another program
        if path(key) == found.path and garbage_collection.is_old(found.last_modified, older_than):
            yield key, found.size


def _garbage(
    assets: Assets,
    old: Mapping[_Path, Candidates],
    kept: Mapping[ObjectId12, SnapshotSummary],
) -> dict[_Path, Candidates]:
    """Return the files to delete, in the order that leaves nothing dangling."""
    manifests: set[ObjectId12] = set()
    for key in kept:
        manifests.update(file.id for file in assets.snapshot(key).manifest_files)
    needed = {
        layout.snapshot: kept.keys(),
        layout.transaction_log: garbage_collection.needed_logs(kept),
        layout.manifest: manifests,
    }
    found = {path: old[path].without(column(ids)) for path, ids in needed.items()}
    return {**found, layout.chunk: _chunks(assets, old[layout.chunk], manifests)}


def _chunks(assets: Assets, old: Candidates, manifests: Iterable[ObjectId12]) -> Candidates:
    """Return the chunks that no manifest refers to, reading one at a time."""
    for key in sorted(manifests):
        if not len(old):
            break
        for table in assets.read_manifest(key).arrays.values():
            native = np.unique(table.source[table.kind == ChunkType.native])
            old = old.without(of_rows(table.chunk_ids[native]))
    return old
