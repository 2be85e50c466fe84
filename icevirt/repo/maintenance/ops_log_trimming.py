"""Trim the ops log: delete old backups of the repo info, and keep the remaining log whole.

The log is cut first, in `repo` and in the backups that stay, and files are deleted last: a process
killed in between leaves backups that nothing leads to, and the next trimming deletes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from icevirt.errors import FormatError, ObjectNotFoundError
from icevirt.model.repo_info import GCRan, RepoInfo
from icevirt.repo import layout
from icevirt.repo.repo_info_file import RepoInfoFile, refuse_read_only
from icevirt.storage.protocol import Written
from icevirt.versioning.history import garbage_collection, ops_log
from icevirt.versioning.v1_migration import refuse_v1
from icevirt.wire.repo_info import file

_FOLDER = layout.backup("").rstrip("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsLogTrimSummary:
    """What was deleted, or would be deleted."""

    backups_deleted: int = 0
    bytes_deleted: int = 0


def trim(head: RepoInfoFile, older_than: int, *, dry_run: bool) -> OpsLogTrimSummary:
    """Forget entries of the ops log before a time, and delete backups that nothing leads to.

    Raises:
        ReadOnlyError: The repository is read-only.
        FormatError: A backup that continues the log is damaged or missing; none was deleted.
    """
    # listed first: a backup that another writer makes from now on is not in the list
    old = dict(_old(head, older_than))
    info = _cut(head, older_than, dry_run=dry_run)
    while (needed := _needed(head, info, older_than, dry_run)) is None:
        info = _newer(head, info)
    unused = {name: size for name, size in old.items() if name not in needed}
    if not dry_run:
        head.storage.delete_many([layout.backup(name) for name in unused])
    return OpsLogTrimSummary(backups_deleted=len(unused), bytes_deleted=sum(unused.values()))


def _old(head: RepoInfoFile, older_than: int) -> Iterable[tuple[str, int]]:
    """Yield the names and sizes of backups that were written before a time."""
    for found in head.storage.list(_FOLDER):
        name = found.path.removeprefix(f"{_FOLDER}/")
        if ops_log.is_backup(name) and garbage_collection.is_old(found.last_modified, older_than):
            yield name, found.size


def _cut(head: RepoInfoFile, older_than: int, *, dry_run: bool) -> RepoInfo:
    """Cut the log that is in `repo`; return what is there then, or would be.

    `repo` is written even if nothing is cut: a writer who made a backup before the listing and has
    not replaced `repo` yet is too late then, and begins again with another backup.
    """

    def edit(info: RepoInfo) -> tuple[RepoInfo, GCRan]:
        refuse_v1(info, "trimming the ops log")
        return ops_log.trimmed(info, older_than) or info, GCRan()

    if not dry_run:
        return head.update(edit)
    info = head.read_v2("trimming the ops log").info
    refuse_read_only(info)
    return ops_log.trimmed(info, older_than) or info


def _newer(head: RepoInfoFile, info: RepoInfo) -> RepoInfo:
    """Return what is in `repo` now, if that differs: another process trimmed the log meanwhile.

    Raises:
        FormatError: It does not differ, so a backup is missing.
    """
    now = head.read().info
    if now.latest_updates == info.latest_updates:
        raise FormatError(
            "the ops log leads to a backup that is missing; nothing was deleted",
            do="Restore it from a copy, or trim the log up to a later time.",
            repo=head.storage.url,
        )
    return now


def _needed(head: RepoInfoFile, info: RepoInfo, older_than: int, dry_run: bool) -> set[str] | None:
    """Return the backups that the kept log leads to, now or once `repo` overflows into them.

    Each of them holds the log as it was then, and is cut too. None: one is missing.
    """
    found: set[str] = set()
    left = [*ops_log.backups_of(info)]
    while left:
        if (name := left.pop()) in found:
            continue
        found.add(name)
        try:
            left += ops_log.backups_of(_cut_backup(head, name, older_than, dry_run))
        except ObjectNotFoundError:
            return None
    return found


def _cut_backup(head: RepoInfoFile, name: str, older_than: int, dry_run: bool) -> RepoInfo:
    """Cut the log in a backup; return what is there then, or would be.

    Another process that trims at the same time may have cut more, and deleted backups already: what
    is written here never brings them back.
    """
    path = layout.backup(ops_log.checked_backup(name))
    while True:
        raw, version = head.storage.get_versioned(path)
        before = file.decode(raw)
        cut = ops_log.trimmed(before, older_than) or before
        if cut == before or dry_run:
            return cut
        outcome = head.storage.put_if(path, file.encode(cut), was=version)
        if isinstance(outcome, Written):
            return cut
