"""Define the types that history methods return: ids as text, times as dates, icechunk's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from icevirt.ids import ObjectId12
from icevirt.model import repo_info, snapshot
from icevirt.model.arguments import checked
from icevirt.versioning.history.timestamps import moment


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotInfo:
    """A snapshot as the history shows it."""

    id: str
    parent_id: str | None  # None: the initial snapshot
    written_at: datetime
    message: str
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, info: repo_info.SnapshotInfo) -> SnapshotInfo:
        """Convert the repo info's entry."""
        return cls(
            id=str(info.id),
            parent_id=None if info.parent_id is None else str(info.parent_id),
            written_at=moment(info.flushed_at),
            message=info.message,
            metadata=info.metadata,
        )


@dataclass(frozen=True, slots=True)
class RepoStatus:
    """Whether the repository is writable, since when, and why."""

    availability: repo_info.RepoAvailability
    set_at: datetime | None = None  # None: when it is set
    limited_availability_reason: str | None = None

    def __post_init__(self) -> None:
        how = "Pass RepoAvailability.online or RepoAvailability.read_only."
        checked("availability", self.availability, repo_info.RepoAvailability, do=how)

    @classmethod
    def of(cls, status: repo_info.RepoStatus) -> RepoStatus:
        """Convert the repo info's entry."""
        return cls(
            availability=status.availability,
            set_at=moment(status.set_at),
            limited_availability_reason=status.limited_availability_reason,
        )


class UpdateType:
    """What was done to a repository; names are icechunk's."""

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
        previous_snap_id: str

    @dataclass(frozen=True, slots=True)
    class BranchCreated:
        """A branch was created."""

        name: str

    @dataclass(frozen=True, slots=True)
    class BranchDeleted:
        """A branch was deleted."""

        name: str
        previous_snap_id: str

    @dataclass(frozen=True, slots=True)
    class BranchReset:
        """A branch was pointed at another snapshot."""

        name: str
        previous_snap_id: str

    @dataclass(frozen=True, slots=True)
    class NewCommit:
        """A snapshot was committed to a branch."""

        branch: str
        new_snap_id: str

    @dataclass(frozen=True, slots=True)
    class CommitAmended:
        """The tip of a branch was replaced by a snapshot that includes it."""

        branch: str
        previous_snap_id: str
        new_snap_id: str

    @dataclass(frozen=True, slots=True)
    class NewDetachedSnapshot:
        """A snapshot was written that is on no branch."""

        new_snap_id: str

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
    class RepoStatusChanged:
        """The availability of the repository changed."""

        status: RepoStatus


type AnyUpdateType = (
    UpdateType.RepoInitialized
    | UpdateType.RepoMigrated
    | UpdateType.ConfigChanged
    | UpdateType.MetadataChanged
    | UpdateType.TagCreated
    | UpdateType.TagDeleted
    | UpdateType.BranchCreated
    | UpdateType.BranchDeleted
    | UpdateType.BranchReset
    | UpdateType.NewCommit
    | UpdateType.CommitAmended
    | UpdateType.NewDetachedSnapshot
    | UpdateType.GCRan
    | UpdateType.ExpirationRan
    | UpdateType.FeatureFlagChanged
    | UpdateType.RepoStatusChanged
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """An entry of the ops log."""

    kind: AnyUpdateType
    updated_at: datetime
    backup_path: str | None  # where the repo info lies in which this was the newest entry

    @classmethod
    def of(cls, update: repo_info.Update) -> Update:
        """Convert the repo info's entry."""
        return cls(
            kind=_shown(update.kind),
            updated_at=moment(update.updated_at),
            backup_path=update.backup_path,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFileInfo:
    """A manifest file of a snapshot."""

    id: str
    size_bytes: int
    num_chunk_refs: int

    @classmethod
    def of(cls, info: snapshot.ManifestFileInfo) -> ManifestFileInfo:
        """Convert the snapshot's entry."""
        return cls(id=str(info.id), size_bytes=info.size_bytes, num_chunk_refs=info.num_chunk_refs)


def _shown(kind: repo_info.UpdateKind) -> AnyUpdateType:
    """Return an entry with ids as text."""
    match kind:
        case repo_info.FeatureFlagChanged(id=key, new_value=value, is_set=is_set):
            return UpdateType.FeatureFlagChanged(key, value if is_set else None)
        case repo_info.RepoStatusChanged(status=status):
            return UpdateType.RepoStatusChanged(RepoStatus.of(status))
        case _:
            pass
    told = {each.name: getattr(kind, each.name) for each in fields(kind)}
    texts = {
        name: str(value) if isinstance(value, ObjectId12) else value for name, value in told.items()
    }
    shown: AnyUpdateType = getattr(UpdateType, type(kind).__name__)(**texts)
    return shown
