"""How the files of a scan are dealt to tasks: by the time they will take, not by their number."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from icevirt.archive.catalog import Part
from icevirt.archive.scanned import SourceFile

_FILE = 4e-3  # seconds of a small file: opening, describing, packing
_GIGABYTE = 4e-3  # seconds of its chunk index, and of the coordinates that are read


def seconds_of(file: SourceFile) -> float:
    """Return about how long a file takes, from all that is known of it: its size."""
    return _FILE + _GIGABYTE * file.size / 1e9


def dealt(parts: Sequence[Part], tasks: int) -> tuple[tuple[Part, ...], ...]:
    """Deal parts to at most ``tasks`` tasks that take about the same time.

    The longest part goes first, always to the task that has least to do; within a task the parts
    keep their order. The same parts are dealt alike every time.
    """
    costs = [sum(map(seconds_of, part.files)) for part in parts]
    piles: list[list[int]] = [[] for _ in range(max(1, min(tasks, len(parts))))]
    loads = [(0.0, number) for number in range(len(piles))]
    for at in sorted(range(len(parts)), key=lambda at: (-costs[at], at)):
        load, number = heapq.heappop(loads)
        piles[number].append(at)
        heapq.heappush(loads, (load + costs[at], number))
    return tuple(tuple(parts[at] for at in sorted(pile)) for pile in piles if pile)
