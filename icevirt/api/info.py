"""Implement `icevirt.info`: summarize a repository without opening it for data."""

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
