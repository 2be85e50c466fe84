"""Check an old repository file by file, with memory bounded by one manifest.

The first writers mixed arrays of equal rank up. A chunk that has the name of another array's chunk
was overwritten, or was never there. Which of the two, is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, combinations

import numpy as np

from icevirt.errors import IcevirtError
from icevirt.ids import ObjectId12
from icevirt.legacy.assets import OldAssets
from icevirt.model.chunks import ChunkType
from icevirt.model.repo_info import RepoInfo, SnapshotSummary
from icevirt.model.snapshot import Snapshot
from icevirt.repo import layout
from icevirt.repo.maintenance.chunk_sizes import ChunkSizes
from icevirt.versioning import lookup
from icevirt.versioning.chunk_tables import RowFinder, same_bytes
from icevirt.versioning.id_columns import id_at
from icevirt.versioning.invariants import Problem, of_repo_info, of_snapshot

type Lines = dict[str, tuple[ObjectId12, ...]]
"""Where each branch was, commit by commit, oldest first."""


@dataclass(slots=True)
class OldCheck:
    """One walk through an old repository; what was seen is not checked twice."""

    assets: OldAssets
    problems: list[Problem] = field(default_factory=list)
    references: dict[ObjectId12, int] = field(default_factory=dict)
    snapshots: int = 0

    def run(self, info: RepoInfo, lines: Callable[[], Lines], now: int) -> None:
        """Check everything that branches and tags lead to, also where branches once were."""
        info = self._read_all(info, lines)
        self.snapshots = len(info.snapshots)
        self.problems += of_repo_info(info, now)
        chunks = ChunkSizes.of(self.assets.chunk_objects())
        for listed in info.snapshots.values():
            snapshot = self.assets.snapshot(listed.id)
            self.problems += of_snapshot(snapshot, listed)
            self._check_manifests(snapshot, chunks)
            log = layout.transaction_log(listed.id)
            self._try(log, partial(self.assets.transaction_log, listed.id))
            path = layout.snapshot(snapshot.id)
            for pair in self._try(path, partial(find_mixed_arrays, self.assets, snapshot)) or ():
                self.problems.append(
                    Problem(file=path, code="mixed-arrays", what=str(pair), advice=not pair.chunks)
                )

    def _read_all(self, info: RepoInfo, read_lines: Callable[[], Lines]) -> RepoInfo:
        refs = {}
        for kind, listed in (("branch", info.branches), ("tag", info.tags)):
            read = {name: self._try(kind, partial(listed.get, name)) for name in listed}
            refs[kind] = {name: key for name, key in sorted(read.items()) if key is not None}
        lines = self._try("refs", read_lines) or {}

        def fetch(key: ObjectId12) -> SnapshotSummary | None:
            return self._try(layout.snapshot(key), partial(info.snapshots.get, key))

        tips = chain(*(each.values() for each in refs.values()), *lines.values())
        snapshots = {found.id: found for found in lookup.reachable(tips, fetch)}
        return info._replace(
            branches=refs["branch"],
            tags=refs["tag"],
            snapshots=dict(sorted(snapshots.items())),
        )

    def _check_manifests(self, snapshot: Snapshot, chunks: ChunkSizes) -> None:
        for node in snapshot.arrays():
            for key in {ref.object_id for ref in node.manifests} - self.references.keys():
                path = layout.manifest(key)
                manifest = self._try(path, partial(self.assets.read_manifest, key))
                if manifest is None:
                    continue
                self.references[key] = manifest.num_chunk_refs
                for table in manifest.arrays.values():
                    lacking = chunks.lacking(table)
                    for at in range(len(lacking.ids)):
                        what = f"{layout.chunk(id_at(lacking.ids, at))} is missing or too short"
                        self.problems.append(Problem(file=path, code="chunk", what=what))

    def _try[T](self, path: str, fetch: Callable[[], T]) -> T | None:
        try:
            return fetch()
        except IcevirtError as error:
            self.problems.append(Problem(file=path, code=error.code, what=str(error)))
            return None


@dataclass(frozen=True, slots=True)
class MixedArrays:
    """Two arrays that list the same chunks."""

    snapshot: str
    earlier: str  # path of the array whose chunks are in doubt
    later: str
    chunks: int  # that are the same objects
    equal: int  # inline chunks that are equal, perhaps because their values are
    first: tuple[int, ...]

    def __str__(self) -> str:
        at = f"snapshot {self.snapshot}, the first is {self.first}"
        if self.chunks:
            return (
                f"{self.chunks} chunks of {self.earlier} are those of {self.later} ({at}): a bug of"
                " the writer, and the right ones are unknown"
            )
        return (
            f"{self.equal} inline chunks of {self.earlier} and {self.later} are equal ({at}):"
            " perhaps by a bug of the writer"
        )


def find_mixed_arrays(assets: OldAssets, snapshot: Snapshot) -> list[MixedArrays]:
    """Return the pairs of arrays of a snapshot that list the same chunks."""
    found = []
    arrays = sorted(snapshot.arrays(), key=lambda node: node.id)
    for one, other in combinations(arrays if assets.encoding.mixes_arrays else (), 2):
        if len(one.shape) != len(other.shape):
            continue
        for ref in {r.object_id for r in one.manifests} & {r.object_id for r in other.manifests}:
            held = assets.manifest(ref)
            if one.id not in held or other.id not in held:
                continue
            table, theirs = held[one.id].table, held[other.id].table
            rows = RowFinder.of(theirs).find(table.index)
            there = np.flatnonzero(rows >= 0)
            there = there[same_bytes(table.take(there), theirs.take(rows[there]))]
            if not len(there):
                continue
            inline = int(np.count_nonzero(table.kind[there] == ChunkType.inline))
            found.append(
                MixedArrays(
                    snapshot=str(snapshot.id),
                    earlier=one.path,
                    later=other.path,
                    chunks=len(there) - inline,
                    equal=inline,
                    first=tuple(table.index[there[0]].tolist()),
                )
            )
    return found
