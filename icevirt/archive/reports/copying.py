"""Define what `icevirt.materialize` stored and `icevirt.export` wrote, for text, JSON and tests."""

from __future__ import annotations

from dataclasses import dataclass, field

from icevirt.archive.reports.card import plural, volume
from icevirt.escaping import Pictured, escape_line


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
    executor: str = ""  # that ran tasks: "spark", "processes" or "in-process"
    seconds: dict[str, float] = field(default_factory=dict)  # by phase, in order

    def __repr__(self) -> str:
        """Return what was stored, in one line."""
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
    format: str  # "json" or "parquet"
    zarr_format: int  # of the metadata, 2 or 3
    arrays: int
    references: int  # into files
    files: int  # that references lead to
    chunks_embedded: int  # native and inline chunks
    bytes_embedded: int

    def __repr__(self) -> str:
        """Return what was written, in one line."""
        return (
            f"<ExportReport {escape_line(self.path)}  {plural(self.arrays, 'array')}"
            f"  {plural(self.references, 'reference')}>"
        )
