"""Show a repository's history: time travel, the ops log, differences, branches and tags."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from itertools import islice, pairwise, takewhile
from typing import TYPE_CHECKING

from icevirt.errors import (
    DiffOrderError,
    FormatError,
    InvalidInputError,
    NoSnapshotAtTimeError,
    ObjectNotFoundError,
    check,
)
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.repo_info import OpsLogEntry, RepoInfo, SnapshotSummary
from icevirt.repo import layout
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.versioning import lookup
from icevirt.versioning.lookup import ancestry

if TYPE_CHECKING:
    from icevirt.repo.assets import Assets
    from icevirt.repo.history.types import ManifestFileInfo, SnapshotInfo, Update
    from icevirt.versioning.diff import Diff
    from icevirt.versioning.history.ancestry_graph import AncestryGraph


_LOOKED_AT = 100  # commits; the names of older ones are not worth reading more snapshots


def resolve(
    info: RepoInfo,
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    as_of: datetime | None = None,
) -> ObjectId12:
    """Return the snapshot that exactly one of branch, tag and snapshot id names.

    Raises:
        InvalidInputError: None or several are given, or ``as_of`` without a branch.
        RefNotFoundError: There is no such branch or tag.
        SnapshotNotFoundError: No such snapshot, or none that old.
    """
    if sum(given is not None for given in (branch, tag, snapshot_id)) != 1:
        raise InvalidInputError(
            "no version, or more than one, was given",
            do="Pass exactly one of branch, tag and snapshot_id.",
        )
    if as_of is not None and branch is None:
        raise InvalidInputError("as_of needs a branch", do="Pass branch= as well.")
    if tag is not None:
        return lookup.tag_target(info, tag)
    if snapshot_id is not None:
        return lookup.find_snapshot(info, layout.snapshot_id(snapshot_id)).id
    assert branch is not None
    tip = lookup.branch_tip(info, branch)
    if as_of is None:
        return tip
    from icevirt.versioning.history.timestamps import micros

    latest = micros(as_of)
    for snapshot in ancestry(info, tip):
        if snapshot.flushed_at <= latest:
            return snapshot.id
    raise NoSnapshotAtTimeError(
        "the branch has no snapshot before this time",
        do="Pass a later time.",
        as_of=as_of.isoformat(),
    )


def operations(head: RepoInfoFile) -> Iterator[OpsLogEntry]:
    """Yield the ops log, newest first, across the backups that continue it.

    Raises:
        FormatError: A backup is damaged, or the repository is of the V1 format.
    """
    info = head.read_v2("the ops log").info
    yield from info.latest_updates
    seen: set[str] = set()
    while (name := info.repo_before_updates) is not None:
        if name in seen:
            raise FormatError(
                "the ops log contains a cycle",
                do="Restore `repo` from one of its backups in `overwritten/`.",
                backup=name,
            )
        seen.add(name)
        info = head.backup(name)
        if info.latest_updates:  # its newest entry says the rest of itself there
            yield info.latest_updates[0]._replace(backup_path=name)
            yield from info.latest_updates[1:]


def diff(assets: Assets, info: RepoInfo, before: ObjectId12, after: ObjectId12) -> Diff:
    """Say what changed from one snapshot to a later one of the same history.

    Raises:
        InvalidInputError: ``before`` is not an ancestor of ``after``.
    """
    from icevirt.versioning.diff import diff_of

    logs: list[ObjectId12] = []
    for snapshot in ancestry(info, after):
        if snapshot.id == before:
            break
        logs += [snapshot.id, *reversed(snapshot.pruned_ancestor_tx_logs or ())]
    else:
        raise DiffOrderError(
            "a diff needs a snapshot and one of its descendants",
            do="Swap them, or pass an ancestor; list them with `repo.ancestry(...)`.",
            from_snapshot=str(before),
            to_snapshot=str(after),
        )
    return diff_of(
        assets.snapshot(before),
        assets.snapshot(after),
        [assets.transaction_log(key) for key in reversed(logs)],
    )


def last_changes(
    assets: Assets, info: RepoInfo, tip: ObjectId12, paths: Collection[str]
) -> dict[str, SnapshotSummary]:
    """Return for each path the newest commit that changed it, as far as recent commits tell."""
    found: dict[str, SnapshotSummary] = {}
    left = {*paths}
    for after, before in pairwise(islice(ancestry(info, tip), _LOOKED_AT)):
        if not left:
            break
        now, then = assets.snapshot(after.id), assets.snapshot(before.id)
        changed = {path for path in left if now.find(path) != then.find(path)}
        found |= dict.fromkeys(changed, after)
        left -= changed
    return found


def only_rearranged(
    assets: Assets,
    info: RepoInfo,
    tip: ObjectId12,
    since: ObjectId12,
    arrays: Collection[ObjectId8],
) -> frozenset[ObjectId8]:
    """Return the arrays whose chunks no commit after ``since`` wrote or deleted.

    Commits that rewrite manifests change them and say so in no transaction log; every other commit
    lists the chunks that it wrote of arrays that were there before it.
    """
    left = {*arrays}
    for snapshot in takewhile(lambda each: each.id != since, ancestry(info, tip)):
        for key in (snapshot.id, *(snapshot.pruned_ancestor_tx_logs or ())):
            if not left:
                break
            try:
                log = assets.transaction_log(key)
            except ObjectNotFoundError:
                return frozenset()
            left -= {*log.updated_chunks} | log.updated_arrays
    return frozenset(left)


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
        tip = resolve(info, branch=branch, tag=tag, snapshot_id=snapshot_id)
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
        tip = resolve(info, branch=branch, tag=tag, snapshot_id=snapshot_id)
        return history_graph.graph(info, {"": tip}, plain=plain)

    def ops_log(self) -> Iterator[Update]:
        """Yield every operation on the repository, newest first; raises ``FormatError``."""
        from icevirt.repo.history.types import Update

        return (Update.of(update) for update in operations(self._head))

    def lookup_snapshot(self, snapshot_id: str) -> SnapshotInfo:
        """Return the facts about a snapshot. Raises ``SnapshotNotFoundError``."""
        from icevirt.repo.history.types import SnapshotInfo

        info = self._head.read().info
        return SnapshotInfo.of(lookup.find_snapshot(info, layout.snapshot_id(snapshot_id)))

    def list_manifest_files(self, snapshot_id: str) -> list[ManifestFileInfo]:
        """Return the manifest files of a snapshot. Raises ``SnapshotNotFoundError``."""
        from icevirt.repo.history.types import ManifestFileInfo

        known = lookup.find_snapshot(self._head.read().info, layout.snapshot_id(snapshot_id))
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
        before = resolve(info, branch=from_branch, tag=from_tag, snapshot_id=from_snapshot_id)
        after = resolve(info, branch=to_branch, tag=to_tag, snapshot_id=to_snapshot_id)
        return diff(self._assets, info, before, after)

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

        check("the name of a branch", branch, str)
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

        check("the name of a tag", tag, str)
        edit = repo_updates.create_tag(tag, layout.snapshot_id(snapshot_id))
        self._head.update(repo_updates.guard(repo_updates.CREATE_TAG, edit))

    def delete_tag(self, tag: str) -> None:
        """Delete a tag; its name stays taken.

        Raises:
            RefNotFoundError: There is no such tag.
            SessionStateError: The feature ``delete_tag`` is disabled.
        """
        from icevirt.versioning import repo_updates

        self._head.update(repo_updates.guard(repo_updates.DELETE_TAG, repo_updates.delete_tag(tag)))
