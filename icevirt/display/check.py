"""What `check` found, a line for each problem."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from icevirt.display.text import count, words
from icevirt.repo.check import CheckReport


def check_report(report: CheckReport) -> RenderableType:
    """Return the report for a terminal."""
    lines = [
        words(f"{problem}", "yellow" if problem.advice else "red") for problem in report.problems
    ]
    return Group(
        words(report.repo, "bold"),
        Text(f"  checked  {_looked_at(report)}"),
        *lines,
        _verdict(report),
    )


def _looked_at(report: CheckReport) -> str:
    counted = (
        count(report.snapshots, "snapshot"),
        count(report.manifests, "manifest"),
        count(report.references, "reference"),
    )
    return ", ".join(counted)


def _verdict(report: CheckReport) -> Text:
    wrong = sum(not problem.advice for problem in report.problems)
    if wrong:
        return Text(f"  found    {count(wrong, 'problem')}", "bold red")
    advice = len(report.problems)
    return Text("  sound" + (f", with {count(advice, 'remark')}" if advice else ""), "bold green")
