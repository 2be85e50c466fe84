"""Define what `icevirt.log`, `diff`, `source`, `undo`, `reset` and their like return."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from shlex import quote
from typing import Literal
from urllib.parse import unquote

from icevirt.amounts import plural
from icevirt.escaping import Pictured, escape_line
from icevirt.model.json import JSON


def place(url: str) -> str:
    """Return a repository as a command has it: a path of this machine, else its URL."""
    return quote(unquote(url.removeprefix("file://")) if url.startswith("file:///") else url)


def when(moment: datetime) -> str:
    """Return a time in UTC, to the second."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRecord:
    """What a commit's metadata says of the build that made it; None: it does not say."""

    build_id: str
    group: str
    files: int | None = None  # that the dataset is made of
    files_before: int | None = None  # of the build of this group before it
    arrays: int | None = None
    references: int | None = None  # chunks, of every kind
    left_out: int = 0  # files that hold the steps of other files
    bad_files: int = 0  # that could not be scanned
    icevirt: str = ""  # version

    @property
    def text(self) -> str:
        """The counts in words, like ``366 files (+1), 12 arrays, 4,380 references``."""
        parts = []
        if self.files is not None:
            before = self.files_before
            more = "" if before in (None, self.files) else f" ({self.files - (before or 0):+,})"
            parts.append(plural(self.files, "file") + more)
        if self.bad_files:
            parts.append(f"{self.bad_files:,} bad")
        if self.arrays is not None:
            parts.append(plural(self.arrays, "array"))
        if self.references is not None:
            parts.append(plural(self.references, "reference"))
        where = "" if self.group == "/" else f" in {escape_line(self.group)}"
        return ", ".join(parts) + where


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedCommit:
    """One snapshot of the history, with the names that lead to it."""

    snapshot_id: str
    parent_id: str | None  # None: the initial snapshot
    written_at: datetime
    message: str
    branches: tuple[str, ...] = ()  # whose tip it is
    tags: tuple[str, ...] = ()
    build: BuildRecord | None = None  # None: no build made it
    parents_expired: bool = False  # expired snapshots lay between it and its parent
    metadata: Mapping[str, JSON] = field(default_factory=dict)

    @property
    def names(self) -> str:
        """The branches and tags in brackets, "" if there are none."""
        names = [*self.branches, *(f"tag {tag}" for tag in self.tags)]
        return f"({', '.join(map(escape_line, names))})" if names else ""

    @property
    def title(self) -> str:
        """The first line of the message."""
        return escape_line(self.message.partition("\n")[0])


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CommitLog(Pictured):
    """A page of the history of one version, newest first."""

    repo: str  # URL
    version: str  # that was asked: ``branch main``
    commits: tuple[LoggedCommit, ...]
    next: str | None = None  # the snapshot that the next page begins with; None: this is the last

    def __len__(self) -> int:
        return len(self.commits)

    def __iter__(self) -> Iterator[LoggedCommit]:
        return iter(self.commits)

    def __getitem__(self, at: int) -> LoggedCommit:
        """Return one commit; 0 is the newest."""
        return self.commits[at]

    def __repr__(self) -> str:
        newest = f"  newest {self.commits[0].snapshot_id[:6]}" if self.commits else ""
        more = "  and older ones" if self.next else ""
        shown = f"{escape_line(self.version)}  {plural(len(self.commits), 'commit')}"
        return f"<CommitLog {shown}{newest}{more}>"


# -- differences ---------------------------------------------------------------------------------

