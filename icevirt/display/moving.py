"""Format the reports of `icevirt.relocate`, `icevirt.materialize` and `icevirt.export`."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from icevirt.archive.reports.copying import ExportReport, MaterializeReport
from icevirt.archive.reports.relocation import MovedDataset, RelocateReport
from icevirt.display.blocks import Facts
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
    if not report.is_plan and report.files:
        rows["compared"] = _compared(report)
    if report.files_restamped:
        rows["checksums"] = f"{count(report.files_restamped, 'file')} with a new time or etag"
    for each in report.datasets:
        rows[f"dataset {each.group}"] = _dataset(each)
    if report.executor:
        rows["executor"] = report.executor
    if took := durations(report.seconds):
        rows["took"] = took
    return Group(words(report.repo, "bold"), Facts(rows), _state(report))


def _dataset(moved: MovedDataset) -> str:
    """Say what append, update and withdraw go by from now on."""
    parts = [f"lists {count(moved.files, 'file')} at the new place"]
    if moved.recipe and moved.recipe != moved.recipe_before:
        how = (
            "trusted on this machine, as before"
            if moved.is_trusted
            else "update asks for its digest, as you did not make it on this machine"
        )
        parts.append(f"recipe {moved.recipe} ({how})")
    return "; ".join((*parts, *moved.notes))


def _commit(report: RelocateReport) -> str:
    if not report.manifests and not report.datasets:
        return "none: nothing names the old place"
    if not report.manifests:
        where = f"to {report.branch}" if report.is_plan else f"{report.snapshot_id}"
        return f"{where}; of what the datasets record, no reference is changed"
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
    if not report.references and not report.datasets:
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
    return Group(words(report.repo, "bold"), Facts(rows), words(f"  {state}", "bold green"))


def export_report(report: ExportReport) -> RenderableType:
    """Return the report for a terminal."""
    referenced = f"{count(report.references, 'reference')} into {count(report.files, 'file')}"
    rows = {
        "version": f"{report.snapshot_id or 'with uncommitted changes'}, {report.group}",
        "written": f"{report.format}, metadata of zarr v{report.zarr_format}",
        "holds": f"{count(report.arrays, 'array')}, {referenced}",
    }
    if report.chunks_embedded:
        rows["embedded"] = (
            f"{count(report.chunks_embedded, 'chunk')}, {size(report.bytes_embedded)}"
        )
    return Group(words(report.path, "bold"), Facts(rows), Text("  checksums are not exported"))
