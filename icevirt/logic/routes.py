"""How references come to the tasks that write them: straight from the catalog, or by a shuffle.

A window reads the references of one array from every part of the catalog that describes one of its
files. Where files lie in the dataset as they lie in the catalog, that is each part about once.
Where they do not, each window would read nearly all parts, and one shuffle is cheaper.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from icevirt.archive.plan import BuildPlan
from icevirt.logic.items import cuts

_FACTOR = 4  # times that a part may be read for an array before a shuffle is cheaper
_FEW = 4096  # reads that cost less than a shuffle does


class Route(StrEnum):
    """The two ways."""

    direct = "direct"
    shuffle = "shuffle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """The way of a plan, and why."""

    kind: Route
    windows: int  # manifests' shares of arrays
    reads: int  # of an array in a part of the catalog, on the direct way
    least: int  # the same if each were read once

    def told(self) -> str:
        """Return it in words."""
        times = self.reads / max(1, self.least)
        return (
            f"{self.kind} (each part of the catalog would be read {times:,.1f} times without)"
            if self.kind is Route.shuffle
            else f"{self.kind}, no shuffle"
        )


def route_of(plan: BuildPlan) -> Routing:
    """Choose the way of a plan."""
    windows = reads = least = 0
    part = plan.files.part
    for array in plan.arrays:
        if array.values is not None:
            continue
        for cut in cuts(array):
            windows += 1
            reads += _runs(part[array.files[cut.of]], len(plan.files.parts))
        least += min(len(plan.files.parts), _runs(np.sort(part[array.files]), len(part)))
    shuffled = reads > _FACTOR * least and reads > _FEW
    return Routing(
        kind=Route.shuffle if shuffled else Route.direct, windows=windows, reads=reads, least=least
    )


def _runs(part: np.ndarray, most: int) -> int:
    """Return how many runs of one part there are, at most so many."""
    return min(most, 1 + int(np.count_nonzero(np.diff(part)))) if len(part) else 0
