"""Format what operating a living archive reports: maintenance, state, withdrawal."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from rich.console import Group, RenderableType
from rich.text import Text

from icevirt.archive.reports.history import NamedVersion, when
from icevirt.archive.reports.upkeep import (
    ExcludedFiles,
    MaintenanceReport,
    RepositoryStatus,
    UnfinishedBuild,
    WindowChange,
    WithdrawReport,
)
from icevirt.display.blocks import Facts, listed, notes
from icevirt.display.report import held_files
from icevirt.display.text import count, durations, size, words

_FILES = 20  # that are shown
_YEAR = 24 * 365.25  # hours
_LONG = 2 * _YEAR


def maintenance_report(report: MaintenanceReport) -> RenderableType:
    """Return the report for a terminal."""
    left = report.snapshots - report.snapshots_expired
    rows = {
        "history": f"from {when(report.history_from)}; {count(left, 'snapshot')} stay,"
        f" {report.snapshots_expired:,} expire",
        "garbage": f"older than {when(report.garbage_before)}",
    }
    if report.window is not None:
        rows |= _window(report.window, is_plan=report.is_plan)
    for kind, found in report.deleted.items():
        if found.objects:
            rows[kind] = f"{found.objects:,}, {size(found.bytes)}"
    if report.manifests_joined:
        rows["joined"] = f"{count(report.manifests_joined, 'manifest')} of appends"
    if report.executor:
        rows["executor"] = report.executor
    if took := durations(report.seconds):
        rows["took"] = took
    return Group(
        words(report.repo, "bold"),
        Facts(rows),
        *listed("Kept by name, though older", map(_named, report.kept_by_name)),
        *listed("Expire; readers of these cannot read on", _expired(report)),
        *listed("Unfinished builds; younger objects stay", map(_running, report.unfinished)),
        Text(),
        Text(_state(report), "bold green"),
    )


def _window(change: WindowChange, *, is_plan: bool) -> dict[str, str]:
    span = f"{change.window} of {change.dimension}, counted from {change.newest}"
    going = (
        f"{change.steps_dropped:,} of {count(change.steps, 'step')} and"
        f" {change.files_dropped:,} of {count(change.files, 'file')}"
    )
    if not change.is_due:
        return {"window": span, "behind it": "less than a tenth of the steps: nothing is dropped"}
    cost = f"about {count(change.references, 'reference')} are written again"
    done = f"; {cost}" if is_plan else f" dropped by {change.snapshot_id}"
    return {"window": span, "behind it": f"{going}{done}", "begins": change.keeps_from}


def withdraw_report(report: WithdrawReport) -> RenderableType:
    """Return the report for a terminal."""
    built = ", ".join(f"{group} on {branch}" for branch, group in report.datasets)
    rows = {
        "files": f"{len(report.files):,}; {count(report.references, 'reference')}",
        "built without": built or "none: no branch shows the files",
        "versions": f"{len(report.snapshots):,} leave the history, for good",
    }
    if report.tags:
        rows["tags"] = f"{', '.join(report.tags)}: deleted"
    rows["deleted"] = (
        f"{count(report.manifests, 'manifest')}, {count(report.chunks, 'native chunk')}"
    )
    if report.scans_lost:
        rows["scans"] = f"{count(report.scans_lost, 'other file')} will be scanned again"
    if report.commits:
        rows["commits"] = ", ".join(report.commits)
    state = "nothing was changed: a plan" if report.is_plan else "withdrawn"
    return Group(
        words(report.repo, "bold"),
        Facts(rows),
        *listed("Versions; readers of these cannot read on", map(_version, report.snapshots)),
        *listed("What remains", report.remains),
        Text(),
        words(f"  {state}", "bold green"),
    )


def excluded_files(found: ExcludedFiles) -> RenderableType:
    """Return which files stay out for a terminal."""
    parts: list[RenderableType] = [
        words(f"{count(found.count, 'file')} excluded from {found.repo}")
    ]
    urls_of: dict[tuple[str, str, str], list[str]] = {}
    for why, branch, group, urls in found.notes:
        urls_of.setdefault((why, branch, group), []).extend(urls)
    for (why, branch, group), all_urls in urls_of.items():
        title = f"{why}: {group or 'all groups'} on {branch or 'all branches'}"
        more = [f"and {len(all_urls) - _FILES:,} more"] if len(all_urls) > _FILES else []
        parts += listed(title, [*all_urls[:_FILES], *more])
    return Group(*parts)


def repository_status(status: RepositoryStatus) -> RenderableType:
    """Return how a dataset is for a terminal."""
    rows = {"newest step": _step(status)}
    if status.lag is not None:
        rows["lag"] = f"{_duration(status.lag)} behind the newest file"
    if status.files is not None:
        bad = f", {len(status.bad_files):,} left out" if status.bad_files else ""
        rows["files"] = f"{status.files:,}{bad}{_sized(status.source_bytes)}"
    if status.referenced_bytes is not None and status.stored_bytes is not None:
        referenced, stored = size(status.referenced_bytes), size(status.stored_bytes)
        rows["values"] = f"{referenced} in the files, {stored} stored"
    small = f", {status.manifests_to_join:,} to be joined" if status.manifests_to_join > 1 else ""
    rows["manifests"] = f"{status.manifests:,}{_sized(status.manifest_bytes)}{small}"
    if status.last_build is not None:
        rows["last build"] = when(status.last_build)
    rows["last commit"] = f"{when(status.last_commit)}, {count(status.snapshots, 'snapshot')}"
    return Group(
        words(f"{status.repo} {status.branch} {status.group}", "bold"),
        Facts(rows),
        *listed("Unfinished builds", map(_running, status.unfinished)),
        *listed("Left out", status.bad_files[:_FILES]),
        *listed("Held back", held_files(status.held_files)),
        *notes(status.notes),
    )


def _step(status: RepositoryStatus) -> str:
    steps = "" if status.steps is None else f"{count(status.steps, 'step')} of {status.dimension}"
    if status.newest_step is None or status.age is None:
        return f"unknown; {steps}" if steps else "unknown"
    return f"{when(status.newest_step)}, {_duration(status.age)} before now; {steps}"


def _duration(time: timedelta) -> str:
    """Return a duration in days; in hours if it is short, in years if it is long."""
    hours = time.total_seconds() / 3600
    if abs(hours) >= _LONG:
        return f"{hours / _YEAR:.1f} years"
    return f"{hours / 24:.1f} days" if abs(hours) >= 48 else f"{hours:.1f} hours"


def _sized(number: int | None) -> str:
    return "" if number is None else f", {size(number)}"


def _running(each: UnfinishedBuild) -> str:
    return f"{each.build_id}  began {when(each.began)}, last wrote {when(each.last_write)}"


def _named(each: NamedVersion) -> str:
    return f"{each.name}: {each.snapshot_id}  {when(each.written_at)}  {each.message}"


def _version(each: NamedVersion) -> str:
    return f"{each.snapshot_id}  {when(each.written_at)}  {each.message}"


def _expired(report: MaintenanceReport) -> Iterator[str]:
    yield from map(_version, report.expired)
    if (more := report.snapshots_expired - len(report.expired)) > 0:
        yield f"and {more:,} older ones"


def _state(report: MaintenanceReport) -> str:
    if report.is_plan:
        return (
            f"  nothing was changed: a plan ({count(report.objects, 'object')},"
            f" {size(report.bytes)})"
        )
    return f"  deleted {count(report.objects, 'object')}, {size(report.bytes)}"
