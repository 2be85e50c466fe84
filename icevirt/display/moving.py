"""Format the reports of `icevirt.relocate` and `icevirt.materialize`."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from icevirt.archive.reports.copying import MaterializeReport
from icevirt.archive.reports.relocation import RelocateReport
from icevirt.display.report import facts
from icevirt.display.text import box, count, durations, size, words


def relocate_report(report: RelocateReport) -> RenderableType:
    """Return the report for a terminal."""
    moved = "; ".join(f"{name}: {old} -> {new}" for name, old, new in report.containers_moved)
    referenced = f"{count(report.references, 'reference')} into {count(report.files, 'file')}"
    rows = {"from": report.old, "to": report.new}
    rows["concerns"] = f"{referenced}, {size(report.bytes_referenced)}"
    if moved:
        rows["configuration"] = f"{moved} (in all snapshots, and without undo)"
    if report.containers_added:
        rows["container"] = f"{', '.join(report.containers_added)} added to the configuration"
    rows["commit"] = _commit(report)
    if not report.is_plan:
        rows["compared"] = _compared(report)
    if report.files_restamped:
        rows["checksums"] = f"{count(report.files_restamped, 'file')} with a new time or etag"
    if report.executor:
        rows["executor"] = report.executor
    if took := durations(report.seconds):
        rows["took"] = took
    return Group(words(report.repo, "bold"), facts(rows), _state(report))


def _commit(report: RelocateReport) -> str:
    if not report.manifests:
        return "none: no reference is changed"
    what = f"{report.manifests:,} of {count(report.manifests_there, 'manifest')}"
    if report.is_plan:
        return f"to {report.branch}; {what} to be rewritten, older snapshots stay as they are"
    return f"{report.snapshot_id} on {report.branch}; {what} rewritten"


def _compared(report: RelocateReport) -> str:
    there = report.files - report.files_alone
    text = (
        f"lengths of {count(there, 'file')}; {size(report.bytes_compared)} of"
        f" {report.references_compared:,} of {count(report.references, 'reference')}"
        f" (seed {report.seed})"
    )
    if report.files_alone:
        text += (
            f"; checksums alone of {count(report.files_alone, 'file')} that the old place has no"
            " longer"
        )
    return text


def _state(report: RelocateReport) -> Text:
    if report.is_plan:
        return Text("  nothing was changed: a plan", "bold green")
    if not report.references:
        return Text("  nothing to do: all references lead to the new place", "bold green")
    return Text("  relocated", "bold green")


def materialize_report(report: MaterializeReport) -> RenderableType:
    """Return the report for a terminal."""
    spans = ", ".join(f"{low}:{high}" for low, high in report.region)
    widened = ", extended to whole chunks" if report.is_widened else ""
    chunks = count(report.chunks, "chunk")
    before = ", before compression" if report.is_plan and report.is_reencoded else ""
    rows = {"variable": f"{report.variable}[{spans}]{widened}"}
    rows["chunks"] = f"{chunks} of {box(report.chunk_shape)}" if report.chunk_shape else chunks
    rows["reads"] = f"{size(report.bytes_read)} of source files"
    rows["stores"] = f"{size(report.bytes_stored)}{before}"
    rows["tasks"] = f"{report.tasks:,}, {report.executor}"
    if report.snapshot_id:
        rows["commit"] = f"{report.snapshot_id} on {report.branch}"
    if took := durations(report.seconds):
        rows["took"] = took
    if report.is_plan:
        state = "nothing was changed: a plan"
    elif report.snapshot_id:
        state = "stored; every chunk was compared"
    else:
        state = "nothing to do: all of it is stored already"
    return Group(words(report.repo, "bold"), facts(rows), Text(f"  {state}", "bold green"))
