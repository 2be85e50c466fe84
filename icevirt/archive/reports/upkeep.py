"""Define what `icevirt.update`, `maintain`, `status` and `withdraw` report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from icevirt.amounts import plural, volume
from icevirt.archive.reports.build import BuildReport
from icevirt.archive.reports.history import NamedVersion, when
from icevirt.escaping import Pictured, escape_line

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
        notes = f"  {plural(len(self.findings), 'note')}" if self.findings else ""
        would = "dry run, " if self.is_dry_run else ""
        return (
            f"<UpdateReport {would}{escape_line(self.branch)}@{self.snapshot_id[:6] or 'nothing'}"
            f"  {escape_line(self.summary)}{notes}>"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedBuild:
    """A build that left its work folder: it is running, or it was killed."""

    build_id: str
    began: datetime
    last_write: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """Objects of one kind that were deleted, or would be."""

    objects: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowChange:
    """The steps of a dataset that are behind its window."""

    group: str
    dimension: str
    window: str  # as it was passed
    first: str  # label of the first step, before
    keeps_from: str  # label of the first step, afterwards
    newest: str  # label of the newest step
    steps: int  # before
    steps_dropped: int  # or to be dropped
    files: int  # before
    files_dropped: int
    references: int  # that are written again
    is_due: bool  # enough can go that writing all others is worth it
    snapshot_id: str | None = None  # of the commit; None: nothing was committed


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceReport(Pictured):
    """The outcome of `icevirt.maintain`, or its plan."""

    repo: str  # URL
    is_plan: bool  # nothing was changed
    keep_snapshots: str  # as it was passed
    history_from: datetime  # every version that a branch showed since then stays
    garbage_before: datetime  # of what nothing refers to, younger objects stay
    snapshots: int  # there were
    snapshots_expired: int
    expired: tuple[NamedVersion, ...]  # the newest of them
    kept_by_name: tuple[NamedVersion, ...]  # older versions that a tag or branch keeps
    unfinished: tuple[UnfinishedBuild, ...]  # builds that may be running
    deleted: dict[str, Deleted]  # by kind
    manifests_joined: int = 0  # small ones of appends, that make way for few
    parts_joined: int = 0  # small ones of the catalog, the same; a plan does not count them
    window: WindowChange | None = None  # if one was passed
    executor: str = ""  # that ran tasks: "spark", "processes" or "in-process"
    seconds: dict[str, float] = field(default_factory=dict)  # by phase, in order

    def __repr__(self) -> str:
        what = "to delete" if self.is_plan else "deleted"
        return (
            f"<MaintenanceReport {self.snapshots_expired:,} of {plural(self.snapshots, 'snapshot')}"
            f" and {plural(self.objects, 'object')} {what}  {volume(self.bytes)}>"
        )

    @property
    def objects(self) -> int:
        """All objects."""
        return sum(each.objects for each in self.deleted.values())

    @property
    def bytes(self) -> int:
        """Bytes of all objects."""
        return sum(each.bytes for each in self.deleted.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryStatus(Pictured):
    """How a dataset is, from what its repository records."""

    repo: str  # URL
    branch: str
    group: str
    snapshot_id: str
    at: datetime  # when this was asked
    last_commit: datetime
    last_build: datetime | None  # build or append of the group; None: no build made it
    dimension: str | None  # that grows
    steps: int | None  # along it
    newest_step: datetime | None  # None: its labels are no times, or cannot be read
    newest_file: datetime | None  # time of the last modification
    files: int | None  # that the dataset is made of
    bad_files: tuple[str, ...]  # URLs of files that were left out
    held_files: tuple[FileHeldBack, ...]  # that the last update held back
    source_bytes: int | None  # of the files
    referenced_bytes: int | None  # of them that references of the last build read
    stored_bytes: int | None  # that the last build stored in the repository
    manifests: int
    manifest_bytes: int
    manifests_to_join: int  # small ones of appends at the end of one array
    snapshots: int  # in the history of the branch
    unfinished: tuple[UnfinishedBuild, ...]  # builds that are running, or were killed
    notes: tuple[str, ...] = ()  # why something is unknown
    changes: Mapping[str, tuple[str, ...]] | None = None
    """URLs of files that are ``new``, ``changed`` or ``vanished`` since; None: not looked at."""

    def __repr__(self) -> str:
        steps = "" if self.steps is None else f"  {plural(self.steps, 'step')}"
        newest = "" if self.newest_step is None else f" to {when(self.newest_step)}"
        held = f"  {len(self.held_files):,} held back" if self.held_files else ""
        return (
            f"<RepositoryStatus {escape_line(self.branch)}@{self.snapshot_id[:6]}"
            f"  {plural(self.files or 0, 'file')}{steps}{newest}{held}>"
        )

    @property
    def lag(self) -> timedelta | None:
        """How far the newest step is behind the newest file."""
        if self.newest_step is None or self.newest_file is None:
            return None
        return self.newest_file - self.newest_step

    @property
    def age(self) -> timedelta | None:
        """How far the newest step is behind the clock."""
        return None if self.newest_step is None else self.at - self.newest_step

    @property
    def lag_seconds(self) -> float | None:
        """`lag` in seconds."""
        return None if self.lag is None else self.lag.total_seconds()

    @property
    def age_seconds(self) -> float | None:
        """`age` in seconds."""
        return None if self.age is None else self.age.total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class WithdrawReport(Pictured):
    """The outcome of `icevirt.withdraw`, or its plan."""

    repo: str  # URL
    is_plan: bool  # nothing was changed
    files: tuple[str, ...]  # URLs
    datasets: tuple[tuple[str, str], ...]  # (branch, group) that are built without the files
    commits: tuple[str, ...]  # ids of their snapshots
    references: int  # to the files, in all versions
    snapshots: tuple[NamedVersion, ...]  # versions that hold the files, and go
    tags: tuple[str, ...]  # that name such a version, and go with it
    manifests: int  # that go
    chunks: int  # native chunks that go
    remains: tuple[str, ...]  # what stays, a sentence each
    executor: str = ""  # that ran tasks: "spark", "processes" or "in-process"
    seconds: dict[str, float] = field(default_factory=dict)  # by phase, in order

    def __repr__(self) -> str:
        plan = "plan " if self.is_plan else ""
        return (
            f"<WithdrawReport {plan}{plural(len(self.files), 'file')}"
            f"  {plural(self.references, 'reference')}  {plural(len(self.snapshots), 'version')}>"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludedFiles(Pictured):
    """Files that appends and updates leave out."""

    repo: str  # URL
    notes: tuple[tuple[str, str, str, tuple[str, ...]], ...]  # (why, branch, group, URLs); "" all
    changed: int = 0  # that this call added or removed

    @property
    def count(self) -> int:
        """How many files there are, by name."""
        return len({url for *_, urls in self.notes for url in urls})
