"""Put sections into one page that needs neither a network nor scripts.

The page follows the reader's choice of a dark or light color scheme, works with the keyboard (its
parts that fold are `details`), and repeats in words what its pictures show.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import pairwise

import numpy as np
from rich.console import Group

from icevirt.archive.plan import BuildPlan
from icevirt.archive.reports.build import (
    BadFile,
    BadFiles,
    BuildReport,
    ReferenceCounts,
    RepositorySummary,
)
from icevirt.archive.reports.history import CommitLog, when
from icevirt.display import picture
from icevirt.display.blocks import (
    Facts,
    Pasted,
    bytes_of,
    count,
    notes,
    size,
    table_of,
)
from icevirt.display.history import commit_log
from icevirt.display.plan import array_of, differing, eras, plan_facts, remarks
from icevirt.display.report import array_table, bad_files, build_facts
from icevirt.display.repository import summary_facts
from icevirt.escaping import escape_html
from icevirt.planning.coverage import KINDS, ArrayCoverage, Coverage, GroupCoverage, coverage_of
from icevirt.planning.schedule.cost_estimate import costs_of

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --back: #ffffff;
  --line: #d9dee5; --panel: #f5f7fa; --virtual: #2f6fb3; --native: #d9822b; --inline: #3a9b6f;
  --none: #eceff3; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #9aa6b5; --back: #14181e;
  --line: #303844; --panel: #1c222b; --virtual: #6aa9e9; --native: #f0a860; --inline: #6ccb9d;
  --none: #2a313b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem; max-width: 72rem; background: var(--back);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; border-bottom: 1px solid var(--line); }
p { margin: .25rem 0 .75rem; }
.soft, figcaption, th { color: var(--soft); font-weight: normal; }
section { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; padding: .2rem .9rem .2rem 0; vertical-align: top;
  border-bottom: 1px solid var(--line); }
td { font-variant-numeric: tabular-nums; }
code, pre, .name { font-family: ui-monospace, monospace; font-size: .88rem; }
pre { background: var(--panel); padding: .75rem; overflow-x: auto; border-radius: 6px; }
figure { margin: 0; }
.row { display: grid; grid-template-columns: minmax(6rem, 14rem) 1fr 4.5rem; gap: .75rem;
  align-items: center; }
.row .name { overflow-wrap: anywhere; } .row .share { text-align: right; color: var(--soft);
  font-size: .85rem; }
.row svg { width: 100%; height: 18px; display: block; }
.ticks { display: flex; justify-content: space-between; color: var(--soft); font-size: .8rem; }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin: 0 .35em 0 0; }
.keys span { margin-right: 1.2rem; white-space: nowrap; }
.virtual { fill: var(--virtual); background: var(--virtual); }
.native { fill: var(--native); background: var(--native); }
.inline { fill: var(--inline); background: var(--inline); }
.none { fill: var(--none); background: var(--none); }
details { margin: .35rem 0; } summary { cursor: pointer; }
summary:focus-visible, a:focus-visible { outline: 2px solid var(--virtual); outline-offset: 2px; }
a { color: var(--virtual); }
nav a { margin-right: 1rem; }
@media (max-width: 40rem) { .row { grid-template-columns: 1fr; gap: .1rem; }
  .row .share { text-align: left; } body { padding: 1rem; } }
"""


