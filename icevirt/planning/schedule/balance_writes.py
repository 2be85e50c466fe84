"""Distribute write items to tasks: neighbors together, no more tasks than useful."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.plan import BuildPlan
from icevirt.planning.schedule.manifest_units import PlannedManifest

OPENING = 1_500
"""References that are written in the time in which a part of the catalog is opened."""

_TASKS_PER_SLOT = (4, 2)  # so that no slot waits long for another; fewer open fewer parts


def dealt(
    plan: BuildPlan, items: Sequence[PlannedManifest], slots: int
) -> tuple[tuple[PlannedManifest, ...], ...]:
    """Deal items to a few tasks for each slot, fewer where these would open parts for longest."""
    piles: tuple[tuple[PlannedManifest, ...], ...] = ()
    work = sum(item.expected + 1 for item in items)
    for each in _TASKS_PER_SLOT:
        piles = balanced(plan, items, slots * each)
        if sum(float(_loads(plan, pile).sum()) for pile in piles) <= 2 * work:
            break
    return piles


def balanced(
    plan: BuildPlan, items: Sequence[PlannedManifest], tasks: int
) -> tuple[tuple[PlannedManifest, ...], ...]:
    """Deal items to at most ``tasks`` tasks that take about the same time.

    A task gets items of neighbouring files, whatever their arrays, so that it reads each part of
    the catalog once.
    """
    order = sorted(items, key=lambda each: (*each.run, each.number))
    loads = _loads(plan, order)
    middles = np.cumsum(loads) - loads / 2
    pile = (middles * tasks / max(1.0, float(loads.sum()))).astype(np.int64)
    return tuple(
        tuple(order[at] for at in np.flatnonzero(pile == number).tolist())
        for number in np.unique(pile).tolist()
    )


def _loads(plan: BuildPlan, items: Sequence[PlannedManifest]) -> NDArray[np.float64]:
    """Return the work of the items of a task, in references; those of a run share its parts."""
    parts_of_file = len(plan.files.parts) / max(1, len(plan.files))
    loads: list[float] = []
    for (low, high), alike in groupby(items, key=lambda item: item.run):
        together = list(alike)
        opening = OPENING * (high - low) * parts_of_file / len(together)
        loads += [item.expected + 1 + opening for item in together]
    return np.array(loads, np.float64)
