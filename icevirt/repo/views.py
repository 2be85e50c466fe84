"""What users get to see of history: ids as text, times as dates, with icechunk's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from icevirt.logic.stamps import moment
from icevirt.model import repo_info, snapshot
from icevirt.model.repo_info import UpdateKind


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
        """Show what the repo info says."""
        return cls(
            id=str(info.id),
            parent_id=None if info.parent_id is None else str(info.parent_id),
            written_at=moment(info.flushed_at),
            message=info.message,
            metadata=info.metadata,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """An entry of the ops log."""

    kind: UpdateKind
    updated_at: datetime
    backup_path: str | None  # where the repo info lies in which this was the newest entry

    @classmethod
    def of(cls, update: repo_info.Update) -> Update:
        """Show what the repo info says."""
        return cls(
            kind=update.kind,
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
        """Show what the snapshot says."""
        return cls(id=str(info.id), size_bytes=info.size_bytes, num_chunk_refs=info.num_chunk_refs)


@dataclass(frozen=True, slots=True)
class RepoStatus:
    """Whether the repository takes writes, since when, and why."""

    availability: repo_info.RepoAvailability
    set_at: datetime | None = None  # None: when it is set
    limited_availability_reason: str | None = None
