"""Define the report of an update, for text, JSON and tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from icevirt.archive.reports.build import BuildReport
from icevirt.archive.reports.card import plural
from icevirt.escaping import escape_line

if TYPE_CHECKING:
    from icevirt.archive.plan import BuildPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHeldBack:
    """A file that an update left out, as it was then."""

    url: str
    size: int  # bytes
    etag: str
    last_modified: int  # nanoseconds since 1970
    code: str  # of the error
    error: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class UpdateReport(BuildReport):
    """The outcome of `icevirt.update`.

    Where nothing was committed, ``already_built`` is true, ``snapshot_id`` is the tip of the
    branch, and ``arrays`` and ``manifests`` are empty.
    """

    files_added: int
    files_corrected: int  # that were scanned again: touched, rewritten, or named by ``rescan``
    files_vanished: int  # that are gone from the archive
    files_superseded: int  # provisional ones that left the dataset for their final versions
    files_waiting: int  # new or changed, and perhaps not written to the end
    files_known: int  # that the dataset holds as they are
    files_excluded: int = 0  # that must not be added: withdrawn, say, or before a window
    files_elsewhere: int = 0  # of the dataset, that were not looked at: the caller named them not
    held: tuple[FileHeldBack, ...] = ()  # left out, with the error of each; tried again next time
    vanished: str = "refuse"  # how files that are gone were handled
    ends: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """The last label along each dimension before the update, and after it."""
    variables: tuple[str, ...] = ()  # paths of those that were made anew; everything else stays
    files_same_layout: int = 0  # of the corrected ones: touched, or with other values in place
    files_rescanned: int = 0  # though they did not change
    is_dry_run: bool = False
    skipped: str = ""  # who else was updating the dataset; "" where this update ran
    plan: BuildPlan | None = field(default=None, compare=False)  # of a dry run

    @property
    def summary(self) -> str:
        """What differs, in one line, as version control shows it."""
        if self.variables:
            return f"~ {plural(len(self.variables), 'variable')}: {', '.join(self.variables)}"
        parts = [
            f"{mark} {count:,} {what}"
            for mark, count, what in (
                ("+", self.files_added, "file" if self.files_added == 1 else "files"),
                ("~", self.files_corrected, self._corrected),
                ("-", self.files_vanished, "vanished"),
                ("-", self.files_superseded, "superseded"),
                ("!", len(self.held), "held"),
                ("?", self.files_waiting, "waiting"),
                ("!", self.files_elsewhere, "elsewhere, not looked at"),
            )
            if count
        ]
        parts += [
            f"{name} {before} → {after}"
            for name, (before, after) in self.ends.items()
            if before != after
        ]
        return " · ".join(parts) or "nothing is new"

    @property
    def _corrected(self) -> str:
        """How files were corrected, where not all of them were rewritten."""
        rest = self.files_corrected - self.files_same_layout - self.files_rescanned
        kinds = [
            f"{count:,} {what}"
            for count, what in (
                (rest, "rewritten"),
                (self.files_same_layout, "touched or rewritten in place"),
                (self.files_rescanned, "scanned by request"),
            )
            if count
        ]
        is_mixed = self.files_same_layout or self.files_rescanned
        return f"corrected ({', '.join(kinds)})" if is_mixed else "corrected"

    def __repr__(self) -> str:
        """Return what was updated, in one line."""
        notes = f"  {plural(len(self.findings), 'note')}" if self.findings else ""
        would = "dry run, " if self.is_dry_run else ""
        return (
            f"<UpdateReport {would}{escape_line(self.branch)}@{self.snapshot_id[:6] or 'nothing'}"
            f"  {escape_line(self.summary)}{notes}>"
        )
