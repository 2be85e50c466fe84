"""Rebase a session: fetch other commits one at a time, and replay its changes on each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from icevirt.errors import ConflictError, RebaseFailedError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.repo_info import RepoInfo, SnapshotSummary
from icevirt.model.transaction_log import TransactionLog
from icevirt.repo.assets import Assets
from icevirt.repo.commits.change_set import ChangeSet
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.versioning import repo_updates
from icevirt.versioning.diff import combined
from icevirt.versioning.merge import rebase
from icevirt.versioning.merge.conflicts import ConflictSolver


def rebased(
    assets: Assets, head: RepoInfoFile, staging: ChangeSet, branch: str, solver: ConflictSolver
) -> Iterator[ChangeSet]:
    """Yield the staged changes on top of each commit that came first, the oldest one first.

    Raises:
        RefNotFoundError: The branch was deleted.
        ConflictError: The branch was reset, or its history rewritten.
        RebaseFailedError: A conflict remains; what was yielded last holds the changes.
    """
    for told in newer(head.read().info, branch, staging.base.id):
        staging = _onto(assets, staging, told, solver)
        yield staging


def newer(info: RepoInfo, branch: str, base: ObjectId12) -> list[SnapshotSummary]:
    """Return the commits of a branch since ``base``, oldest first.

    Raises:
        RefNotFoundError: The branch was deleted.
        ConflictError: ``base`` is not in its history.
    """
    tip = repo_updates.branch_tip(info, branch)
    found: list[SnapshotSummary] = []
    for snapshot in repo_updates.ancestry(info, tip):
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
    assets: Assets, staging: ChangeSet, told: SnapshotSummary, solver: ConflictSolver
) -> ChangeSet:
    theirs = assets.snapshot(told.id)
    ours = staging.ours()
    decided = rebase.step(ours, _log(assets, told), theirs, solver, ObjectId8.random)
    match decided:
        case rebase.Replayed():
            return staging.replayed(theirs, decided)
        case rebase.Refused(conflicts):
            raise RebaseFailedError(
                "another commit came first and changed the same things",
                do="Inspect `error.conflicts`; rebase with a solver that resolves them, or open a "
                "new session and repeat the changes.",
                snapshot=str(told.id),
                conflicts=conflicts,
            )
        case _:
            assert_never(decided)


def _log(assets: Assets, told: SnapshotSummary) -> TransactionLog:
    """Return what a commit changed, together with those before it that expired."""
    keys = (*(told.pruned_ancestor_tx_logs or ()), told.id)
    return combined(*(assets.transaction_log(key) for key in keys))
