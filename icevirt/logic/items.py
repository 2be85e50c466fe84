"""From a plan to the manifests that executors write, one item each.

The direct route: files are in the order of the dataset, so a window along the concatenated axis is
a contiguous run of files, and its task reads only their parts of the catalog. No shuffle.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from icevirt.archive.plan import BuildPlan, Mode, PlannedArray, WindowTask, WriteItem
from icevirt.logic.windows import boxes
from icevirt.model.snapshot import Extents

SHARED_REFERENCES = 10_000
"""Arrays with fewer references share manifests, up to this many in one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """One window of one array, and the run of files [first, last) it needs."""

    array: PlannedArray
    box: Extents
    first: int
    last: int

    @property
    def references(self) -> int:
        """An upper bound of the references in the window."""
        inside = math.prod(high - low for low, high in self.box)
        return min(inside, self.array.references.total)


def write_items(plan: BuildPlan) -> tuple[WriteItem, ...]:
    """Return the items of a plan; small arrays over the same run of files share one.

    No item holds two windows of one array.
    """
    shared: dict[tuple[int, int], list[_Cut]] = {}
    items: list[WriteItem] = []
    for array in plan.arrays:
        for cut in _cuts(array, len(plan.files)):
            if cut.references > SHARED_REFERENCES:
                items.append(_item(plan, len(items), [cut]))
                continue
            open_cuts = shared.setdefault((cut.first, cut.last), [])
            full = sum(each.references for each in open_cuts) + cut.references > SHARED_REFERENCES
            # a manifest has one table for each array, so an array's windows never share one
            if full or any(each.array is array for each in open_cuts):
                items.append(_item(plan, len(items), open_cuts))
                open_cuts.clear()
            open_cuts.append(cut)
    for cuts in shared.values():
        if cuts:
            items.append(_item(plan, len(items), cuts))
    return tuple(items)


def _cuts(array: PlannedArray, files: int) -> Iterator[_Cut]:
    for box in boxes(array.grid, array.window):
        if array.mode is Mode.once:
            first, last = 0, 1
        elif array.mode is Mode.join:
            first, last = 0, files
        else:
            first, last = _files_of(array, box)
        yield _Cut(array=array, box=box, first=first, last=last)


def _files_of(array: PlannedArray, box: Extents) -> tuple[int, int]:
    """Return the run of files whose chunks can lie in the box."""
    edge = array.chunk_shape[array.axis]
    low, high = box[array.axis]
    ends = array.starts + array.lengths
    first = int(np.searchsorted(ends, low * edge, side="right"))
    last = int(np.searchsorted(array.starts, high * edge, side="left"))
    return first, max(last, first + 1)


def _item(plan: BuildPlan, number: int, cuts: Sequence[_Cut]) -> WriteItem:
    first, last = min(cut.first for cut in cuts), max(cut.last for cut in cuts)
    return WriteItem(
        number=number,
        files=plan.files.take(np.arange(first, last)),
        windows=tuple(_window(cut, first, last) for cut in cuts),
        expected=sum(cut.references for cut in cuts),
    )


def _window(cut: _Cut, first: int, last: int) -> WindowTask:
    array = cut.array
    run = slice(0, 1) if array.mode is Mode.once else slice(first, last)
    return WindowTask(
        source_path=array.source_path,
        node_id=array.node_id,
        mode=array.mode,
        direct=array.mode is Mode.once or array.schema.whole,
        axis=array.axis,
        box=cut.box,
        zarr_json=array.zarr_json,
        chunk_shape=array.chunk_shape,
        shape=array.shape,
        starts=array.starts[run],
        lengths=array.lengths[run],
        whole=array.whole[run],
        whole_schema=array.whole_schema,
        times=None if array.times is None else array.times.take(run),
    )


def balanced(items: Sequence[WriteItem], tasks: int) -> tuple[tuple[WriteItem, ...], ...]:
    """Deal items to at most ``tasks`` tasks so that their references are near equal."""
    piles: list[list[WriteItem]] = [[] for _ in range(max(1, min(tasks, len(items))))]
    loads = [0] * len(piles)
    for item in sorted(items, key=lambda each: (-each.expected, each.number)):
        least = loads.index(min(loads))
        piles[least].append(item)
        loads[least] += item.expected + 1
    return tuple(tuple(pile) for pile in piles if pile)
