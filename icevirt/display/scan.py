"""Format what scans found: in one file, in many, and in a catalog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from icevirt.archive.reports.build import ArraySummary
from icevirt.archive.reports.scan import CatalogSummary, PathSummary, ScanReport
from icevirt.archive.scanned import ScannedArray, ScannedFile
from icevirt.display.blocks import Facts, listed, notes, table_of
from icevirt.display.report import array_table, bad_file
from icevirt.display.text import bytes_of, durations, references, size, some, words
from icevirt.planning.reader_support import named, readers_of
from icevirt.remedy_notation import shown
from icevirt.repo.summary import reference_counts


def scan_report(report: ScanReport) -> RenderableType:
    """Return the report for a terminal."""
    verb, style = ("Scanned", "bold green") if report.ok else ("Too many bad files", "bold red")
    return Group(
        Text.assemble((verb, style), " ", words(report.catalog, "bold")),
        Facts(_facts(report)),
        Text(),
        _table(report.arrays),
        *notes(report.findings),
        *listed("Bad", map(bad_file, report.bad_files), "bold red"),
        *([] if report.ok else [words(_accepting(report))]),
    )


def _accepting(report: ScanReport) -> str:
    """Say how the bad files can be accepted."""
    number = len(report.bad_files)
    return shown(
        "To go on without them, scan and build with"
        f' scan_options={{"max_bad_files": {number}}} (--max-bad-files {number}).'
    )


def catalog_summary(summary: CatalogSummary) -> RenderableType:
    """Return the summary for a terminal."""
    counts = summary.references
    rows = {
        "files": f"{summary.files:,}, {size(summary.bytes)}",
        "bad": f"{len(summary.bad_files):,}",
        "references": bytes_of(counts, "in the catalog"),
    }
    scans = (f"{key}: {_described(scan)}" for key, scan in summary.scans.items())
    return Group(
        words(summary.catalog, "bold"),
        Facts(rows),
        *listed("Scans", scans),
        *listed("Bad", map(bad_file, summary.bad_files), "bold red"),
    )


def catalog_view(view: Any) -> RenderableType:
    """Return which scans a catalog holds, for a terminal."""
    return Facts({"scans": some([*view.scans], 20)})


def _described(scan: Mapping[str, Any]) -> str:
    """Return the options of a scan that were set, and its scanners."""
    options = [
        f"{name}={size(value) if 'bytes' in name and isinstance(value, int) else value}"
        for name, value in scan.get("options", {}).items()
        if value
    ]
    scanners = [f"{name} {version}" for name, version in scan.get("scanners", {}).items()]
    return ", ".join([*options, *scanners])


def _facts(report: ScanReport) -> dict[str, str]:
    counts, bad = report.references, len(report.bad_files)
    reused = f", {report.files_reused:,} reused from earlier scans" if report.files_reused else ""
    allowed = f" of {report.bad_files_allowed:,} allowed" if bad else ""
    return {
        "files": f"{report.files_scanned:,} scanned{reused}",
        "good": f"{report.files - bad:,}, {size(report.bytes)}",
        "bad": f"{bad:,}{allowed}",
        "references": bytes_of(counts, "in the catalog"),
        **({"executor": report.executor} if report.executor else {}),
        "time": durations(report.seconds),
    }


def _table(arrays: tuple[PathSummary, ...]) -> Table:
    headings = ("array", "files", "shapes", "schemas", "references", "in files", "read by")
    table = table_of(headings, right=("files", "shapes", "schemas", "in files"))
    for array in arrays:
        table.add_row(
            words(array.path, "bold"),
            f"{array.files:,}",
            f"{array.shapes:,}",
            f"{array.schemas:,}",
            references(array.references),
            size(array.references.bytes_referenced),
            words(array.readers.text),
        )
    return table


def scanned_file(scanned: ScannedFile) -> RenderableType:
    """Return the description of a file for a terminal."""
    parts: list[RenderableType] = [
        words(scanned.source.url, "bold"),
        Facts(
            {
                "size": size(scanned.source.size),
                "read by": f"{scanned.scanner} {scanned.scanner_version}",
                "groups": ", ".join(group.path for group in scanned.groups),
            }
        ),
        Text(),
        array_table(map(summary_of, scanned.arrays)),
    ]
    for finding in scanned.findings:
        style = "yellow" if finding.severity == "warning" else "dim"
        parts.append(words(f"{finding.severity} {finding.path}: {shown(finding.message)}", style))
    return Group(*parts)


def summary_of(array: ScannedArray) -> ArraySummary:
    """Return the summary of one array of one file."""
    return ArraySummary(
        path=array.path,
        data_type=named(array.data_type),
        shape=array.shape,
        chunk_shape=array.chunk_shape,
        dimension_names=array.dimension_names,
        references=reference_counts(array.references),
        manifests=0,
        readers=readers_of(array.data_type, array.codecs, shape=array.shape),
    )
