"""Look for references to some files, and for native chunks that no manifest refers to.

A task reads some manifests and writes the ids of their chunks, ascending, beside the repository.
Another one lists the chunks in a range of ids and deletes what is in none of these lists. So the
driver holds neither references nor ids of chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from icevirt.ids import ObjectId12
from icevirt.repo.assets import Assets
from icevirt.repo.maintenance.garbage_collection import Deletion, IdRange, chunks_of, sweep_chunks
from icevirt.storage.protocol import Storage
from icevirt.versioning.id_columns import ID, column, places


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunksTask:
    """Some manifests, whose native chunks are listed in an object."""

    repo: Storage
    manifests: tuple[bytes, ...]
    path: str  # of the list
    ranges: tuple[IdRange, ...]  # of ids


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkList:
    """An object that lists native chunks."""

    path: str
    cuts: tuple[int, ...]  # where each range begins in it, and where the last one ends


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTask:
    """A range of ids, of which the chunks in no list are deleted."""

    repo: Storage
    ids: IdRange
    lists: tuple[tuple[str, int, int], ...]  # path, and the rows of the range
    older_than: int
    dry_run: bool


def ranges_of(count: int) -> tuple[IdRange, ...]:
    """Return ranges of about equal length that hold all ids."""
    count = min(max(count, 1), 256)
    firsts = [bytes([256 * at // count]) if at else b"" for at in range(count)]
    return tuple(pairwise((*firsts, b"")))


def list_chunks(task: ChunksTask) -> ChunkList:
    """Write the ids of the native chunks of some manifests."""
    found = chunks_of(Assets(task.repo), map(ObjectId12, task.manifests))
    task.repo.put(task.path, found.tobytes())
    begins = column(first.ljust(ID.itemsize, b"\0") for first, _ in task.ranges)
    cuts = np.searchsorted(found, begins).tolist()
    return ChunkList(path=task.path, cuts=(*cuts, len(found)))


def sweep(task: SweepTask) -> Deletion:
    """Delete the old chunks of a range that no list holds."""
    needed = [np.zeros(0, ID)]
    for path, begin, end in task.lists:
        if end > begin:
            offset, length = begin * ID.itemsize, (end - begin) * ID.itemsize
            needed.append(
                np.frombuffer(task.repo.get_range(path, offset=offset, length=length), ID)
            )
    return sweep_chunks(
        Assets(task.repo),
        np.unique(np.concatenate(needed)),
        task.older_than,
        ids=task.ids,
        dry_run=task.dry_run,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferringTask:
    """Some manifests, of which those are found that refer to files."""

    repo: Storage
    manifests: tuple[bytes, ...]
    urls: frozenset[str]  # in every spelling


@dataclass(frozen=True, slots=True, kw_only=True)
class InUseTask:
    """Some manifests that stay, and chunks that are to go."""

    repo: Storage
    manifests: tuple[bytes, ...]
    chunks: bytes  # ids, ascending


def referring(task: ReferringTask) -> list[tuple[bytes, int]]:
    """Return the manifests that refer to one of the files, and how many references do."""
    assets, found = Assets(task.repo), []
    for key in task.manifests:
        count = 0
        for table in assets.read_manifest(ObjectId12(key)).arrays.values():
            urls = table.locations.url
            hit = np.array([urls[at] in task.urls for at in range(len(urls))], np.bool_)
            if hit.any():
                count += int(np.isin(table.source, np.flatnonzero(hit)).sum())
        if count:
            found.append((key, count))
    return found


def in_use(task: InUseTask) -> bytes:
    """Return those of the chunks that the manifests refer to."""
    going = np.frombuffer(task.chunks, ID)
    found = chunks_of(Assets(task.repo), map(ObjectId12, task.manifests))
    return found[places(going, found) >= 0].tobytes()
