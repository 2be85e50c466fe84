"""Cut an array's chunk grid into manifest windows that official writers respect.

Windows are regular multiples of ``k`` chunks per axis, because ``manifest.splitting`` can persist
nothing else; a writer without that rule would merge all windows into one manifest at its first
commit.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from icevirt.model.config.document import SplitRule
from icevirt.model.snapshot import Extents

MAX_REFERENCES = 500_000
"""Of one manifest. GDAL's reader stops at 1,000,000 FlatBuffers tables."""

WHOLE = 0xFFFFFFFF
"""Chunks per manifest along an axis that is not cut: the official client's own default."""

_SPECIAL = set(r"\.+*?()|[]{}^$#&-~")


def window_of(grid: Sequence[int], axis: int, limit: int) -> tuple[int, ...]:
    """Return how many chunks a manifest spans along each axis, at most ``limit`` in all.

    The axis that grows is cut first, so that a manifest covers whole steps where it can.
    """
    window = list(grid)
    order = [axis, *(other for other in range(len(grid)) if other != axis)] if grid else []
    for at in order:
        rest = 1
        for other, edge in enumerate(window):
            rest *= max(edge, 1) if other != at else 1
        most = max(1, limit // rest)
        window[at] = most if at == axis else max(1, min(window[at], most))
    return tuple(window)


def boxes(grid: Sequence[int], window: Sequence[int]) -> Iterator[Extents]:
    """Yield the windows of a grid in C order; none where an axis has no chunks."""
    axes = [
        [(low, min(low + edge, size)) for low in range(0, size, edge)]
        for size, edge in zip(grid, window, strict=True)
    ]
    return itertools.product(*axes)


def split_rules(
    arrays: Mapping[str, tuple[Sequence[int], Sequence[int], int | None]],
) -> tuple[SplitRule, ...]:
    """Return the splitting rules that reproduce the windows of arrays.

    Args:
        arrays: path -> (grid, window, axis that grows or None). The growing axis always gets its
            rule, so that later appends keep the windows. A rule speaks of every axis, so that no
            older rule of the same array can add to it.
    """
    alike: dict[tuple[tuple[int, int], ...], list[str]] = defaultdict(list)
    for path, (grid, window, growing) in arrays.items():
        cut = [
            axis == growing or edge < size
            for axis, (size, edge) in enumerate(zip(grid, window, strict=True))
        ]
        if any(cut):
            edges = (edge if here else WHOLE for edge, here in zip(window, cut, strict=True))
            alike[tuple(enumerate(edges))].append(path)
    return tuple(
        SplitRule(path_regex=any_of(paths), num_chunks=cuts) for cuts, paths in alike.items()
    )


def any_of(paths: Iterable[str]) -> str:
    """Return a regex, the same in Rust and RE2, that matches exactly these paths."""
    return "^(?:" + "|".join(map(_escaped, sorted(paths))) + ")$"


def _escaped(text: str) -> str:
    return "".join("\\" + letter if letter in _SPECIAL else letter for letter in text)
