"""Define the report of scanning many files without a repository."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from icevirt.archive.reports.build import BadFile, BadFiles, Readers, ReferenceCounts
from icevirt.archive.reports.card import card, listing, plural, volume
from icevirt.deferred_dataclass import dataclass

_SHOWN = 20  # arrays, findings and files in a picture


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
class ScanReport:
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
        """Return what was scanned, in one line."""
        bad = f" ({len(self.bad_files):,} bad)" if self.bad_files else ""
        return (
            f"<ScannedArchive {plural(self.files, 'file')}{bad}"
            f"  {plural(len(self.arrays), 'array')}  {volume(self.bytes)}>"
        )

    def _repr_html_(self) -> str:
        return card(
            repr(self),
            {
                "catalog": self.catalog,
                "arrays": listing([array.path for array in self.arrays], _SHOWN),
            },
            lines=(
                *self.findings[:_SHOWN],
                *(f"{bad.url}: {bad.error}" for bad in self.bad_files[:_SHOWN]),
            ),
            step=[
                *(["archive.bad_files"] if self.bad_files else []),
                'plan = archive.combine("time")  # along the dimension of your files',
            ],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogSummary:
    """What a catalog holds, files that were scanned with several options once for each."""

    catalog: str  # URL
    scans: Mapping[str, Any]  # by identity: options, and versions of the scanners
    files: int
    bytes: int  # of all files
    bad_files: tuple[BadFile, ...]
    references: ReferenceCounts
