"""Format what a repository holds, and what `check`, `verify` and `upgrade` found in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree

from icevirt.archive.reports.build import ArraySummary, RepositorySummary
from icevirt.archive.reports.history import when
from icevirt.archive.reports.verification import Checked, VerifyReport
from icevirt.display.blocks import (
    box,
    count,
    durations,
    entry,
    finish,
    head_report,
    paste_lines,
    references,
    shorten,
    size,
    words,
)
from icevirt.display.layouts import propose_twin, show_prices
from icevirt.display.report import opening_of

if TYPE_CHECKING:
    from icevirt.archive.reports.relocation import UpgradeCopyReport
    from icevirt.repo.maintenance.check import CheckReport, ChunksReport
    from icevirt.repo.v1.upgrade import UpgradeReport

_INDENT = " " * 11
_ATTRIBUTES = 8  # of a group are shown
_MANY_ERAS, _FEW_ERAS = 20, 3  # more than so many are shown by the first few


def repository_summary(summary: RepositorySummary) -> RenderableType:
    """Return the summary for a terminal."""
    is_open = summary.arrays and summary.spec_version
    open_it = paste_lines("Open it", opening_of(summary)) if is_open else []
    return head_report(summary.repo, summary_facts(summary), Text(), _tree(summary), *open_it)


def _own_arrays(summary: RepositorySummary) -> list[ArraySummary]:
    """Return the arrays that are no coarser copy: only these get a twin."""
    return [
        array
        for array in summary.arrays
        if array.path not in summary.twins or array.path.endswith("_twin")
    ]


def summary_facts(summary: RepositorySummary) -> dict[str, str | None]:
    """Return what a version of a repository is."""
    written = when(datetime.fromisoformat(summary.written_at))
    version = f", format {summary.spec_version}" if summary.spec_version else ""
    return {
        "snapshot": f"{summary.snapshot_id}, {written}: {summary.message}",
        "history": f"{count(summary.snapshots, 'snapshot')}{version}",
        "format": summary.generation or None,
        "branches": ", ".join(summary.branches) or None,
        "tags": ", ".join(summary.tags) or None,
        "authorize": ", ".join(map(entry, summary.containers)) or None,
        "twins": ", ".join(
            f"{path} {'is in step' if is_in_step else 'was left behind, and is not read'}"
            for path, is_in_step in summary.twins.items()
        )
        or None,
        **(show_prices(summary.priced) or propose_twin(_own_arrays(summary), summary.repo)),
    }


def _tree(summary: RepositorySummary) -> Tree:
    groups = {group.path: group for group in summary.groups}
    arrays: dict[str, list[ArraySummary]] = {}
    for array in sorted(summary.arrays, key=lambda array: array.path):
        arrays.setdefault(_nearest(array.path, groups), []).append(array)
    root = Tree(words("/", "bold blue"))
    branches = {"/": root}
    hidden = _later_eras(groups)
    for path in sorted({*groups, "/"}):  # a group comes before those below it
        if path in hidden or _nearest(path, hidden) != "/":
            continue
        if path != "/":
            above = _nearest(path, branches)
            below = path.removeprefix(above).lstrip("/")
            branches[path] = branches[above].add(words(below, "bold blue"))
        items = [*groups[path].attributes.items()] if path in groups else []
        for name, value in items[:_ATTRIBUTES]:
            branches[path].add(words(f"{name} = {shorten(value)}", "dim"))
        if (rest := len(items) - _ATTRIBUTES) > 0:
            branches[path].add(words(f"and {count(rest, 'attribute')} more", "dim"))
        for array in arrays.get(path, ()):
            branches[path].add(_array(array, array.path.removeprefix(path).lstrip("/")))
    for above, rest in Counter(path.rpartition("/")[0] or "/" for path in hidden).items():
        branches[above].add(words(f"and {count(rest, 'more era')}", "dim"))
    return root


def _later_eras(groups: Iterable[str]) -> set[str]:
    """Return the groups of eras behind the first few, where there are many."""
    found: dict[str, list[tuple[int, str]]] = {}
    for path in groups:
        above, _, number = path.rpartition("/era_")
        if number.isdecimal():
            found.setdefault(above, []).append((int(number), path))
    many = (sorted(eras) for eras in found.values() if len(eras) > _MANY_ERAS)
    return {path for eras in many for _, path in eras[_FEW_ERAS:]}


def _nearest(path: str, known: Container[str]) -> str:
    """Return the nearest known group above a node."""
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        if path in known:
            return path
    return "/"


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
    what = (
        count(report.snapshots, "snapshot"),
        count(report.manifests, "manifest"),
        count(report.references, "reference"),
    )
    wrong = sum(not problem.advice for problem in report.problems)
    advice = f", with {count(len(report.problems), 'remark')}" if report.problems else ""
    return Group(
        words(report.repo, "bold"),
        words(f"  checked  {', '.join(what)}"),
        *([words(f"  format   {report.generation}")] if report.generation else []),
        *(words(each, "yellow" if each.advice else "red") for each in report.problems),
        *([] if report.chunks is None else _chunks(report.chunks)),
        finish(f"found    {count(wrong, 'problem')}", "bold red")
        if wrong
        else finish(f"sound{advice}"),
    )


def _chunks(chunks: ChunksReport) -> list[Text]:
    intact = count(chunks.intact, "native chunk")
    states = f"{intact} intact, {chunks.damaged:,} damaged, {chunks.unverifiable:,} unverifiable"
    lines = [words(f"  chunks   {states}")]
    for array in chunks.arrays:
        if array.damaged or array.unverifiable:
            states = (
                f"{array.path}: {array.intact:,} intact, {array.damaged:,} damaged,"
                f" {array.unverifiable:,} unverifiable"
            )
            lines.append(words(f"{_INDENT}{states}", "red" if array.damaged else ""))
    if chunks.unverifiable:
        why = "the names of unverifiable chunks may not be digests of their bytes;"
        do = "write the chunks again\n           with content_addressed_chunks=True to make"
        lines.append(Text(f"{_INDENT}{why} {do} them verifiable"))
    if chunks.unlisted:
        which = f"{chunks.unlisted:,} of the intact chunks are in no list, so later"
        why = "damage to them would count as\n           unverifiable: add --record to list them"
        lines.append(Text(f"{_INDENT}{which} {why}"))
    return lines


def upgrade_report(report: UpgradeReport) -> RenderableType:
    """Return the report for a terminal."""
    carried = f"  carried  {count(report.commits_carried_over, 'commit')} of V1 clients"
    left = "  note     V1 files remain: the next upgrade carries over what V1 clients commit"
    state = "is already V2" + (", and V1 files remain" if report.v1_files_left else "")
    if report.from_version == 1:
        state = "can be upgraded from V1 to V2" if report.dry_run else "upgraded from V1 to V2"
    return Group(
        words(report.repo, "bold"),
        words(f"  holds    {_contents(report)}"),
        *([words(carried)] if report.commits_carried_over else []),
        *([words(left, "yellow")] if report.v1_files_left and not report.dry_run else []),
        finish(state),
    )


def upgrade_copy_report(report: UpgradeCopyReport) -> RenderableType:
    """Return the report for a terminal."""
    chunks = f"{count(report.chunks, 'chunk')}, {size(report.bytes)}" if report.chunks else None
    state = "can be upgraded to V2" if report.dry_run else "upgraded to V2"
    return head_report(
        report.repo,
        {
            "from": f"{report.source}, format {report.generation}",
            "holds": f"{_contents(report)}, {count(report.references, 'reference')}",
            "to copy" if report.dry_run else "copied": chunks,
            "authorize": ", ".join(map(entry, report.authorize)) or None,
        },
        *(words(f"  note     {line}", "yellow") for line in report.notes),
        *(words(f"  lost     {line}", "red") for line in report.lost),
        finish(f"{state}, without what is listed", "bold red") if report.lost else finish(state),
    )


def _contents(report: UpgradeReport | UpgradeCopyReport) -> str:
    branches = f"{report.branches} branch" + ("es" if report.branches != 1 else "")
    return f"{count(report.snapshots, 'snapshot')}, {branches}, {count(report.tags, 'tag')}"


def verify_report(report: VerifyReport) -> RenderableType:
    """Return the report for a terminal."""
    checked = report.checked
    parts = []
    if checked.files:
        files = count(checked.files, "file")
        parts.append(f"{count(checked.references, 'reference')} into {files}")
    if checked.chunks or checked.arrays:
        parts.append(
            f"{count(checked.values, 'value')} of {count(checked.chunks, 'chunk')} and of"
            f" {count(checked.arrays, 'pair')} of a stored array and a file"
        )
    wrong = len(checked.differences) + checked.more
    end = finish("no difference") if parts else finish("nothing was compared", "bold yellow")
    if not report.ok:
        end = finish(f"{count(wrong, 'difference')} (seed {report.seed})", "bold red")
    return Group(
        words(report.repo, "bold"),
        words(f"  snapshot  {report.snapshot_id}"),
        words(f"  checked   {'; '.join(parts) or 'nothing'}"),
        *_remarks(report),
        *_differences(checked),
        end,
    )


def _remarks(report: VerifyReport) -> Iterator[Text]:
    if report.checked.unverifiable:
        yield words(
            f"  remark    {count(report.checked.unverifiable, 'reference')} without a strong "
            "etag or a modification time: changes of these files may go unnoticed",
            "yellow",
        )
    if report.executor:
        yield words(f"  executor  {report.executor}")
    if took := durations(report.seconds):
        yield words(f"  took      {took}")


def _differences(checked: Checked) -> Iterator[Text]:
    for each in checked.differences:
        where = " ".join(filter(None, (each.array, each.region)))
        yield words(f"  {each.kind}: {each.file} {where}: {each.what}", "red")
    if checked.more:
        yield words(f"  and {count(checked.more, 'further difference')}", "red")
    for array, reason in checked.not_compared:
        yield words(f"  not compared: {array}: {reason}", "yellow")
    if checked.unmatched:
        why = "because no compared chunk shares a file with them"
        yield words(f"  not compared, {why}: {', '.join(checked.unmatched)}", "yellow")
