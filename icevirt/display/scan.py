"""Format what scans found: in one file, in many, and in a catalog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from icevirt.archive.reports.build import ArraySummary, ReferenceCounts
from icevirt.archive.reports.scan import CatalogSummary, ScanReport
from icevirt.archive.scanned import ScannedArray, ScannedFile
from icevirt.display.blocks import (
    Facts,
    bytes_of,
    durations,
    head_report,
    list_lines,
    notes,
    references,
    shorten,
    size,
    some,
    table_of,
    words,
)
from icevirt.display.document import document, pick, pick_fields
from icevirt.display.report import array_table, show_left_out
from icevirt.model.json import JSON
from icevirt.planning.reader_support import name_of, readers_of
from icevirt.remedy_notation import show_remedy, write_code, write_remedy


def scan_report(report: ScanReport) -> RenderableType:
    """Return the report for a terminal."""
    verb, style = ("Scanned", "bold green") if report.ok else ("Too many bad files", "bold red")
    bad = len(report.bad_files)
    reused = f", {report.files_reused:,} reused from earlier scans" if report.files_reused else ""
    allowed = f" of {report.bad_files_allowed:,} allowed" if bad else ""
    headings = ("array", "files", "shapes", "schemas", "references", "in files", "read by")
    table = table_of(headings, right=("files", "shapes", "schemas", "in files"))
    for array in report.arrays:
        table.add_row(
            words(array.path, "bold"),
            *(f"{number:,}" for number in (array.files, array.shapes, array.schemas)),
            references(array.references),
            size(array.references.bytes_referenced),
            array.readers.text,
        )
    accepting = show_remedy(
        write_remedy(
            "To go on without them, scan and build with ",
            write_code(f'scan_options={{"max_bad_files": {bad}}}', f"--max-bad-files {bad}"),
            ".",
        )
    )
    return Group(
        Text.assemble((verb, style), " ", words(report.catalog, "bold")),
        Facts(
            {
                "files": f"{report.files_scanned:,} scanned{reused}",
                "good": f"{report.files - bad:,}, {size(report.bytes)}",
                "bad": f"{bad:,}{allowed}",
                "references": bytes_of(report.references, "in the catalog"),
                "executor": report.executor or None,
                "time": durations(report.seconds),
            }
        ),
        Text(),
        table,
        *notes(report.findings),
        *show_left_out("Bad", report.bad_files),
        *([] if report.ok else [words(accepting)]),
    )


def catalog_summary(summary: CatalogSummary) -> RenderableType:
    """Return the summary for a terminal."""
    return head_report(
        summary.catalog,
        {
            "files": f"{summary.files:,}, {size(summary.bytes)}",
            "bad": f"{len(summary.bad_files):,}",
            "references": bytes_of(summary.references, "in the catalog"),
        },
        *list_lines("Scans", (f"{key}: {_options(scan)}" for key, scan in summary.scans.items())),
        *show_left_out("Bad", summary.bad_files),
    )


def catalog_view(view: Any) -> RenderableType:
    """Return which scans a catalog holds, for a terminal."""
    return Facts({"scans": some([*view.scans], 20)})


def _options(scan: Mapping[str, Any]) -> str:
    """Return the options of a scan that were set, and its scanners."""
    options = [
        f"{name}={size(value) if 'bytes' in name and isinstance(value, int) else value}"
        for name, value in scan.get("options", {}).items()
        if value
    ]
    scanners = [f"{name} {version}" for name, version in scan.get("scanners", {}).items()]
    return ", ".join([*options, *scanners])


def scanned_file(scanned: ScannedFile) -> RenderableType:
    """Return the description of a file for a terminal."""
    return head_report(
        scanned.source.url,
        {
            "size": size(scanned.source.size),
            "read by": f"{scanned.scanner} {scanned.scanner_version}",
            "groups": ", ".join(group.path for group in scanned.groups),
        },
        Text(),
        array_table(map(summary_of, scanned.arrays)),
        *(
            words(
                f"{each.severity} {each.path}: {show_remedy(each.message)}",
                "yellow" if each.severity == "warning" else "dim",
            )
            for each in scanned.findings
        ),
    )


def document_file(scanned: ScannedFile) -> JSON:
    """Return the description of a file as JSON."""
    return {
        **pick(scanned, ("source", "scanner", "scanner_version")),
        "groups": [
            {"path": group.path, "attributes": document(group.attributes.values)}
            for group in scanned.groups
        ],
        "arrays": list(map(document_array, scanned.arrays)),
        "findings": document(scanned.findings),
    }


def scanned_array(array: ScannedArray) -> RenderableType:
    """Return the description of one array of a file for a terminal."""
    attributes = {name: shorten(value) for name, value in array.attributes.values.items()}
    return Group(array_table([summary_of(array)]), Text(), Facts(attributes))


def document_array(array: ScannedArray) -> dict[str, JSON]:
    """Return the same as JSON."""
    return {
        **pick_fields(summary_of(array)),
        **pick(array, ("codecs", "fill_value")),
        "attributes": document(array.attributes.values),
    }


def document_view(view: Any) -> JSON:
    """Return what a catalog holds as JSON."""
    return document(view.summary())


def summary_of(array: ScannedArray) -> ArraySummary:
    """Return the summary of one array of one file."""
    return ArraySummary(
        path=array.path,
        data_type=name_of(array.data_type),
        shape=array.shape,
        chunk_shape=array.chunk_shape,
        dimension_names=array.dimension_names,
        references=ReferenceCounts.of(array.references),
        manifests=0,
        readers=readers_of(array.data_type, array.codecs, shape=array.shape),
    )
