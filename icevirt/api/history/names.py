"""List, create, delete and rename branches and tags, for the commands `branch` and `tag`."""

from __future__ import annotations

from icevirt.api.history.log import head_of
from icevirt.api.history.versions import resolved
from icevirt.archive.reports.history import NameChange, NamedVersion, NamedVersions
from icevirt.ids import ObjectId12
from icevirt.model.repo_info import RepoInfo
from icevirt.repo.repository import Repository
from icevirt.storage.constructors import StorageLike
from icevirt.versioning import lookup, repo_updates
from icevirt.versioning.history.timestamps import moment


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
    found = tuple(_named(info, name, info.branches[name]) for name in names)
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
    found = tuple(_named(info, name, info.tags[name]) for name in sorted(info.tags))
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
    key = resolved(head.read().info, version)
    head.update(repo_updates.create_branch(name, key))
    return NameChange(
        repo=head.storage.url, kind="branch", action="created", name=name, snapshot_id=str(key)
    )


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
    return NameChange(
        repo=head.storage.url, kind="branch", action="deleted", name=name, snapshot_id=str(key)
    )


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
    return NameChange(
        repo=head.storage.url,
        kind="branch",
        action="renamed",
        name=new,
        snapshot_id=str(after.branches[new]),
        former=name,
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
    key = resolved(head.read().info, version)
    edit = repo_updates.create_tag(name, key)
    head.update(repo_updates.guarded(repo_updates.CREATE_TAG, edit))
    return NameChange(
        repo=head.storage.url, kind="tag", action="created", name=name, snapshot_id=str(key)
    )


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
    head.update(repo_updates.guarded(repo_updates.DELETE_TAG, edit))
    return NameChange(
        repo=head.storage.url, kind="tag", action="deleted", name=name, snapshot_id=str(key)
    )


def _named(info: RepoInfo, name: str, key: ObjectId12) -> NamedVersion:
    summary = lookup.known(info, key)
    return NamedVersion(
        name=name,
        snapshot_id=str(key),
        written_at=moment(summary.flushed_at),
        message=summary.message,
    )
