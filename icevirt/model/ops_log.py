"""Hold the entries of the ops log as columns; every commit reads and writes a thousand.

Values that entries share (a kind, the branch) are stored once; ids, times and names of backups are
columns. An `Update` is made when it is first used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast, overload

import numpy as np
from numpy.typing import NDArray

from icevirt.ids import ObjectId12
from icevirt.model.repo_info import OpsLogEntry, UpdateKind
from icevirt.model.strings import Strings

IDS = ("previous_snap_id", "new_snap_id")
NO_ID = ObjectId12(bytes(ObjectId12.SIZE))


@dataclass(frozen=True, slots=True, eq=False)
class OpsLog(Sequence[OpsLogEntry]):
    """Entries, a row each, in the order of the log they are from."""

    kinds: tuple[UpdateKind, ...]  # distinct ones, their ids left blank
    kind: NDArray[np.int64]  # (n,) row in `kinds`
    ids: NDArray[np.uint8]  # (n, 2, 12), as ``IDS``; zeros where the kind has no such id
    updated_at: NDArray[np.uint64]  # (n,) microseconds since 1970
    backup: Strings  # (n,) "" where there is none

    @classmethod
    def of(cls, entries: Iterable[OpsLogEntry]) -> OpsLog:
        """Return entries as columns."""
        if isinstance(entries, OpsLog):
            return entries
        listed = list(entries)
        known: dict[UpdateKind, int] = {}
        kind = [known.setdefault(blank(entry.kind), len(known)) for entry in listed]
        ids = b"".join(getattr(entry.kind, name, NO_ID) for entry in listed for name in IDS)
        return cls(
            kinds=tuple(known),
            kind=np.array(kind, np.int64),
            ids=np.frombuffer(ids, np.uint8).reshape(-1, len(IDS), ObjectId12.SIZE),
            updated_at=np.array([entry.updated_at for entry in listed], np.uint64),
            backup=Strings.of([entry.backup_path or "" for entry in listed]),
        )

    def __len__(self) -> int:
        return len(self.kind)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[OpsLogEntry]:
        return (self._entry(row) for row in range(len(self)))

    @overload
    def __getitem__(self, at: int) -> OpsLogEntry: ...
    @overload
    def __getitem__(self, at: slice) -> OpsLog: ...
    def __getitem__(self, at: int | slice) -> OpsLogEntry | OpsLog:
        """Return one entry, or some as columns."""
        rows = np.arange(len(self))[at]
        return self._take(rows) if isinstance(at, slice) else self._entry(int(rows))

    def __add__(self, other: OpsLog) -> OpsLog:
        kinds = {kind: number for number, kind in enumerate(self.kinds)}
        moved = [kinds.setdefault(kind, len(kinds)) for kind in other.kinds]
        return OpsLog(
            kinds=tuple(kinds),
            kind=np.concatenate([self.kind, np.array(moved, np.int64)[other.kind]]),
            ids=np.concatenate([self.ids, other.ids]),
            updated_at=np.concatenate([self.updated_at, other.updated_at]),
            backup=self.backup + other.backup,
        )

    def _take(self, rows: NDArray[np.int64]) -> OpsLog:
        used, kind = np.unique(self.kind[rows], return_inverse=True)
        return OpsLog(
            kinds=tuple(self.kinds[number] for number in used.tolist()),
            kind=kind.astype(np.int64),
            ids=self.ids[rows],
            updated_at=self.updated_at[rows],
            backup=self.backup[rows],
        )

    def _entry(self, row: int) -> OpsLogEntry:
        kind = self.kinds[int(self.kind[row])]
        told = {
            name: ObjectId12(self.ids[row, at].tobytes())
            for at, name in enumerate(IDS)
            if hasattr(kind, name)
        }
        return OpsLogEntry(
            kind=with_ids(kind, told),
            updated_at=int(self.updated_at[row]),
            backup_path=self.backup[row] or None,
        )


def blank(kind: UpdateKind) -> UpdateKind:
    """Return what an entry says beside its ids."""
    return with_ids(kind, dict.fromkeys((name for name in IDS if hasattr(kind, name)), NO_ID))


def with_ids(kind: Any, ids: Mapping[str, ObjectId12]) -> UpdateKind:
    """Return what an entry says with these ids."""
    return cast("UpdateKind", replace(kind, **ids) if ids else kind)