def page(title: str, lead: str, sections: Iterable[tuple[str, str]]) -> str:
    """Return an HTML document.

    Args:
        title: What the page is about.
        lead: A sentence below it.
        sections: Headings with HTML; those without any are left out.
    """
    shown = [(heading, html) for heading, html in sections if html]
    links = " ".join(
        f'<a href="#section-{number}">{escape_html(heading)}</a>'
        for number, (heading, _) in enumerate(shown)
    )
    parts = "\n".join(
        f'<section id="section-{number}"><h2>{escape_html(heading)}</h2>\n{html}</section>'
        for number, (heading, html) in enumerate(shown)
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{escape_html(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f'<header><h1>{escape_html(title)}</h1>\n<p class="soft">{escape_html(lead)}</p>\n'
        f'<nav aria-label="Sections">{links}</nav></header>\n<main>\n{parts}\n</main>\n'
        "</body>\n</html>\n"
    )


def fold(title: str, html: str, *, is_open: bool = False) -> str:
    """Return a part that opens by a click or a key."""
    shown = " open" if is_open else ""
    return (
        f"<details{shown}><summary>{escape_html(title)}</summary>\n{html}</details>" if html else ""
    )


_GROUPS = 12
_SHOWN = 60  # arrays of a group
_HEIGHT = 18
_MEANING = {
    "virtual": "virtual: in the files",
    "native": "native: in chunks of the repository",
    "inline": "inline: in manifests",
    "none": "no chunk: reads as missing values",
}


def timeline(coverage: Coverage | None) -> str:
    """Return the picture, a figure for each group; "" where arrays lie along no dimension."""
    if coverage is None or not coverage.groups:
        return ""
    keys = "".join(
        f'<span><i class="key {kind}"></i>{escape_html(meaning)}</span>'
        for kind, meaning in _MEANING.items()
    )
    figures = [_figure(each, coverage) for each in coverage.groups]
    more = fold(f"{len(figures) - _GROUPS:,} more groups", "".join(figures[_GROUPS:]))
    return f'{"".join(figures[:_GROUPS])}{more}<p class="keys">{keys}</p>'


def _figure(group: GroupCoverage, coverage: Coverage) -> str:
    rows = [_row(each, group, coverage.dimension) for each in group.arrays]
    more = fold(f"{len(rows) - _SHOWN:,} more arrays", "".join(rows[_SHOWN:]))
    # below the picture: the first step, the quarters, the last one
    labels = (group.labels.get(at, f"{at:,}") for at in group.marked)
    ticks = "".join(f"<span>{escape_html(label)}</span>" for label in labels)
    named = f"{coverage.dimension}: {group.steps:,} steps"
    if len(coverage.groups) > 1:
        named = f"Group {group.group}, {named}"
    return (
        f"<figure><figcaption>{escape_html(named)}</figcaption>{''.join(rows[:_SHOWN])}{more}"
        f'<div class="row"><span></span><div class="ticks">{ticks}</div><span></span></div>'
        "</figure>"
    )


def _row(array: ArrayCoverage, group: GroupCoverage, dimension: str) -> str:
    """Return the bars of one array, and the same in words."""
    bins = max((len(each) for each in array.shares.values()), default=1)
    bars, parts = [], []
    for first, end, kinds in _runs(array):
        steps = int(first / bins * array.steps), int(np.ceil(end / bins * array.steps)) - 1
        names = [group.labels.get(step, f"{step:,}") for step in (steps[0], max(steps[1], 0))]
        what = (k if share == 1 else f"{100 * share:.0f} % {k}" for k, share in kinds.items())
        parts.append(f"{names[0]} to {names[1]}: {', '.join(what) or 'nothing'}")
        left, wide, base = 1000 * first / bins, 1000 * (end - first) / bins, float(_HEIGHT)
        for kind, share in kinds.items():
            high = max(share * _HEIGHT, 2.0)
            base = max(base - high, 0.0)
            bars.append(
                f'<rect class="{kind}" x="{left:.1f}" y="{base:.1f}" width="{wide:.1f}"'
                f' height="{high:.1f}"><title>{escape_html(parts[-1])}</title></rect>'
            )
    more = [f"{len(parts) - 8} more parts"] if len(parts) > 8 else []
    said = f"{array.path} along {dimension}: {'; '.join([*parts[:8], *more]) or 'no chunks'}"
    return (
        f'<div class="row"><span class="name">{escape_html(array.path)}</span>'
        f'<svg viewBox="0 0 1000 {_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape_html(said)}">'
        f'<rect class="none" width="1000" height="{_HEIGHT}"/>{"".join(bars)}</svg>'
        f'<span class="share">{100 * array.covered:.0f} %</span></div>'
    )


def _runs(array: ArrayCoverage) -> Iterator[tuple[int, int, dict[str, float]]]:
    """Yield equal parts that follow one another: first, behind the last, shares by kind."""
    bins = max((len(each) for each in array.shares.values()), default=0)
    if not bins:
        return
    nothing = np.zeros(bins)
    rows = np.round(np.stack([array.shares.get(kind, nothing) for kind in KINDS]), 2)
    cuts = np.flatnonzero((rows[:, 1:] != rows[:, :-1]).any(axis=0)) + 1
    edges = [0, *cuts.tolist(), bins]
    for first, end in pairwise(edges):
        shown = zip(KINDS, rows[:, first].tolist(), strict=True)
        yield first, end, {kind: share for kind, share in shown if share}


_ROWS = 500  # files and attributes of a table
_ARRAYS = 1_000_000


def plan_page(plan: BuildPlan) -> str:
    """Return the page of a plan."""
    cost = plan.cost or costs_of(plan)
    along = f" along {', '.join(plan.concat_dim)}" if plan.concat_dim else ""
    lead = f"{count(len(plan.files), 'file')}{along} become {count(len(plan.arrays), 'array')}."
    headings = ("array", "a chunk", "one map", "bytes of a map", "one series", "bytes of a series")
    costs = table_of(headings, right=headings[1:])
    for each in cost.of_arrays:
        reads = [
            text
            for read in (each.map, each.series)
            for text in (
                ("", "") if read is None else (count(read.requests, "request"), size(read.bytes))
            )
        ]
        if each.map or each.series:
            bytes_ = size(each.bytes_per_chunk) if each.bytes_per_chunk else ""
            costs.add_row(each.path, bytes_, *reads)
    hint = (
        '<p class="soft">A map is one step of all points, a series one point of all steps. Numbers'
        " of requests are upper bounds.</p>"
    )
    unused = table_of(("file", "the file with the same steps that is used"), right=())
    for left in plan.left_out:
        unused.add_row(left.url, left.kept)
    same = f"{count(len(plan.left_out), 'file')} of steps that others hold"
    return page(
        f"Plan {plan.build_id}",
        lead,
        [
            ("What it makes", _html(plan_facts(plan, cost))),
            ("Steps", timeline(coverage_of(plan))),
            ("Arrays", _html(array_table(map(array_of, plan.arrays)), _ARRAYS)),
            ("Cost of reading", f"{hint}{_html(costs, _ARRAYS)}" if costs.rows else ""),
            ("Eras", "" if plan.eras is None else _html(eras(plan.eras))),
            ("What changes in the repository", _html(Group(*differing(plan.difference)))),
            ("Findings", _html(Group(*remarks(plan, cost)))),
            ("Files left out", _bad_files(plan.bad_files) + fold(same, _html(unused))),
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
    build = ""
    if report is not None:
        build = _html(Group(Facts(build_facts(report)), *notes(report.findings)))
        build += _bad_files(report.bad_files)
    attributes = ""
    for group in summary.groups:
        table = table_of(("attribute", "value"), right=())
        for name, value in sorted(group.attributes.items()):
            table.add_row(name, str(value)[:300])
        attributes += fold(group.path, _html(table), is_open=group.path == "/")
    return page(
        summary.repo,
        f"Version {summary.snapshot_id} of {written}: {summary.message}",
        [
            ("What it holds", _html(Facts(rows))),
            ("Steps", timeline(coverage)),
            ("Open it", _html(Pasted(snippet.split("\n"))) if snippet else ""),
            ("The build", build),
            ("Arrays", _html(array_table(summary.arrays), _ARRAYS)),
            ("History", _html(commit_log(history))),
            ("Attributes", attributes),
        ],
    )


def _html(part: object, most: int = _ROWS) -> str:
    return picture.html(part, most)


def _bad_files(files: Sequence[BadFile]) -> str:
    rows = _html(bad_files(BadFiles(files)))
    return fold(f"{count(len(files), 'bad file')}", rows, is_open=len(files) <= 20)
