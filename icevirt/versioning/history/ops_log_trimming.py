"""Decide where the ops log ends after trimming. Pure.

An entry names the backup in which it was the newest, and the log continues in backups. Kept entries
must never lead to a deleted backup, because readers follow the log to its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from icevirt.model.repo_info import RepoInfo


def trimmed(info: RepoInfo, older_than: int) -> RepoInfo | None:
    """Return a repo info whose log ends with its last entry of that time or later.

    Its newest entry stays, whatever its age. None: no entry of it is older, so that the end is in
    the backup that continues it.
    """
    first = next(
        (at for at, u in enumerate(info.latest_updates) if u.updated_at < older_than), None
    )
    if first is None:
        return None
    return replace(
        info, latest_updates=info.latest_updates[: max(first, 1)], repo_before_updates=None
    )


def backups_of(info: RepoInfo) -> Iterator[str]:
    """Yield the names of the backups that a repo info leads to directly."""
    yield from (update.backup_path for update in info.latest_updates if update.backup_path)
    if info.repo_before_updates is not None:
        yield info.repo_before_updates
