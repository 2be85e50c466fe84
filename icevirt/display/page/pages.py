"""Choose what a page about a plan, a build or a repository shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from icevirt.archive.eras import Eras
from icevirt.archive.plan import BuildPlan
from icevirt.archive.reports.build import (
    ArraySummary,
    BadFile,
    BuildReport,
    ReferenceCounts,
    RepositorySummary,
)
from icevirt.archive.reports.coverage import Coverage
from icevirt.archive.reports.history import CommitLog, when
from icevirt.archive.reports.plan import ArrayCost, PlanDifference
from icevirt.display.page.skeleton import code, facts, folded, lines, page, table
from icevirt.display.page.timeline import timeline
from icevirt.display.plan import array_of
from icevirt.display.text import box, bytes_of, count, durations, entry, references, size
from icevirt.objects.authorize import entry_of
from icevirt.planning.coverage import coverage_of
from icevirt.planning.schedule.cost_estimate import costs_of
from icevirt.remedy_notation import shown

_FILES = 500  # rows of a table


def plan_page(plan: BuildPlan) -> str:
    """Return the page of a plan."""
    cost = plan.cost or costs_of(plan)
    along = f" along {', '.join(plan.concat_dim)}" if plan.concat_dim else ""
    lead = f"{count(len(plan.files), 'file')}{along} become {count(len(plan.arrays), 'array')}."
    rows = [
        ("group", plan.group),
        *((f"along {each.dimension}", str(each)) for each in plan.dimensions),
        ("references", bytes_of(cost.references, "to be stored")),
        ("manifests", f"{cost.write_tasks:,}, for {count(cost.windows, 'window')} of arrays"),
        ("executor", plan.executor),
        (
            "memory",
            f"{size(cost.task_memory)} for a task, {size(cost.driver_memory)} for the driver",
        ),
        ("authorize", ", ".join(entry(entry_of(each)) for each in plan.containers)),
    ]
    return page(
        f"Plan {plan.build_id}",
        lead,
        [
            ("What it makes", facts(rows)),
            ("Steps", timeline(coverage_of(plan))),
            ("Arrays", _arrays([array_of(each) for each in plan.arrays])),
            ("Cost of reading", _costs(cost.of_arrays)),
            ("Eras", _eras(plan.eras)),
            ("What changes in the repository", _difference(plan.difference)),
            ("Findings", lines(map(shown, plan.notes)) + lines(map(shown, cost.warnings), "warn")),
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
    lead = f"Version {summary.snapshot_id} of {written}: {summary.message}"
    rows = [
        ("branches", ", ".join(summary.branches)),
        ("tags", ", ".join(summary.tags)),
        ("history", f"{count(summary.snapshots, 'snapshot')}, format {summary.spec_version}"),
        ("arrays", f"{len(summary.arrays):,} in {count(len(summary.groups), 'group')}"),
        ("references", bytes_of(counts, "stored here")),
        ("authorize", ", ".join(entry(each) for each in summary.containers)),
        ("format", summary.generation),
    ]
    return page(
        summary.repo,
        lead,
        [
            ("What it holds", facts(rows)),
            ("Steps", timeline(coverage)),
            ("Open it", code(snippet) if snippet else ""),
            ("The build", _build(report)),
            ("Arrays", _arrays(summary.arrays)),
            ("History", _history(history)),
            ("Attributes", "".join(_attributes(summary))),
        ],
    )


def _build(report: BuildReport | None) -> str:
    if report is None:
        return ""
    reused = f", {report.files_reused:,} reused" if report.files_reused else ""
    rows = [
        ("files", f"{report.files_scanned:,} scanned{reused}"),
        ("manifests", f"{report.manifests:,}, {size(report.manifest_bytes)}"),
        ("executor", report.executor),
        ("time", durations(report.seconds)),
    ]
    return facts(rows) + lines(map(shown, report.findings)) + _bad_files(report.bad_files)


def _arrays(arrays: Sequence[ArraySummary]) -> str:
    headings = (
        "array",
        "type",
        "shape",
        "chunks of",
        "references",
        "in files",
        "stored",
        "read by",
    )
    rows = (
        (
            each.path,
            each.data_type,
            box(each.shape),
            box(each.chunk_shape),
            references(each.references),
            size(each.references.bytes_referenced) if each.references.bytes_referenced else "",
            size(each.references.bytes_stored) if each.references.bytes_stored else "",
            each.readers.text,
        )
        for each in arrays
    )
    return table(headings, rows, numbers=("in files", "stored"))


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
    made = table(headings, rows, numbers=headings[1:])
    hint = '<p class="soft">A map is one step of all points, a series one point of all steps. '
    return f"{hint}Numbers of requests are upper bounds.</p>{made}" if made else ""


def _eras(eras: Eras | None) -> str:
    if eras is None:
        return ""
    headings = ("era", "files", "from", "to", "what differs from the era before")
    rows = (
        (
            each.name,
            f"{each.files:,}",
            each.first_label or each.first.rsplit("/", 1)[-1],
            each.last_label or each.last.rsplit("/", 1)[-1],
            "; ".join(map(str, each.changes)),
        )
        for each in eras.eras
    )
    lead = f"<p>{eras.count:,} eras: groups of files that decode equally.</p>"
    choices = lines(shown(f"{each.option}: {each.does}") for each in eras.choices)
    return lead + table(headings, rows, numbers=("files",)) + choices


def _difference(difference: PlanDifference | None) -> str:
    if difference is None:
        return ""
    stops = lines((each.what for each in difference.changes if each.stops), "bad")
    others = lines(each.what for each in difference.changes if not each.stops)
    rows = [
        ("kept", ", ".join(difference.kept)),
        ("made anew", ", ".join(difference.replaced)),
        ("deleted", ", ".join(difference.deleted)),
    ]
    return stops + others + facts(rows)


def _bad_files(files: Sequence[BadFile]) -> str:
    rows = ((each.url, each.code, shown(each.error), shown(each.remedy)) for each in files[:_FILES])
    made = table(("file", "code", "what is wrong", "what to do"), rows)
    return folded(f"{count(len(files), 'bad file')}", made, is_open=len(files) <= 20)


def _left_out(plan: BuildPlan) -> str:
    rows = ((each.url, each.kept) for each in plan.left_out[:_FILES])
    made = table(("file", "the file with the same steps that is used"), rows)
    return folded(f"{count(len(plan.left_out), 'file')} of steps that others hold", made)


def _history(history: CommitLog) -> str:
    rows = (
        (
            each.snapshot_id,
            when(each.written_at),
            f"{each.title} {each.names}".strip(),
            each.build.text if each.build else "",
        )
        for each in history.commits
    )
    more = '<p class="soft">Older commits are not shown.</p>' if history.next else ""
    return table(("snapshot", "time", "message", "build"), rows) + more


def _attributes(summary: RepositorySummary) -> Iterator[str]:
    for each in summary.groups:
        rows = sorted(each.attributes.items())
        made = table(("attribute", "value"), ((name, str(value)[:300]) for name, value in rows))
        yield folded(each.path, made, is_open=each.path == "/")
