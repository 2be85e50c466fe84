"""Format the report of a build, and the parts that reports share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from icevirt.archive.reports.build import (
    AppendReport,
    ArraySummary,
    BadFile,
    BuildReport,
)
from icevirt.display.text import box, bytes_of, durations, references, size, words

_HEADINGS = ("array", "type", "shape", "chunks of", "references", "in files", "stored", "read by")


def build_report(report: BuildReport) -> RenderableType:
    """Return the report for a terminal."""
    return _drawn(report, "Already built" if report.already_built else "Built", _facts(report))


def append_report(report: AppendReport) -> RenderableType:
    """Return the report for a terminal."""
    counts = {
        "appended": f"{report.files_appended:,}, and {report.files_known:,} were there already",
        **({"replaced": f"{report.files_replaced:,}"} if report.files_replaced else {}),
    }
    if not report.already_built:
        return _drawn(report, "Appended to", {**counts, **_facts(report)})
    done = Text.assemble(("Nothing to append to", "bold green"), " ", words(report.repo, "bold"))
    snapshot = {"snapshot": f"{report.snapshot_id} on {report.branch}"}
    told = facts({**(snapshot if report.snapshot_id else {}), **counts})
    return Group(done, told, *listed("Notes", report.findings))


def _drawn(report: BuildReport, verb: str, told: dict[str, str]) -> RenderableType:
    parts: list[RenderableType] = [
        Text.assemble((verb, "bold green"), " ", words(report.repo, "bold")),
        facts(told),
        Text(),
        array_table(report.arrays),
        *listed("Notes", report.findings),
        *listed("Left out", map(bad_file, report.bad_files), "bold red"),
        Text(),
        Text("Open it", "bold"),
        *map(words, opening(report).split("\n")),
    ]
    return Group(*parts)


def opening(report: BuildReport) -> str:
    """Return the Python that opens the dataset."""
    arguments = [
        repr(report.repo),
        "engine='icevirt'",
        *([] if report.opens == "/" else [f"group={report.opens!r}"]),
        *(["eras='concat'"] if report.eras > 1 and report.opens_as_one else []),
        f"authorize_virtual_chunk_access={list(report.containers)!r}",
    ]
    return "\n".join(["xr.open_dataset(", *(f"    {words}," for words in arguments), ")"])


def _facts(report: BuildReport) -> dict[str, str]:
    counts = report.references
    reused = f", {report.files_reused:,} reused from an earlier run" if report.files_reused else ""
    bad = f", {len(report.bad_files):,} left out" if report.bad_files else ""
    return {
        "snapshot": f"{report.snapshot_id} on {report.branch}",
        "files": f"{report.files_scanned:,} scanned{reused}{bad}",
        "arrays": f"{len(report.arrays)} in {report.group}",
        "references": bytes_of(counts, "stored here"),
        "manifests": f"{report.manifests:,}, {size(report.manifest_bytes)}",
        **({"executor": report.executor} if report.executor else {}),
        "time": durations(report.seconds),
    }


def bad_file(file: BadFile) -> str:
    """Return a bad file and what is wrong with it, on one line."""
    return f"{file.url}: {file.error} [{file.code}]"


def listed(title: str, lines: Iterable[str], style: str = "bold") -> list[RenderableType]:
    """Return lines under a title, nothing if there are none."""
    shown = [words(f"  {line}") for line in lines]
    return [Text(), Text(title, style), *shown] if shown else []


def array_table(arrays: Iterable[ArraySummary]) -> Table:
    """Return a row for each array: what it is, where its chunks are, what reads it."""
    table = table_of(_HEADINGS, right=("in files", "stored"))
    for array in arrays:
        table.add_row(
            words(array.path, "bold"),
            words(array.data_type),
            box(array.shape),
            box(array.chunk_shape),
            references(array.references),
            size(array.references.bytes_referenced) if array.references.bytes_referenced else "",
            size(array.references.bytes_stored) if array.references.bytes_stored else "",
            words(array.readers.text),
        )
    return table


def table_of(headings: Sequence[str], *, right: Collection[str]) -> Table:
    """Return an empty table with these headings, some of them over numbers at the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        justify: Literal["right", "left"] = "right" if heading in right else "left"
        table.add_column(heading, overflow="fold", justify=justify)
    return table


def facts(rows: dict[str, str]) -> Text:
    """Return a line for each row: what it is, in grey, and its value."""
    wide = max(map(len, rows), default=0)
    lines = [Text.assemble((f"  {name:<{wide}}  ", "dim"), words(rows[name])) for name in rows]
    return Text("\n").join(lines)
