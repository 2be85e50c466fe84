"""Provide the methods of a repository for history, branches and tags."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from icevirt.model.arguments import checked
from icevirt.repo import layout
from icevirt.repo.history import walks
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.versioning import lookup

if TYPE_CHECKING:  # a reader of values looks at no history
    from icevirt.repo.assets import Assets
    from icevirt.repo.history.types import ManifestFileInfo, SnapshotInfo, Update
    from icevirt.versioning.diff import Diff
    from icevirt.versioning.history.ancestry_graph import AncestryGraph


class RepositoryHistory:
    """The part of `Repository` that names snapshots, and shows what happened."""

    _head: RepoInfoFile
    _assets: Assets

    def ancestry(
        self,
        *,
        branch: str | None = None,
        tag: str | None = None,
        snapshot_id: str | None = None,
    ) -> Iterator[SnapshotInfo]:
        """Yield a version and its ancestors, newest first; exactly one argument names it."""
        from icevirt.repo.history.types import SnapshotInfo

        info = self._head.read().info
        tip = walks.resolve(info, branch=branch, tag=tag, snapshot_id=snapshot_id)
        return (SnapshotInfo.of(found) for found in lookup.ancestry(info, tip))

    def ancestry_graph(
        self,
        *,
        branch: str | None = None,
        tag: str | None = None,
        snapshot_id: str | None = None,
        plain: bool = False,
    ) -> AncestryGraph:
        """Draw the history of all branches, or of the version that one argument names.

        Args:
            branch: Draw the history of this branch.
            tag: Draw the history of this tag.
            snapshot_id: Draw the history of this snapshot.
            plain: Without colors.

        Raises:
            InvalidInputError: Several of the three are given.
            RefNotFoundError: There is no such branch or tag.
            SnapshotNotFoundError: There is no such snapshot.
        """
        from icevirt.versioning.history import ancestry_graph as history_graph

        info = self._head.read().info
        if branch is None and tag is None and snapshot_id is None:
            return history_graph.graph(info, history_graph.lanes(info.branches), plain=plain)
        tip = walks.resolve(info, branch=branch, tag=tag, snapshot_id=snapshot_id)
        return history_graph.graph(info, {"": tip}, plain=plain)

    def ops_log(self) -> Iterator[Update]:
        """Yield every operation on the repository, newest first; raises ``FormatError``."""
        from icevirt.repo.history.types import Update

        return (Update.of(update) for update in walks.operations(self._head))

    def lookup_snapshot(self, snapshot_id: str) -> SnapshotInfo:
        """Return the facts about a snapshot. Raises ``SnapshotNotFoundError``."""
        from icevirt.repo.history.types import SnapshotInfo

        info = self._head.read().info
        return SnapshotInfo.of(lookup.known(info, layout.snapshot_id(snapshot_id)))

    def list_manifest_files(self, snapshot_id: str) -> list[ManifestFileInfo]:
        """Return the manifest files of a snapshot. Raises ``SnapshotNotFoundError``."""
        from icevirt.repo.history.types import ManifestFileInfo

        known = lookup.known(self._head.read().info, layout.snapshot_id(snapshot_id))
        files = self._assets.snapshot(known.id).manifest_files
        return [ManifestFileInfo.of(info) for info in files]

    def diff(
        self,
        *,
        from_branch: str | None = None,
        from_tag: str | None = None,
        from_snapshot_id: str | None = None,
        to_branch: str | None = None,
        to_tag: str | None = None,
        to_snapshot_id: str | None = None,
    ) -> Diff:
        """Return what changed from one version to a later one.

        Raises:
            InvalidInputError: One of the two is not named by exactly one argument, or the first is
                not an ancestor of the second.
        """
        info = self._head.read().info
        before = walks.resolve(info, branch=from_branch, tag=from_tag, snapshot_id=from_snapshot_id)
        after = walks.resolve(info, branch=to_branch, tag=to_tag, snapshot_id=to_snapshot_id)
        return walks.diff(self._assets, info, before, after)

    # -- branches and tags -------------------------------------------------------------------

    def list_branches(self) -> set[str]:
        """Return the names of all branches."""
        return set(self._head.read().info.branches)

    def lookup_branch(self, branch: str) -> str:
        """Return the id of the snapshot at the tip of a branch. Raises ``RefNotFoundError``."""
        return str(lookup.branch_tip(self._head.read().info, branch))

    def create_branch(self, branch: str, snapshot_id: str) -> None:
        """Create a branch.

        Raises:
            AlreadyExistsError: A branch with this name exists.
            SnapshotNotFoundError: There is no such snapshot.
        """
        from icevirt.versioning import repo_updates

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
        from icevirt.versioning import repo_updates

        expected = None if from_snapshot_id is None else layout.snapshot_id(from_snapshot_id)
        target = layout.snapshot_id(snapshot_id)
        self._head.update(repo_updates.reset_branch(branch, target, expected=expected))

    def delete_branch(self, branch: str) -> None:
        """Delete a branch, ``main`` excepted. Raises ``RefNotFoundError``."""
        from icevirt.versioning import repo_updates

        self._head.update(repo_updates.delete_branch(branch))

    def list_tags(self) -> set[str]:
        """Return the names of all tags."""
        return set(self._head.read().info.tags)

    def lookup_tag(self, tag: str) -> str:
        """Return the id of the snapshot that a tag names. Raises ``RefNotFoundError``."""
        return str(lookup.tag_target(self._head.read().info, tag))

    def create_tag(self, tag: str, snapshot_id: str) -> None:
        """Create a tag; it is immutable, and its name can never be reused.

        Raises:
            AlreadyExistsError: A tag with this name exists or existed.
            SnapshotNotFoundError: There is no such snapshot.
            SessionStateError: The feature ``create_tag`` is disabled.
        """
        from icevirt.versioning import repo_updates

        checked("the name of a tag", tag, str)
        edit = repo_updates.create_tag(tag, layout.snapshot_id(snapshot_id))
        self._head.update(repo_updates.guarded(repo_updates.CREATE_TAG, edit))

    def delete_tag(self, tag: str) -> None:
        """Delete a tag; its name stays taken.

        Raises:
            RefNotFoundError: There is no such tag.
            SessionStateError: The feature ``delete_tag`` is disabled.
        """
        from icevirt.versioning import repo_updates

        self._head.update(
            repo_updates.guarded(repo_updates.DELETE_TAG, repo_updates.delete_tag(tag))
        )
