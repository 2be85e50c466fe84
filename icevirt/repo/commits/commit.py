"""Commit, amend and flush in a safe order: referenced objects are written first.

Manifests, transaction log, snapshot, repo info: no reader sees any of it before the last step, and
a process killed earlier leaves garbage, not damage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from icevirt.errors import SessionStateError
from icevirt.ids import ObjectId12
from icevirt.model.config.document import RepositoryConfig
from icevirt.model.json import JSONObject
from icevirt.model.repo_info import RepoInfo, SnapshotSummary
from icevirt.model.snapshot import Snapshot
from icevirt.model.transaction_log import TransactionLog
from icevirt.repo.assets import Assets
from icevirt.repo.commits.change_set import ChangeSet
from icevirt.repo.commits.manifest_writer import write_manifests
from icevirt.repo.repo_info_file import RepoInfoFile, refuse_read_only
from icevirt.versioning import repo_updates
from icevirt.versioning.diff import combined
from icevirt.versioning.history.timestamps import stamp
from icevirt.versioning.v1_migration import refuse_v1


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCommit:
    """What is to become a snapshot, and where."""

    assets: Assets
    head: RepoInfoFile
    staging: ChangeSet
    message: str
    metadata: JSONObject
    config: RepositoryConfig
    rewrite: bool = False  # all manifests, not only those that the changes touch

    def info(self, branch: str | None) -> RepoInfo:
        """Find out what would fail anyway, before manifests are written.

        Raises:
            ReadOnlyError: The repository is read-only.
            RefNotFoundError: The branch was deleted.
            ConflictError: The branch is no longer at the snapshot that the changes are based on.
        """
        info = self.head.read().info
        refuse_read_only(info)
        if branch is not None:
            repo_updates.refuse_moved(info, branch, self.staging.base.id)
        return info

    def write(
        self, log_of: Callable[[TransactionLog], TransactionLog] = lambda log: log
    ) -> Snapshot:
        """Write manifests, transaction log and snapshot."""
        self.assets.list_content_names()
        nodes, files = write_manifests(self.assets, self.staging, self.config, rewrite=self.rewrite)
        snapshot = Snapshot(
            id=ObjectId12.random(),
            nodes=nodes,
            flushed_at=stamp(self.head.now(), parent=self.staging.base.flushed_at),
            message=self.message,
            metadata=self.metadata,
            manifest_files=files,
            parent_id=self.staging.base.id,
        )
        self.assets.put_transaction_log(log_of(self.staging.log(snapshot.id)))
        self.assets.put_snapshot(snapshot)
        return snapshot


def commit(draft: PendingCommit, branch: str) -> Snapshot:
    """Write the staged changes as a new tip of ``branch``; raises as `PendingCommit.info`."""
    draft.info(branch)
    snapshot = draft.write()
    draft.head.update(repo_updates.commit(branch, info_of(snapshot, draft.staging.base.id)))
    return snapshot


def amend(draft: PendingCommit, branch: str) -> Snapshot:
    """Write the tip of ``branch`` and the staged changes as one commit in its place.

    Raises:
        SessionStateError: The tip is the initial snapshot.
        FormatError: The tip's transaction log holds facts of a newer client, or the repository is
            of the V1 format.
    """
    previous = draft.staging.base.id
    found = draft.info(branch)
    refuse_v1(found, "amending a commit")
    told = repo_updates.known(found, previous)
    if told.parent_id is None:
        raise SessionStateError(
            "the initial snapshot of a repository cannot be amended",
            do="Commit instead.",
            branch=branch,
        )
    before = draft.assets.transaction_log(previous)
    before.refuse_loss()
    snapshot = draft.write(lambda log: combined(before, log))
    info = replace(
        info_of(snapshot, told.parent_id), pruned_ancestor_tx_logs=told.pruned_ancestor_tx_logs
    )
    draft.head.update(repo_updates.amend(branch, info, previous))
    return snapshot


def flush(draft: PendingCommit) -> Snapshot:
    """Write the staged changes as a snapshot that is on no branch."""
    draft.info(None)
    snapshot = draft.write()
    draft.head.update(repo_updates.detach(info_of(snapshot, draft.staging.base.id)))
    return snapshot


def info_of(snapshot: Snapshot, parent: ObjectId12) -> SnapshotSummary:
    """Return what the repo info repeats of a snapshot."""
    return SnapshotSummary(
        id=snapshot.id,
        parent_id=parent,
        flushed_at=snapshot.flushed_at,
        message=snapshot.message,
        metadata=snapshot.metadata,
    )
