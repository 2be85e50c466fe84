"""Commit, amend and rebase; referenced objects are written first.

Manifests, transaction log, snapshot, repo info: no reader sees any of it before the last step, and
a process killed earlier leaves garbage, not damage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, assert_never

from icevirt.errors import ConflictError, RebaseFailedError, SessionStateError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.config.document import RepositoryConfig
from icevirt.model.json import JSONObject
from icevirt.model.repo_info import RepoInfo, SnapshotSummary
from icevirt.model.snapshot import Snapshot
from icevirt.repo.assets import Assets, HeldObjects
from icevirt.repo.commits.change_set import ChangeSet
from icevirt.repo.commits.manifest_writer import write_manifests
from icevirt.repo.commits.pending_commit import PendingCommit, info_of
from icevirt.repo.repo_info_file import RepoInfoFile, refuse_read_only
from icevirt.versioning import lookup, repo_updates

if TYPE_CHECKING:
    from icevirt.versioning.merge.conflicts import ConflictSolver


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCommit:
    """Staged changes that are to become a snapshot, and where."""

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

    def pending(self, branch: str | None, held: HeldObjects) -> PendingCommit:
        """Write manifests, or hold them."""
        self.assets.list_content_names()
        nodes, written = write_manifests(
            self.assets, self.staging, self.config, held=held, rewrite=self.rewrite
        )
        return PendingCommit(
            base=self.staging.base,
            branch=branch,
            message=self.message,
            nodes=nodes,
            written=written,
            chunks={node: table.index for node, table in self.staging.tables().items()},
            metadata=self.metadata,
        )


def commit(draft: SessionCommit, branch: str | None) -> Snapshot:
    """Write the staged changes as a new tip of ``branch``; raises as `SessionCommit.info`.

    Without a branch, the snapshot is on none.
    """
    draft.info(branch)
    held = HeldObjects(draft.assets.storage)
    snapshot, edit = draft.pending(branch, held).put(draft.head, draft.assets, held)
    draft.head.update(edit, held=held)
    return snapshot


def amend(draft: SessionCommit, branch: str) -> Snapshot:
    """Write the tip of ``branch`` and the staged changes as one commit in its place.

    Raises:
        SessionStateError: The tip is the initial snapshot.
        FormatError: The tip's transaction log holds facts of a newer client, or the repository is
            of the V1 format.
    """
    from icevirt.versioning.diff import combined
    from icevirt.versioning.v1_migration import refuse_v1

    previous = draft.staging.base.id
    found = draft.info(branch)
    refuse_v1(found, "amending a commit")
    tip = lookup.known(found, previous)
    if tip.parent_id is None:
        raise SessionStateError(
            "the initial snapshot of a repository cannot be amended",
            do="Commit instead.",
            branch=branch,
        )
    before = draft.assets.transaction_log(previous)
    before.refuse_loss()
    held = HeldObjects(draft.assets.storage)
    pending = draft.pending(branch, held)
    snapshot = pending.write(draft.head, draft.assets, held, lambda log: combined(before, log))
    info = replace(
        info_of(snapshot, tip.parent_id), pruned_ancestor_tx_logs=tip.pruned_ancestor_tx_logs
    )
    draft.head.update(repo_updates.amend(branch, info, previous), held=held)
    return snapshot


def rebased(
    assets: Assets, head: RepoInfoFile, staging: ChangeSet, branch: str, solver: ConflictSolver
) -> Iterator[ChangeSet]:
    """Yield the staged changes on top of each commit that came first, the oldest one first.

    Raises:
        RefNotFoundError: The branch was deleted.
        ConflictError: The branch was reset, or its history rewritten.
        RebaseFailedError: A conflict remains; what was yielded last holds the changes.
    """
    for other in newer(head.read().info, branch, staging.base.id):
        staging = _onto(assets, staging, other, solver)
        yield staging


def newer(info: RepoInfo, branch: str, base: ObjectId12) -> list[SnapshotSummary]:
    """Return the commits of a branch since ``base``, oldest first.

    Raises:
        RefNotFoundError: The branch was deleted.
        ConflictError: ``base`` is not in its history.
    """
    tip = lookup.branch_tip(info, branch)
    found: list[SnapshotSummary] = []
    for snapshot in lookup.ancestry(info, tip):
        if snapshot.id == base:
            return found[::-1]
        found.append(snapshot)
    raise ConflictError(
        f"the branch {branch!r} no longer contains the snapshot that this session started from",
        do="It was reset, amended or expired: open a new session and repeat the changes.",
        branch=branch,
        expected_parent=str(base),
        actual_parent=str(tip),
    )


def _onto(
    assets: Assets, staging: ChangeSet, other: SnapshotSummary, solver: ConflictSolver
) -> ChangeSet:
    from icevirt.versioning.diff import combined
    from icevirt.versioning.merge import rebase

    # what the commit changed, together with its expired ancestors
    logs = (*(other.pruned_ancestor_tx_logs or ()), other.id)
    log = combined(*(assets.transaction_log(key) for key in logs))
    theirs = assets.snapshot(other.id)
    decided = rebase.step(staging.ours(), log, theirs, solver, ObjectId8.random)
    match decided:
        case rebase.Replayed():
            return staging.replayed(theirs, decided)
        case rebase.Refused(conflicts):
            raise RebaseFailedError(
                "another commit came first and changed the same things",
                do="Inspect `error.conflicts`; rebase with a solver that resolves them, or open a "
                "new session and repeat the changes.",
                snapshot=str(other.id),
                conflicts=conflicts,
            )
        case _:
            assert_never(decided)
