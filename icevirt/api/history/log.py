"""Implement `icevirt.log`, `ops_log` and `source`, and find the version that a person names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

from icevirt.access.value_source import value_source
from icevirt.api.dataset.records import provenance_of
from icevirt.archive.reports.history import (
    BuildRecord,
    CommitLog,
    LoggedCommit,
    LoggedOperation,
    NamedVersion,
    OperationLog,
    ValueSource,
)
from icevirt.errors import FormatError, InvalidInputError, SnapshotNotFoundError, check
from icevirt.ids import ObjectId12
from icevirt.model.json import JSON
from icevirt.model.repo_info import IDS, OpsLogEntry, RepoInfo, SnapshotSummary
from icevirt.model.updates import RepoStatusChanged
from icevirt.planning.records import METADATA
from icevirt.remedy_notation import write_code, write_remedy
from icevirt.repo.authorization import Authorization
from icevirt.repo.history import walks
from icevirt.repo.made_here import identify, own_or
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.repo.repository import Repository
from icevirt.storage.constructors import StorageLike, storage_of
from icevirt.versioning import lookup, repo_updates
from icevirt.versioning.history.timestamps import moment, show
from icevirt.versioning.repo_updates import MAIN

_ABBREVIATED = re.compile("[0-9A-HJKMNP-TV-Z]{4,19}")
_LOOKED_BACK = 1000  # commits, for the build before one
_SHOWN = 5  # names in a message


def resolve_version(info: RepoInfo, name: str) -> ObjectId12:
    """Return the snapshot that a person named.

    Args:
        info: The repository as it is.
        name: A branch, a tag, a snapshot id or its first letters (at least four), each perhaps
            with ``~2`` behind it for the second one before it.

    Raises:
        InvalidInputError: It names several, or there are not so many before it.
        SnapshotNotFoundError: It names none.
    """
    check("a version", name, str, do="Pass a branch, a tag or a snapshot id.")
    if (found := _find_ref(info, name)) is not None:
        return found
    base, sign, back = name.rpartition("~")
    if sign and re.fullmatch("[0-9]{0,6}", back) and (found := _find_ref(info, base)) is not None:
        before = next(islice(lookup.ancestry(info, found), int(back or 1), None), None)
        if before is None:
            raise InvalidInputError(
                f"{name!r} is before the first snapshot",
                do=write_remedy(
                    write_code("icevirt.log(repo)", "icevirt log REPO"),
                    " shows how many there are.",
                ),
                snapshot=str(found),
            )
        return before.id
    raise SnapshotNotFoundError(
        f"no branch, tag or snapshot is called {name!r}",
        do=write_remedy(
            write_code("icevirt.log(repo)", "icevirt log REPO"),
            " lists snapshots; branches and tags are listed by ",
            write_code("Repository.list_branches()", "icevirt branch list REPO"),
            " and ",
            write_code("Repository.list_tags()", "icevirt tag list REPO"),
            ".",
        ),
        branches=sorted(info.branches)[:_SHOWN],
        tags=sorted(info.tags)[:_SHOWN],
    )


def _find_ref(info: RepoInfo, name: str) -> ObjectId12 | None:
    both = {"branch": info.branches, "tag": info.tags}
    refs = {kind: known[name] for kind, known in both.items() if name in known}
    if len({*refs.values()}) > 1:
        raise InvalidInputError(
            f"{name!r} is both a branch and a tag, of different snapshots",
            do="Pass the snapshot id instead.",
            **{kind: str(key) for kind, key in refs.items()},
        )
    if refs:
        return next(iter(refs.values()))
    try:
        key = ObjectId12.parse(name)
    except (TypeError, ValueError):
        return _complete(info, name)
    return key if key in info.snapshots else None


def _complete(info: RepoInfo, name: str) -> ObjectId12 | None:
    """Return the one snapshot whose id begins so; the V1 format would have to list all."""
    if info.spec_version < 2 or not _ABBREVIATED.fullmatch(name.upper()):
        return None
    found = [key for key in info.snapshots if str(key).startswith(name.upper())]
    if len(found) > 1:
        raise InvalidInputError(
            f"{len(found)} snapshots begin with {name!r}",
            do="Write more of the id.",
            snapshots=sorted(map(str, found))[:_SHOWN],
        )
    return found[0] if found else None


class Commits:
    """Describes snapshots: with the branches and tags at them, and what their builds recorded."""

    def __init__(self, info: RepoInfo) -> None:
        self._info = info
        self._branches = _by_snapshot(info.branches)
        self._tags = _by_snapshot(info.tags)

    def of(self, summary: SnapshotSummary) -> LoggedCommit:
        """Return what the history knows of a snapshot."""
        return LoggedCommit(
            snapshot_id=str(summary.id),
            parent_id=None if summary.parent_id is None else str(summary.parent_id),
            written_at=moment(summary.flushed_at),
            message=summary.message,
            branches=self._branches.get(summary.id, ()),
            tags=self._tags.get(summary.id, ()),
            build=self._build(summary),
            parents_expired=bool(summary.pruned_ancestor_tx_logs),
            metadata=summary.metadata,
        )

    def at(self, key: ObjectId12) -> LoggedCommit:
        """Return what the history knows of a snapshot. Raises ``SnapshotNotFoundError``."""
        return self.of(lookup.find_snapshot(self._info, key))

    def _build(self, summary: SnapshotSummary) -> BuildRecord | None:
        recorded = record_of_build(summary)
        if recorded is None or METADATA not in summary.metadata:  # files only moved
            return None
        group = str(recorded.get("group", "/"))
        before = None
        if summary.parent_id is not None:
            ancestors = islice(lookup.ancestry(self._info, summary.parent_id), _LOOKED_BACK)
            before = next(filter(None, (record_of_build(each, group) for each in ancestors)), None)
        bad, left = (
            len(found) if isinstance(found := recorded.get(name), list | tuple) else 0
            for name in ("bad_files", "left_out")
        )
        return BuildRecord(
            build_id=str(recorded["build_id"]),
            group=group,
            files=recorded.get("files"),
            files_before=None if before is None else before.get("files"),
            arrays=recorded.get("arrays"),
            references=recorded.get("references"),
            left_out=left,
            bad_files=bad,
            icevirt=str(recorded.get("icevirt", "")),
        )


def name_version(summary: SnapshotSummary, name: str = "") -> NamedVersion:
    """Return a snapshot as reports list it, with the name that leads to it."""
    return NamedVersion(
        name=name,
        snapshot_id=str(summary.id),
        written_at=moment(summary.flushed_at),
        message=summary.message,
    )


def record_of_build(summary: SnapshotSummary, group: str | None = None) -> Mapping[str, Any] | None:
    """Return what a snapshot says of its build; None also where it makes no sense."""
    try:
        return provenance_of(summary, group)
    except FormatError:
        return None


def _by_snapshot(refs: Mapping[str, ObjectId12]) -> dict[ObjectId12, tuple[str, ...]]:
    found: dict[ObjectId12, tuple[str, ...]] = {}
    for name in sorted(refs):
        found[refs[name]] = (*found.get(refs[name], ()), name)
    return found


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
    named = {"branch": branch, "tag": tag, "snapshot": snapshot_id}
    if not any(name is not None for name in named.values()):
        branch = named["branch"] = repo_updates.MAIN
    info = head.read().info
    tip = walks.resolve(info, branch=branch, tag=tag, snapshot_id=snapshot_id)
    commits = Commits(info)
    page = tuple(commits.of(each) for each in islice(lookup.ancestry(info, tip), n))
    return CommitLog(
        repo=head.storage.url,
        version=" ".join(f"{kind} {name}" for kind, name in named.items() if name is not None),
        commits=page,
        next=page[-1].parent_id if page else None,
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
            "a page has at least one row",
            do=write_remedy("Pass ", write_code("n=20", "-n 20"), ", or None for all."),
            n=n,
        )


def _operation(entry: OpsLogEntry) -> LoggedOperation:
    kind: Any = entry.kind
    details: dict[str, JSON] = {}
    if isinstance(kind, RepoStatusChanged):
        details |= {"availability": kind.status.availability.name}
        details |= {"set_at": show(kind.status.set_at)}
        if (reason := kind.status.limited_availability_reason) is not None:
            details["reason"] = reason
    else:
        for name in getattr(kind, "__dataclass_fields__", ()):
            details[name] = str(getattr(kind, name)) if name in IDS else getattr(kind, name)
    return LoggedOperation(
        at=moment(entry.updated_at), operation=type(kind).__name__, details=details
    )


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
        authorize_virtual_chunk_access: As for `icevirt.open`; needed only if coordinates
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
        storage = storage_of(repo)
        own = own_or(authorize_virtual_chunk_access, identify(storage))
        opened = Repository.open(storage, authorize_virtual_chunk_access=own)
    if branch is None and tag is None and snapshot_id is None:
        branch = MAIN
    session = opened.readonly_session(branch=branch, tag=tag, snapshot_id=snapshot_id)
    return value_source(session, variable, at, nearest=nearest)
