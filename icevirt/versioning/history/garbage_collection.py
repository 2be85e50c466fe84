"""Decide which files are garbage: unreachable from branches and tags, and old enough.

Age protects a file that a writer is about to refer to: no snapshot names it yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from icevirt.ids import ObjectId12
from icevirt.model.repo_info import RepoInfo, SnapshotSummary
from icevirt.versioning import id_columns

_SECOND = 1_000_000


def reachable(info: RepoInfo, older_than: int) -> dict[ObjectId12, SnapshotSummary]:
    """Return the snapshots that stay: tips of branches and tags, young ones, and ancestors."""
    young = (key for key, told in info.snapshots.items() if told.flushed_at >= older_than)
    found: dict[ObjectId12, SnapshotSummary] = {}
    for tip in (*info.branches.values(), *info.tags.values(), *young):
        at: ObjectId12 | None = tip
        while at is not None and at not in found:
            found[at] = info.snapshots[at]
            at = found[at].parent_id
    return found


def swept(info: RepoInfo, older_than: int) -> RepoInfo:
    """Return the repo info without the snapshots that are garbage."""
    kept = reachable(info, older_than)
    left = {key: told for key, told in info.snapshots.items() if key in kept}
    return replace(info, snapshots=left)


def needed_logs(snapshots: Mapping[ObjectId12, SnapshotSummary]) -> set[ObjectId12]:
    """Return the transaction logs that diffs and rebases need."""
    pruned = (told.pruned_ancestor_tx_logs or () for told in snapshots.values())
    return {*snapshots, *(key for keys in pruned for key in keys)}


def is_old(last_modified: int, older_than: int) -> bool:
    """Say whether an object was surely written before a time; both in microseconds.

    A time in whole seconds was cut off: the object may be almost a second younger.
    """
    cut = 0 if last_modified % _SECOND else _SECOND
    return last_modified + cut < older_than


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
