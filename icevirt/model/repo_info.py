"""Hold the repo info: branches, tags, all snapshots, configuration and the ops log.

Spec: "Repo Info File". Snapshots are named by id here; `icevirt.wire` handles their indices. Every
commit reads and writes a thousand entries of the ops log, so they are columns: `OpsLog`. The V1
format keeps branches, tags and snapshots in objects of their own, of which a commit should read
few: `Lazy`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, cast, overload

import numpy as np
from numpy.typing import NDArray

from icevirt.ids import ObjectId12
from icevirt.model.strings import Strings

if TYPE_CHECKING:
    from icevirt.model.generation import OldFormat
    from icevirt.model.json import JSONObject
    from icevirt.model.updates import AnyUpdate


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSummary:
    """Summary of a snapshot, enough to walk the history without fetching snapshot files."""

    id: ObjectId12
    parent_id: ObjectId12 | None  # None: the initial snapshot
    flushed_at: int  # microseconds since 1970
    message: str
    metadata: JSONObject = field(default_factory=dict)
    pruned_ancestor_tx_logs: tuple[ObjectId12, ...] | None = None  # oldest first; spec 2.1


class RepoAvailability(IntEnum):
    """Whether the repository is writable; names and numbers are the format's."""

    online = 0
    read_only = 1


class StatusRecord(NamedTuple):
    """Availability, since when, and why."""

    availability: RepoAvailability
    set_at: int  # microseconds since 1970
    limited_availability_reason: str | None = None


type UpdateKind = AnyUpdate[ObjectId12, StatusRecord]


class UpdateFields(NamedTuple):
    """What an update says beside its ids."""

    tag: int  # of its class in `icevirt.model.updates`, which is a member of the format's union
    values: tuple[Any, ...]  # of its fields in their order, with `NO_ID` where they are ids


IDS = ("previous_snap_id", "new_snap_id")
NO_ID = ObjectId12(bytes(ObjectId12.SIZE))


class OpsLogEntry(NamedTuple):
    """An entry of the ops log.

    ``backup_path`` names the file below ``overwritten/`` that holds the repo info in which this
    entry was the newest; the newest entry of a file therefore never has one.
    """

    kind: UpdateKind
    updated_at: int  # microseconds since 1970
    backup_path: str | None = None


class RepoInfo(NamedTuple):
    """Everything in the ``repo`` object."""

    branches: Mapping[str, ObjectId12]
    tags: Mapping[str, ObjectId12]
    snapshots: Mapping[ObjectId12, SnapshotSummary]
    status: StatusRecord
    latest_updates: Sequence[OpsLogEntry]  # newest first
    deleted_tags: frozenset[str] = frozenset()
    spec_version: int = 2
    metadata: JSONObject | None = None
    repo_before_updates: str | None = None
    config: JSONObject | None = None  # the document as persisted, unknown keys included
    enabled_feature_flags: tuple[int, ...] | None = None
    disabled_feature_flags: tuple[int, ...] | None = None
    extra: bytes | None = None
    newer_tables: tuple[str, ...] = ()  # tables with fields that this icevirt cannot write again
    old: OldFormat | None = None  # of a repository from before V1: its spec version is 0

    @property
    def generation(self) -> str:
        """What a repository from before V1 is, and what to do; "" for others."""
        return "" if self.old is None else self.old.description


