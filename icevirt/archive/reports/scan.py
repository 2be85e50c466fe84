"""Define the report of scanning many files without a repository."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from icevirt.amounts import plural, volume
from icevirt.archive.reports.build import BadFile, BadFiles, Readers, ReferenceCounts
from icevirt.escaping import Pictured


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSummary:
    """An array of some name, in all files that have it."""

    path: str
    files: int  # that have it
    shapes: int  # different ones
    schemas: int  # different ones: type, chunks, codecs, attributes
    references: ReferenceCounts
    readers: Readers  # of all its schemas


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScanReport(Pictured):
    """The outcome of `icevirt.scan_files`."""

    catalog: str  # URL
    files: int
    files_scanned: int  # in this run
    files_reused: int  # that the catalog described already
    bytes: int  # of the good files
    bad_files: BadFiles
    bad_files_allowed: int
    arrays: tuple[PathSummary, ...]
    findings: tuple[str, ...]  # decisions worth knowing, a line each
    executor: str = ""  # that ran tasks: "spark", "processes" or "in-process"
    seconds: dict[str, float] = field(default_factory=dict)  # by phase, in order

    @property
    def ok(self) -> bool:
        """Whether the number of bad files is within the limit, and some files are good."""
        return len(self.bad_files) <= self.bad_files_allowed and len(self.bad_files) < self.files

    @property
    def references(self) -> ReferenceCounts:
        """References of all arrays."""
        return sum((array.references for array in self.arrays), ReferenceCounts())

    def __repr__(self) -> str:
        bad = f" ({len(self.bad_files):,} bad)" if self.bad_files else ""
        return (
            f"<ScannedArchive {plural(self.files, 'file')}{bad}"
            f"  {plural(len(self.arrays), 'array')}  {volume(self.bytes)}>"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogSummary(Pictured):
    """What a catalog holds, files that were scanned with several options once for each."""

    catalog: str  # URL
    scans: Mapping[str, Any]  # by identity: options, and versions of the scanners
    files: int
    bytes: int  # of all files
    bad_files: tuple[BadFile, ...]
    references: ReferenceCounts