type Change = Literal["added", "removed", "changed", "rewritten", "moved"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataChange:
    """A part of a node's metadata that differs."""

    name: str  # like ``attributes.units``, ``codecs``
    before: JSON = None  # None: it was not there
    after: JSON = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChange:
    """A group or an array that differs between two versions.

    ``rewritten``: another array, or group, took the place of the one at this path, as a build that
    replaces a group does it.
    """

    path: str
    kind: Literal["group", "array"]
    change: Change
    moved_from: str | None = None
    dimension_names: tuple[str | None, ...] = ()
    shape_before: tuple[int, ...] | None = None
    shape: tuple[int, ...] | None = None
    metadata: tuple[MetadataChange, ...] = ()
    chunks_written: int | None = None  # that commits list; None: they list none
    chunks_changed: int | None = None  # of an array written anew, that differ; None: not compared
    differs_in: tuple[tuple[int, int], ...] = ()  # box of these elements, (from, to) each

    @property
    def holds_the_same(self) -> bool:
        """Whether it was written anew, and nothing differs."""
        is_same = self.shape == self.shape_before and not self.metadata and self.moved_from is None
        return is_same and self.chunks_changed == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DimensionGrowth:
    """Steps along a dimension that builds concatenate along."""

    group: str
    dimension: str
    before: int  # 0: there was none
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesDifference:
    """The files of a group's builds; None and empty lists where the records do not say."""

    group: str
    before: int | None = None
    after: int | None = None
    listed: bool = False  # whether the repository lists the files, so that the names follow
    added: tuple[str, ...] = ()  # URLs
    gone: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()  # same URL, other size, time or checksum


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class VersionDiff(Pictured):
    """What differs between two versions of a repository."""

    repo: str
    before: LoggedCommit
    after: LoggedCommit
    commits_after: int  # in the history of ``after`` only
    commits_before: int  # in the history of ``before`` only; 0: it is an ancestor
    nodes: tuple[NodeChange, ...] = ()  # by path
    steps: tuple[DimensionGrowth, ...] = ()
    files: tuple[FilesDifference, ...] = ()  # by group
    notes: tuple[str, ...] = ()  # what could not be compared

    def of(self, change: Change, kind: Literal["group", "array"] | None = None) -> tuple[str, ...]:
        """Return the paths of nodes with this change."""
        return tuple(
            each.path
            for each in self.nodes
            if each.change == change and (kind is None or each.kind == kind)
        )

    @property
    def chunks_written(self) -> int:
        """Chunks of all arrays that the commits list."""
        return sum(each.chunks_written or 0 for each in self.nodes)

    @property
    def same(self) -> tuple[str, ...]:
        """Paths of arrays that were written anew and hold the same."""
        return tuple(each.path for each in self.nodes if each.holds_the_same)

    def is_empty(self) -> bool:
        """Return whether nothing differs."""
        files = (e.before != e.after or e.added or e.gone or e.changed for e in self.files)
        return not (self.nodes or self.steps or any(files))

    def __repr__(self) -> str:
        kinds: tuple[Change, ...] = ("added", "removed", "changed", "rewritten", "moved")
        counts = Counter(each.change for each in self.nodes)
        said = [f"{counts[kind]:,} {kind}" for kind in kinds if counts[kind]]
        chunks = [f"{plural(self.chunks_written, 'chunk')} written"] if self.chunks_written else []
        what = ", ".join([*said, *chunks]) or "nothing differs"
        return f"<VersionDiff {self.before.snapshot_id[:6]}..{self.after.snapshot_id[:6]}  {what}>"


def shapes(node: NodeChange) -> str:
    """Return ``time: 365 to 366, lat: 10``, "" for a group."""
    now = node.shape if node.shape is not None else node.shape_before
    if now is None:
        return ""
    was = node.shape_before if node.shape is not None else None
    names = [name or "?" for name in node.dimension_names] or ["?"] * len(now)
    if was is not None and len(was) != len(now):
        return f"{was} to {now}"
    ends = was if was is not None else now
    return ", ".join(
        escape_line(f"{name}: {length}" if before == length else f"{name}: {before} to {length}")
        for name, before, length in zip(names, ends, now, strict=True)
    )


# -- what moves branches and tags ----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BranchMove(Pictured):
    """A branch that points at another snapshot now."""

    repo: str
    action: Literal["undo", "redo", "reset"]
    branch: str
    before: LoggedCommit  # the tip that was
    after: LoggedCommit  # the tip that is
    dropped: tuple[LoggedCommit, ...] = ()  # no longer in the branch's history, newest first
    more: int = 0  # further ones
    dropped_named: tuple[str, ...] = ()  # other branches and tags that still hold the old tip
    excluded: int = 0  # files of the undone build that later appends leave out

    def __repr__(self) -> str:
        return (
            f"<BranchMove {self.action} {escape_line(self.branch)}"
            f"  {self.before.snapshot_id[:6]} to {self.after.snapshot_id[:6]}"
            f"  {plural(len(self.dropped) + self.more, 'commit')} dropped>"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedVersion:
    """A branch or tag, and the snapshot that it names."""

    name: str
    snapshot_id: str
    written_at: datetime
    message: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class NamedVersions(Pictured):
    """All branches, or all tags, of a repository."""

    repo: str
    kind: Literal["branch", "tag"]
    names: tuple[NamedVersion, ...]
    deleted: tuple[str, ...] = ()  # tags; these names cannot be used again

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[NamedVersion]:
        return iter(self.names)

    def __repr__(self) -> str:
        shown = ", ".join(escape_line(each.name) for each in self.names[:10])
        more = f" and {len(self.names) - 10:,} more" if len(self.names) > 10 else ""
        return f"<NamedVersions {self.kind}: {shown or 'none'}{more}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class NameChange(Pictured):
    """A branch or tag that was created, deleted or renamed."""

    repo: str
    kind: Literal["branch", "tag"]
    action: Literal["created", "deleted", "renamed"]
    name: str
    snapshot_id: str
    former: str | None = None  # name, of one that was renamed


# -- the ops log -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedOperation:
    """One operation on the repository."""

    at: datetime
    operation: str  # as icechunk calls it: ``NewCommit``
    details: Mapping[str, JSON] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OperationLog(Pictured):
    """The newest operations on a repository, newest first."""

    repo: str
    operations: tuple[LoggedOperation, ...]
    has_more: bool = False

    def __len__(self) -> int:
        return len(self.operations)

    def __iter__(self) -> Iterator[LoggedOperation]:
        return iter(self.operations)

    def __repr__(self) -> str:
        more = "  and older ones" if self.has_more else ""
        return f"<OperationLog {plural(len(self.operations), 'operation')}{more}>"


def describe_details(operation: LoggedOperation) -> str:
    """Return the details in words: ``branch=main new_snap_id=...``."""
    return " ".join(f"{name}={escape_line(value)}" for name, value in operation.details.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBy:
    """The newest commit that wrote a chunk."""

    snapshot_id: str
    written_at: datetime | None = None  # None: the snapshot has expired, its log is still there
    message: str = ""
    build_id: str | None = None  # None: no build made the commit


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkOrigin:
    """Where the bytes of one chunk lie.

    ``kind`` is ``virtual`` (bytes of a source file), ``native`` (an object of the repository),
    ``inline`` (in a manifest) or ``uninitialized`` (never written: the fill value).
    """

    array: str  # path
    chunk: tuple[int, ...]  # its index along each dimension
    kind: Literal["uninitialized", "native", "inline", "virtual"]
    location: str = ""  # URL of the file or object; "" where it lies in none
    offset: int = 0  # bytes
    length: int = 0  # bytes
    etag: str = ""  # of the file when it was scanned; "": none was recorded
    last_modified: datetime | None = None  # of the file at most; None: none was recorded
    written_by: WrittenBy | None = None  # None: the logs do not say

    @property
    def place(self) -> str:
        """The location and the bytes, or why there are none."""
        if self.kind == "inline":
            return f"in a manifest of the repository, {plural(self.length, 'byte')}"
        if self.kind == "uninitialized":
            return "never written: the fill value"
        end = self.offset + self.length
        stored = " (stored in the repository)" if self.kind == "native" else ""
        return f"{self.location} bytes {self.offset}-{end}{stored}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ValueSource(Pictured):
    """The chunks that some values of a variable are decoded from."""

    repo: str
    snapshot_id: str
    variable: str
    at: Mapping[str, JSON] = field(default_factory=dict)  # labels that were found, by dimension
    index: Mapping[str, int] = field(default_factory=dict)  # their places, by dimension
    chunks: tuple[ChunkOrigin, ...] = ()  # more than one where some dimension has no label

    def __len__(self) -> int:
        return len(self.chunks)

    def __iter__(self) -> Iterator[ChunkOrigin]:
        return iter(self.chunks)

    def __repr__(self) -> str:
        labels = ", ".join(escape_line(f"{name}={label}") for name, label in self.at.items())
        where = self.chunks[0].place if len(self.chunks) == 1 else f"{len(self.chunks):,} chunks"
        return f"<ValueSource {escape_line(self.variable)}[{labels}]  {escape_line(where)}>"
