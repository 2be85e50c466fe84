"""Implement `icevirt.upgrade_icechunk_repository`: from V1 to V2, under icechunk's name."""

from __future__ import annotations

from icevirt.repo.repository import Repository
from icevirt.repo.v1.upgrade import UpgradeReport

__all__ = ["UpgradeReport", "upgrade_icechunk_repository"]


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
