"""Hold the repo info: branches, tags, all snapshots, configuration and the ops log.

Spec: "Repo Info File". Snapshots are named by id here; `icevirt.wire` handles their indices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, get_args, get_origin

from icevirt.ids import ObjectId12
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
    get_origin(each) or each for each in get_args(AnyUpdate.__value__)
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
