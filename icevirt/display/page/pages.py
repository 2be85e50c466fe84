"""Choose what a page about a plan, a build or a repository shows: the parts of their texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from rich.console import Group

from icevirt.archive.plan import BuildPlan
from icevirt.archive.reports.build import (
    BadFile,
    BadFiles,
    BuildReport,
    ReferenceCounts,
    RepositorySummary,
)
from icevirt.archive.reports.coverage import Coverage
from icevirt.archive.reports.history import CommitLog, when
from icevirt.archive.reports.plan import ArrayCost
from icevirt.display import picture
from icevirt.display.blocks import Facts, Pasted, TableOrCards, notes, table_of
from icevirt.display.history import commit_log
from icevirt.display.page.skeleton import folded, page
from icevirt.display.page.timeline import timeline
from icevirt.display.plan import array_of, differing, eras, plan_facts, remarks
from icevirt.display.report import array_table, bad_files, build_facts
from icevirt.display.repository import summary_facts
from icevirt.display.text import bytes_of, count, size
from icevirt.planning.coverage import coverage_of
from icevirt.planning.schedule.cost_estimate import costs_of

_ROWS = 500  # files and attributes of a table
_ARRAYS = 1_000_000


def plan_page(plan: BuildPlan) -> str:
    """Return the page of a plan."""
    cost = plan.cost or costs_of(plan)
    along = f" along {', '.join(plan.concat_dim)}" if plan.concat_dim else ""
    lead = f"{count(len(plan.files), 'file')}{along} become {count(len(plan.arrays), 'array')}."
    changes = Group(*differing(plan.difference))
    return page(
        f"Plan {plan.build_id}",
        lead,
        [
            ("What it makes", _html(plan_facts(plan, cost))),
            ("Steps", timeline(coverage_of(plan))),
            ("Arrays", _html(array_table(map(array_of, plan.arrays)), _ARRAYS)),
            ("Cost of reading", _costs(cost.of_arrays)),
            ("Eras", "" if plan.eras is None else _html(eras(plan.eras))),
            ("What changes in the repository", _html(changes)),
            ("Findings", _html(Group(*remarks(plan, cost)))),
            ("Files left out", _bad_files(plan.bad_files) + _left_out(plan)),
        ],
    )


def repository_page(
    summary: RepositorySummary,
    coverage: Coverage | None,
    history: CommitLog,
    *,
    report: BuildReport | None = None,
    snippet: str = "",
) -> str:
    """Return the page of a version of a repository.

    Args:
        summary: What the version holds.
        coverage: Which steps its arrays cover.
        history: Its commits.
        report: Of the build that has just made it.
        snippet: Python that opens it.
    """
    counts = sum((each.references for each in summary.arrays), ReferenceCounts())
    written = when(datetime.fromisoformat(summary.written_at))
    rows = summary_facts(summary) | {"references": bytes_of(counts, "stored here")}
    rows["arrays"] = f"{len(summary.arrays):,} in {count(len(summary.groups), 'group')}"
    return page(
        summary.repo,
        f"Version {summary.snapshot_id} of {written}: {summary.message}",
        [
            ("What it holds", _html(Facts(rows))),
            ("Steps", timeline(coverage)),
            ("Open it", _html(Pasted(snippet.split("\n"))) if snippet else ""),
            ("The build", _build(report)),
            ("Arrays", _html(array_table(summary.arrays), _ARRAYS)),
            ("History", _html(commit_log(history))),
            ("Attributes", "".join(_attributes(summary))),
        ],
    )


def _html(part: object, most: int = _ROWS) -> str:
    return picture.html(part, most)


def _build(report: BuildReport | None) -> str:
    if report is None:
        return ""
    made = Group(Facts(build_facts(report)), *notes(report.findings))
    return _html(made) + _bad_files(report.bad_files)


def _costs(costs: Sequence[ArrayCost]) -> str:
    headings = ("array", "a chunk", "one map", "bytes of a map", "one series", "bytes of a series")
    rows = (
        (
            each.path,
            size(each.bytes_per_chunk) if each.bytes_per_chunk else "",
            "" if each.map is None else count(each.map.requests, "request"),
            "" if each.map is None else size(each.map.bytes),
            "" if each.series is None else count(each.series.requests, "request"),
            "" if each.series is None else size(each.series.bytes),
        )
        for each in costs
        if each.map or each.series
    )
    made = _html(_table(headings, rows, right=headings[1:]), _ARRAYS)
    hint = '<p class="soft">A map is one step of all points, a series one point of all steps. '
    return f"{hint}Numbers of requests are upper bounds.</p>{made}" if made else ""


def _bad_files(files: Sequence[BadFile]) -> str:
    made = _html(bad_files(BadFiles(files)))
    return folded(f"{count(len(files), 'bad file')}", made, is_open=len(files) <= 20)


def _left_out(plan: BuildPlan) -> str:
    headings = ("file", "the file with the same steps that is used")
    made = _html(_table(headings, ((each.url, each.kept) for each in plan.left_out)))
    return folded(f"{count(len(plan.left_out), 'file')} of steps that others hold", made)


def _attributes(summary: RepositorySummary) -> Iterator[str]:
    for each in summary.groups:
        rows = ((name, str(value)[:300]) for name, value in sorted(each.attributes.items()))
        made = _html(_table(("attribute", "value"), rows))
        yield folded(each.path, made, is_open=each.path == "/")


def _table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()
) -> TableOrCards:
    table = table_of(headings, right=right)
    for row in rows:
        table.add_row(*row)
    return table
