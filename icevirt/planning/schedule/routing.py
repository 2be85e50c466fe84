"""Choose how references reach write tasks: straight from the catalog, or by a shuffle.

A window reads the references of one array from every part of the catalog that describes one of its
files. If files have the same order in the dataset and in the catalog, it reads each part about
once. Otherwise each window would read nearly all parts, and one shuffle is cheaper.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from icevirt.archive.plan import BuildPlan
from icevirt.planning.schedule.manifest_units import cuts

_FACTOR = 4  # times that references may be read before a shuffle is cheaper
_FEW_READS = 4096  # of parts, which cost less than a shuffle does
_FEW_REFERENCES = 10_000_000  # that are read in the same time


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
    times: float  # that a reference is read on it, in the mean

    def told(self) -> str:
        """Return it in words."""
        if self.kind is Route.direct:
            return f"{self.kind}, no shuffle"
        return f"{self.kind} (each reference would be read {self.times:,.0f} times without)"


def route_of(plan: BuildPlan) -> Routing:
    """Choose the way of a plan."""
    windows = reads = references = 0
    total = 0.0
    part = plan.files.part
    for array in plan.arrays:
        if array.values is not None:
            continue
        here = 0
        for cut in cuts(array):
            windows += 1
            here += _runs(part[array.files[cut.of]], len(plan.files.parts))
        least = _runs(np.sort(part[array.files]), len(plan.files.parts))
        reads += here
        references += array.references.total
        total += array.references.total * here / max(1, least)
    costly = reads > _FEW_READS or total > _FEW_REFERENCES
    shuffled = costly and total > _FACTOR * references
    return Routing(
        kind=Route.shuffle if shuffled else Route.direct,
        windows=windows,
        reads=reads,
        times=total / max(1, references),
    )


def _runs(part: np.ndarray, most: int) -> int:
    """Return how many runs of one part there are, at most so many."""
    return min(most, 1 + int(np.count_nonzero(np.diff(part)))) if len(part) else 0
