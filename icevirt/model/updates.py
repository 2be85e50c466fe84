"""Hold the kinds of updates that the ops log lists: one class per member of the format's union.

Spec: "Repo Info File", UpdateType. `OpsLog` holds what an entry says as `UpdateFields`, and makes
these classes of it for who looks at entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args, get_origin

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
UPDATE_KINDS: tuple[type[Any], ...] = tuple(
    get_origin(kind) or kind for kind in get_args(AnyUpdate.__value__)
)
"""The members of the union, so that ``UPDATE_KINDS[tag - 1]`` is the class of a tag."""
