"""Check an old repository file by file, with memory bounded by one manifest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from functools import partial
from itertools import chain

from icevirt.deferred_dataclass import dataclass
from icevirt.errors import IcevirtError
from icevirt.ids import ObjectId12
from icevirt.model.repo_info import RepoInfo
from icevirt.model.snapshot import Snapshot
from icevirt.repo import layout
from icevirt.repo.legacy.as_v2 import OldRepoState
from icevirt.repo.legacy.assets import OldAssets
from icevirt.repo.legacy.mixed import mixed_arrays
from icevirt.repo.maintenance.chunk_sizes import ChunkSizes
from icevirt.versioning.id_columns import id_at
from icevirt.versioning.invariants import Problem, of_repo_info, of_snapshot


@dataclass(slots=True)
class OldCheck:
    """One walk through an old repository; what was seen is not checked twice."""

    assets: OldAssets
    problems: list[Problem] = field(default_factory=list)
    references: dict[ObjectId12, int] = field(default_factory=dict)
    snapshots: int = 0

    def run(self, current: OldRepoState, now: int) -> None:
        """Check everything that branches and tags lead to, also where branches once were."""
        info = self._whole(current)
        self.snapshots = len(info.snapshots)
        self.problems += of_repo_info(info, now)
        chunks = ChunkSizes.of(self.assets.chunk_objects())
        for listed in info.snapshots.values():
            found = self.assets.snapshot(listed.id)
            self.problems += of_snapshot(found, listed)
            self._manifests(found, chunks)
            path = layout.transaction_log(listed.id)
            self._try(path, partial(self.assets.transaction_log, listed.id))
            self._mixed(found)

    def _whole(self, current: OldRepoState) -> RepoInfo:
        """Return the repo info with all that can be read in it."""
        info = current.info
        refs = {}
        for kind, listed in (("branch", info.branches), ("tag", info.tags)):
            read = {name: self._try(kind, partial(listed.get, name)) for name in listed}
            refs[kind] = {name: key for name, key in sorted(read.items()) if key is not None}
        lines = self._try("refs", current.lines) or {}
        known = {}
        tips = chain(*(each.values() for each in refs.values()), *lines.values())
        for tip in tips:
            at: ObjectId12 | None = tip
            while at is not None and at not in known:
                found = self._try(layout.snapshot(at), partial(info.snapshots.get, at))
                if found is None:
                    break
                known[at] = found
                at = found.parent_id
        return replace(
            info, branches=refs["branch"], tags=refs["tag"], snapshots=dict(sorted(known.items()))
        )

    def _manifests(self, snapshot: Snapshot, chunks: ChunkSizes) -> None:
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

    def _mixed(self, snapshot: Snapshot) -> None:
        path = layout.snapshot(snapshot.id)
        for pair in self._try(path, lambda: list(mixed_arrays(self.assets, snapshot))) or ():
            self.problems.append(
                Problem(file=path, code="mixed-arrays", what=str(pair), advice=not pair.chunks)
            )

    def _try[T](self, path: str, fetch: Callable[[], T]) -> T | None:
        try:
            return fetch()
        except IcevirtError as error:
            self.problems.append(Problem(file=path, code=error.code, what=str(error)))
            return None
