"""Commit references whose manifests are written, into arrays that a session has or adds.

Manifests lie in the repository before; nothing here is as large as the references. If others
committed meanwhile, the commit goes on top of theirs, unless they changed the same nodes. Where
there is no repository, the commit creates it in one step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from icevirt.deferred_dataclass import dataclass
from icevirt.errors import ConflictError
from icevirt.ids import INITIAL_SNAPSHOT_ID, ObjectId8, ObjectId12
from icevirt.model import paths
from icevirt.model.config.document import RepositoryConfig
from icevirt.model.json import JSONObject
from icevirt.model.snapshot import ArrayNode, ManifestFile, Node, Snapshot
from icevirt.repo import creation
from icevirt.repo.assets import Assets, HeldObjects
from icevirt.repo.commits.change_set import ChangeSet
from icevirt.repo.commits.commit import info_of
from icevirt.repo.commits.manifest_writer import manifest_files, write_manifests
from icevirt.repo.commits.written_manifests import are_many, in_order, refuse_missing
from icevirt.repo.repo_info_file import RepoInfoFile, RepoState, refuse_read_only, until_first
from icevirt.versioning import diff, lookup, repo_updates
from icevirt.versioning.hierarchy import by_path
from icevirt.versioning.history.timestamps import stamp
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
        written = {info.id: info for info in (*staged, *self.files)}

        def attempt() -> str | None:
            current = self.head.find()
            if current is None:
                found = self._create(changed, written, held)
            else:
                found = self._update(current, before, changed, written, held)
            return None if found is None else str(found)

        return until_first(
            attempt,
            do="Write the references again when fewer processes commit: the same manifests are"
            " written.",
        )

    def _create(
        self,
        changed: Mapping[str, Node],
        written: Mapping[ObjectId12, ManifestFile],
        held: HeldObjects,
    ) -> ObjectId12 | None:
        """Make the repository with the references in it; None if another writer made one."""
        if self.staging.base.id != INITIAL_SNAPSHOT_ID:
            self.head.read()  # which raises
        first = creation.prepare(self.assets, self.head.now(), self.settings({}))
        initial = self.assets.snapshot(INITIAL_SNAPSHOT_ID)
        snapshot = self._write(initial, changed, written, held)
        commit = repo_updates.commit(self.branch, info_of(snapshot, INITIAL_SNAPSHOT_ID))
        made = self.head.create(first, commit, held=held)
        return None if made is None else snapshot.id

    def _update(
        self,
        current: RepoState,
        before: Mapping[str, Node],
        changed: Mapping[str, Node],
        written: Mapping[ObjectId12, ManifestFile],
        held: HeldObjects,
    ) -> ObjectId12 | None:
        """Commit on top of what is there; None if another writer was first."""
        info = current.info
        refuse_v1(info, "writing references by tasks")
        refuse_read_only(info)
        tip = lookup.branch_tip(info, self.branch)
        base = self.assets.snapshot(tip)
        if not changed:
            return tip
        if tip != self.staging.base.id:
            self._refuse_touched(before, base, changed)
        snapshot = self._write(base, changed, written, held)
        done = self.head.swap(
            current,
            repo_updates.set_config(self.settings),
            repo_updates.commit(self.branch, info_of(snapshot, tip)),
            held=held,
        )
        return None if done is None else snapshot.id

    def _write(
        self,
        base: Snapshot,
        changed: Mapping[str, Node],
        written: Mapping[ObjectId12, ManifestFile],
        held: HeldObjects,
    ) -> Snapshot:
        base.refuse_loss()
        nodes = tuple({**by_path(base.nodes), **changed}.values())
        snapshot = Snapshot(
            id=ObjectId12.random(),
            nodes=nodes,
            flushed_at=stamp(self.head.now(), parent=base.flushed_at),
            message=self.message,
            metadata=self.metadata,
            manifest_files=manifest_files(nodes, base, written),
        )
        there = {node.id for node in base.nodes}
        chunks = {key: table.index for key, table in self.staging.tables().items()}
        log = diff.log_of(snapshot.id, base.nodes, nodes, chunks | self._listed())
        if are_many(self.files):
            ids = {node.id for node in self.arrays.values() if node.path in changed}
            log = replace(log, updated_arrays=log.updated_arrays | (ids & there))
        self.assets.put_transaction_log(log, held)
        self.assets.put_snapshot(snapshot, held)
        return snapshot

    def _listed(self) -> dict[ObjectId8, NDArray[np.uint32]]:
        """Return the chunks in the written manifests, unless they are too many to list."""
        new = {file.id for file in self.files}
        if are_many(self.files):
            return {}
        found: dict[ObjectId8, NDArray[np.uint32]] = {}
        for node in self.arrays.values():
            refs = [ref for ref in node.manifests if ref.object_id in new]
            tables = [self.assets.read_manifest(ref.object_id).arrays[node.id] for ref in refs]
            if tables:
                found[node.id] = in_order([table.index for table in tables])
        return found

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
