"""Hold the repo info: branches, tags, all snapshots, configuration and the ops log.

Spec: "Repo Info File". Snapshots are named by id here; `icevirt.wire` handles their indices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from icevirt.ids import ObjectId12
from icevirt.model.json import JSONObject


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotInfo:
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
class RepoStatus:
    """Availability, since when, and why."""

    availability: RepoAvailability
    set_at: int  # microseconds since 1970
    limited_availability_reason: str | None = None


# -- the ops log: one class per member of the union UpdateType, in the order of their tags ---------


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
class TagDeleted:
    """A tag was deleted; its name stays taken."""

    name: str
    previous_snap_id: ObjectId12


@dataclass(frozen=True, slots=True)
class BranchCreated:
    """A branch was created."""

    name: str


@dataclass(frozen=True, slots=True)
class BranchDeleted:
    """A branch was deleted."""

    name: str
    previous_snap_id: ObjectId12


@dataclass(frozen=True, slots=True)
class BranchReset:
    """A branch was pointed at another snapshot."""

    name: str
    previous_snap_id: ObjectId12


@dataclass(frozen=True, slots=True)
class NewCommit:
    """A snapshot was committed to a branch."""

    branch: str
    new_snap_id: ObjectId12


@dataclass(frozen=True, slots=True)
class CommitAmended:
    """The tip of a branch was replaced by a snapshot that includes it."""

    branch: str
    previous_snap_id: ObjectId12
    new_snap_id: ObjectId12


@dataclass(frozen=True, slots=True)
class NewDetachedSnapshot:
    """A snapshot was written that is on no branch."""

    new_snap_id: ObjectId12


@dataclass(frozen=True, slots=True)
class GCRan:
    """Garbage was collected."""


@dataclass(frozen=True, slots=True)
class ExpirationRan:
    """Old snapshots were expired."""


@dataclass(frozen=True, slots=True)
class FeatureFlagChanged:
    """A feature flag was set or unset."""

    id: int
    new_value: bool
    is_set: bool


@dataclass(frozen=True, slots=True)
class RepoStatusChanged:
    """The availability of the repository changed."""

    status: RepoStatus


type UpdateKind = (
    RepoInitialized
    | RepoMigrated
    | ConfigChanged
    | MetadataChanged
    | TagCreated
    | TagDeleted
    | BranchCreated
    | BranchDeleted
    | BranchReset
    | NewCommit
    | CommitAmended
    | NewDetachedSnapshot
    | GCRan
    | ExpirationRan
    | FeatureFlagChanged
    | RepoStatusChanged
)

UPDATE_KINDS: tuple[type[Any], ...] = (
    RepoInitialized,
    RepoMigrated,
    ConfigChanged,
    MetadataChanged,
    TagCreated,
    TagDeleted,
    BranchCreated,
    BranchDeleted,
    BranchReset,
    NewCommit,
    CommitAmended,
    NewDetachedSnapshot,
    GCRan,
    ExpirationRan,
    FeatureFlagChanged,
    RepoStatusChanged,
)
"""The members of the union, so that ``UPDATE_KINDS[tag - 1]`` is the class of a tag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
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
    snapshots: Mapping[ObjectId12, SnapshotInfo]
    status: RepoStatus
    metadata: JSONObject | None = None
    latest_updates: Sequence[Update]  # newest first
    repo_before_updates: str | None = None
    config: JSONObject | None = None  # the document as persisted, unknown keys included
    enabled_feature_flags: tuple[int, ...] | None = None
    disabled_feature_flags: tuple[int, ...] | None = None
    extra: bytes | None = None
    newer_tables: tuple[str, ...] = ()  # tables with fields that this icevirt cannot write again
