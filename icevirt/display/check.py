"""Format what `check` found, one line per problem."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from icevirt.display.text import count, words
from icevirt.repo.maintenance.check import CheckReport
from icevirt.repo.maintenance.chunk_bytes import ChunksReport


def check_report(report: CheckReport) -> RenderableType:
    """Return the report for a terminal."""
    lines = [
        words(f"{problem}", "yellow" if problem.advice else "red") for problem in report.problems
    ]
    return Group(
        words(report.repo, "bold"),
        Text(f"  checked  {_looked_at(report)}"),
        *lines,
        *([] if report.chunks is None else _chunks(report.chunks)),
        _verdict(report),
    )


def _looked_at(report: CheckReport) -> str:
    counted = (
        count(report.snapshots, "snapshot"),
        count(report.manifests, "manifest"),
        count(report.references, "reference"),
    )
    return ", ".join(counted)


def _chunks(chunks: ChunksReport) -> list[Text]:
    states = (
        count(chunks.intact, "native chunk") + " intact",
        f"{chunks.damaged:,} damaged",
        f"{chunks.unverifiable:,} unverifiable",
    )
    lines = [Text(f"  chunks   {', '.join(states)}")]
    for array in chunks.arrays:
        if array.damaged or array.unverifiable:
            told = (
                f"{array.intact:,} intact, {array.damaged:,} damaged,"
                f" {array.unverifiable:,} unverifiable"
            )
            lines.append(words(f"           {array.path}: {told}", "red" if array.damaged else ""))
    if chunks.unverifiable:
        lines.append(
            Text(
                "           the names of unverifiable chunks may not be digests of their bytes;"
                " write the chunks again\n           with content_addressed_chunks=True to make"
                " them verifiable"
            )
        )
    if chunks.unlisted:
        lines.append(
            Text(
                f"           {chunks.unlisted:,} of the intact chunks are in no list, so later"
                " damage to them would count as\n           unverifiable: add --record to list them"
            )
        )
    return lines


def _verdict(report: CheckReport) -> Text:
    wrong = sum(not problem.advice for problem in report.problems)
    if wrong:
        return Text(f"  found    {count(wrong, 'problem')}", "bold red")
    advice = len(report.problems)
    return Text("  sound" + (f", with {count(advice, 'remark')}" if advice else ""), "bold green")
