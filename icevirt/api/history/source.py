"""Implement `icevirt.source`: from a value to the file and bytes that hold it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from icevirt.access.value_source import value_source
from icevirt.archive.reports.history import ValueSource
from icevirt.repo.authorization import Authorization
from icevirt.repo.repository import Repository
from icevirt.storage.constructors import StorageLike
from icevirt.versioning.repo_updates import MAIN


def source(
    repo: StorageLike | Repository,
    variable: str,
    at: Mapping[str, Any],
    *,
    nearest: bool = False,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    authorize_virtual_chunk_access: Authorization = None,
) -> ValueSource:
    """Return the file and bytes that values are decoded from, and the commit that wrote them.

    Coordinates are read to find the labels; of the variable only references, and of commits their
    transaction logs, newest first, up to 500.

    Args:
        repo: Path or URL of the repository, or the repository.
        variable: Path of the array, like ``tas`` or ``/group/tas``.
        at: Labels by dimension, like ``{"time": "2020-01-05", "lat": 10.25}``; along a dimension
            without coordinate the index. Without a label, all chunks along a dimension are listed.
        nearest: Take the nearest label where none is equal, as ``sel(method="nearest")``.
        branch: Look at the tip of this branch; by default ``main``.
        tag: Look at the version of this name.
        snapshot_id: Look at this version.
        authorize_virtual_chunk_access: As for `Repository.open`; needed only if coordinates
            themselves lie in source files.

    Raises:
        NodeNotFoundError: There is no such array.
        RefNotFoundError, SnapshotNotFoundError: No such version.
        InvalidInputError: No value has the label, and the message names its neighbors; or several
            have it; or there is no such dimension; or the values lie in more than 1,000 chunks.

    Examples:
        >>> found = icevirt.source("repo", "tas", {"time": "2002-07-01", "lat": 43.5, "lon": 1.5})
        >>> [chunk.location.rpartition("/")[2] for chunk in found.chunks]
        ['tas_2002.nc']
    """
    if isinstance(repo, Repository):
        opened = repo
        if authorize_virtual_chunk_access is not None:
            opened = repo.reopen(authorize_virtual_chunk_access=authorize_virtual_chunk_access)
    else:
        opened = Repository.open(
            repo, authorize_virtual_chunk_access=authorize_virtual_chunk_access
        )
    if branch is None and tag is None and snapshot_id is None:
        branch = MAIN
    session = opened.readonly_session(branch=branch, tag=tag, snapshot_id=snapshot_id)
    return value_source(session, variable, at, nearest=nearest)
