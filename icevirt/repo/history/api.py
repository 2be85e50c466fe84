"""Provide the history methods of a repository."""

from __future__ import annotations

from collections.abc import Iterator

from icevirt.repo import layout
from icevirt.repo.assets import Assets
from icevirt.repo.history import walks
from icevirt.repo.history.types import ManifestFileInfo, SnapshotInfo, Update
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.versioning import repo_updates
from icevirt.versioning.diff import Diff
from icevirt.versioning.history import ancestry_graph as history_graph
from icevirt.versioning.history.ancestry_graph import AncestryGraph


class RepositoryHistory:
    """The part of `Repository` that tells what happened."""

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
        info = self._head.read().info
        tip = walks.resolve(info, branch=branch, tag=tag, snapshot_id=snapshot_id)
        return (SnapshotInfo.of(found) for found in walks.ancestry(info, tip))

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
        info = self._head.read().info
        if branch is None and tag is None and snapshot_id is None:
            return history_graph.graph(info, history_graph.lanes(info.branches), plain=plain)
        tip = walks.resolve(info, branch=branch, tag=tag, snapshot_id=snapshot_id)
        return history_graph.graph(info, {"": tip}, plain=plain)

    def ops_log(self) -> Iterator[Update]:
        """Yield every operation on the repository, newest first; raises ``FormatError``."""
        return (Update.of(update) for update in walks.operations(self._head))

    def lookup_snapshot(self, snapshot_id: str) -> SnapshotInfo:
        """Return the facts about a snapshot. Raises ``SnapshotNotFoundError``."""
        info = self._head.read().info
        return SnapshotInfo.of(repo_updates.known(info, layout.snapshot_id(snapshot_id)))

    def list_manifest_files(self, snapshot_id: str) -> list[ManifestFileInfo]:
        """Return the manifest files of a snapshot. Raises ``SnapshotNotFoundError``."""
        known = repo_updates.known(self._head.read().info, layout.snapshot_id(snapshot_id))
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
