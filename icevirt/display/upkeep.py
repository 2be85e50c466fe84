"""Format what operating a living archive reports: maintenance, state, withdrawal, moves, copies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from rich.console import Group, RenderableType
from rich.text import Text

from icevirt.archive.reports.history import NamedVersion, when
from icevirt.archive.reports.relocation import (
    ExportReport,
    MaterializeReport,
    MovedDataset,
    RelocateReport,
)
from icevirt.archive.reports.upkeep import (
    ExcludedFiles,
    MaintenanceReport,
    RepositoryStatus,
    UnfinishedBuild,
    UpdateReport,
    WindowChange,
    WithdrawReport,
)
from icevirt.display.blocks import (
    Facts,
    box,
    count,
    durations,
    finish,
    head_report,
    list_lines,
    notes,
    paste_lines,
    place,
    size,
    words,
)
from icevirt.display.fixes import quote_word
from icevirt.display.layouts import compare_layouts
from icevirt.display.plan import build_plan
from icevirt.display.report import opening, show_held
from icevirt.remedy_notation import COMMAND, REPOSITORY

_FILES = 20  # that are shown
_YEAR = 24 * 365.25  # hours
_LONG = 2 * _YEAR


def maintenance_report(report: MaintenanceReport) -> RenderableType:
    """Return the report for a terminal."""
    left = report.snapshots - report.snapshots_expired
    older = report.snapshots_expired - len(report.expired)
    expired = [*map(_version, report.expired), *[f"and {older:,} older ones"] * (older > 0)]
    amount = f"{count(report.objects, 'object')}, {size(report.bytes)}"
    return head_report(
        report.repo,
        {
            "history": f"from {when(report.history_from)}; {count(left, 'snapshot')} stay,"
            f" {report.snapshots_expired:,} expire",
            "garbage": f"older than {when(report.garbage_before)}",
            **({} if report.window is None else _window(report.window, is_plan=report.is_plan)),
            **{
                kind: f"{found.objects:,}, {size(found.bytes)}"
                for kind, found in report.deleted.items()
                if found.objects
            },
            "joined": f"{count(report.manifests_joined, 'manifest')} of appends"
            if report.manifests_joined
            else None,
            "executor": report.executor or None,
            "took": durations(report.seconds) or None,
        },
        *list_lines(
            "Kept by name, though older",
            (f"{each.name}: {_version(each)}" for each in report.kept_by_name),
        ),
        *list_lines("Expire; readers of these cannot read on", expired),
        *list_lines("Unfinished builds; younger objects stay", map(_running, report.unfinished)),
        Text(),
        finish(
            f"nothing was changed: a plan ({amount})" if report.is_plan else f"deleted {amount}"
        ),
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
    return head_report(
        report.repo,
        {
            "files": f"{len(report.files):,}; {count(report.references, 'reference')}",
            "built without": built or "none: no branch shows the files",
            "versions": f"{len(report.snapshots):,} leave the history, for good",
            "tags": f"{', '.join(report.tags)}: deleted" if report.tags else None,
            "deleted": f"{count(report.manifests, 'manifest')},"
            f" {count(report.chunks, 'native chunk')}",
            "commits": ", ".join(report.commits) if report.commits else None,
        },
        *list_lines("Versions; readers of these cannot read on", map(_version, report.snapshots)),
        *list_lines("What remains", report.remains),
        Text(),
        finish("nothing was changed: a plan" if report.is_plan else "withdrawn"),
    )


def excluded_files(found: ExcludedFiles) -> RenderableType:
    """Return which files stay out for a terminal."""
    urls_of: dict[str, list[str]] = {}
    for why, branch, group, urls in found.notes:
        title = f"{why}: {group or 'all groups'} on {branch or 'all branches'}"
        urls_of.setdefault(title, []).extend(urls)
    parts: list[RenderableType] = []
    for title, lines in urls_of.items():
        more = [f"and {len(lines) - _FILES:,} more"] if len(lines) > _FILES else []
        parts += list_lines(title, [*lines[:_FILES], *more])
    return Group(words(f"{count(found.count, 'file')} excluded from {found.repo}"), *parts)


def repository_status(status: RepositoryStatus) -> RenderableType:
    """Return how a dataset is for a terminal."""
    steps = "" if status.steps is None else f"{count(status.steps, 'step')} of {status.dimension}"
    newest = f"unknown; {steps}" if steps else "unknown"
    if status.newest_step is not None and status.age is not None:
        newest = f"{when(status.newest_step)}, {_duration(status.age)} before now; {steps}"
    bad = f", {len(status.bad_files):,} left out" if status.bad_files else ""
    small = f", {status.manifests_to_join:,} to be joined" if status.manifests_to_join > 1 else ""
    values = None
    if status.referenced_bytes is not None and status.stored_bytes is not None:
        values = f"{size(status.referenced_bytes)} in the files, {size(status.stored_bytes)} stored"
    return head_report(
        f"{status.repo} {status.branch} {status.group}",
        {
            "newest step": newest,
            "lag": None
            if status.lag is None
            else f"{_duration(status.lag)} behind the newest file",
            "files": None
            if status.files is None
            else f"{status.files:,}{bad}{_more_bytes(status.source_bytes)}",
            "archive": None
            if status.changes is None
            else _count_changes(status.changes) or "nothing new",
            "values": values,
            "manifests": f"{status.manifests:,}{_more_bytes(status.manifest_bytes)}{small}",
            "last build": None if status.last_build is None else when(status.last_build),
            "last commit": f"{when(status.last_commit)}, {count(status.snapshots, 'snapshot')}",
        },
        *list_lines("Unfinished builds", map(_running, status.unfinished)),
        *list_lines("Left out", status.bad_files[:_FILES]),
        *list_lines("Held back", show_held(status.held_files)),
        *notes(status.notes),
        *_changed_files(status),
    )


def _count_changes(changes: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(count(len(urls), f"{name} file") for name, urls in changes.items() if urls)


def _changed_files(status: RepositoryStatus) -> list[RenderableType]:
    """Return the files that an update would take, and the command that does."""
    changes = status.changes or {}
    lines = [
        *(f"{name:<9} {url}" for name, urls in changes.items() for url in urls[:_FILES]),
        *(
            f"{name:<9} and {len(urls) - _FILES:,} more"
            for name, urls in changes.items()
            if len(urls) > _FILES
        ),
    ]
    if not lines:
        return []
    repo = quote_word(REPOSITORY.get() or status.repo)
    scope = [("--branch", status.branch, "main"), ("--group", status.group, "/")]
    more = "".join(f" {flag} {quote_word(name)}" for flag, name, usual in scope if name != usual)
    return [
        *list_lines("Files that the dataset lacks or holds otherwise", lines),
        *paste_lines("Take them", f"icevirt update {repo}{more}"),
    ]


def _duration(time: timedelta) -> str:
    """Return a duration in days; in hours if it is short, in years if it is long."""
    hours = time.total_seconds() / 3600
    if abs(hours) >= _LONG:
        return f"{hours / _YEAR:.1f} years"
    return f"{hours / 24:.1f} days" if abs(hours) >= 48 else f"{hours:.1f} hours"


def _more_bytes(number: int | None) -> str:
    return "" if number is None else f", {size(number)}"


def _running(each: UnfinishedBuild) -> str:
    return f"{each.build_id}  began {when(each.began)}, last wrote {when(each.last_write)}"


def _version(each: NamedVersion) -> str:
    return f"{each.snapshot_id}  {when(each.written_at)}  {each.message}"


def relocate_report(report: RelocateReport) -> RenderableType:
    """Return the report for a terminal."""
    moved = "; ".join(f"{name}: {old} -> {new}" for name, old, new in report.containers_moved)
    state = "relocated"
    if report.is_plan:
        state = "nothing was changed: a plan"
    elif not report.references and not report.datasets:
        state = "nothing to do: all references lead to the new place"
    return head_report(
        report.repo,
        {
            "from": report.old,
            "to": report.new,
            "concerns": f"{_references(report)}, {size(report.bytes_referenced)}",
            "configuration": f"{moved} (in all snapshots, and without undo)" if moved else None,
            "container": f"{', '.join(report.containers_added)} added to the configuration"
            if report.containers_added
            else None,
            "commit": _commit(report),
            "compared": _describe_comparison(report)
            if not report.is_plan and report.files
            else None,
            "checksums": f"{count(report.files_restamped, 'file')} with a new time or etag"
            if report.files_restamped
            else None,
            **{f"dataset {each.group}": _dataset(each) for each in report.datasets},
            "executor": report.executor or None,
            "took": durations(report.seconds) or None,
        },
        finish(state),
    )


def _references(report: RelocateReport | ExportReport) -> str:
    return f"{count(report.references, 'reference')} into {count(report.files, 'file')}"


def _dataset(moved: MovedDataset) -> str:
    """Say what append, update and withdraw go by from now on."""
    parts = [f"lists {count(moved.files, 'file')} at the new place"]
    if moved.recipe and moved.recipe != moved.recipe_before:
        how = (
            "trusted on this machine, as before"
            if moved.is_trusted
            else "update asks for its digest, as you did not make it on this machine"
        )
        parts.append(f"recipe {moved.recipe} ({how})")
    return "; ".join((*parts, *moved.notes))


def _commit(report: RelocateReport) -> str:
    if not report.manifests and not report.datasets:
        return "none: nothing names the old place"
    if not report.manifests:
        where = f"to {report.branch}" if report.is_plan else f"{report.snapshot_id}"
        return f"{where}; of what the datasets record, no reference is changed"
    what = f"{report.manifests:,} of {count(report.manifests_there, 'manifest')}"
    if report.is_plan:
        return f"to {report.branch}; {what} to be rewritten, older snapshots stay as they are"
    return f"{report.snapshot_id} on {report.branch}; {what} rewritten"


def _describe_comparison(report: RelocateReport) -> str:
    gone = f"; checksums alone of {count(report.files_alone, 'file')} that the old place has no"
    return (
        f"lengths of {count(report.files - report.files_alone, 'file')};"
        f" {size(report.bytes_compared)} of {report.references_compared:,} of"
        f" {count(report.references, 'reference')} (seed {report.seed})"
        f"{f'{gone} longer' if report.files_alone else ''}"
    )


def materialize_report(report: MaterializeReport) -> RenderableType:
    """Return the report for a terminal."""
    spans = ", ".join(f"{low}:{high}" for low, high in report.region)
    widened = ", extended to whole chunks" if report.is_widened else ""
    shape = f" of {box(report.chunk_shape)}" if report.chunk_shape else ""
    before = ", before compression" if report.is_plan and report.is_reencoded else ""
    if report.is_plan:
        state = "nothing was changed: a plan"
    elif report.snapshot_id:
        state = "stored; every chunk was compared"
    else:
        state = "nothing to do: all of it is stored already"
    return head_report(
        report.repo,
        {
            "variable": f"{report.variable}[{spans}]{widened}",
            "coarser copies": ", ".join(report.levels) or None,
            "chunks": f"{count(report.chunks, 'chunk')}{shape}",
            "reads": f"{size(report.bytes_read)} of source files",
            "stores": f"{size(report.bytes_stored)}{before}",
            **(compare_layouts(report.own, report.twin) if report.own and report.twin else {}),
            "each append": f"writes up to {size(report.bytes_rewritten)} of values again"
            if report.bytes_rewritten
            else None,
            "tasks": f"{report.tasks:,}, {report.executor}",
            "commit": f"{report.snapshot_id} on {report.branch}" if report.snapshot_id else None,
            "took": durations(report.seconds) or None,
        },
        finish(state),
    )


def export_report(report: ExportReport) -> RenderableType:
    """Return the report for a terminal."""
    return head_report(
        report.path,
        {
            "version": f"{report.snapshot_id or 'with uncommitted changes'}, {report.group}",
            "written": "a collection of STAC 1.1, and an item for each file"
            if report.format == "stac"
            else f"{report.format}, metadata of zarr v{report.zarr_format}",
            "holds": f"{count(report.arrays, 'array')}, {_references(report)}",
            "embedded": f"{count(report.chunks_embedded, 'chunk')}, {size(report.bytes_embedded)}"
            if report.chunks_embedded
            else None,
        },
        *(words(f"note: {note}", "dim") for note in report.notes),
        finish("" if report.format == "stac" else "checksums are not exported", ""),
    )


def update_report(report: UpdateReport) -> RenderableType:
    """Return the report for a terminal."""
    changes = report.files_added + report.files_corrected + report.files_vanished
    changes += report.files_superseded + len(report.variables)
    verb = "Skipped" if report.skipped else "Unchanged" if report.held else "Up to date"
    if report.is_dry_run and changes:
        verb = "Would update"
    elif not (report.is_dry_run or report.already_built):
        verb = "Updated"
    is_good = not (report.is_dry_run or report.skipped or verb == "Unchanged")
    files = f"{report.files_scanned:,} scanned, {report.files_known:,} unchanged"
    excluded = f"{count(report.files_excluded, 'file')}, see icevirt exclude"
    parts: list[RenderableType] = []
    if report.plan is not None:
        parts = [Text(), build_plan(report.plan)]
    elif not report.already_built:
        parts = paste_lines("Open it", opening(report))
    return Group(
        Text.assemble((verb, "bold green" if is_good else "bold"), " ", words(report.repo, "bold")),
        *(words(f"  {line}") for line in _changes(report)),
        Facts(
            {
                "snapshot": f"{report.snapshot_id} on {report.branch}",
                "files": None if report.already_built else files,
                "excluded": excluded if report.files_excluded else None,
                "next": "; ".join(_next_commands(report)) or None,
            }
        ),
        *notes(report.findings),
        *list_lines("Held back", show_held(report.held), "bold red"),
        *parts,
    )


def _changes(report: UpdateReport) -> Iterator[str]:
    """Yield what happens to files, a line each, with the marks of version control."""
    if report.variables:
        names = ", ".join(report.variables)
        yield f"~ {count(len(report.variables), 'variable')}: {names}, made again from all files"
        return
    rest = report.files_corrected - report.files_same_layout - report.files_rescanned
    kinds = (  # how files changed, where not all of them were written anew
        (rest, "with other content"),
        (report.files_same_layout, "touched or rewritten in place"),
        (report.files_rescanned, "scanned again by request"),
    )
    is_mixed = report.files_same_layout or report.files_rescanned
    corrected = ", ".join(f"{number:,} {what}" for number, what in kinds if number and is_mixed)
    steps = "its steps" if report.files_vanished == 1 else "their steps"
    gone = {"missing": f"{steps} read as missing values", "remove": f"{steps} are removed"}
    waiting = "it" if report.files_waiting == 1 else "them"
    lines = (
        ("+", "new ", report.files_added, "", ""),
        ("~", "changed ", report.files_corrected, "", corrected),
        ("-", "", report.files_vanished, " gone from the archive", gone.get(report.vanished, "")),
        ("-", "provisional ", report.files_superseded, "", "replaced by the final version"),
        ("!", "", len(report.held), " held back", "left out, and tried again by the next update"),
        (
            "?",
            "",
            report.files_waiting,
            " just changed",
            f"perhaps not written to the end; the next update takes {waiting}",
        ),
    )
    for mark, before, number, after, more in lines:
        if number:
            yield f"{mark} {count(number, f'{before}file')}{after}{f': {more}' if more else ''}"
    for name, (before, after) in report.ends.items():
        if before != after:
            yield f"{name} ends at {after}; it ended at {before}"
    if not (any(number for _, _, number, *_ in lines) or report.skipped):
        yield "no file is new, changed or gone"


def _next_commands(report: UpdateReport) -> Iterator[str]:
    """Yield commands for what people do after an update, in the notation of the command line."""
    if COMMAND.get() is None:
        return
    repo = quote_word(REPOSITORY.get() or report.repo)
    branch = "" if report.branch == "main" else f" --branch {quote_word(report.branch)}"
    if report.held:
        file = quote_word(place(report.held[0].url))
        which = "it" if len(report.held) == 1 else "this file"
        yield f"icevirt exclude {repo} {file} leaves {which} out for good"
    if not (report.is_dry_run or report.already_built):
        yield f"icevirt undo {repo}{branch} takes the update back"
