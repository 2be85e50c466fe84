"""Check the repo info: refs, history, ops log, orders."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from icevirt.ids import ObjectId12
from icevirt.model.repo_info import RepoInfo
from icevirt.versioning.invariants.problem import Problem

MOST_AHEAD = 600_000_000
"""Microseconds that an entry may be ahead of the clock before official writers refuse to write."""


def of_repo_info(info: RepoInfo, now: int) -> Iterator[Problem]:
    """Check the repo info by itself; ``now`` in microseconds."""
    for code, what in (*_refs(info), *_history(info), *_ops_log(info, now), *_orders(info)):
        yield Problem(file="repo", code=code, what=what)


def _refs(info: RepoInfo) -> Iterator[tuple[str, str]]:
    if "main" not in info.branches:
        yield "no-main", "there is no branch main, so no client can open the repository"
    for kind, refs in (("branch", info.branches), ("tag", info.tags)):
        for name, target in refs.items():
            if target not in info.snapshots:
                yield "dangling-ref", f"{kind} {name!r} points at an unknown snapshot {target}"
    for name in sorted(info.deleted_tags & info.tags.keys()):
        yield "tag-reused", f"tag {name!r} exists and is listed as deleted"


def _history(info: RepoInfo) -> Iterator[tuple[str, str]]:
    for snapshot in info.snapshots.values():
        parent = info.snapshots.get(snapshot.parent_id) if snapshot.parent_id else None
        if snapshot.parent_id is not None and parent is None:
            yield "unknown-parent", f"the parent of {snapshot.id} is unknown"
        if parent is not None and snapshot.flushed_at <= parent.flushed_at:
            yield "time-order", f"{snapshot.id} is not later than its parent {parent.id}"
    yield from _circles(info)


def _circles(info: RepoInfo) -> Iterator[tuple[str, str]]:
    sound: set[ObjectId12] = set()
    for start in info.snapshots:
        walk: dict[ObjectId12, None] = {}
        at: ObjectId12 | None = start
        while at is not None and at not in sound and at in info.snapshots:
            if at in walk:
                yield "circle", f"the history of {start} contains a cycle at {at}"
                break
            walk[at] = None
            at = info.snapshots[at].parent_id
        sound.update(walk)


def _ops_log(info: RepoInfo, now: int) -> Iterator[tuple[str, str]]:
    entries = info.latest_updates
    if info.spec_version == 1:
        return  # it has none
    if not entries:
        yield "empty-ops-log", "the ops log is empty"
        return
    if entries[0].backup_path is not None:
        yield "backup-of-newest", "the newest entry names a backup, which crashes official writers"
    if entries[0].updated_at > now + MOST_AHEAD:
        yield "future", "the newest entry lies in the future, so no client can write"
    for later, earlier in itertools.pairwise(entries):
        if later.updated_at <= earlier.updated_at:
            yield "time-order", "the ops log is not ordered from newest to oldest"
            break


def _orders(info: RepoInfo) -> Iterator[tuple[str, str]]:
    """Readers search these lists by bisection: what is out of order is not found."""
    lists: dict[str, Sequence[bytes]] = {
        "branches": [name.encode() for name in info.branches],
        "tags": [name.encode() for name in info.tags],
        "snapshots": list(info.snapshots),
    }
    for name, keys in lists.items():
        if list(keys) != sorted(keys):
            yield "order", f"{name} are not in ascending order"
