"""Format what a scan found in one file."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from icevirt.archive.reports.build import ArraySummary
from icevirt.archive.scanned import ScannedArray, ScannedFile
from icevirt.display.arrays import array_table, facts
from icevirt.display.text import size, words
from icevirt.planning.reader_support import named, readers_of
from icevirt.repo.summary import reference_counts


def scanned_file(scanned: ScannedFile) -> RenderableType:
    """Return the description of a file for a terminal."""
    parts: list[RenderableType] = [
        words(scanned.source.url, "bold"),
        facts(
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
        parts.append(words(f"{finding.severity} {finding.path}: {finding.message}", style))
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
