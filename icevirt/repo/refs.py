"""Manage the branches and tags of a repository."""

from __future__ import annotations

from icevirt.model.arguments import checked
from icevirt.repo import layout
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.versioning import feature_flags, repo_updates


class BranchesAndTags:
    """The part of `Repository` that names snapshots."""

    _head: RepoInfoFile

    def list_branches(self) -> set[str]:
        """Return the names of all branches."""
        return set(self._head.read().info.branches)

    def lookup_branch(self, branch: str) -> str:
        """Return the id of the snapshot at the tip of a branch. Raises ``RefNotFoundError``."""
        return str(repo_updates.branch_tip(self._head.read().info, branch))

    def create_branch(self, branch: str, snapshot_id: str) -> None:
        """Create a branch.

        Raises:
            AlreadyExistsError: A branch with this name exists.
            SnapshotNotFoundError: There is no such snapshot.
        """
        checked("the name of a branch", branch, str)
        self._head.update(repo_updates.create_branch(branch, layout.snapshot_id(snapshot_id)))

    def reset_branch(
        self, branch: str, snapshot_id: str, *, from_snapshot_id: str | None = None
    ) -> None:
        """Point a branch at another snapshot.

        Args:
            branch: An existing branch.
            snapshot_id: Any snapshot of the repository.
            from_snapshot_id: Reset only if the branch points there now.

        Raises:
            RefNotFoundError: There is no such branch.
            SnapshotNotFoundError: There is no such snapshot.
            ConflictError: The branch is not at ``from_snapshot_id``.
        """
        expected = None if from_snapshot_id is None else layout.snapshot_id(from_snapshot_id)
        target = layout.snapshot_id(snapshot_id)
        self._head.update(repo_updates.reset_branch(branch, target, expected=expected))

    def delete_branch(self, branch: str) -> None:
        """Delete a branch, ``main`` excepted. Raises ``RefNotFoundError``."""
        self._head.update(repo_updates.delete_branch(branch))

    def list_tags(self) -> set[str]:
        """Return the names of all tags."""
        return set(self._head.read().info.tags)

    def lookup_tag(self, tag: str) -> str:
        """Return the id of the snapshot that a tag names. Raises ``RefNotFoundError``."""
        return str(repo_updates.tag_target(self._head.read().info, tag))

    def create_tag(self, tag: str, snapshot_id: str) -> None:
        """Create a tag; it is immutable, and its name can never be reused.

        Raises:
            AlreadyExistsError: A tag with this name exists or existed.
            SnapshotNotFoundError: There is no such snapshot.
            SessionStateError: The feature ``create_tag`` is disabled.
        """
        checked("the name of a tag", tag, str)
        edit = repo_updates.create_tag(tag, layout.snapshot_id(snapshot_id))
        self._head.update(feature_flags.guarded(feature_flags.CREATE_TAG, edit))

    def delete_tag(self, tag: str) -> None:
        """Delete a tag; its name stays taken.

        Raises:
            RefNotFoundError: There is no such tag.
            SessionStateError: The feature ``delete_tag`` is disabled.
        """
        self._head.update(
            feature_flags.guarded(feature_flags.DELETE_TAG, repo_updates.delete_tag(tag))
        )
