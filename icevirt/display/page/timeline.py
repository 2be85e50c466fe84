"""Draw which steps of a dimension each array covers, and where the bytes lie."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from icevirt.archive.reports.card import text
from icevirt.archive.reports.coverage import KINDS, ArrayCoverage, Coverage
from icevirt.display.page.skeleton import folded

_SHOWN = 60  # arrays
_HEIGHT = 18
_MEANING = {
    "virtual": "virtual: in the files",
    "native": "native: in chunks of the repository",
    "inline": "inline: in manifests",
    "none": "no chunk: reads as missing values",
}


def timeline(coverage: Coverage | None) -> str:
    """Return the picture; "" where arrays lie along no dimension."""
    if coverage is None or not coverage.arrays:
        return ""
    keys = "".join(
        f'<span><i class="key {kind}"></i>{text(meaning)}</span>'
        for kind, meaning in _MEANING.items()
    )
    rows = [_row(each, coverage) for each in coverage.arrays]
    more = folded(f"{len(rows) - _SHOWN:,} more arrays", "".join(rows[_SHOWN:]))
    ticks = "".join(f"<span>{text(label)}</span>" for label in _ticks(coverage))
    return (
        f"<figure>{''.join(rows[:_SHOWN])}{more}"
        f'<div class="row"><span></span><div class="ticks">{ticks}</div><span></span></div>'
        f'<figcaption class="keys">{keys}</figcaption></figure>'
    )


def _row(array: ArrayCoverage, coverage: Coverage) -> str:
    summary = "; ".join(_runs_told(array, coverage)) or "no chunks"
    share = f"{100 * array.covered:.0f} %"
    return (
        f'<div class="row"><span class="name">{text(array.path)}</span>'
        f'<svg viewBox="0 0 1000 {_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{text(f"{array.path} along {coverage.dimension}: {summary}")}">'
        f'<rect class="none" width="1000" height="{_HEIGHT}"/>{_bars(array, coverage)}</svg>'
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


def _bars(array: ArrayCoverage, coverage: Coverage) -> str:
    bins = max((len(each) for each in array.shares.values()), default=1)
    parts = []
    for first, end, shown in _runs(array):
        left, wide = 1000 * first / bins, 1000 * (end - first) / bins
        base = float(_HEIGHT)
        summary = _told(array, coverage, first / bins, end / bins, shown)
        for kind, share in shown.items():
            high = max(share * _HEIGHT, 2.0)
            base = max(base - high, 0.0)
            parts.append(
                f'<rect class="{kind}" x="{left:.1f}" y="{base:.1f}" width="{wide:.1f}"'
                f' height="{high:.1f}"><title>{text(summary)}</title></rect>'
            )
    return "".join(parts)


def _runs_told(array: ArrayCoverage, coverage: Coverage) -> list[str]:
    bins = max((len(each) for each in array.shares.values()), default=1)
    summary = [
        _told(array, coverage, first / bins, end / bins, shown)
        for first, end, shown in _runs(array)
    ]
    return [*summary[:8], *([f"{len(summary) - 8} more parts"] if len(summary) > 8 else [])]


def _told(
    array: ArrayCoverage, coverage: Coverage, begin: float, end: float, shown: dict[str, float]
) -> str:
    first, last = int(begin * array.steps), max(int(np.ceil(end * array.steps)) - 1, 0)
    what = ", ".join(
        kind if share == 1 else f"{100 * share:.0f} % {kind}" for kind, share in shown.items()
    )
    names = [coverage.labels.get(step, f"{step:,}") for step in (first, last)]
    return f"{names[0]} to {names[1]}: {what or 'nothing'}"


def _ticks(coverage: Coverage) -> Iterator[str]:
    """Yield what stands below the picture: the first step, the quarters, the last one."""
    steps = max(each.steps for each in coverage.arrays)
    places = sorted({round(part * (steps - 1) / 4) for part in range(5)}) if steps else []
    for at in places:
        yield coverage.labels.get(at, f"{at:,}")
