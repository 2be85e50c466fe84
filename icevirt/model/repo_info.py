"""Hold the repo info: branches, tags, all snapshots, configuration and the ops log.

Spec: "Repo Info File". Snapshots are named by id here; `icevirt.wire` handles their indices. Every
commit reads and writes a thousand entries of the ops log, so they are columns: `OpsLog`. The V1
format keeps branches, tags and snapshots in objects of their own, of which a commit should read
few: `Lazy`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any, cast, get_args, get_origin, overload

import numpy as np
from numpy.typing import NDArray

from icevirt.ids import ObjectId12
from icevirt.model.strings import Strings

if TYPE_CHECKING:
    from icevirt.model.generation import OldFormat
    from icevirt.model.json import JSONObject


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


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusRecord:
    """Availability, since when, and why."""

    availability: RepoAvailability
    set_at: int  # microseconds since 1970
    limited_availability_reason: str | None = None


# -- the ops log: one class per member of the union UpdateType, in the order of their tags ---------
# Ids are `ObjectId12` in the log, and text for users: `Id`.


@dataclass(frozen=True, slots=True)
class RepoInitialized:
    """The repository was created."""


@dataclass(frozen=True, slots=True)
class RepoMigrated:
    """The repository was upgraded to another version of the spec."""

    from_version: int
    to_version: int


@dataclass(frozen=True, slots=True)
class ConfigChanged:
    """The persisted configuration was replaced."""


@dataclass(frozen=True, slots=True)
class MetadataChanged:
    """The repository's metadata was replaced."""


@dataclass(frozen=True, slots=True)
class TagCreated:
    """A tag was created."""

    name: str


@dataclass(frozen=True, slots=True)
class TagDeleted[Id]:
    """A tag was deleted; its name stays taken."""

    name: str
    previous_snap_id: Id


@dataclass(frozen=True, slots=True)
class BranchCreated:
    """A branch was created."""

    name: str


@dataclass(frozen=True, slots=True)
class BranchDeleted[Id]:
    """A branch was deleted."""

    name: str
    previous_snap_id: Id


@dataclass(frozen=True, slots=True)
class BranchReset[Id]:
    """A branch was pointed at another snapshot."""

    name: str
    previous_snap_id: Id


@dataclass(frozen=True, slots=True)
class NewCommit[Id]:
    """A snapshot was committed to a branch."""

    branch: str
    new_snap_id: Id


@dataclass(frozen=True, slots=True)
class CommitAmended[Id]:
    """The tip of a branch was replaced by a snapshot that includes it."""

    branch: str
    previous_snap_id: Id
    new_snap_id: Id


@dataclass(frozen=True, slots=True)
class NewDetachedSnapshot[Id]:
    """A snapshot was written that is on no branch."""

    new_snap_id: Id


@dataclass(frozen=True, slots=True)
class GCRan:
    """Garbage was collected."""


@dataclass(frozen=True, slots=True)
class ExpirationRan:
    """Old snapshots were expired."""


@dataclass(frozen=True, slots=True)
class FeatureFlagChanged:
    """A feature was switched on or off, or back to its default: None."""

    id: int
    new_value: bool | None


@dataclass(frozen=True, slots=True)
class RepoStatusChanged[Status]:
    """The availability of the repository changed."""

    status: Status


type AnyUpdate[Id, Status] = (
    RepoInitialized
    | RepoMigrated
    | ConfigChanged
    | MetadataChanged
    | TagCreated
    | TagDeleted[Id]
    | BranchCreated
    | BranchDeleted[Id]
    | BranchReset[Id]
    | NewCommit[Id]
    | CommitAmended[Id]
    | NewDetachedSnapshot[Id]
    | GCRan
    | ExpirationRan
    | FeatureFlagChanged
    | RepoStatusChanged[Status]
)
type UpdateKind = AnyUpdate[ObjectId12, StatusRecord]
UPDATE_KINDS: tuple[type[Any], ...] = tuple(
    get_origin(kind) or kind for kind in get_args(AnyUpdate.__value__)
)
"""The members of the union, so that ``UPDATE_KINDS[tag - 1]`` is the class of a tag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsLogEntry:
    """An entry of the ops log.

    ``backup_path`` names the file below ``overwritten/`` that holds the repo info in which this
    entry was the newest; the newest entry of a file therefore never has one.
    """

    kind: UpdateKind
    updated_at: int  # microseconds since 1970
    backup_path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoInfo:
    """Everything in the ``repo`` object."""

    spec_version: int = 2
    tags: Mapping[str, ObjectId12] = field(default_factory=dict)
    branches: Mapping[str, ObjectId12]
    deleted_tags: frozenset[str] = frozenset()
    snapshots: Mapping[ObjectId12, SnapshotSummary]
    status: StatusRecord
    metadata: JSONObject | None = None
    latest_updates: Sequence[OpsLogEntry]  # newest first
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
        kind = blank(entry.kind)
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
        kind = self.kinds[int(self.kind[row])]
        names = {
            name: ObjectId12(self.ids[row, at].tobytes())
            for at, name in enumerate(IDS)
            if hasattr(kind, name)
        }
        return OpsLogEntry(
            kind=with_ids(kind, names),
            updated_at=int(self.updated_at[row]),
            backup_path=self.backup[row] or None,
        )


def blank(kind: UpdateKind) -> UpdateKind:
    """Return what an entry says beside its ids."""
    return with_ids(kind, dict.fromkeys((name for name in IDS if hasattr(kind, name)), NO_ID))


def with_ids(kind: Any, ids: Mapping[str, ObjectId12]) -> UpdateKind:
    """Return what an entry says with these ids."""
    return cast("UpdateKind", replace(kind, **ids) if ids else kind)


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
