"""Format the report of a build, and the parts that reports share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from icevirt.archive.reports.build import (
    AppendReport,
    ArraySummary,
    BadFile,
    BadFiles,
    BuildReport,
    ReferenceCounts,
    RepositorySummary,
    reason_of,
)
from icevirt.archive.reports.upkeep import FileHeldBack
from icevirt.display.blocks import (
    Facts,
    TableOrCards,
    box,
    bytes_of,
    count,
    durations,
    list_lines,
    notes,
    paste_lines,
    place,
    references,
    size,
    some,
    table_of,
    words,
)
from icevirt.planning.reader_support import RECTILINEAR
from icevirt.remedy_notation import show_remedy

_IN_ERA = re.compile(r"((?:.*/)?era_)[0-9]+(/.+)")
_ROWS = 20  # of a table of arrays, beyond which eras share them
_MOST_ROWS = 200  # of a table, beyond which groups share them: a plate has thousands of arrays
_NAMED = 5  # groups in a line
_HELD = 20  # files that are shown
_HEADINGS = ("array", "type", "shape", "chunks of", "references", "in files", "stored", "read by")


def build_report(report: BuildReport) -> RenderableType:
    """Return the report for a terminal."""
    return _build("Already built" if report.already_built else "Built", report, build_facts(report))


def append_report(report: AppendReport) -> RenderableType:
    """Return the report for a terminal."""
    known = f"{report.files_known:,} {'was' if report.files_known == 1 else 'were'} there already"
    rows = {
        "appended": f"{count(report.files_appended, 'file')}; {known}",
        "replaced": count(report.files_replaced, "file") if report.files_replaced else None,
        "excluded": count(report.files_excluded, "file") if report.files_excluded else None,
    }
    if not report.already_built:
        return _build("Appended to", report, {**rows, **build_facts(report)})
    at = f"{report.snapshot_id} on {report.branch}" if report.snapshot_id else None
    done = Text.assemble(("Nothing to append to", "bold green"), " ", words(report.repo, "bold"))
    return Group(done, Facts({"snapshot": at, **rows}), *notes(report.findings))


def virtual_build_report(report: Any) -> RenderableType:
    """Return for a terminal what a commit of virtual datasets did."""
    counts = f"{count(report.arrays, 'array')}, {count(report.references, 'reference')}"
    unverifiable = f", {report.files_unverifiable:,} without a time or etag"
    return Group(
        Text.assemble(("Built", "bold green"), " ", words(report.repo, "bold")),
        Facts(
            {
                "snapshot": f"{report.snapshot_id} on {report.branch}",
                "group": report.group if report.group != "/" else None,
                "files": f"{report.files:,}{unverifiable if report.files_unverifiable else ''}",
                "virtual": f"{counts}: {size(report.bytes_referenced)} stay in the files",
                "authorize": ", ".join(report.containers) or None,
            }
        ),
    )


def _build(verb: str, report: BuildReport, rows: Mapping[str, str | None]) -> RenderableType:
    return Group(
        Text.assemble((verb, "bold green"), " ", words(report.repo, "bold")),
        Facts(rows),
        Text(),
        array_table(report.arrays),
        *notes(report.findings),
        *show_left_out("Left out", report.bad_files),
        *paste_lines("Open it", opening(report)),
    )


def opening(report: BuildReport) -> str:
    """Return the Python that opens the dataset, or the tree of datasets."""
    more = [
        *(["eras='concat'"] if report.eras > 1 and report.opens_as_one else []),
        f"authorize_virtual_chunk_access={list(report.opens_below)!r}",
    ]
    held = _groups(report.arrays) if report.is_tree else []
    return _call(report.repo, report.group, held, more, report.arrays)


def opening_of(summary: RepositorySummary) -> str:
    """Return the Python that opens what a repository holds: one group, or several as a tree."""
    groups = _groups(summary.arrays)
    more = [f"authorize_virtual_chunk_access={list(summary.containers)!r}"]
    held = groups if len(groups) > 1 else []
    group = "/" if held else next(iter(groups), "/")
    return _call(summary.repo, group, held, more if summary.containers else [], summary.arrays)


def _groups(arrays: Iterable[ArraySummary]) -> list[str]:
    """Return the groups that hold arrays."""
    return sorted({each.path.rsplit("/", 1)[0] or "/" for each in arrays})


def _call(
    repo: str,
    group: str,
    held: Sequence[str],
    more: Sequence[str],
    arrays: Iterable[ArraySummary],
) -> str:
    """Return the lines that open a group, as a tree where it is to show groups that it holds."""
    lines = ["import xarray as xr"]
    # the setting without which zarr refuses chunks of different lengths
    if any(RECTILINEAR in each for array in arrays for each in array.readers.zarr_lacks):
        lines += ["import zarr", f"zarr.config.set({{{RECTILINEAR!r}: True}})"]
    if held:
        lines.append(f"# {some(held, _NAMED)}")
    lines.append("xr.open_datatree(" if held else "xr.open_dataset(")
    named = [] if group == "/" else [f"group={group!r}"]
    lines += [f"    {each}," for each in (repr(repo), "engine='icevirt'", *named, *more)]
    return "\n".join([*lines, ")"])


def build_facts(report: BuildReport) -> dict[str, str | None]:
    """Return what a build made."""
    reused = f", {report.files_reused:,} reused from an earlier run" if report.files_reused else ""
    bad = f", {len(report.bad_files):,} left out" if report.bad_files else ""
    return {
        "snapshot": f"{report.snapshot_id} on {report.branch}",
        "files": f"{report.files_scanned:,} scanned{reused}{bad}",
        "arrays": f"{len(report.arrays)} in {report.group}",
        "references": bytes_of(report.references, "stored here"),
        "manifests": f"{report.manifests:,}, {size(report.manifest_bytes)}",
        "executor": report.executor or None,
        "time": durations(report.seconds),
    }


def show_held(files: Sequence[FileHeldBack]) -> Iterator[str]:
    """Yield files that an update left out, and why, on one line each."""
    for each in files[:_HELD]:
        yield f"{place(each.url)}: {show_remedy(reason_of(each.error, each.url))}"
    if len(files) > _HELD:
        yield f"and {len(files) - _HELD:,} more"


def show_left_out(title: str, files: Iterable[BadFile]) -> list[RenderableType]:
    """Return bad files and what is wrong with them, on one line each."""
    return list_lines(
        title,
        (
            f"{place(each.url)}: {show_remedy(reason_of(each.error, each.url))} [{each.code}]"
            for each in files
        ),
        "bold red",
    )


def bad_files(files: BadFiles) -> RenderableType:
    """Return a row for each file, for a terminal."""
    if not files:
        return words("no bad files")
    table = table_of(("url", "code", "error", "remedy"), right=())
    for row in files.rows():
        table.add_row(*map(show_remedy, row))
    return table


def array_table(arrays: Iterable[ArraySummary]) -> TableOrCards:
    """Return a row for each array: what it is, where its chunks are, what reads it.

    Arrays of many eras, or of a great many groups, that are described alike share a row.
    """
    table = table_of(_HEADINGS, right=("in files", "stored"))
    for path, alike in _share_rows([*arrays]).items():
        array, counts = alike[0], sum((each.references for each in alike), ReferenceCounts())
        lengths = zip(*(each.shape for each in alike), strict=True)
        shape = [each[0] if len({*each}) == 1 else (min(each), max(each)) for each in lengths]
        at_most = "≤ " if counts.stored else ""  # a plan does not know what compression takes off
        table.add_row(
            words(path[0], "bold"),
            words(array.data_type),
            box(shape),
            box(array.chunk_shape),
            references(counts),
            size(counts.bytes_referenced) if counts.bytes_referenced else "",
            f"{at_most}{size(counts.bytes_stored)}" if counts.bytes_stored else "",
            words(array.readers.text),
        )
    return table


def _share_rows(
    arrays: Sequence[ArraySummary],
) -> dict[tuple[str, object], list[ArraySummary]]:
    """Return arrays by row; the first part of a key is the path to show."""
    kinds = [(a.data_type, a.chunk_shape, len(a.shape), a.readers.text) for a in arrays]
    found: dict[tuple[str, object], list[ArraySummary]] = {}
    for spell in (str, _in_any_era, _in_any_group):
        found = {}
        for each, kind in zip(arrays, kinds, strict=True):
            found.setdefault((spell(each.path), kind), []).append(each)
        if len(found) <= (_ROWS if spell is str else _MOST_ROWS):
            break
    return found


def _in_any_era(path: str) -> str:
    return _IN_ERA.sub(r"\1*\2", path)


def _in_any_group(path: str) -> str:
    *above, name = path.split("/")
    return "/".join([*("*" if each else "" for each in above), name])
