"""Format what a repository holds, and what `check`, `verify` and `upgrade` found in it."""

from __future__ import annotations

from collections.abc import Container
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree

from icevirt.archive.reports.build import ArraySummary, GroupSummary, RepositorySummary
from icevirt.archive.reports.history import when
from icevirt.archive.reports.verification import Checked, Difference, VerifyReport
from icevirt.display.blocks import Facts, pasted
from icevirt.display.report import opening_of
from icevirt.display.text import (
    box,
    count,
    durations,
    entry,
    references,
    shortened,
    size,
    words,
)

if TYPE_CHECKING:
    from icevirt.archive.reports.upgrade import UpgradeCopyReport
    from icevirt.repo.maintenance.check import CheckReport
    from icevirt.repo.maintenance.chunk_bytes import ChunksReport
    from icevirt.repo.v1.upgrade import UpgradeReport

_NOTHING = "nothing"
_ATTRIBUTES = 8  # of a group are shown


def repository_summary(summary: RepositorySummary) -> RenderableType:
    """Return the summary for a terminal."""
    shown: list[RenderableType] = [
        words(summary.repo, "bold"),
        Facts(summary_facts(summary)),
        Text(),
        _tree(summary),
    ]
    if not summary.arrays or not summary.spec_version:
        return Group(*shown)
    return Group(*shown, *pasted("Open it", opening_of(summary)))


def summary_facts(summary: RepositorySummary) -> dict[str, str]:
    """Return what a version of a repository is; empty facts are left out."""
    written = when(datetime.fromisoformat(summary.written_at))
    rows = {
        "snapshot": f"{summary.snapshot_id}, {written}: {summary.message}",
        "history": f"{count(summary.snapshots, 'snapshot')}"
        + (f", format {summary.spec_version}" if summary.spec_version else ""),
        "format": summary.generation,
        "branches": ", ".join(summary.branches),
        "tags": ", ".join(summary.tags),
        "authorize": ", ".join(map(entry, summary.containers)),
    }
    return {name: value for name, value in rows.items() if value}


def _tree(summary: RepositorySummary) -> Tree:
    groups = {group.path: group for group in summary.groups}
    arrays: dict[str, list[ArraySummary]] = {}
    for array in sorted(summary.arrays, key=lambda array: array.path):
        arrays.setdefault(_nearest(array.path, groups), []).append(array)
    root = Tree(words("/", "bold blue"))
    branches = {"/": root}
    for path in sorted({*groups, "/"}):  # a group comes before those below it
        if path != "/":
            above = _nearest(path, branches)
            branches[path] = branches[above].add(words(_below(path, above), "bold blue"))
        for line in _attributes(groups[path]) if path in groups else ():
            branches[path].add(line)
        for array in arrays.get(path, ()):
            branches[path].add(_array(array, _below(array.path, path)))
    return root


def _nearest(path: str, known: Container[str]) -> str:
    """Return the nearest known group above a node."""
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        if path in known:
            return path
    return "/"


def _below(path: str, group: str) -> str:
    """Return a path as seen from a group above it."""
    return path.removeprefix(group).lstrip("/")


def _attributes(group: GroupSummary) -> list[Text]:
    items = list(group.attributes.items())
    lines = [words(f"{name} = {shortened(value)}", "dim") for name, value in items[:_ATTRIBUTES]]
    if rest := len(items) - len(lines):
        lines.append(words(f"and {count(rest, 'attribute')} more", "dim"))
    return lines


def _array(array: ArraySummary, name: str) -> Text:
    dims = ", ".join(
        f"{name or '?'}: {length}"
        for name, length in zip(array.dimension_names, array.shape, strict=True)
    )
    counts = array.references
    return Text.assemble(
        words(name, "bold"),
        words(f" {array.data_type} ({dims})"),
        (f"  chunks of {box(array.chunk_shape)}", "dim"),
        f"  {references(counts)}",
        (f" ({size(counts.bytes_referenced + counts.bytes_stored)})", "dim"),
    )


def check_report(report: CheckReport) -> RenderableType:
    """Return the report for a terminal."""
    counted = (
        count(report.snapshots, "snapshot"),
        count(report.manifests, "manifest"),
        count(report.references, "reference"),
    )
    return Group(
        words(report.repo, "bold"),
        words(f"  checked  {', '.join(counted)}"),
        *([words(f"  format   {report.generation}")] if report.generation else []),
        *(words(each, "yellow" if each.advice else "red") for each in report.problems),
        *([] if report.chunks is None else _chunks(report.chunks)),
        _verdict(report),
    )


