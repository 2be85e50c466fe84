"""Implement `icevirt.log` and `icevirt.ops_log`: pages of the history, newest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from icevirt.api.history.versions import Commits
from icevirt.archive.reports.history import CommitLog, LoggedOperation, OperationLog
from icevirt.errors import InvalidInputError
from icevirt.model.json import JSON
from icevirt.model.repo_info import IDS, OpsLogEntry, RepoStatusChanged
from icevirt.repo.history import walks
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.repo.repository import Repository
from icevirt.storage.constructors import StorageLike, storage_of
from icevirt.versioning import lookup, repo_updates
from icevirt.versioning.history.timestamps import moment, shown


def log(
    repo: StorageLike | Repository,
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    n: int | None = 20,
) -> CommitLog:
    """Show the history of one version, newest first; by default of the branch ``main``.

    Each commit says what its build recorded: files, and how many more than the build before it,
    arrays and references. Only the object ``repo`` is read; of a V1 repository the snapshots that
    are shown.

    Args:
        repo: Path or URL of the repository, or the repository.
        branch: The branch whose history is shown.
        tag: The tag whose history is shown.
        snapshot_id: The snapshot whose history is shown, like ``next`` of the page before.
        n: Commits on a page; None: all.

    Raises:
        RepositoryNotFoundError: There is no repository.
        RefNotFoundError, SnapshotNotFoundError: No such version.
        InvalidInputError: More than one of branch, tag and snapshot_id is given, or n is not
            positive.

    Examples:
        >>> for commit in icevirt.log("repo").commits:
        ...     print(commit.title)
        Append 1 file
        Build from 3 files
        Repository initialized
    """
    refuse_nothing(n)
    head = head_of(repo)
    if branch is None and tag is None and snapshot_id is None:
        branch = repo_updates.MAIN
    info = head.read().info
    tip = walks.resolve(info, branch=branch, tag=tag, snapshot_id=snapshot_id)
    commits = Commits(info)
    ancestors = lookup.ancestry(info, tip)
    page = tuple(commits.of(each) for each in islice(ancestors, n))
    follows = page[-1].parent_id if page else None
    return CommitLog(
        repo=head.storage.url,
        version=_version(branch=branch, tag=tag, snapshot=snapshot_id),
        commits=page,
        next=follows,
    )


def ops_log(repo: StorageLike | Repository, *, n: int | None = 20) -> OperationLog:
    """Show the newest operations on a repository: commits, resets, tags, configuration.

    Older parts of the log lie in objects of their own, which are read only as far as ``n`` needs.

    Args:
        repo: Path or URL of the repository, or the repository.
        n: How many; None: all.

    Raises:
        RepositoryNotFoundError: There is no repository.
        FormatError: A part of the log is damaged, or the repository is of the V1 format.
        InvalidInputError: n is not positive.

    Examples:
        >>> icevirt.ops_log("repo", n=2)
        <OperationLog 2 operations  and older ones>
    """
    refuse_nothing(n)
    head = head_of(repo)
    entries = walks.operations(head)
    page = tuple(map(_operation, islice(entries, n)))
    return OperationLog(
        repo=head.storage.url, operations=page, has_more=next(entries, None) is not None
    )


def head_of(repo: StorageLike | Repository) -> RepoInfoFile:
    """Return what reads and replaces the object `repo`."""
    return repo.head if isinstance(repo, Repository) else RepoInfoFile(storage_of(repo))


def refuse_nothing(n: int | None) -> None:
    """Refuse a page without rows."""
    if n is not None and n < 1:
        raise InvalidInputError(
            "a page has at least one row", do="Pass n=20, or None for all.", n=n
        )


def _version(**named: str | None) -> str:
    return " ".join(f"{kind} {name}" for kind, name in named.items() if name is not None)


def _operation(entry: OpsLogEntry) -> LoggedOperation:
    return LoggedOperation(
        at=moment(entry.updated_at),
        operation=type(entry.kind).__name__,
        details=dict(_details(entry.kind)),
    )


def _details(kind: Any) -> Iterator[tuple[str, JSON]]:
    if isinstance(kind, RepoStatusChanged):
        yield "availability", kind.status.availability.name
        yield "set_at", shown(kind.status.set_at)
        if (reason := kind.status.limited_availability_reason) is not None:
            yield "reason", reason
        return
    for name in _fields(kind):
        value = getattr(kind, name)
        yield name, str(value) if name in IDS else value


def _fields(kind: Any) -> Iterable[str]:
    return getattr(kind, "__dataclass_fields__", ())
