"""Say which steps of the concatenated dimension a plan's arrays cover."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.plan import ArrayMode, BuildPlan, PlannedArray
from icevirt.archive.reports.coverage import ArrayCoverage, Coverage, by_group, shares
from icevirt.model.json import loads


def coverage_of(plan: BuildPlan) -> Coverage | None:
    """Return what the arrays cover along the first concatenated dimension; None without one."""
    if not plan.concat_dim:
        return None
    dimension = plan.concat_dim[0]
    found = (
        _covered(array, names.index(dimension))
        for array in plan.arrays
        if dimension in (names := loads(array.zarr_json).get("dimension_names") or ())
    )
    return by_group(dimension, found)


def _covered(array: PlannedArray, axis: int) -> ArrayCoverage:
    """Return what one array covers; files beside each other along other axes count once."""
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
