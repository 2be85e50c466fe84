"""Hold facts about all snapshots as columns: read, changed in few rows, written again.

Spec: "Repo Info File", SnapshotInfo. Every commit reads and writes all of them, so no snapshot has
an object: ids, parents, times and messages are columns, and metadata stays encoded until its first
use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import InvalidInputError
from icevirt.ids import ObjectId12
from icevirt.model.repo_info import SnapshotSummary
from icevirt.model.strings import Bytes, Places, Strings

NO_PARENT = -1
NO_STRINGS = Strings.empty(0)


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """A list of elements for each row: row i has those from ``first[i]`` to ``first[i + 1]``."""

    first: Places  # (n + 1,)

    @classmethod
    def of(cls, counts: NDArray[np.integer]) -> Lists:
        """Make it of how many elements each row has."""
        first = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=first[1:])
        return cls(first)

    @property
    def counts(self) -> Places:
        """How many elements each row has, shape (n,)."""
        return self.first[1:] - self.first[:-1]

    def __add__(self, other: Lists) -> Lists:
        return Lists(np.concatenate([self.first, other.first[1:] + self.first[-1]]))

    def with_one(self, row: int, count: int) -> Lists:
        """Return the lists with one more, which becomes that row."""
        return Lists(_one_more(self.first, row, count))

    def elements(self, rows: Places) -> Places:
        """Return the elements of these rows, in order."""
        counts = self.counts[rows]
        ends = np.cumsum(counts)
        return np.repeat(self.first[rows] - ends + counts, counts) + np.arange(int(counts.sum()))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SnapshotColumns:
    """Snapshots, a row each."""

    ids: Bytes  # (n, 12)
    parent: Places  # (n,) row of the parent, or NO_PARENT
    flushed_at: NDArray[np.uint64]  # (n,)
    message: Strings  # (n,)
    items_of: Lists  # metadata
    names: Strings  # of each item
    values: Strings  # of each item, as it is encoded: bytes, not text
    pruned_of: Lists
    pruned: Bytes  # (m, 12) ids

    @classmethod
    def of(cls, infos: Sequence[SnapshotSummary]) -> SnapshotColumns:
        """Make the columns of values, parents not yet known."""
        from icevirt.wire import metadata

        metadata_of = [metadata.to_items(info.metadata) for info in infos]
        items = [item for each in metadata_of for item in each]
        values = [item["value"] for item in items]
        pruned = [info.pruned_ancestor_tx_logs or () for info in infos]
        return cls(
            ids=_ids([info.id for info in infos]),
            parent=np.full(len(infos), NO_PARENT),
            flushed_at=np.array([info.flushed_at for info in infos], np.uint64),
            message=Strings.of([info.message for info in infos]),
            items_of=Lists(_begins(metadata_of)),
            names=Strings.of([item["name"] for item in items]) if items else NO_STRINGS,
            values=Strings(_join(values), _begins(values)) if items else NO_STRINGS,
            pruned_of=Lists(_begins(pruned)),
            pruned=_ids([key for each in pruned for key in each]),
        )

    def __len__(self) -> int:
        return len(self.ids)

    def keys(self) -> list[bytes]:
        """Return all ids."""
        keys = np.ascontiguousarray(self.ids).view(f"V{ObjectId12.SIZE}")
        found: list[bytes] = keys.reshape(-1).tolist()
        return found

    def is_sorted(self) -> bool:
        """Say whether ids ascend, none of them twice."""
        first, last = _words(self.ids)
        is_later = (first[1:] == first[:-1]) & (last[1:] > last[:-1])
        return bool(((first[1:] > first[:-1]) | is_later).all())

    def take(self, rows: Places) -> SnapshotColumns:
        """Return the given rows, in their order, with parents among them."""
        place = np.full(len(self) + 1, NO_PARENT)  # the last one is the parent of roots
        place[rows] = np.arange(len(rows))
        items = self.items_of.elements(rows)
        return SnapshotColumns(
            ids=self.ids[rows],
            parent=place[self.parent[rows]],
            flushed_at=self.flushed_at[rows],
            message=self.message[rows],
            items_of=Lists.of(self.items_of.counts[rows]),
            names=self.names[items],
            values=self.values[items],
            pruned_of=Lists.of(self.pruned_of.counts[rows]),
            pruned=self.pruned[self.pruned_of.elements(rows)],
        )

    def __add__(self, other: SnapshotColumns) -> SnapshotColumns:
        parents = np.where(other.parent == NO_PARENT, NO_PARENT, other.parent + len(self))
        return SnapshotColumns(
            ids=np.concatenate([self.ids, other.ids]),
            parent=np.concatenate([self.parent, parents]),
            flushed_at=np.concatenate([self.flushed_at, other.flushed_at]),
            message=self.message + other.message,
            items_of=self.items_of + other.items_of,
            names=self.names + other.names,
            values=self.values + other.values,
            pruned_of=self.pruned_of + other.pruned_of,
            pruned=np.concatenate([self.pruned, other.pruned]),
        )

    def with_one(self, one: SnapshotColumns, *, row: int, parent: int) -> SnapshotColumns:
        """Return the columns with one more snapshot, which becomes that row.

        Args:
            one: The snapshot.
            row: Where its id belongs among the ones here.
            parent: The row of its parent here.
        """
        item, pruned = int(self.items_of.first[row]), int(self.pruned_of.first[row])
        parents = _put_in(self.parent, row, np.array([parent]))
        parents += parents >= row
        return SnapshotColumns(
            ids=_put_in(self.ids, row, one.ids),
            parent=parents,
            flushed_at=_put_in(self.flushed_at, row, one.flushed_at),
            message=_with_rows(self.message, row, one.message),
            items_of=self.items_of.with_one(row, len(one.names)),
            names=_with_rows(self.names, item, one.names),
            values=_with_rows(self.values, item, one.values),
            pruned_of=self.pruned_of.with_one(row, len(one.pruned)),
            pruned=_put_in(self.pruned, pruned, one.pruned),
        )

    def with_changed(
        self,
        row_of: Callable[[bytes], int | None],
        changed: Mapping[ObjectId12, SnapshotSummary | None],
    ) -> SnapshotColumns:
        """Return the columns with other facts about some snapshots, in ascending order of ids.

        Args:
            row_of: Returns the row of an id here, or None.
            changed: Facts in the place of the ones here; None removes a snapshot.

        Raises:
            InvalidInputError: The parent of a snapshot is not among them.
        """
        kept = np.ones(len(self), np.bool_)
        kept[[row for key in changed if (row := row_of(key)) is not None]] = False
        left = np.flatnonzero(kept)
        place = np.cumsum(kept) - 1
        infos = [info for info in changed.values() if info is not None]
        new = {info.id: len(left) + row for row, info in enumerate(infos)}
        same = len(left) == len(self)
        both = (self if same else self.take(left)) + SnapshotColumns.of(infos)
        for row in np.flatnonzero((self.parent != NO_PARENT) & ~kept[self.parent] & kept).tolist():
            parent = self.key(int(self.parent[row]))
            both.parent[place[row]] = (
                new[parent] if parent in new else _refuse_lost(self.key(row), parent)
            )
        for info in infos:
            if info.parent_id is not None:
                at = row_of(info.parent_id)
                known = int(place[at]) if at is not None and kept[at] else new.get(info.parent_id)
                at = _refuse_lost(info.id, info.parent_id) if known is None else known
                both.parent[new[info.id]] = at
        return both.take(np.lexsort(_words(both.ids)[::-1]))

    def key(self, row: int) -> ObjectId12:
        """Return the id of a row."""
        return ObjectId12(self.ids[row].tobytes())


def _refuse_lost(snapshot: ObjectId12, parent: ObjectId12) -> int:
    raise InvalidInputError(
        "the parent of a snapshot is unknown", snapshot=str(snapshot), parent=str(parent)
    )


def _ids(keys: Sequence[bytes]) -> Bytes:
    return _join(keys).reshape(len(keys), ObjectId12.SIZE)


def _begins(lists: Sequence[Sized]) -> Places:
    """Return where each of some lists begins behind those before it, and the last one ends."""
    return np.array([0, *accumulate(map(len, lists))], np.int64)


def _join(values: Sequence[bytes]) -> Bytes:
    return np.frombuffer(b"".join(values), np.uint8)


def _words(ids: Bytes) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
    """Return ids as two numbers each, the first one decides their order."""
    last = ids[:, 8:].copy().view(">u4")[:, 0].astype(np.uint32)
    return ids[:, :8].copy().view(">u8")[:, 0].astype(np.uint64), last


def _put_in[T: np.generic](column: NDArray[T], row: int, more: NDArray[T]) -> NDArray[T]:
    return np.concatenate([column[:row], more, column[row:]]) if len(more) else column


def _one_more(starts: Places, row: int, length: int) -> Places:
    """Return where lists begin, and the last one ends, with one more list before that one."""
    found = np.empty(len(starts) + 1, np.int64)
    found[: row + 1] = starts[: row + 1]
    np.add(starts[row:], length, out=found[row + 1 :])
    return found


def _with_rows(column: Strings, row: int, more: Strings) -> Strings:
    """Return a column with more strings before that row."""
    if not len(more):
        return column
    starts, begin = column.starts, int(column.starts[row])
    for at, length in enumerate(more.lengths.tolist()):
        starts = _one_more(starts, row + at, length)
    return Strings(_put_in(column.data, begin, more.data), starts)
