"""Decide which snapshots expire, by the official client's rules, and which files are garbage.

Garbage is unreachable from branches and tags, and old enough: age protects a file that a writer is
about to refer to. A survivor whose parent expired becomes a child of the root and keeps the names
of all transaction logs in between, so diffs and rebases across them still work.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from icevirt.ids import ObjectId12
from icevirt.model import updates as kinds
from icevirt.model.repo_info import RepoInfo, SnapshotSummary
from icevirt.versioning import id_columns
from icevirt.versioning.lookup import ancestry
from icevirt.versioning.repo_updates import MAIN

_UNKNOWN: Mapping[ObjectId12, bool] = {}


def reachable(
    info: RepoInfo,
    older_than: int,
    roots: Iterable[ObjectId12] = (),
    written: Mapping[ObjectId12, bool] = _UNKNOWN,
) -> dict[ObjectId12, SnapshotSummary]:
    """Return the snapshots that stay: tips of branches and tags, young ones, roots, ancestors.

    Args:
        info: The repository.
        older_than: Snapshots from then on are young.
        roots: Snapshots that stay whatever their age.
        written: Whether files of snapshots are old by the clock of their storage, which counts:
            it decides about all that they refer to. Of others the writer's time counts.
    """
    young = (
        key
        for key, summary in info.snapshots.items()
        if not written.get(key, summary.flushed_at < older_than)
    )
    found: dict[ObjectId12, SnapshotSummary] = {}
    for tip in (*info.branches.values(), *info.tags.values(), *young, *roots):
        at: ObjectId12 | None = tip
        while at is not None and at not in found:
            found[at] = info.snapshots[at]
            at = found[at].parent_id
    return found


def sweep(
    info: RepoInfo,
    older_than: int,
    roots: Iterable[ObjectId12] = (),
    written: Mapping[ObjectId12, bool] = _UNKNOWN,
) -> RepoInfo:
    """Return the repo info without the snapshots that are garbage; see `reachable`."""
    kept = reachable(info, older_than, roots, written)
    left = {key: summary for key, summary in info.snapshots.items() if key in kept}
    return info._replace(snapshots=left)


def find_needed_logs(snapshots: Mapping[ObjectId12, SnapshotSummary]) -> set[ObjectId12]:
    """Return the transaction logs that diffs and rebases need."""
    pruned = (summary.pruned_ancestor_tx_logs or () for summary in snapshots.values())
    return {*snapshots, *(key for keys in pruned for key in keys)}


@dataclass(frozen=True, slots=True)
class Candidates:
    """Files of one kind that are old enough: a column, because there may be millions of chunks."""

    key: NDArray[np.void]  # (n,) ids, ascending

    @classmethod
    def of(cls, found: Iterable[ObjectId12]) -> Candidates:
        """Make the column."""
        return cls(np.sort(id_columns.column(found)))

    def __len__(self) -> int:
        return len(self.key)

    def without(self, ids: NDArray[np.void]) -> Candidates:
        """Return the candidates that are not among these ids, in any order."""
        if not len(self) or not len(ids):
            return self
        at = id_columns.places(self.key, ids)
        left = np.ones(len(self), np.bool_)
        left[at[at >= 0]] = False
        return Candidates(self.key[left])

    def among(self, found: Sequence[ObjectId12]) -> list[ObjectId12]:
        """Return the ids that are candidates."""
        there = id_columns.places(self.key, id_columns.column(found)) >= 0
        return [found[n] for n in np.flatnonzero(there).tolist()]


def find_shown_at(info: RepoInfo, at: int) -> set[ObjectId12]:
    """Return the snapshots that the branches showed at a time, as far as their histories go."""
    found = (
        next((each.id for each in ancestry(info, tip) if each.flushed_at < at), None)
        for tip in info.branches.values()
    )
    return {key for key in found if key is not None}


def undone_since(info: RepoInfo, at: int) -> set[ObjectId12]:
    """Return the snapshots that a branch or tag left since a time, as far as `repo` logs it."""
    leaving = (kinds.BranchReset, kinds.BranchDeleted, kinds.TagDeleted, kinds.CommitAmended)
    logged = (each.kind for each in info.latest_updates if each.updated_at >= at)
    left = {each.previous_snap_id for each in logged if isinstance(each, leaving)}
    return left & info.snapshots.keys()


def expire(
    info: RepoInfo,
    older_than: int,
    *,
    delete_branches: bool = False,
    delete_tags: bool = False,
    spared: Iterable[ObjectId12] = (),
) -> tuple[RepoInfo, frozenset[ObjectId12]]:
    """Release the snapshots that were flushed before a time; return what is left, and their ids.

    The time is microseconds since 1970. Branches, ``main`` excepted, and tags that old may be
    deleted; snapshots that are spared stay, whatever their age.

    Raises:
        FormatError: The parents form a cycle.
    """
    old = {
        key
        for key, each in info.snapshots.items()
        if each.flushed_at < older_than and each.parent_id is not None
    }
    branches = {
        name: tip
        for name, tip in info.branches.items()
        if name == MAIN or not delete_branches or tip not in old
    }
    tags = {name: key for name, key in info.tags.items() if not delete_tags or key not in old}
    gone = frozenset(old - {*branches.values(), *tags.values(), *spared})
    deleted = info.deleted_tags | (info.tags.keys() - tags.keys())
    return release(info._replace(branches=branches, tags=tags, deleted_tags=deleted), gone), gone


def release(info: RepoInfo, gone: Collection[ObjectId12]) -> RepoInfo:
    """Return the repo info without some snapshots, and without the tags that name them.

    Survivors whose parent goes become children of the root. No branch shows one that goes.

    Raises:
        FormatError: The parents form a cycle.
    """
    tags = {name: key for name, key in info.tags.items() if key not in gone}
    deleted = info.deleted_tags | (info.tags.keys() - tags.keys())
    left = {}
    for key, snapshot in info.snapshots.items():
        if key in gone:
            continue
        left[key] = snapshot
        if snapshot.parent_id is not None and snapshot.parent_id in gone:
            *above, root = ancestry(info, snapshot.parent_id)
            logs = [*reversed(snapshot.pruned_ancestor_tx_logs or ())]
            for each in above:
                logs += [each.id, *reversed(each.pruned_ancestor_tx_logs or ())]
            pruned = tuple(reversed(logs))
            left[key] = replace(snapshot, parent_id=root.id, pruned_ancestor_tx_logs=pruned)
    return info._replace(tags=tags, deleted_tags=deleted, snapshots=left)
