"""Format what an upgrade from V1 to V2 did, or would do."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from icevirt.display.text import count, words
from icevirt.repo.v1.upgrade import UpgradeReport


def upgrade_report(report: UpgradeReport) -> RenderableType:
    """Return the report for a terminal."""
    lines = [Text(f"  holds    {_held(report)}")]
    if report.commits_carried_over:
        carried = count(report.commits_carried_over, "commit")
        lines.append(Text(f"  carried  {carried} of V1 clients"))
    if report.v1_files_left and not report.dry_run:
        what = "V1 files remain: the next upgrade carries over what V1 clients commit"
        lines.append(Text(f"  note     {what}", "yellow"))
    return Group(words(report.repo, "bold"), *lines, Text(f"  {_verdict(report)}", "bold green"))


def _held(report: UpgradeReport) -> str:
    branches = f"{report.branches} branch" + ("es" if report.branches != 1 else "")
    return f"{count(report.snapshots, 'snapshot')}, {branches}, {count(report.tags, 'tag')}"


def _verdict(report: UpgradeReport) -> str:
    if report.from_version == 1:
        return "can be upgraded from V1 to V2" if report.dry_run else "upgraded from V1 to V2"
    return "is already V2" + (", and V1 files remain" if report.v1_files_left else "")
