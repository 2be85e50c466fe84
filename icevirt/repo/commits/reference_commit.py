"""Commit references whose manifests are written, into arrays that a session has or adds.

Manifests lie in the repository before; nothing here is as large as the references. If others
committed meanwhile, the commit goes on top of theirs, unless they changed the same nodes. Where
there is no repository, the commit creates it in one step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from icevirt.errors import ConflictError
from icevirt.ids import INITIAL_SNAPSHOT_ID, ObjectId12
from icevirt.model import paths
from icevirt.model.config.document import RepositoryConfig
from icevirt.model.json import JSONObject
from icevirt.model.repo_info import RepoInfo
from icevirt.model.snapshot import ArrayNode, ManifestFile, Node, Snapshot
from icevirt.repo import creation
from icevirt.repo.assets import Assets, HeldObjects
from icevirt.repo.commits.change_set import ChangeSet
from icevirt.repo.commits.commit import write_manifests
from icevirt.repo.commits.pending_commit import (
    PendingCommit,
    are_many,
    in_order,
    refuse_missing,
)
from icevirt.repo.repo_info_file import RepoInfoFile, RepoState
from icevirt.versioning import lookup, repo_updates
from icevirt.versioning.hierarchy import by_path
from icevirt.versioning.repo_updates import Edit
from icevirt.versioning.v1_migration import refuse_v1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceCommit:
    """Written references, and what is committed with them."""

    assets: Assets
    head: RepoInfoFile
    staging: ChangeSet  # the session's: groups, arrays, and chunks of other arrays
    config: RepositoryConfig
    branch: str
    message: str
    metadata: JSONObject
    arrays: Mapping[str, ArrayNode]  # with all their manifests, by path
    files: Sequence[ManifestFile]
    settings: Callable[[JSONObject], JSONObject]  # makes the configuration of the repository

    def publish(self) -> str:
        """Commit, and return the id of the snapshot; that of the branch if nothing is new.

        Raises:
            RepositoryNotFoundError: The repository was deleted.
            ConflictError: Others changed the same arrays or groups meanwhile.
            RefNotFoundError: The branch was deleted.
            BuildError: A manifest is gone.
            ReadOnlyError: The repository is read-only.
            FormatError: It is of the V1 format.
        """
        do = "Find and stop what deletes objects of the repository, and write again."
        refuse_missing(self.assets, self.files, do=do)
        self.assets.list_content_names()
        held = HeldObjects(self.assets.storage)
        nodes, staged = write_manifests(self.assets, self.staging, self.config, held=held)
        ours = {node.path: self.arrays.get(node.path, node) for node in nodes}
        before = by_path(self.staging.base.nodes)
        changed = {path: node for path, node in ours.items() if before.get(path) != node}
        written = staged | {info.id: info for info in self.files}

        def decide(current: RepoState) -> tuple[str, Sequence[Edit]]:
            refuse_v1(current.info, "writing references by tasks")
            tip = lookup.branch_tip(current.info, self.branch)
            if not changed:
                return str(tip), ()
            base = self.assets.snapshot(tip)
            if tip != self.staging.base.id:
                self._refuse_touched(before, base, changed)
            pending = self._pending(base, changed, written)
            snapshot, commit = pending.put(self.head, self.assets, held)
            return str(snapshot.id), (repo_updates.set_config(self.settings), commit)

        do = (
            "Write the references again when fewer processes commit: the same manifests are"
            " written."
        )
        return self.head.publish(decide, do=do, held=held, create=self._begin)[0]

    def _begin(self) -> RepoInfo:
        """Return what the repository begins with, if there was none before."""
        if self.staging.base.id != INITIAL_SNAPSHOT_ID:
            self.head.read()  # which raises
        return creation.prepare(self.assets, self.head.now(), self.settings({}))

    def _pending(
        self,
        base: Snapshot,
        changed: Mapping[str, Node],
        written: Mapping[ObjectId12, ManifestFile],
    ) -> PendingCommit:
        there = {node.id for node in base.nodes}
        ids = {node.id for node in self.arrays.values() if node.path in changed}
        chunks = {key: table.index for key, table in self.staging.tables().items()}
        too_many = are_many(self.files)
        new = set() if too_many else {file.id for file in self.files}
        for node in self.arrays.values():
            refs = [ref for ref in node.manifests if ref.object_id in new]
            tables = [self.assets.read_manifest(ref.object_id).arrays[node.id] for ref in refs]
            if tables:
                chunks[node.id] = in_order([table.index for table in tables])
        return PendingCommit(
            base=base,
            branch=self.branch,
            message=self.message,
            nodes=tuple({**by_path(base.nodes), **changed}.values()),
            written=written,
            chunks=chunks,
            touched=frozenset(ids & there if too_many else ()),
            metadata=self.metadata,
            is_of_dataset=False,
        )

    def _refuse_touched(
        self, before: Mapping[str, Node], base: Snapshot, ours: Mapping[str, Node]
    ) -> None:
        """Check that nobody changed the nodes of a commit, and that the groups above are there."""
        now = by_path(base.nodes)
        above = {path for each in ours for path in paths.ancestors(each)} - ours.keys()
        gone = {path for path in above if type(before.get(path)) is not type(now.get(path))}
        clash = sorted(gone | {path for path in ours if before.get(path) != now.get(path)})
        if clash:
            raise ConflictError(
                "the branch moved while references were written, and the same nodes were changed",
                do="Write the references again: they go on top of the branch as it is then.",
                branch=self.branch,
                paths=clash[:10],
                ours=self.message,
                theirs=repo_updates.line_of(base),
            )
