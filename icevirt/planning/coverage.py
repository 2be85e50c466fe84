"""Say which parts of a dimension the arrays of a dataset cover, and where the bytes lie."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from icevirt.model.json import loads

if TYPE_CHECKING:
    from icevirt.archive.plan import BuildPlan, PlannedArray

KINDS = ("virtual", "native", "inline")
"""Where the bytes of chunks lie: in the files, in chunk objects, in manifests."""

BINS = 240
"""Into how many parts of equal length a dimension is divided, at most."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ArrayCoverage:
    """How much of each part of a dimension one array covers."""

    path: str
    steps: int  # along the dimension
    shares: Mapping[str, NDArray[np.float64]]  # kind -> (bins,), of all values of a part

    @property
    def covered(self) -> float:
        """The share of the whole array that chunks exist for."""
        return float(sum(each.mean() for each in self.shares.values())) if self.steps else 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupCoverage:
    """The arrays whose steps are the same: of a group, or of groups that inherit its dimension."""

    group: str
    steps: int
    arrays: tuple[ArrayCoverage, ...]
    labels: Mapping[int, str] = field(default_factory=dict)  # step -> value of the coordinate

    @property
    def marked(self) -> tuple[int, ...]:
        """The steps below a picture: the first one, the quarters, the last one."""
        last = self.steps - 1
        return tuple(sorted({round(part * last / 4) for part in range(5)})) if self.steps else ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Coverage:
    """The arrays along one dimension, whose length each group has for itself."""

    dimension: str
    groups: tuple[GroupCoverage, ...]


def by_group(dimension: str, arrays: Iterable[ArrayCoverage]) -> Coverage:
    """Put arrays together that share steps.

    An array's steps are those of the nearest group at or above it that has a coordinate of the
    dimension, as xarray's trees inherit coordinates; without one, of its own group. Arrays of other
    lengths are apart.
    """
    found = tuple(arrays)
    coordinates = {(each.path, each.steps) for each in found}
    groups: dict[tuple[str, int], list[ArrayCoverage]] = {}
    for each in found:
        own = group = each.path.rpartition("/")[0]
        while (f"{group}/{dimension}", each.steps) not in coordinates:
            if not group:
                group = own
                break
            group = group.rpartition("/")[0]
        groups.setdefault((group or "/", each.steps), []).append(each)
    return Coverage(
        dimension=dimension,
        groups=tuple(
            GroupCoverage(group=group, steps=steps, arrays=tuple(each))
            for (group, steps), each in groups.items()
        ),
    )


def shares(
    starts: NDArray[np.int64], lengths: NDArray[np.int64], weights: NDArray[np.float64], steps: int
) -> NDArray[np.float64]:
    """Return the share of each part of a dimension that boxes cover.

    Args:
        starts: Where each box begins along the dimension.
        lengths: How many steps it has.
        weights: Which share of the other dimensions it covers; boxes that overlap count once.
        steps: Of the dimension.
    """
    edges = np.linspace(0, steps, min(steps, BINS) + 1)
    if not len(starts):
        return np.zeros(len(edges) - 1)
    order = np.argsort(starts, kind="stable")
    begins, ends = starts[order], (starts + lengths)[order]
    reached = np.maximum.accumulate(ends)
    begins = np.maximum(begins, np.concatenate(([0], reached[:-1])))
    width = np.maximum(ends - begins, 0)
    before = np.concatenate(([0.0], np.cumsum(width * weights[order])))
    at = np.searchsorted(begins, edges, side="right")
    last = np.maximum(at - 1, 0)
    inside = np.clip(edges - begins[last], 0, width[last]) * weights[order][last]
    covered = np.where(at > 0, before[last] + inside, 0.0)
    found: NDArray[np.float64] = np.clip(np.diff(covered) / np.diff(edges), 0.0, 1.0)
    return found


def main_dimension(chunks_along: Sequence[Mapping[str, int]]) -> str:
    """Return the dimension that most arrays are cut along, the longest among equals; "" for none.

    Args:
        chunks_along: For each array, how many chunks it has along each named dimension.
    """
    votes: dict[str, tuple[int, int]] = {}
    for found in chunks_along:
        for name, number in found.items():
            many, most = votes.get(name, (0, 0))
            votes[name] = (many + (number > 1), max(most, number))
    return max(votes, key=lambda name: votes[name], default="")


def coverage_of(plan: BuildPlan) -> Coverage | None:
    """Return what the arrays cover along the first concatenated dimension; None without one."""
    if not plan.concat_dim:
        return None
    dimension = plan.concat_dim[0]
    found = (
        _cover(array, names.index(dimension))
        for array in plan.arrays
        if dimension in (names := loads(array.zarr_json).get("dimension_names") or ())
    )
    return by_group(dimension, found)


def _cover(array: PlannedArray, axis: int) -> ArrayCoverage:
    """Return what one array covers; files beside each other along other axes count once."""
    from icevirt.archive.plan import ArrayMode

    steps = array.shape[axis]
    stored = "inline" if array.written.inline else "native"
    if array.mode in (ArrayMode.join, ArrayMode.given) or axis not in array.axes:
        kind = stored if array.mode is not ArrayMode.once else "virtual"
        return ArrayCoverage(path=array.path, steps=steps, shares={kind: _all(steps)})
    column = array.axes.index(axis)
    boxes = np.stack([array.starts[:, column], array.lengths[:, column]], axis=1)
    is_stored = (
        np.zeros(len(boxes), np.bool_) if array.hybrid is None else ~array.hybrid.plain
    ) | array.whole
    shown = {}
    for kind, rows in (("virtual", ~is_stored), (stored, is_stored)):
        own = np.unique(boxes[rows], axis=0)
        if len(own):
            shown[kind] = shares(own[:, 0], own[:, 1], np.ones(len(own)), steps)
    return ArrayCoverage(path=array.path, steps=steps, shares=shown)


def _all(steps: int) -> NDArray[np.float64]:
    everything = np.array([0], np.int64), np.array([steps], np.int64)
    return shares(*everything, np.ones(1), steps)
