"""Implement `icevirt.exclude` and `icevirt.excluded`: files that must not come back."""

from __future__ import annotations

import os
from collections.abc import Iterable

from icevirt.api.dataset import left_out
from icevirt.api.upkeep.scans import source_urls
from icevirt.archive.reports.upkeep import ExcludedFiles
from icevirt.repo.repo_info_file import RepoInfoFile, refuse_read_only
from icevirt.storage.constructors import StorageLike, storage_of
from icevirt.storage.protocol import Storage

type Files = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def exclude(
    files: Files,
    repo: StorageLike,
    *,
    branch: str | None = None,
    group: str | None = None,
    readmit: bool = False,
) -> ExcludedFiles:
    """Let appends and updates leave files out, or let them be added again.

    What a dataset holds stays in it; see `icevirt.withdraw`.

    Args:
        files: Paths or URLs of files.
        repo: Path or URL of the repository.
        branch: Only of datasets on this branch.
        group: Only of datasets in this group.
        readmit: Remove the files from the list instead, whatever put them there, for all datasets.

    Raises:
        RepositoryNotFoundError: There is no repository.
        ReadOnlyError: It is read-only.
        FormatError: A note on excluded files is damaged.
    """
    storage, urls = storage_of(repo), source_urls(files)
    refuse_read_only(RepoInfoFile(storage).read().info)
    if readmit:
        changed = left_out.readmit(storage, urls)
    else:
        changed = len(urls)
        left_out.exclude(storage, urls, why="excluded", branch=branch, group=group)
    return _listed(storage_of(repo), changed)


def excluded(repo: StorageLike) -> ExcludedFiles:
    """Return the files that appends and updates leave out, and why.

    Raises:
        RepositoryNotFoundError: There is no repository.
        FormatError: A note is damaged.
    """
    storage = storage_of(repo)
    RepoInfoFile(storage).read()
    return _listed(storage, 0)


def _listed(storage: Storage, changed: int) -> ExcludedFiles:
    notes = [note for _, note in left_out.exclusions(storage)]
    return ExcludedFiles(
        repo=storage.url,
        notes=tuple((note.why, note.branch or "", note.group or "", note.urls) for note in notes),
        changed=changed,
    )
