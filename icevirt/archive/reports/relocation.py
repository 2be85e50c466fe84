"""Define what `icevirt.relocate`, `materialize`, `export` and `upgrade` moved and copied."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from icevirt.amounts import plural, volume
from icevirt.archive.reports.build import LayoutCost
from icevirt.archive.reports.verification import MOST_SHOWN, Difference
from icevirt.escaping import Pictured, escape_line

type FileHashes = NDArray[np.uint64]
"""Numbers of distinct files or arrays, shape (n,)."""


def _none() -> FileHashes:
    return np.zeros(0, np.uint64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moved:
    """Counts of what tasks found and wrote; the counts of several tasks add up."""

    manifests: tuple[tuple[bytes, bytes, int, int], ...] = ()  # (id, new id, bytes, references)
    references: int = 0  # to files at the old place
    there: int = 0  # to files at the new place
    absolute: int = 0  # locations at the old place that no container's name begins
    bytes: int = 0  # that these references have
    files: FileHashes = field(default_factory=_none)
    restamped: FileHashes = field(default_factory=_none)  # files with another checksum now
    alone: FileHashes = field(default_factory=_none)  # files that are not at the old place
    compared: int = 0  # references whose bytes were compared
    compared_bytes: int = 0
    differences: tuple[Difference, ...] = ()
    wrong: FileHashes = field(default_factory=_none)  # files that differ
    referenced: FileHashes = field(default_factory=_none)  # arrays with references to files
    copied: FileHashes = field(default_factory=_none)  # arrays with values of their own

    def __add__(self, other: Moved) -> Moved:
        return total([self, other])


def total(parts: Iterable[Moved]) -> Moved:
    """Return the sum of what tasks found."""
    every, nothing, sums = list(parts), Moved(), dict[str, Any]()
    for each in fields(Moved):
        values = [getattr(part, each.name) for part in every]
        if isinstance(getattr(nothing, each.name), int):
            sums[each.name] = sum(values)
        elif isinstance(getattr(nothing, each.name), tuple):
            sums[each.name] = tuple(chain.from_iterable(values))
        else:
            sums[each.name] = _unite(values)
    return Moved(**sums | {"differences": sums["differences"][:MOST_SHOWN]})


def _unite(parts: Iterable[FileHashes]) -> FileHashes:
    found = [part for part in parts if len(part)]
    if len(found) < 2:
        return found[0] if found else _none()
    return np.unique(np.concatenate(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedDataset:
    """A dataset whose list of files and recipe name the new place."""

    group: str
    files: int  # that moved
    recipe_before: str  # digest; "": there is none
    recipe: str  # digest; "": there is none
    is_trusted: bool  # `update` goes by the recipe on this machine, as it did before
    notes: tuple[str, ...] = ()  # what the recipe cannot say


@dataclass(frozen=True, slots=True, kw_only=True)
class RelocateReport(Pictured):
    """The outcome of `icevirt.relocate`, or its plan."""

    repo: str  # URL
    branch: str
    old: str  # url_prefix
    new: str  # url_prefix
    is_plan: bool  # nothing was changed
    snapshot_id: str | None  # of the commit; None: nothing names the old place, or it is a plan
    containers_moved: tuple[tuple[str, str, str], ...]  # (name, url_prefix, new url_prefix)
    containers_added: tuple[str, ...]  # url_prefixes
    files: int
    references: int
    bytes_referenced: int
    manifests: int  # rewritten, of
    manifests_there: int  # all of the version
    files_restamped: int  # with another time or etag at the new place
    files_alone: int  # gone or changed at the old place: not compared with it
    references_compared: int  # byte by byte
    bytes_compared: int
    seed: int  # of the sample
    datasets: tuple[MovedDataset, ...] = ()  # whose records were renamed
    executor: str = ""  # that ran tasks: "spark", "processes" or "in-process"
    seconds: dict[str, float] = field(default_factory=dict)  # by phase, in order

    def __repr__(self) -> str:
        plan = "plan " if self.is_plan else ""
        return (
            f"<RelocateReport {plan}{escape_line(self.old)} → {escape_line(self.new)}"
            f"  {plural(self.files, 'file')}  {plural(self.references, 'reference')}>"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterializeReport(Pictured):
    """The outcome of `icevirt.materialize`, or its plan."""

    repo: str  # URL
    branch: str
    variable: str  # path
    is_plan: bool  # nothing was changed
    snapshot_id: str | None  # of the commit; None: everything was stored already, or it is a plan
    region: tuple[tuple[int, int], ...]  # (first, last + 1) element along each dimension
    is_widened: bool  # the region was extended to whole chunks
    chunk_shape: tuple[int, ...]  # elements; () where chunks differ in length
    is_reencoded: bool  # chunks or codecs are others than before
    chunks: int  # stored, or to be stored
    bytes_read: int  # of source files
    bytes_stored: int  # in a plan of other chunks or codecs: before compression
    tasks: int
    bytes_rewritten: int = 0  # of values, by each append at most, where it is a twin
    levels: tuple[str, ...] = ()  # paths of coarser copies, the finest first
    own: LayoutCost | None = None  # what the variable takes that gets a twin
    twin: LayoutCost | None = None  # what its twin takes
    executor: str = ""  # that ran tasks: "spark", "processes" or "in-process"
    seconds: dict[str, float] = field(default_factory=dict)  # by phase, in order

    def __repr__(self) -> str:
        what = "to store" if self.is_plan else "stored"
        return (
            f"<MaterializeReport {escape_line(self.variable)} on {escape_line(self.branch)}"
            f"  {plural(self.chunks, 'chunk')} {what}  {volume(self.bytes_stored)}>"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport(Pictured):
    """The outcome of `icevirt.export`."""

    repo: str = ""  # URL; empty where a session was written
    snapshot_id: str | None  # the version; None: with uncommitted changes
    group: str  # path in the repository, of a group or an array
    path: str  # of the file or directory that was written
    format: str  # "json" or "parquet" of kerchunk, or "stac"
    zarr_format: int  # of the metadata, 2 or 3
    arrays: int
    references: int  # into files
    files: int  # that references lead to
    chunks_embedded: int  # native and inline chunks
    bytes_embedded: int
    notes: tuple[str, ...] = ()  # what the format does not hold

    def __repr__(self) -> str:
        return (
            f"<ExportReport {escape_line(self.path)}  {plural(self.arrays, 'array')}"
            f"  {plural(self.references, 'reference')}>"
        )


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
        return (
            f"<UpgradeCopyReport {escape_line(self.generation)} → {escape_line(self.repo)}"
            f"  {plural(self.snapshots, 'snapshot')}  {len(self.lost):,} lost>"
        )

    @property
    def ok(self) -> bool:
        """Whether nothing was lost."""
        return not self.lost
