"""Walk a repository's history: time travel, the ops log, differences, who changed a node last."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import datetime
from itertools import islice, pairwise, takewhile
from typing import TYPE_CHECKING

from icevirt.errors import (
    FormatError,
    InvalidInputError,
    ObjectNotFoundError,
    SnapshotNotFoundError,
)
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.repo_info import OpsLogEntry, RepoInfo, SnapshotSummary
from icevirt.repo import layout
from icevirt.repo.repo_info_file import RepoInfoFile
from icevirt.versioning import lookup
from icevirt.versioning.lookup import ancestry

if TYPE_CHECKING:
    from icevirt.repo.assets import Assets
    from icevirt.versioning.diff import Diff

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
        return lookup.known(info, layout.snapshot_id(snapshot_id)).id
    assert branch is not None
    tip = lookup.branch_tip(info, branch)
    return tip if as_of is None else _as_of(info, tip, as_of)


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
            yield replace(info.latest_updates[0], backup_path=name)
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
        raise InvalidInputError(
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


def _as_of(info: RepoInfo, tip: ObjectId12, moment: datetime) -> ObjectId12:
    from icevirt.versioning.history.timestamps import micros

    latest = micros(moment)
    for snapshot in ancestry(info, tip):
        if snapshot.flushed_at <= latest:
            return snapshot.id
    raise SnapshotNotFoundError(
        "the branch has no snapshot before this time",
        do="Pass a later time.",
        as_of=moment.isoformat(),
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
