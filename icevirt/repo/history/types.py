"""Define the types that history methods return: ids as text, times as dates, icechunk's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from icevirt.errors import check, check_time
from icevirt.model import repo_info, snapshot, updates
from icevirt.model.repo_info import IDS
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
    def of(cls, info: repo_info.SnapshotSummary) -> SnapshotInfo:
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
        check("availability", self.availability, repo_info.RepoAvailability, do=how)
        if self.set_at is not None:
            check_time("set_at", self.set_at)

    @classmethod
    def of(cls, status: repo_info.StatusRecord) -> RepoStatus:
        """Convert the repo info's entry."""
        return cls(
            availability=status.availability,
            set_at=moment(status.set_at),
            limited_availability_reason=status.limited_availability_reason,
        )


class UpdateType:
    """What was done to a repository; names are icechunk's."""

    RepoInitialized = updates.RepoInitialized
    RepoMigrated = updates.RepoMigrated
    ConfigChanged = updates.ConfigChanged
    MetadataChanged = updates.MetadataChanged
    TagCreated = updates.TagCreated
    TagDeleted = updates.TagDeleted
    BranchCreated = updates.BranchCreated
    BranchDeleted = updates.BranchDeleted
    BranchReset = updates.BranchReset
    NewCommit = updates.NewCommit
    CommitAmended = updates.CommitAmended
    NewDetachedSnapshot = updates.NewDetachedSnapshot
    GCRan = updates.GCRan
    ExpirationRan = updates.ExpirationRan
    FeatureFlagChanged = updates.FeatureFlagChanged
    RepoStatusChanged = updates.RepoStatusChanged


type AnyUpdateType = updates.AnyUpdate[str, RepoStatus]


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """An entry of the ops log."""

    kind: AnyUpdateType
    updated_at: datetime
    backup_path: str | None  # where the repo info lies in which this was the newest entry

    @classmethod
    def of(cls, update: repo_info.OpsLogEntry) -> Update:
        """Convert the repo info's entry."""
        kind: Any = update.kind
        if isinstance(kind, updates.RepoStatusChanged):
            kind = updates.RepoStatusChanged(RepoStatus.of(kind.status))
        else:
            ids = {name: str(getattr(kind, name)) for name in IDS if hasattr(kind, name)}
            kind = replace(kind, **ids)
        return cls(kind=kind, updated_at=moment(update.updated_at), backup_path=update.backup_path)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFileInfo:
    """A manifest file of a snapshot."""

    id: str
    size_bytes: int
    num_chunk_refs: int

    @classmethod
    def of(cls, file: snapshot.ManifestFile) -> ManifestFileInfo:
        """Convert the snapshot's entry."""
        return cls(id=str(file.id), size_bytes=file.size_bytes, num_chunk_refs=file.num_chunk_refs)
