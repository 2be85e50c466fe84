"""Format what `verify` found, one line per difference."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from icevirt.archive.reports.verification import Checked, Difference, VerifyReport
from icevirt.display.text import count, seconds, words


def verify_report(report: VerifyReport) -> RenderableType:
    """Return the report for a terminal."""
    checked = report.checked
    lines = [words(f"  {_line(each)}", "red") for each in checked.differences]
    if checked.more:
        lines.append(words(f"  and {count(checked.more, 'further difference')}", "red"))
    lines += [
        words(f"  not compared: {array}: {reason}", "yellow")
        for array, reason in checked.not_compared
    ]
    if checked.untold:
        names = ", ".join(checked.untold)
        lines.append(
            words(
                f"  not compared, because no compared chunk shares a file with them: {names}",
                "yellow",
            )
        )
    return Group(
        words(report.repo, "bold"),
        Text(f"  snapshot  {report.snapshot_id}"),
        Text(f"  checked   {_looked_at(checked)}"),
        *_remarks(report),
        *lines,
        _verdict(report),
    )


def _looked_at(checked: Checked) -> str:
    parts = []
    if checked.files:
        parts.append(
            f"{count(checked.references, 'reference')} into {count(checked.files, 'file')}"
        )
    if checked.chunks or checked.arrays:
        parts.append(
            f"{count(checked.values, 'value')} of {count(checked.chunks, 'chunk')} and"
            f" {count(checked.arrays, 'stored array')}"
        )
    return "; ".join(parts) or "nothing"


def _remarks(report: VerifyReport) -> list[Text]:
    told = []
    if report.checked.unverifiable:
        told.append(
            Text(
                f"  remark    {count(report.checked.unverifiable, 'reference')} without a strong "
                "etag or a modification time: changes of these files may go unnoticed",
                "yellow",
            )
        )
    took = ", ".join(f"{phase} {seconds(each)}" for phase, each in report.seconds.items())
    if report.executor:
        told.append(Text(f"  executor  {report.executor}"))
    if took:
        told.append(Text(f"  took      {took}"))
    return told


def _line(difference: Difference) -> str:
    where = " ".join(part for part in (difference.array, difference.region) if part)
    return f"{difference.kind}: {difference.file} {where}: {difference.what}"


def _verdict(report: VerifyReport) -> Text:
    if report.ok:
        return Text("  no difference", "bold green")
    wrong = len(report.checked.differences) + report.checked.more
    return Text(f"  {count(wrong, 'difference')} (seed {report.seed})", "bold red")
