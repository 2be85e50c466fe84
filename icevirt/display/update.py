"""Format the report of an update, and of what an update would do."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from icevirt.archive.reports.build import reason_of
from icevirt.archive.reports.update import FileHeldBack, UpdateReport
from icevirt.display.blocks import facts, listed, notes
from icevirt.display.plan import build_plan
from icevirt.display.report import opening
from icevirt.display.text import words
from icevirt.remedy_notation import shown

_SHOWN = 20  # files that are held back


def update_report(report: UpdateReport) -> RenderableType:
    """Return the report for a terminal."""
    verb = "Skipped" if report.skipped else "Up to date"
    if report.is_dry_run:
        verb = "Would update"
    elif not report.already_built:
        verb = "Updated"
    color = "bold" if report.is_dry_run or report.skipped else "bold green"
    told = {"snapshot": f"{report.snapshot_id} on {report.branch}"}
    if not report.already_built:
        told["files"] = f"{report.files_scanned:,} scanned, {report.files_known:,} as they were"
    if report.files_excluded:
        told["excluded"] = f"{report.files_excluded:,}"
    parts: list[RenderableType] = [
        Text.assemble((verb, color), " ", words(report.repo, "bold")),
        words(f"  {report.summary}"),
        facts(told),
        *notes(report.findings),
        *listed("Held back", _held(report.held), "bold red"),
    ]
    if report.plan is not None:
        parts += [Text(), build_plan(report.plan)]
    elif not report.already_built:
        parts += [Text(), Text("Open it", "bold"), *map(words, opening(report).split("\n"))]
    return Group(*parts)


def _held(files: tuple[FileHeldBack, ...]) -> Iterator[str]:
    for each in files[:_SHOWN]:
        yield f"{each.url}: {shown(reason_of(each.error, each.url))}"
    if len(files) > _SHOWN:
        yield f"and {len(files) - _SHOWN:,} more"
