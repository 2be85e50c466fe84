"""Implement `icevirt.info`, and `icevirt.upgrade_icechunk_repository` under icechunk's name."""

from __future__ import annotations

from icevirt.archive.reports.build import RepositorySummary
from icevirt.repo.repository import Repository
from icevirt.repo.summary import summary
from icevirt.storage.constructors import StorageLike


def info(
    repo: StorageLike,
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
) -> RepositorySummary:
    """Describe one version of a repository, by default the tip of the branch ``main``.

    Args:
        repo: Path or URL of the repository.
        branch: The branch whose newest version is described.
        tag: The tag whose version is described.
        snapshot_id: The version that is described.

    Raises:
        RepositoryNotFoundError: There is no repository.
        RefNotFoundError, SnapshotNotFoundError: No such version.
        InvalidInputError: More than one of branch, tag and snapshot_id is given.
    """
    return summary(Repository.open(repo), branch=branch, tag=tag, snapshot_id=snapshot_id)


def upgrade_icechunk_repository(
    repo: Repository,
    *,
    dry_run: bool,
    delete_unused_v1_files: bool = True,
    prefetch_concurrency: int | None = None,
) -> Repository:
    """Upgrade a V1 repository to V2 in place and open it anew; see `Repository.upgrade`."""
    repo.upgrade(
        dry_run=dry_run,
        delete_unused_v1_files=delete_unused_v1_files,
        prefetch_concurrency=prefetch_concurrency,
    )
    return repo.reopen()
