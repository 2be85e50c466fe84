"""Commit a build whose manifests are written: everything becomes visible at once.

Without a repository, the commit creates it: `repo` appears by one conditional create that holds the
configuration and both entries of the ops log. In an existing repository, configuration and commit
are one conditional update. A build that was committed before is found, not repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import ConflictError, RefNotFoundError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.config.containers import VirtualChunkContainer
from icevirt.model.config.document import RepositoryConfig, SplitRule, persistable
from icevirt.model.json import JSONObject
from icevirt.model.repo_info import RepoInfo, SnapshotSummary
from icevirt.model.snapshot import ManifestFile, Snapshot
from icevirt.planning.containers import merge_container
from icevirt.repo import creation, layout
from icevirt.repo.assets import Assets, HeldObjects
from icevirt.repo.commits import validation
from icevirt.repo.commits.pending_commit import (
    PendingCommit,
    are_many,
    in_order,
    refuse_collected,
    refuse_missing,
)
from icevirt.repo.repo_info_file import RepoInfoFile, RepoState
from icevirt.storage.constructors import StorageLike, storage_of
from icevirt.versioning import lookup, repo_updates
from icevirt.versioning.merge import build_merge
from icevirt.versioning.merge.build_merge import BuiltArrays, documents
from icevirt.versioning.merge.kept_nodes import Claim
from icevirt.versioning.repo_updates import Edit, as_json
from icevirt.versioning.v1_migration import refuse_v1

BUILD_ID = "icevirt_build_id"


def with_settings(
    document: JSONObject,
    containers: Sequence[VirtualChunkContainer],
    split_rules: Sequence[SplitRule],
) -> JSONObject:
    """Return a configuration with additions, the same if it has them.

    Raises:
        InvalidInputError: Containers contradict those that are there.
    """
    config = RepositoryConfig.from_document(dict(document))
    known = config.virtual_chunk_containers
    for wanted in containers:
        container = merge_container(known, wanted)
        there = known.get(container.url_prefix)
        if there != container or not there.store.is_complete:
            config.set_virtual_chunk_container(container)
    if split_rules:
        config.add_split_rules(split_rules)
    return document if config.document == document else persistable(config.document)


def find_build(info: RepoInfo, branch: str, build_id: str) -> str | None:
    """Return the newest snapshot of a branch that this build made, or None."""
    if branch not in info.branches:
        return None
    for snapshot in lookup.ancestry(info, info.branches[branch]):
        if snapshot.metadata.get(BUILD_ID) == build_id:
            return str(snapshot.id)
    return None


@dataclass(slots=True, kw_only=True)
class BuildCommit:
    """A build to commit: one attempt after another until it is in, or must not be.

    Args:
        storage: The repository's root; the repository is created where there is none.
        branch: Must exist, or be ``main`` of a new repository.
        message: The commit message.
        metadata: Of the commit; ``icevirt_build_id`` in it makes publishing idempotent.
        groups: zarr.json by path. Missing parents are added.
        arrays: zarr.json, node id and manifests by path.
        manifest_files: The manifests, which lie in the repository.
        claim: The group that the build has for itself, and what it replaces there. With it,
            paths of ``groups`` and ``arrays`` are canonical.
        containers: Added to the persisted configuration.
        split_rules: Put in front of the persisted ones.
        expected_parent: Snapshot that the build was planned on. If the branch moved on since, the
            build goes on top of what is there, unless its own paths were touched.
        stands_on: Says whether a commit since then is about what the build goes on from.
        check: Is given the snapshot while it is on no branch, and raises if it must not get on one.
    """

    storage: StorageLike
    branch: str
    message: str
    groups: Mapping[str, bytes]
    arrays: BuiltArrays
    manifest_files: Sequence[ManifestFile]
    metadata: JSONObject = field(default_factory=dict)
    claim: Claim | None = None
    containers: Sequence[VirtualChunkContainer] = ()
    split_rules: Sequence[SplitRule] = ()
    expected_parent: str | None = None
    stands_on: Callable[[SnapshotSummary], bool] | None = None
    check: Callable[[str], None] | None = None
    _assets: Assets = field(init=False)
    _head: RepoInfoFile = field(init=False)
    _held: HeldObjects = field(init=False)
    _first: RepoInfo | None = None  # where the build makes the repository
    _put: tuple[PendingCommit, Snapshot] | None = None  # what was written on which parent
    _is_detached: bool = False
    _verified: str | None = None  # the snapshot that was checked

    def __post_init__(self) -> None:
        self.metadata = as_json(self.metadata)
        self._assets = Assets(storage_of(self.storage))
        self._head = RepoInfoFile(self._assets.storage)
        self._held = HeldObjects(self._assets.storage)

    def publish(self) -> str:
        """Commit, and return the id of the snapshot.

        Raises:
            AlreadyExistsError: Something of the build, or something that is no repository, is
                there.
            RefNotFoundError: There is no such branch.
            ConflictError: The branch moved, and the build's paths were touched.
            InvalidInputError: Containers contradict those that are there.
            BuildError: A manifest is missing, or garbage was collected while the snapshot was
                checked.
            ReadOnlyError: The repository is read-only.
            FormatError: It is of the V1 format.
        """
        for path, zarr_json in (*self.groups.items(), *documents(self.arrays).items()):
            validation.check_metadata(path, zarr_json)
        do = "Run the build again; it writes the manifests that are missing."
        refuse_missing(self._assets, self.manifest_files, do=do)
        do = "Run the build again when fewer processes write: its work is kept."
        how: Any = {"do": do, "held": self._held, "create": self._begin}
        if self.check is not None:
            self._is_detached = True
            self._verified = self._head.publish(self._decide, **how)[0]
            self.check(self._verified)
            self._is_detached = False
        return self._head.publish(self._decide, **how)[0]

    def _begin(self) -> RepoInfo:
        """Return what the repository begins with, if the build may make it."""
        creation.refuse_foreign(self._assets.storage)
        if self.branch != repo_updates.MAIN:
            raise RefNotFoundError(
                "a new repository has only the branch 'main'",
                do="Build into 'main', or create the repository and the branch first.",
                branch=self.branch,
            )
        self._first = creation.prepare(self._assets, self._head.now(), self._config({}))
        return self._first

    def _decide(self, current: RepoState) -> tuple[str, Sequence[Edit]]:
        """Commit on top of what is there, unless this was done."""
        info, build_id = current.info, self.metadata.get(BUILD_ID)
        refuse_v1(info, "a build")
        if build_id is not None and (made := find_build(info, self.branch, str(build_id))):
            return made, ()
        if not self._is_detached:
            refuse_collected(info, self._verified)
        parent = lookup.branch_tip(info, self.branch)
        if info is not self._first:
            self._check_parent(info, parent)
        if self._put is None or self._put[0].base.id != parent:
            base = self._assets.snapshot(parent)
            pending = PendingCommit(
                base=base,
                branch=self.branch,
                message=self.message,
                nodes=build_merge.graft_build(
                    base,
                    groups=self.groups,
                    arrays=self.arrays,
                    claim=self.claim,
                    new_id=ObjectId8.random,
                ),
                written={info.id: info for info in self.manifest_files},
                chunks=self._list_chunks(),
                metadata=self.metadata,
            )
            self._put = pending, pending.write(self._head, self._assets, self._held)
        pending, snapshot = self._put
        commit = pending.edit(snapshot, is_detached=self._is_detached)
        return str(snapshot.id), (repo_updates.set_config(self._config), commit)

    def _config(self, document: JSONObject) -> JSONObject:
        return with_settings(document, self.containers, self.split_rules)

    def _check_parent(self, info: RepoInfo, tip: ObjectId12) -> None:
        if self.expected_parent is None or self.expected_parent == str(tip):
            return
        planned = layout.snapshot_id(self.expected_parent)
        history = [*lookup.ancestry(info, tip)]
        if planned not in {each.id for each in history}:
            raise ConflictError(
                "the branch was reset since the build was planned",
                do="Run the build again: it plans from the current branch.",
                branch=self.branch,
                expected_parent=self.expected_parent,
                ours=self.message,
                theirs=repo_updates.line_of(info.snapshots[tip]),
            )
        since = takewhile(lambda each: each.id != planned, history)
        if self.stands_on is not None and (theirs := next(filter(self.stands_on, since), None)):
            raise ConflictError(
                "the branch moved since the build was planned, and changed the same dataset",
                do="Run the build again: it plans from the current branch.",
                expected_parent=self.expected_parent,
                ours=self.message,
                theirs=repo_updates.line_of(theirs),
            )
        build_merge.refuse_touched(
            self._assets.snapshot(planned),
            self._assets.snapshot(tip),
            groups=self.groups,
            arrays=self.arrays,
            claim=self.claim,
            message=self.message,
        )

    def _list_chunks(self) -> dict[ObjectId8, NDArray[np.uint32]]:
        """Return the chunks of the new arrays, or none where they are too many to list.

        Chunks of an array that did not exist cannot conflict.
        """
        if are_many(self.manifest_files):
            return {}
        nodes: dict[ObjectId12, list[ObjectId8]] = {}  # of each manifest, which is read once
        for _, node_id, manifests in self.arrays.values():
            for ref in manifests:
                nodes.setdefault(ref.object_id, []).append(node_id)
        parts: dict[ObjectId8, list[NDArray[np.uint32]]] = {}
        for key, held in nodes.items():
            found = self._assets.read_indices(key)
            for node_id in held:
                if node_id in found:
                    parts.setdefault(node_id, []).append(found[node_id])
        return {node_id: in_order(each) for node_id, each in parts.items()}
