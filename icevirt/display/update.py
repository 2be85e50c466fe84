"""Format the report of an update, and of what an update would do."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from icevirt.archive.reports.update import UpdateReport
from icevirt.display.blocks import Facts, listed, notes, pasted
from icevirt.display.fixes import quoted
from icevirt.display.plan import build_plan
from icevirt.display.report import held_files, opening
from icevirt.display.text import count, place, words
from icevirt.remedy_notation import COMMAND, REPOSITORY


def update_report(report: UpdateReport) -> RenderableType:
    """Return the report for a terminal."""
    verb = "Skipped" if report.skipped else "Unchanged" if report.held else "Up to date"
    if report.is_dry_run and _changes(report):
        verb = "Would update"
    elif not (report.is_dry_run or report.already_built):
        verb = "Updated"
    is_good = not (report.is_dry_run or report.skipped or verb == "Unchanged")
    color = "bold green" if is_good else "bold"
    rows = {"snapshot": f"{report.snapshot_id} on {report.branch}"}
    if not report.already_built:
        rows["files"] = f"{report.files_scanned:,} scanned, {report.files_known:,} unchanged"
    if report.files_excluded:
        rows["excluded"] = f"{count(report.files_excluded, 'file')}, see icevirt exclude"
    if next_ := "; ".join(_next(report)):
        rows["next"] = next_
    parts: list[RenderableType] = [
        Text.assemble((verb, color), " ", words(report.repo, "bold")),
        *(words(f"  {line}") for line in _changed(report)),
        Facts(rows),
        *notes(report.findings),
        *listed("Held back", held_files(report.held), "bold red"),
    ]
    if report.plan is not None:
        parts += [Text(), build_plan(report.plan)]
    elif not report.already_built:
        parts += pasted("Open it", opening(report))
    return Group(*parts)


def _changes(report: UpdateReport) -> int:
    """Return how much an update commits."""
    files = report.files_added + report.files_corrected + report.files_vanished
    return files + report.files_superseded + len(report.variables)


def _changed(report: UpdateReport) -> Iterator[str]:
    """Yield what happens to files, a line each, with the marks of version control."""
    if report.variables:
        made = ", ".join(report.variables)
        yield f"~ {count(len(report.variables), 'variable')}: {made}, made again from all files"
        return
    one, many = ("its steps", "it"), ("their steps", "them")
    steps, _ = one if report.files_vanished == 1 else many
    gone = {"missing": f"{steps} read as missing values", "remove": f"{steps} are removed"}
    waiting = one if report.files_waiting == 1 else many
    lines = (
        ("+", "new", report.files_added, "", ""),
        ("~", "changed", report.files_corrected, "", _corrected(report)),
        ("-", "", report.files_vanished, "gone from the archive", gone.get(report.vanished, "")),
        ("-", "provisional", report.files_superseded, "", "replaced by the final version"),
        ("!", "", len(report.held), "held back", "left out, and tried again by the next update"),
        (
            "?",
            "",
            report.files_waiting,
            "just changed",
            f"perhaps not written to the end; the next update takes {waiting[1]}",
        ),
    )
    is_any = False
    for mark, before, number, after, more in lines:
        if number:
            is_any = True
            said = " ".join(filter(None, (count(number, f"{before} file".strip()), after)))
            yield f"{mark} {said}{f': {more}' if more else ''}"
    for name, (before, after) in report.ends.items():
        if before != after:
            yield f"{name} ends at {after}; it ended at {before}"
    if not (is_any or report.skipped or report.held):
        yield "no file is new, changed or gone"


def _corrected(report: UpdateReport) -> str:
    """Return how files changed, where not all of them were written anew."""
    rest = report.files_corrected - report.files_same_layout - report.files_rescanned
    kinds = (
        (rest, "with other content"),
        (report.files_same_layout, "touched or rewritten in place"),
        (report.files_rescanned, "scanned again by request"),
    )
    is_mixed = report.files_same_layout or report.files_rescanned
    return ", ".join(f"{number:,} {what}" for number, what in kinds if number and is_mixed)


def _next(report: UpdateReport) -> Iterator[str]:
    """Yield commands for what people do after an update, in the notation of the command line."""
    if COMMAND.get() is None:
        return
    repo = quoted(REPOSITORY.get() or report.repo)
    branch = "" if report.branch == "main" else f" --branch {quoted(report.branch)}"
    if report.held:
        file = quoted(place(report.held[0].url))
        which = "it" if len(report.held) == 1 else "this file"
        yield f"icevirt exclude {repo} {file} leaves {which} out for good"
    if not (report.is_dry_run or report.already_built):
        yield f"icevirt undo {repo}{branch} takes the update back"
