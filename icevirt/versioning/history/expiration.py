"""Decide which snapshots expire, and what their descendants must remember of them.

The rules are the official client's. Only the history gets shorter: surviving snapshots read as
before. A survivor whose parent expired becomes a child of the root and keeps the names of all
transaction logs in between, so diffs and rebases across them still work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from icevirt.errors import FormatError
from icevirt.ids import ObjectId12
from icevirt.model.repo_info import RepoInfo, SnapshotSummary
from icevirt.versioning.repo_updates import MAIN

type Snapshots = Mapping[ObjectId12, SnapshotSummary]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """What is left of a history, and what is not."""

    info: RepoInfo
    released: frozenset[ObjectId12]


def expire(
    info: RepoInfo, older_than: int, *, delete_branches: bool = False, delete_tags: bool = False
) -> Expiry:
    """Release the snapshots that were flushed before a time.

    Args:
        info: The repository as it is.
        older_than: Microseconds since 1970.
        delete_branches: Delete branches whose tip is that old, ``main`` excepted.
        delete_tags: Delete tags of snapshots that old.

    Raises:
        FormatError: The parents go round in a circle.
    """
    old = {key for key, told in info.snapshots.items() if told.flushed_at < older_than}
    branches = {
        name: tip
        for name, tip in info.branches.items()
        if name == MAIN or not delete_branches or not _expires(info, tip, old)
    }
    tags = {
        name: at for name, at in info.tags.items() if not delete_tags or not _expires(info, at, old)
    }
    kept = {*branches.values(), *tags.values()}
    released = frozenset(key for key in old - kept if info.snapshots[key].parent_id is not None)
    left = {
        key: _reparented(info.snapshots, told, released)
        for key, told in info.snapshots.items()
        if key not in released
    }
    return Expiry(
        info=replace(
            info,
            branches=branches,
            tags=tags,
            deleted_tags=info.deleted_tags | (info.tags.keys() - tags.keys()),
            snapshots=left,
        ),
        released=released,
    )


def _expires(info: RepoInfo, key: ObjectId12, old: set[ObjectId12]) -> bool:
    return key in old and info.snapshots[key].parent_id is not None


def _reparented(
    snapshots: Snapshots, told: SnapshotSummary, released: frozenset[ObjectId12]
) -> SnapshotSummary:
    if told.parent_id not in released:
        return told
    between: list[ObjectId12] = [*reversed(told.pruned_ancestor_tx_logs or ())]
    above, passed = snapshots[told.parent_id], set[ObjectId12]()
    while above.parent_id is not None:
        if above.id in passed:
            raise FormatError(
                "the history contains a cycle",
                do="Restore `repo` from one of its backups in `overwritten/`.",
                snapshot=str(above.id),
            )
        passed.add(above.id)
        between += [above.id, *reversed(above.pruned_ancestor_tx_logs or ())]
        above = snapshots[above.parent_id]
    return replace(told, parent_id=above.id, pruned_ancestor_tx_logs=tuple(reversed(between)))
