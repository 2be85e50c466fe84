"""Draw which steps of a dimension each array covers, and where the bytes lie."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from icevirt.archive.reports.coverage import KINDS, ArrayCoverage, Coverage, GroupCoverage
from icevirt.display.page.skeleton import folded
from icevirt.escaping import escape_html

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
    more = folded(f"{len(figures) - _GROUPS:,} more groups", "".join(figures[_GROUPS:]))
    return f'{"".join(figures[:_GROUPS])}{more}<p class="keys">{keys}</p>'


def _figure(group: GroupCoverage, coverage: Coverage) -> str:
    rows = [_row(each, group, coverage.dimension) for each in group.arrays]
    more = folded(f"{len(rows) - _SHOWN:,} more arrays", "".join(rows[_SHOWN:]))
    ticks = "".join(f"<span>{escape_html(label)}</span>" for label in _ticks(group))
    named = f"{coverage.dimension}: {group.steps:,} steps"
    if len(coverage.groups) > 1:
        named = f"Group {group.group}, {named}"
    return (
        f"<figure><figcaption>{escape_html(named)}</figcaption>{''.join(rows[:_SHOWN])}{more}"
        f'<div class="row"><span></span><div class="ticks">{ticks}</div><span></span></div>'
        "</figure>"
    )


def _row(array: ArrayCoverage, group: GroupCoverage, dimension: str) -> str:
    parts = "; ".join(_described_runs(array, group)) or "no chunks"
    share = f"{100 * array.covered:.0f} %"
    return (
        f'<div class="row"><span class="name">{escape_html(array.path)}</span>'
        f'<svg viewBox="0 0 1000 {_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape_html(f"{array.path} along {dimension}: {parts}")}">'
        f'<rect class="none" width="1000" height="{_HEIGHT}"/>{_bars(array, group)}</svg>'
        f'<span class="share">{share}</span></div>'
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


def _bars(array: ArrayCoverage, group: GroupCoverage) -> str:
    bins = max((len(each) for each in array.shares.values()), default=1)
    parts = []
    for first, end, shown in _runs(array):
        left, wide = 1000 * first / bins, 1000 * (end - first) / bins
        base = float(_HEIGHT)
        title = _described(array, group, first / bins, end / bins, shown)
        for kind, share in shown.items():
            high = max(share * _HEIGHT, 2.0)
            base = max(base - high, 0.0)
            parts.append(
                f'<rect class="{kind}" x="{left:.1f}" y="{base:.1f}" width="{wide:.1f}"'
                f' height="{high:.1f}"><title>{escape_html(title)}</title></rect>'
            )
    return "".join(parts)


def _described_runs(array: ArrayCoverage, group: GroupCoverage) -> list[str]:
    bins = max((len(each) for each in array.shares.values()), default=1)
    parts = [
        _described(array, group, first / bins, end / bins, shown)
        for first, end, shown in _runs(array)
    ]
    return [*parts[:8], *([f"{len(parts) - 8} more parts"] if len(parts) > 8 else [])]


def _described(
    array: ArrayCoverage, group: GroupCoverage, begin: float, end: float, shown: dict[str, float]
) -> str:
    first, last = int(begin * array.steps), max(int(np.ceil(end * array.steps)) - 1, 0)
    what = ", ".join(
        kind if share == 1 else f"{100 * share:.0f} % {kind}" for kind, share in shown.items()
    )
    names = [group.labels.get(step, f"{step:,}") for step in (first, last)]
    return f"{names[0]} to {names[1]}: {what or 'nothing'}"


def _ticks(group: GroupCoverage) -> Iterator[str]:
    """Yield what stands below the picture: the first step, the quarters, the last one."""
    for at in group.marked:
        yield group.labels.get(at, f"{at:,}")
