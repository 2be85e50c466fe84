"""Implement `icevirt.undo`, `redo` and `reset`, and the commands of branches and tags.

Each is one write. What no branch or tag leads to any more stays readable by its id until garbage is
collected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from shlex import quote
from typing import Literal

from icevirt.api.dataset.records import provenance_of
from icevirt.api.history.compare import list_files
from icevirt.api.history.log import Commits, head_of, name_version, resolve_version
from icevirt.archive.reports.history import (
    BranchMove,
    NameChange,
    NamedVersions,
    place,
)
from icevirt.errors import ConflictError, InvalidInputError
from icevirt.ids import ObjectId12
from icevirt.model.repo_info import RepoInfo
from icevirt.model.updates import (
    BranchCreated,
    BranchDeleted,
    BranchReset,
    CommitAmended,
    NewCommit,
)
from icevirt.planning.records import METADATA
from icevirt.remedy_notation import write_option, write_remedy
from icevirt.repo.history import walks
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.repo.repository import Repository
from icevirt.storage.constructors import StorageLike
from icevirt.versioning import lookup, repo_updates

_SHOWN = 20  # commits that were dropped

_OTHER = (NewCommit, CommitAmended, BranchCreated, BranchDeleted)
"""What happens to a branch beside resets."""

type _Target = Callable[[RepoInfo, ObjectId12], ObjectId12]


def undo(
    repo: StorageLike | Repository,
    *,
    branch: str = repo_updates.MAIN,
    expect: str | None = None,
    exclude: bool = False,
) -> BranchMove:
    """Move a branch back to the parent of its tip.

    One conditional write does it: if another writer moves the branch meanwhile, nothing changes.
    `redo` takes it back.

    Args:
        repo: Path or URL of the repository, or the repository.
        branch: The branch.
        expect: Do it only if this snapshot is the tip: the one that you looked at.
        exclude: Also exclude the files that the undone build or append added, so that the next
            append passes them over; see `icevirt.exclude`.

    Raises:
        RefNotFoundError: There is no such branch.
        ConflictError: The tip is another snapshot.
        InvalidInputError: The tip is the initial snapshot, or snapshots before it have expired.
        ReadOnlyError: The repository does not take writes.

    Examples:
        >>> icevirt.undo("repo")
        <BranchMove undo main  ... 1 commit dropped>
    """
    head = head_of(repo)
    url = head.storage.url

    def parent(info: RepoInfo, tip: ObjectId12) -> ObjectId12:
        summary = lookup.find_snapshot(info, tip)
        if summary.parent_id is None:
            raise InvalidInputError(
                "the branch holds no commit that can be undone",
                do="Its tip is the initial, empty snapshot.",
                branch=branch,
                snapshot=str(tip),
            )
        if summary.pruned_ancestor_tx_logs:
            raise InvalidInputError(
                "the snapshots right before the tip have expired, so there is nothing to go back"
                " to but the initial, empty snapshot",
                do=f"If you mean that: `icevirt reset {place(url)} {summary.parent_id} --branch"
                f" {quote(branch)}`.",
                branch=branch,
                snapshot=str(tip),
            )
        return summary.parent_id

    if not exclude:
        return _move(head, "undo", branch, expect, parent)
    info = head.read().info
    tip = lookup.branch_tip(info, branch)
    left_out = _exclude_added(head, info, branch, tip)
    moved = _move(head, "undo", branch, expect or str(tip), parent)
    return replace(moved, excluded=left_out)


def _exclude_added(head: RepoInfoFile, info: RepoInfo, branch: str, tip: ObjectId12) -> int:
    """Exclude the files that the build at a tip added to its dataset; return how many."""
    from icevirt.api.dataset.left_out import exclude

    history = [*lookup.ancestry(info, tip)]
    record = provenance_of(history[0]) if METADATA in history[0].metadata else None
    now = None if record is None else list_files(head.storage, record)
    if record is None or now is None:
        raise InvalidInputError(
            "the tip of the branch is not a build whose files are listed",
            do=write_remedy(
                "Undo it without ",
                write_option("exclude"),
                ", and exclude files by name: icevirt.exclude.",
            ),
            branch=branch,
            snapshot=str(tip),
        )
    group = str(record["group"])
    older = (provenance_of(each, group) for each in history[1:])
    last = next((each for each in older if each is not None), None)
    before = {} if last is None else list_files(head.storage, last) or {}
    added = now.keys() - before.keys()
    if added:
        exclude(head.storage, added, why="excluded", branch=branch, group=group)
    return len(added)


def redo(
    repo: StorageLike | Repository,
    *,
    branch: str = repo_updates.MAIN,
    expect: str | None = None,
) -> BranchMove:
    """Undo the last `undo`: move a branch forward again, as the ops log says.

    After several, each call takes back one. A commit or a reset after them ends that.

    Args:
        repo: Path or URL of the repository, or the repository.
        branch: The branch.
        expect: Do it only if this snapshot is the tip.

    Raises:
        RefNotFoundError: There is no such branch.
        ConflictError: The tip is another snapshot.
        InvalidInputError: The last thing that happened to the branch was no undo.
        SnapshotNotFoundError: What was undone was collected as garbage.
        FormatError: The repository is of the V1 format, which has no ops log.

    Examples:
        >>> icevirt.redo("repo")
        <BranchMove redo main  ... 0 commits dropped>
    """
    head = head_of(repo)
    url = head.storage.url

    def undone(info: RepoInfo, tip: ObjectId12) -> ObjectId12:
        found = _last_undone(head, info, branch, tip)
        if found is None:
            raise InvalidInputError(
                "the last thing that happened to the branch was no undo",
                do=f"Look for the snapshot with `icevirt ops-log {place(url)}`, then"
                f" `icevirt reset {place(url)} SNAPSHOT --branch {quote(branch)}`.",
                branch=branch,
                snapshot=str(tip),
            )
        return lookup.find_snapshot(info, found).id

    return _move(head, "redo", branch, expect, undone)


def reset(
    repo: StorageLike | Repository,
    version: str,
    *,
    branch: str,
    expect: str | None = None,
) -> BranchMove:
    """Point a branch at another snapshot.

    Args:
        repo: Path or URL of the repository, or the repository.
        version: A snapshot id or its first letters, a branch or a tag; ``~1`` behind it means the
            one before.
        branch: An existing branch.
        expect: Do it only if this snapshot is the tip.

    Raises:
        RefNotFoundError: There is no such branch.
        SnapshotNotFoundError: There is no such version.
        ConflictError: The tip is another snapshot.
        ReadOnlyError: The repository does not take writes.

    Examples:
        >>> icevirt.reset("repo", "main~1", branch="main")
        <BranchMove reset main  ... 1 commit dropped>
    """
    return _move(
        head_of(repo), "reset", branch, expect, lambda info, _tip: resolve_version(info, version)
    )


def _move(
    head: RepoInfoFile,
    action: Literal["undo", "redo", "reset"],
    branch: str,
    expect: str | None,
    target_of: _Target,
) -> BranchMove:
    info = head.read().info
    tip = lookup.branch_tip(info, branch)
    if expect is not None and resolve_version(info, expect) != tip:
        raise ConflictError(
            f"the tip of {branch!r} is not the snapshot that you expect; nothing was changed",
            do=f"Look at it with `icevirt log {place(head.storage.url)} --branch"
            f" {quote(branch)}`, then pass its id.",
            branch=branch,
            expected=expect,
            tip=str(tip),
        )
    target = target_of(info, tip)
    if target != tip:
        info = head.update(repo_updates.reset_branch(branch, target, expected=tip))
    commits = Commits(info)
    kept = {each.id for each in lookup.ancestry(info, target)}
    dropped = [each for each in lookup.ancestry(info, tip) if each.id not in kept]
    others = [name for name, key in sorted(info.branches.items()) if key == tip and name != branch]
    tags = [f"tag {name}" for name, key in sorted(info.tags.items()) if key == tip]
    return BranchMove(
        repo=head.storage.url,
        action=action,
        branch=branch,
        before=commits.at(tip),
        after=commits.at(target),
        dropped=tuple(commits.of(each) for each in islice(dropped, _SHOWN)),
        more=max(0, len(dropped) - _SHOWN),
        dropped_named=(*others, *tags),
    )


def _last_undone(
    head: RepoInfoFile, info: RepoInfo, branch: str, tip: ObjectId12
) -> ObjectId12 | None:
    """Return the snapshot that the last undo of a branch left, of those not taken back since.

    The log says where a reset began. Where it led is where the next operation began.
    """
    taken_back, now = 0, tip
    for entry in walks.operations(head):
        kind = entry.kind
        if isinstance(kind, _OTHER) and branch in (
            getattr(kind, "branch", None),
            getattr(kind, "name", None),
        ):
            return None
        if not isinstance(kind, BranchReset) or kind.name != branch:
            continue
        before = kind.previous_snap_id
        if _parent(info, now) == before:
            taken_back += 1
        elif _parent(info, before) != now and before in info.snapshots:
            return None
        elif taken_back:
            taken_back -= 1
        else:
            return before
        now = before
    return None


def _parent(info: RepoInfo, key: ObjectId12) -> ObjectId12 | None:
    found = info.snapshots.get(key)
    return None if found is None else found.parent_id


def _describe_change(
    head: RepoInfoFile, action: str, kind: str, name: str, key: ObjectId12
) -> NameChange:
    return NameChange(
        repo=head.storage.url,
        kind=kind,  # type: ignore[arg-type]  # words of our own
        action=action,  # type: ignore[arg-type]
        name=name,
        snapshot_id=str(key),
    )


def branches(repo: StorageLike | Repository) -> NamedVersions:
    """List the branches and their tips, ``main`` first.

    Args:
        repo: Path or URL of the repository, or the repository.

    Raises:
        RepositoryNotFoundError: There is no repository.
    """
    head = head_of(repo)
    info = head.read().info
    names = sorted(info.branches, key=lambda name: (name != repo_updates.MAIN, name))
    found = tuple(
        name_version(lookup.find_snapshot(info, info.branches[name]), name) for name in names
    )
    return NamedVersions(repo=head.storage.url, kind="branch", names=found)


def tags(repo: StorageLike | Repository) -> NamedVersions:
    """List the tags, and the names of deleted ones.

    Args:
        repo: Path or URL of the repository, or the repository.

    Raises:
        RepositoryNotFoundError: There is no repository.
    """
    head = head_of(repo)
    info = head.read().info
    found = tuple(
        name_version(lookup.find_snapshot(info, key), name)
        for name, key in sorted(info.tags.items())
    )
    deleted = tuple(sorted(info.deleted_tags))
    return NamedVersions(repo=head.storage.url, kind="tag", names=found, deleted=deleted)


def create_branch(
    repo: StorageLike | Repository, name: str, version: str = repo_updates.MAIN
) -> NameChange:
    """Create a branch at a version.

    Args:
        repo: Path or URL of the repository, or the repository.
        name: The branch.
        version: Where it points: a branch, a tag, a snapshot id or its first letters; ``~1``
            behind it means the one before.

    Raises:
        AlreadyExistsError: A branch of this name exists.
        SnapshotNotFoundError: There is no such version.
    """
    head = head_of(repo)
    key = resolve_version(head.read().info, version)
    head.update(repo_updates.create_branch(name, key))
    return _describe_change(head, "created", "branch", name, key)


def delete_branch(repo: StorageLike | Repository, name: str) -> NameChange:
    """Delete a branch, ``main`` excepted; its snapshots stay until garbage is collected.

    Args:
        repo: Path or URL of the repository, or the repository.
        name: The branch.

    Raises:
        RefNotFoundError: There is no such branch.
    """
    head = head_of(repo)
    key = lookup.branch_tip(head.read().info, name)
    head.update(repo_updates.delete_branch(name))
    return _describe_change(head, "deleted", "branch", name, key)


def rename_branch(repo: StorageLike | Repository, name: str, new: str) -> NameChange:
    """Rename a branch, ``main`` excepted.

    The format knows no renaming: the ops log shows that the new one was created and the former one
    deleted, which is one write.

    Args:
        repo: Path or URL of the repository, or the repository.
        name: The branch.
        new: Its new name.

    Raises:
        RefNotFoundError: There is no such branch.
        AlreadyExistsError: A branch of the new name exists.
        InvalidInputError: The branch is ``main``.
    """
    head = head_of(repo)
    after = head.update(repo_updates.copy_branch(name, new), repo_updates.delete_branch(name))
    return replace(
        _describe_change(head, "renamed", "branch", new, after.branches[new]), former=name
    )


def create_tag(
    repo: StorageLike | Repository, name: str, version: str = repo_updates.MAIN
) -> NameChange:
    """Create a tag at a version; it never moves.

    Args:
        repo: Path or URL of the repository, or the repository.
        name: The tag.
        version: Where it points: a branch, a tag, a snapshot id or its first letters; ``~1``
            behind it means the one before.

    Raises:
        AlreadyExistsError: A tag of this name exists, or existed.
        SnapshotNotFoundError: There is no such version.
        SessionStateError: The feature ``create_tag`` is disabled.
    """
    head = head_of(repo)
    key = resolve_version(head.read().info, version)
    edit = repo_updates.create_tag(name, key)
    head.update(repo_updates.guard(repo_updates.CREATE_TAG, edit))
    return _describe_change(head, "created", "tag", name, key)


def delete_tag(repo: StorageLike | Repository, name: str) -> NameChange:
    """Delete a tag; its name stays taken.

    Args:
        repo: Path or URL of the repository, or the repository.
        name: The tag.

    Raises:
        RefNotFoundError: There is no such tag.
        SessionStateError: The feature ``delete_tag`` is disabled.
    """
    head = head_of(repo)
    key = lookup.tag_target(head.read().info, name)
    edit = repo_updates.delete_tag(name)
    head.update(repo_updates.guard(repo_updates.DELETE_TAG, edit))
    return _describe_change(head, "deleted", "tag", name, key)
