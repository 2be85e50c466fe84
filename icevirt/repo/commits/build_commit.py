"""Commit a build whose manifests are written: everything becomes visible at once.

Without a repository, the commit creates it: `repo` appears by one conditional create that holds the
configuration and both entries of the ops log. In an existing repository, configuration and commit
are one conditional update. A build that was committed before is found, not repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import BuildError, ConflictError, RefNotFoundError, StorageError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.config.document import RepositoryConfig, SplitRule, VirtualChunkContainer
from icevirt.model.json import JSONObject
from icevirt.model.repo_info import RepoInfo
from icevirt.model.snapshot import ManifestFile, Snapshot
from icevirt.planning.containers import merged
from icevirt.repo import creation, layout
from icevirt.repo.assets import Assets
from icevirt.repo.commits import validation
from icevirt.repo.commits.commit import info_of
from icevirt.repo.commits.manifest_writer import manifest_files as files_of
from icevirt.repo.history import walks
from icevirt.repo.repo_info_file import RepoInfoFile, pause, refuse_read_only
from icevirt.repo.repo_state import RepoState
from icevirt.repo.settings import as_json
from icevirt.storage.constructors import StorageLike, storage_of
from icevirt.storage.protocol import Storage
from icevirt.versioning import diff, repo_updates
from icevirt.versioning.config_merge import persistable
from icevirt.versioning.history.timestamps import stamp
from icevirt.versioning.merge import build_merge
from icevirt.versioning.merge.build_merge import BuiltArray, BuiltArrays
from icevirt.versioning.merge.kept_nodes import Claim
from icevirt.versioning.repo_updates import Edit
from icevirt.versioning.v1_guard import refuse_v1

BUILD_ID = "icevirt_build_id"
MAX_LISTED = 100_000
"""Chunks of new arrays that a transaction log lists; with more of them it lists none.

Nobody can conflict with chunks of an array that did not exist, and a log of all of a large build's
could not be read.
"""
_TRIES = 100

__all__ = ["BUILD_ID", "BuiltArray", "find_build", "publish"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Build:
    """What is to be published."""

    branch: str
    message: str
    metadata: JSONObject
    groups: Mapping[str, bytes]
    arrays: BuiltArrays
    files: tuple[ManifestFile, ...]
    claim: Claim | None
    containers: tuple[VirtualChunkContainer, ...]
    split_rules: tuple[SplitRule, ...]
    expected_parent: ObjectId12 | None

    @property
    def id(self) -> str | None:
        """The build's own id."""
        found = self.metadata.get(BUILD_ID)
        return None if found is None else str(found)

    def config(self, document: JSONObject) -> JSONObject:
        """Return a configuration with the build's additions, the same if it has them.

        Raises:
            InvalidInputError: Containers contradict those that are there.
        """
        config = RepositoryConfig.from_document(dict(document))
        known = config.virtual_chunk_containers
        for wanted in self.containers:
            container = merged(known, wanted)
            there = known.get(container.url_prefix)
            if there != container or not there.store.is_complete:
                config.set_virtual_chunk_container(container)
        if self.split_rules:
            config.add_split_rules(self.split_rules)
        return document if config.document == document else persistable(config.document)


def publish(
    storage: StorageLike,
    *,
    branch: str,
    message: str,
    metadata: Mapping[str, Any] | None = None,
    groups: Mapping[str, bytes],
    arrays: BuiltArrays,
    manifest_files: Sequence[ManifestFile],
    claim: Claim | None = None,
    containers: Sequence[VirtualChunkContainer] = (),
    split_rules: Sequence[SplitRule] = (),
    expected_parent: str | None = None,
) -> str:
    """Commit a build and return the id of its snapshot.

    Args:
        storage: The repository's root; the repository is created where there is none.
        branch: Must exist, or be ``main`` of a new repository.
        message: The commit message.
        metadata: Of the commit; ``icevirt_build_id`` in it makes publishing idempotent.
        groups: zarr.json by path. Missing parents are added.
        arrays: zarr.json, node id and manifests by path.
        manifest_files: The manifests, which lie in the repository.
        claim: The group that the build has for itself, and what it replaces there. Paths of
            ``groups`` and ``arrays`` are canonical.
        containers: Added to the persisted configuration.
        split_rules: Put in front of the persisted ones.
        expected_parent: Snapshot that the build was planned on. If the branch moved on since, the
            build goes on top of what is there, unless its own paths were touched.

    Raises:
        AlreadyExistsError: Something of the build, or something that is no repository, is there.
        RefNotFoundError: There is no such branch.
        ConflictError: The branch moved, and the build's paths were touched.
        InvalidInputError: Containers contradict those that are there.
        BuildError: A manifest is missing.
        ReadOnlyError: The repository is read-only.
        FormatError: It is of the V1 format.
    """
    root = storage_of(storage)
    build = _Build(
        branch=branch,
        message=message,
        metadata=as_json(metadata or {}),
        groups=dict(groups),
        arrays=dict(arrays),
        files=tuple(manifest_files),
        claim=claim,
        containers=tuple(containers),
        split_rules=tuple(split_rules),
        expected_parent=None if expected_parent is None else layout.snapshot_id(expected_parent),
    )
    _check(root, build)
    return _Publisher(root, build).run()