def _chunks(chunks: ChunksReport) -> list[Text]:
    intact = count(chunks.intact, "native chunk")
    states = f"{intact} intact, {chunks.damaged:,} damaged, {chunks.unverifiable:,} unverifiable"
    lines = [words(f"  chunks   {states}")]
    for array in chunks.arrays:
        if array.damaged or array.unverifiable:
            states = (
                f"{array.intact:,} intact, {array.damaged:,} damaged,"
                f" {array.unverifiable:,} unverifiable"
            )
            lines.append(
                words(f"           {array.path}: {states}", "red" if array.damaged else "")
            )
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
        return words(f"  found    {count(wrong, 'problem')}", "bold red")
    advice = len(report.problems)
    return Text("  sound" + (f", with {count(advice, 'remark')}" if advice else ""), "bold green")


def upgrade_report(report: UpgradeReport) -> RenderableType:
    """Return the report for a terminal."""
    lines = [words(f"  holds    {_held(report)}")]
    if report.commits_carried_over:
        carried = count(report.commits_carried_over, "commit")
        lines.append(words(f"  carried  {carried} of V1 clients"))
    if report.v1_files_left and not report.dry_run:
        what = "V1 files remain: the next upgrade carries over what V1 clients commit"
        lines.append(words(f"  note     {what}", "yellow"))
    return Group(words(report.repo, "bold"), *lines, words(f"  {_state(report)}", "bold green"))


def upgrade_copy_report(report: UpgradeCopyReport) -> RenderableType:
    """Return the report for a terminal."""
    what = f"{_held(report)}, {count(report.references, 'reference')}"
    chunks = f"{count(report.chunks, 'chunk')}, {size(report.bytes)}"
    rows = {
        "from": f"{report.source}, format {report.generation}",
        "holds": what,
        "to copy" if report.dry_run else "copied": chunks if report.chunks else "",
        "authorize": ", ".join(map(entry, report.authorize)),
    }
    lines = [words(f"  note     {line}", "yellow") for line in report.notes]
    lines += [words(f"  lost     {line}", "red") for line in report.lost]
    done = "can be upgraded to V2" if report.dry_run else "upgraded to V2"
    end = f"{done}, without what is listed" if report.lost else done
    return Group(
        words(report.repo, "bold"),
        Facts({name: value for name, value in rows.items() if value}),
        *lines,
        words(f"  {end}", "bold red" if report.lost else "bold green"),
    )


def _held(report: UpgradeReport | UpgradeCopyReport) -> str:
    branches = f"{report.branches} branch" + ("es" if report.branches != 1 else "")
    return f"{count(report.snapshots, 'snapshot')}, {branches}, {count(report.tags, 'tag')}"


def _state(report: UpgradeReport) -> str:
    if report.from_version == 1:
        return "can be upgraded from V1 to V2" if report.dry_run else "upgraded from V1 to V2"
    return "is already V2" + (", and V1 files remain" if report.v1_files_left else "")


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
    if checked.unmatched:
        why = "because no compared chunk shares a file with them"
        lines.append(words(f"  not compared, {why}: {', '.join(checked.unmatched)}", "yellow"))
    return Group(
        words(report.repo, "bold"),
        words(f"  snapshot  {report.snapshot_id}"),
        words(f"  checked   {_compared(checked)}"),
        *_remarks(report),
        *lines,
        _result(report),
    )


def _compared(checked: Checked) -> str:
    parts = []
    if checked.files:
        parts.append(
            f"{count(checked.references, 'reference')} into {count(checked.files, 'file')}"
        )
    if checked.chunks or checked.arrays:
        parts.append(
            f"{count(checked.values, 'value')} of {count(checked.chunks, 'chunk')} and of"
            f" {count(checked.arrays, 'array')} that the repository stores"
        )
    return "; ".join(parts) or _NOTHING


def _remarks(report: VerifyReport) -> list[Text]:
    lines = []
    if report.checked.unverifiable:
        lines.append(
            words(
                f"  remark    {count(report.checked.unverifiable, 'reference')} without a strong "
                "etag or a modification time: changes of these files may go unnoticed",
                "yellow",
            )
        )
    took = durations(report.seconds)
    if report.executor:
        lines.append(words(f"  executor  {report.executor}"))
    if took:
        lines.append(words(f"  took      {took}"))
    return lines


def _line(difference: Difference) -> str:
    where = " ".join(part for part in (difference.array, difference.region) if part)
    return f"{difference.kind}: {difference.file} {where}: {difference.what}"


def _result(report: VerifyReport) -> Text:
    if report.ok and _compared(report.checked) == _NOTHING:
        return Text("  nothing was compared", "bold yellow")
    if report.ok:
        return Text("  no difference", "bold green")
    wrong = len(report.checked.differences) + report.checked.more
    return words(f"  {count(wrong, 'difference')} (seed {report.seed})", "bold red")
