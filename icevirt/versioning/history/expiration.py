"""Decide which snapshots expire, and what their descendants must remember of them.

The rules are the official client's. Only the history gets shorter: surviving snapshots read as
before. A survivor whose parent expired becomes a child of the root and keeps the names of all
transaction logs in between, so diffs and rebases across them still work.
"""

from __future__ import annotations

from dataclasses import replace

from icevirt.ids import ObjectId12
from icevirt.model.repo_info import RepoInfo, SnapshotSummary
from icevirt.versioning.repo_updates import MAIN, ancestry


def expire(
    info: RepoInfo, older_than: int, *, delete_branches: bool = False, delete_tags: bool = False
) -> tuple[RepoInfo, frozenset[ObjectId12]]:
    """Release the snapshots that were flushed before a time; return what is left, and their ids.

    Args:
        info: The repository as it is.
        older_than: Microseconds since 1970.
        delete_branches: Delete branches whose tip is that old, ``main`` excepted.
        delete_tags: Delete tags of snapshots that old.

    Raises:
        FormatError: The parents form a cycle.
    """
    old = {key for key, each in info.snapshots.items() if each.flushed_at < older_than}
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
        key: _reparented(info, snapshot, released)
        for key, snapshot in info.snapshots.items()
        if key not in released
    }
    deleted = info.deleted_tags | (info.tags.keys() - tags.keys())
    changed = replace(info, branches=branches, tags=tags, deleted_tags=deleted, snapshots=left)
    return changed, released


def _expires(info: RepoInfo, key: ObjectId12, old: set[ObjectId12]) -> bool:
    return key in old and info.snapshots[key].parent_id is not None


def _reparented(
    info: RepoInfo, snapshot: SnapshotSummary, released: frozenset[ObjectId12]
) -> SnapshotSummary:
    if snapshot.parent_id not in released:
        return snapshot
    logs = [*reversed(snapshot.pruned_ancestor_tx_logs or ())]
    for above in ancestry(info, snapshot.parent_id):
        if above.parent_id is None:
            return replace(snapshot, parent_id=above.id, pruned_ancestor_tx_logs=tuple(logs[::-1]))
        logs += [above.id, *reversed(above.pruned_ancestor_tx_logs or ())]
    raise AssertionError  # pragma: no cover - a history ends at a root