def find_build(info: RepoInfo, branch: str, build_id: str) -> str | None:
    """Return the newest snapshot of a branch that this build made, or None."""
    if branch not in info.branches:
        return None
    for snapshot in walks.ancestry(info, info.branches[branch]):
        if snapshot.metadata.get(BUILD_ID) == build_id:
            return str(snapshot.id)
    return None


class _Publisher:
    """One attempt after the other until the build is in, or may not be."""

    def __init__(self, storage: Storage, build: _Build) -> None:
        self._build = build
        self._assets = Assets(storage)
        self._head = RepoInfoFile(storage)
        self._written: tuple[ObjectId12, Snapshot] | None = None  # (parent, snapshot)

    def run(self) -> str:
        for attempt in range(_TRIES):
            current = self._head.find()
            done = self._create() if current is None else self._update(current)
            if done is not None:
                return done
            pause(attempt)
        raise StorageError(
            "other writers changed the repository before every attempt to commit the build",
            do="Run the build again when fewer processes write: its work is kept.",
            tries=_TRIES,
        )

    def _create(self) -> str | None:
        """Make the repository with the build in it."""
        build, storage = self._build, self._assets.storage
        creation.refuse_foreign(storage)
        if build.branch != repo_updates.MAIN:
            raise RefNotFoundError(
                "a new repository has only the branch 'main'",
                do="Build into 'main', or create the repository and the branch first.",
                branch=build.branch,
            )
        config = build.config({})
        first = creation.prepare(self._assets, self._head.now(), config)
        snapshot, edit = self._commit(first)
        return None if self._head.create(first, edit) is None else str(snapshot.id)

    def _update(self, current: RepoState) -> str | None:
        """Commit on top of what is there."""
        build, info = self._build, current.info
        refuse_v1(info, "a build")
        refuse_read_only(info)
        if build.id is not None and (made := find_build(info, build.branch, build.id)) is not None:
            return made
        self._check_parent(info)
        snapshot, commit = self._commit(info)
        after = self._head.swap(current, repo_updates.set_config(build.config), commit)
        return None if after is None else str(snapshot.id)

    def _commit(self, info: RepoInfo) -> tuple[Snapshot, Edit]:
        """Write snapshot and transaction log for the branch as it is; return the last step."""
        parent = repo_updates.branch_tip(info, self._build.branch)
        if self._written is None or self._written[0] != parent:
            self._written = (parent, self._write(self._assets.snapshot(parent)))
        snapshot = self._written[1]
        return snapshot, repo_updates.commit(self._build.branch, info_of(snapshot, parent))

    def _write(self, base: Snapshot) -> Snapshot:
        build = self._build
        base.refuse_loss()
        nodes = build_merge.grafted(
            base,
            groups=build.groups,
            arrays=build.arrays,
            claim=build.claim,
            new_id=ObjectId8.random,
        )
        snapshot = Snapshot(
            id=ObjectId12.random(),
            nodes=nodes,
            flushed_at=stamp(self._head.now(), parent=base.flushed_at),
            message=build.message,
            metadata=build.metadata,
            manifest_files=files_of(list(nodes), base, {info.id: info for info in build.files}),
        )
        chunks = _listed(self._assets, build)
        self._assets.put_transaction_log(diff.log_of(snapshot.id, base.nodes, nodes, chunks))
        self._assets.put_snapshot(snapshot)
        return snapshot

    def _check_parent(self, info: RepoInfo) -> None:
        build = self._build
        tip = repo_updates.branch_tip(info, build.branch)
        if build.expected_parent is None or tip == build.expected_parent:
            return
        if build.expected_parent not in {known.id for known in walks.ancestry(info, tip)}:
            raise ConflictError(
                "the branch was reset since the build was planned",
                do="Run the build again: it plans from the current branch.",
                branch=build.branch,
                expected_parent=str(build.expected_parent),
                actual_parent=str(tip),
            )
        build_merge.refuse_touched(
            self._assets.snapshot(build.expected_parent),
            self._assets.snapshot(tip),
            groups=build.groups,
            arrays=build.arrays,
            claim=build.claim,
        )


def _check(storage: Storage, build: _Build) -> None:
    """Check metadata and manifests before anything is written."""
    for path, zarr_json in build.groups.items():
        validation.checked(path, zarr_json)
    for path, (zarr_json, _, _) in build.arrays.items():
        validation.checked(path, zarr_json)
    there = {info.path: info.size for info in storage.list("manifests")} if build.files else {}
    for info in build.files:
        if there.get(layout.manifest(info.id)) != info.size_bytes:
            raise BuildError(
                "a manifest of the build is missing or damaged",
                do="Run the build again; it writes the manifests that are missing.",
                manifest=str(info.id),
            )


def _listed(assets: Assets, build: _Build) -> dict[ObjectId8, NDArray[np.uint32]]:
    """Return the chunks of the new arrays, or none where they are too many to list."""
    if sum(info.num_chunk_refs for info in build.files) > MAX_LISTED:
        return {}
    parts: dict[ObjectId8, list[NDArray[np.uint32]]] = {}
    for _, node_id, manifests in build.arrays.values():
        for ref in manifests:
            table = assets.read_manifest(ref.object_id).arrays.get(node_id)
            if table is not None:
                parts.setdefault(node_id, []).append(table.index)
    return {key: _ascending(np.concatenate(found)) for key, found in parts.items()}


def _ascending(index: NDArray[np.uint32]) -> NDArray[np.uint32]:
    return index[np.lexsort(index.T[::-1])] if index.shape[1] else index
