"""Divide the variables of one huge file among several tasks.

Variables are laid end to end by cost, in the order of the file, and the line is cut into equal
stretches. Every task computes the same division from the headers of the file, so no task has to
read the file first.
"""

from __future__ import annotations

from collections.abc import Sequence

from icevirt.archive.catalog import BLOCK_REFS
from icevirt.archive.shares import Share, Weight

RUN = 16 * BLOCK_REFS
"""Chunks in a run at least: half a second of work, and what readers of a catalog take at once."""


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
