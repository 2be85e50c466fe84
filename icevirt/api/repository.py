"""Implement `icevirt.info`, `icevirt.upgrade`, and icechunk's name for an upgrade in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from icevirt.archive.reports.build import Progress, RepositorySummary
from icevirt.errors import InvalidInputError
from icevirt.model.generation import without_old_format_warning
from icevirt.planning.schedule.twin_estimate import price_twins
from icevirt.repo.repository import Repository
from icevirt.repo.summary import summary
from icevirt.storage.constructors import StorageLike, storage_of

if TYPE_CHECKING:
    from icevirt.archive.reports.relocation import Chunks, UpgradeCopyReport


def info(
    repo: StorageLike,
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    twin_chunks: Mapping[str, int] | None = None,
) -> RepositorySummary:
    """Describe one version of a repository, by default the tip of the branch ``main``.

    Args:
        repo: Path or URL of the repository.
        branch: The branch whose newest version is described.
        tag: The tag whose version is described.
        snapshot_id: The version that is described.
        twin_chunks: Say what a map and a time series take now, and in a twin of such chunks,
            like ``{"time": 365, "lat": 30}``.

    Raises:
        RepositoryNotFoundError: There is no repository.
        RefNotFoundError, SnapshotNotFoundError: No such version.
        InvalidInputError: More than one of branch, tag and snapshot_id is given.

    Examples:
        >>> summary = icevirt.info("repo", branch="main")
        >>> summary.message, [array.path for array in summary.arrays]
        ('Build from 3 files', ['/lat', '/lon', '/tas', '/time'])
    """
    with without_old_format_warning():
        opened = Repository.open(repo)
    found = summary(opened, branch=branch, tag=tag, snapshot_id=snapshot_id)
    if twin_chunks is None:
        return found
    own = [array for array in found.arrays if array.path not in found.twins]
    return replace(found, priced=price_twins(own, twin_chunks))


def upgrade(
    source: StorageLike,
    target: StorageLike,
    *,
    chunks: Chunks = "copy",
    dry_run: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> UpgradeCopyReport:
    """Copy a repository of any older format into a new V2 repository.

    History, branches, tags, attributes, chunks and virtual references are carried over, and what
    cannot be is reported. The old repository is only read. The new one is there when everything
    else is written; an upgrade that was interrupted goes on when it is called again.

    Args:
        source: The old repository, a storage, a path or a URL.
        target: Where the new one comes to be, an empty or new place.
        chunks: ``copy`` the chunks that the old repository stores, or ``reference`` them where
            they are, as virtual chunks: then the old repository has to stay.
        dry_run: Only read, and report.
        progress: Called with each step.

    Raises:
        RepositoryNotFoundError: There is no repository at ``source``.
        AlreadyExistsError: There is something else at ``target``.
        InvalidInputError: The source is V2, or one path lies in the other.
        FormatError: The source is damaged, or of a layout that was never released.
    """
    if chunks not in ("copy", "reference"):
        raise InvalidInputError(
            "chunks are copied or referenced",
            do='Pass chunks="copy" or chunks="reference".',
            chunks=chunks,
        )
    from icevirt.repo.formats import before_v1

    old, new = storage_of(source), storage_of(target)
    return before_v1()(old).upgrade(new, chunks=chunks, dry_run=dry_run, progress=progress)


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
