"""Distribute the files of a scan to tasks by expected time, not by number.

A huge file is scanned by several tasks: its variables are laid end to end by cost, in the order of
the file, and the line is cut into equal stretches. Every task computes the same division from the
headers of the file, so no task has to read the file first.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

from icevirt.archive.catalog import BLOCK_REFS, CatalogPart
from icevirt.archive.scanned import Share, Weight
from icevirt.archive.sources import SourceFile

_FILE = 4e-3  # seconds of a small file: opening, describing, packing
_GIGABYTE = 4e-3  # seconds of its chunk index, and of the coordinates that are read
_HUGE = 8 << 30  # bytes of a piece; in chunks of 4 KiB a second of its index
_PIECES = 64  # of the largest archive of one file
RUN = 16 * BLOCK_REFS
"""Chunks in a run at least: half a second of work, and what readers of a catalog take at once."""


def seconds_of(file: SourceFile) -> float:
    """Return about how long a file takes, from all that is known of it: its size."""
    return _FILE + _GIGABYTE * file.size / 1e9


def pieces_of(files: Sequence[SourceFile]) -> dict[str, int]:
    """Return the files that several tasks scan together, by URL, and into how many pieces.

    It depends on sizes alone, so that a scan that is resumed finds the pieces that are finished:
    a file of less than `_HUGE` takes a task less time than two of them need to start, and a file
    that is no more than its share of the archive keeps no task waiting.
    """
    huge = [file for file in files if file.size >= 2 * _HUGE]
    total = sum(file.size for file in files) if huge else 1
    pieces = {
        file.url: min(file.size // _HUGE, math.ceil(_PIECES * file.size / total)) for file in huge
    }
    return {url: count for url, count in pieces.items() if count > 1}


def deal_parts(parts: Sequence[CatalogPart], tasks: int) -> tuple[tuple[CatalogPart, ...], ...]:
    """Deal parts to at most ``tasks`` tasks that take about the same time.

    The longest part goes first, always to the task that has least to do; within a task the parts
    keep their order. The same parts are dealt alike every time.
    """
    costs = [sum(map(seconds_of, part.files)) / part.of for part in parts]
    piles: list[list[int]] = [[] for _ in range(max(1, min(tasks, len(parts))))]
    loads = [(0.0, number) for number in range(len(piles))]
    for at in sorted(range(len(parts)), key=lambda at: (-costs[at], at)):
        load, number = heapq.heappop(loads)
        piles[number].append(at)
        heapq.heappush(loads, (load + costs[at], number))
    return tuple(tuple(parts[at] for at in sorted(pile)) for pile in piles if pile)


def share_of(weights: Sequence[Weight], number: int, of: int) -> Share:
    """Return share ``number`` of ``of``.

    A variable of two runs or more is cut wherever a stretch ends in it, at blocks of the catalog;
    every other belongs to the stretch in which its middle lies.
    """
    total = sum(max(1, weight.cost) for weight in weights)
    # what is less than a run of references is not worth a second task
    of_these = max(1, min(of, total // RUN))
    low, high = (total * each // of_these for each in (number, number + 1))
    whole: set[str] = set()
    runs: dict[str, tuple[int, int]] = {}
    at = 0
    for weight in weights if number < of_these else ():
        cost = max(1, weight.cost)
        begin, at = at, at + cost
        if weight.chunks < 2 * RUN:
            if low <= begin + cost // 2 < high:
                whole.add(weight.path)
            continue
        first, last = (_place(weight, edge - begin) for edge in (low, high))
        if (first, last) == (0, weight.chunks):
            whole.add(weight.path)
        elif first < last:
            runs[weight.path] = first, last
    return Share(order=tuple(weight.path for weight in weights), whole=frozenset(whole), runs=runs)


def _place(weight: Weight, edge: int) -> int:
    """Return the place in the chunk grid at which a cut falls."""
    if edge <= 0:
        return 0
    if edge >= weight.cost:
        return weight.chunks
    place = weight.chunks * edge // weight.cost
    return place - place % BLOCK_REFS
