"""Find the commit that last changed a node, apart from moves and reindexing."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice, pairwise

from icevirt.errors import ObjectNotFoundError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.repo_info import RepoInfo, SnapshotSummary
from icevirt.repo.assets import Assets
from icevirt.repo.history import walks

_LOOKED_AT = 100  # commits; the names of older ones are not worth reading more snapshots


def last_changes(
    assets: Assets, info: RepoInfo, tip: ObjectId12, paths: Collection[str]
) -> dict[str, SnapshotSummary]:
    """Return for each path the newest commit that changed it, as far as recent commits tell."""
    found: dict[str, SnapshotSummary] = {}
    left = {*paths}
    for after, before in pairwise(islice(walks.ancestry(info, tip), _LOOKED_AT)):
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
    """Return those of the arrays whose chunks no commit after ``since`` wrote or deleted.

    Commits that rewrite manifests change them and say so in no transaction log; every other commit
    lists the chunks that it wrote of arrays that were there before it.
    """
    left = {*arrays}
    for key in _logs(info, tip, since):
        if not left:
            break
        try:
            log = assets.transaction_log(key)
        except ObjectNotFoundError:
            return frozenset()
        left -= {*log.updated_chunks} | log.updated_arrays
    return frozenset(left)


def _logs(info: RepoInfo, tip: ObjectId12, since: ObjectId12) -> Iterator[ObjectId12]:
    for snapshot in walks.ancestry(info, tip):
        if snapshot.id == since:
            return
        yield snapshot.id
        yield from snapshot.pruned_ancestor_tx_logs or ()
