"""Maintain the ops log inside `repo`: newest first, bounded, continued in the backups.

Spec: "Updates to the repo info file". An entry names the backup in which it was the newest, so the
newest entry of a file names none: it gets its name when the next one is put on top of it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from icevirt.errors import FormatError
from icevirt.ids import ObjectId12
from icevirt.model.repo_info import OpsLog, OpsLogEntry, RepoInfo, UpdateKind
from icevirt.versioning.history.timestamps import stamp

_YEAR_3000 = 32_503_680_000_000  # milliseconds since 1970
_BACKUP = r"repo\.\d{14}\.[0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{20}"


def backup_name(now: int, unique: ObjectId12) -> str:
    """Return the name of a backup made ``now`` (microseconds); later ones sort first."""
    return f"repo.{_YEAR_3000 - now // 1000:014d}.{unique}"


def is_backup(name: str) -> bool:
    """Say whether this can be the name of a backup."""
    return re.fullmatch(_BACKUP, name) is not None


def check_backup(name: str) -> str:
    """Return ``name`` if it can only be a backup's.

    Raises:
        FormatError: It is something else, perhaps a path out of the directory.
    """
    if not is_backup(name):
        raise FormatError("not the name of a backup", do="The ops log is damaged.", name=name)
    return name


def newest_at(info: RepoInfo) -> int:
    """Return the time of the newest entry."""
    log = OpsLog.of(info.latest_updates)
    return int(log.updated_at[0]) if len(log) else 0


def add_entry(
    info: RepoInfo, kind: UpdateKind, *, now: int, backup: str, limit: int = 1000
) -> RepoInfo:
    """Put an entry on top of the log of a repo info in which the change is already made.

    Args:
        info: Its log is still that of before.
        kind: What was done.
        now: This machine's clock, microseconds.
        backup: Name of the backup of the repo info of before.
        limit: Entries to keep in the file.

    Raises:
        StorageError: The log's newest entry lies too far in the future.
    """
    entry = OpsLogEntry(kind=kind, updated_at=stamp(now, top=newest_at(info)))
    log = OpsLog.of(info.latest_updates).with_newest(entry, backup=backup)
    for at in range(max(limit, 1), len(log)):  # what is over, from where the backups can continue
        if (older := log[at].backup_path) is not None:
            return info._replace(latest_updates=log[:at], repo_before_updates=older)
    return info._replace(latest_updates=log)


def follows(info: RepoInfo, backups: Collection[str]) -> bool:
    """Say whether a state came after an update that made these backups.

    Their names are never used twice: a log that has one of them is that update's, or a later one.
    """
    named = {info.repo_before_updates, *(entry.backup_path for entry in info.latest_updates)}
    return not named.isdisjoint(backups)


def trim(info: RepoInfo, older_than: int) -> RepoInfo | None:
    """Return a repo info whose log ends with its last entry of that time or later.

    Its newest entry stays, whatever its age. None: no entry of it is older, so that the end is in
    the backup that continues it.
    """
    first = next(
        (at for at, u in enumerate(info.latest_updates) if u.updated_at < older_than), None
    )
    if first is None:
        return None
    return info._replace(
        latest_updates=info.latest_updates[: max(first, 1)], repo_before_updates=None
    )


def backups_of(info: RepoInfo) -> Iterator[str]:
    """Yield the names of the backups that a repo info leads to directly."""
    yield from (update.backup_path for update in info.latest_updates if update.backup_path)
    if info.repo_before_updates is not None:
        yield info.repo_before_updates
