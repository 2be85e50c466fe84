"""`icevirt.info`: what a repository holds, without opening it for data."""

from __future__ import annotations

from icevirt.archive.reports.build import RepositorySummary
from icevirt.repo.repository import Repository
from icevirt.repo.summary import summary
from icevirt.storage.resolve import StorageLike


def info(
    repo: StorageLike,
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
) -> RepositorySummary:
    """Describe one version of a repository; that of the branch ``main`` unless another is named.

    Args:
        repo: Path or URL of the repository.
        branch: The branch whose newest version is described.
        tag: The tag whose version is described.
        snapshot_id: The version that is described.

    Raises:
        RepositoryNotFoundError: There is no repository.
        RefNotFoundError, SnapshotNotFoundError: It has no such version.
        InvalidInputError: More than one of branch, tag and snapshot_id is given.
    """
    return summary(Repository.open(repo), branch=branch, tag=tag, snapshot_id=snapshot_id)