@dataclass(frozen=True, slots=True, eq=False)
class OpsLog(Sequence[OpsLogEntry]):
    """Entries, a row each, in the order of the log they are from."""

    kinds: tuple[UpdateFields, ...]  # distinct ones
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
        known: dict[UpdateFields, int] = {}
        kind = [known.setdefault(_fields_of(entry.kind), len(known)) for entry in listed]
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
        if isinstance(at, slice):
            low, high, step = at.indices(len(self))
            if step == 1 and len(self.kinds) <= high - low:  # views
                starts = self.backup.starts[low : high + 1]
                raw = self.backup.data[starts[0] : starts[-1]]
                return OpsLog(
                    kinds=self.kinds,
                    kind=self.kind[at],
                    ids=self.ids[at],
                    updated_at=self.updated_at[at],
                    backup=Strings(raw, starts - starts[0]),
                )
            used, kind = np.unique(self.kind[at], return_inverse=True)
            return OpsLog(
                kinds=tuple(self.kinds[number] for number in used.tolist()),
                kind=kind.astype(np.int64),
                ids=self.ids[at],
                updated_at=self.updated_at[at],
                backup=self.backup[np.arange(len(self))[at]],
            )
        return self._entry(range(len(self))[at])

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

    def with_newest(self, entry: OpsLogEntry, *, backup: str) -> OpsLog:
        """Return the log with an entry on top; ``backup`` is the path of the one below it."""
        if not len(self):
            return OpsLog.of([entry])
        kind = _fields_of(entry.kind)
        kinds = self.kinds if kind in self.kinds else (*self.kinds, kind)
        paths = (entry.backup_path or "").encode(), backup.encode()
        old = self.backup.starts
        data = np.frombuffer(b"".join(paths), np.uint8)
        starts = np.empty(len(old) + 1, np.int64)
        starts[:2] = 0, len(paths[0])
        np.add(old[1:], len(data) - old[1], out=starts[2:])
        ids = b"".join(getattr(entry.kind, name, NO_ID) for name in IDS)
        return OpsLog(
            kinds=kinds,
            kind=np.concatenate([[kinds.index(kind)], self.kind]),
            ids=np.concatenate(
                [np.frombuffer(ids, np.uint8).reshape(1, *self.ids.shape[1:]), self.ids]
            ),
            updated_at=np.concatenate([np.array([entry.updated_at], np.uint64), self.updated_at]),
            backup=Strings(np.concatenate([data, self.backup.data[old[1] :]]), starts),
        )

    def _entry(self, row: int) -> OpsLogEntry:
        ids = (ObjectId12(self.ids[row, at].tobytes()) for at in range(len(IDS)))
        return OpsLogEntry(
            kind=_with_ids(self.kinds[int(self.kind[row])], dict(zip(IDS, ids, strict=True))),
            updated_at=int(self.updated_at[row]),
            backup_path=self.backup[row] or None,
        )


def _fields_of(update: UpdateKind) -> UpdateFields:
    """Return what an update says beside its ids."""
    from icevirt.model.updates import UPDATE_KINDS

    names = [field.name for field in fields(update)]
    values = tuple(NO_ID if name in IDS else getattr(update, name) for name in names)
    return UpdateFields(UPDATE_KINDS.index(type(update)) + 1, values)


def _with_ids(said: UpdateFields, ids: Mapping[str, ObjectId12]) -> UpdateKind:
    """Return the update that says this, with those of the ids that it has."""
    from icevirt.model.updates import UPDATE_KINDS

    update = UPDATE_KINDS[said.tag - 1](*said.values)
    own = {name: key for name, key in ids.items() if hasattr(update, name)}
    return cast("UpdateKind", replace(update, **own) if own else update)


class Lazy[K, V](Mapping[K, V]):
    """A mapping over functions; what `plus` and `minus` changed lies on top.

    Args:
        fetch: Returns the value of a key, None where there is none. Called each time.
        keys: Returns the keys, each once.
        changed: Values that replace fetched ones; None removes a key.
    """

    def __init__(
        self,
        fetch: Callable[[K], V | None],
        keys: Callable[[], Iterable[K]],
        changed: Mapping[K, V | None] | None = None,
    ) -> None:
        self._fetch = fetch
        self._keys = keys
        self._changed = dict(changed or {})

    def __getitem__(self, key: K) -> V:
        found = self._changed[key] if key in self._changed else self._fetch(key)
        if found is None:
            raise KeyError(key)
        return found

    def __iter__(self) -> Iterator[K]:
        yield from (key for key in self._keys() if key not in self._changed)
        yield from (key for key, value in self._changed.items() if value is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def with_changed(self, key: K, value: V | None) -> Lazy[K, V]:
        """Return the mapping with another value of a key; None removes it."""
        return Lazy(self._fetch, self._keys, {**self._changed, key: value})


def plus[K, V](mapping: Mapping[K, V], key: K, value: V) -> Mapping[K, V]:
    """Return a mapping with one more key, or another value of it; nothing is fetched."""
    if isinstance(mapping, Lazy):
        return mapping.with_changed(key, value)
    return {**mapping, key: value}


def minus[K, V](mapping: Mapping[K, V], key: K) -> Mapping[K, V]:
    """Return a mapping without a key; nothing is fetched."""
    if isinstance(mapping, Lazy):
        return mapping.with_changed(key, None)
    return {name: value for name, value in mapping.items() if name != key}
