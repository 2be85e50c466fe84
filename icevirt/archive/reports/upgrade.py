"""Report what a copying upgrade carried over, and what it could not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from icevirt.archive.reports.card import plural
from icevirt.escaping import Pictured, escape_line

type Chunks = Literal["copy", "reference"]
"""What becomes of the chunks that the old repository stores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeCopyReport(Pictured):
    """The outcome of `icevirt.upgrade`, or of its dry run."""

    source: str  # URL
    repo: str  # URL of the new repository
    dry_run: bool
    generation: str  # "E4", "V1"
    snapshots: int
    branches: int
    tags: int
    manifests: int
    references: int
    chunks: int  # native ones that were copied now; not the ones of an interrupted upgrade
    bytes: int  # of these
    authorize: tuple[str | tuple[str, str], ...]  # to read virtual chunks
    notes: tuple[str, ...]  # what differs, and loses nothing
    lost: tuple[str, ...]  # what could not be carried over

    def __repr__(self) -> str:
        """Return what was carried over, in one line."""
        return (
            f"<UpgradeCopyReport {escape_line(self.generation)} → {escape_line(self.repo)}"
            f"  {plural(self.snapshots, 'snapshot')}  {len(self.lost):,} lost>"
        )

    @property
    def ok(self) -> bool:
        """Whether nothing was lost."""
        return not self.lost
