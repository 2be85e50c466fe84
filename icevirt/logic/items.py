"""From a plan to the manifests that executors write, one item each.

The direct route: files are in the order of the dataset, so a window along the first of the axes
that files are placed along is a contiguous run of files, and its task reads only their parts of the
catalog. No shuffle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import Coded
from icevirt.archive.plan import BuildPlan, Mode, PlannedArray, WindowTask, WriteItem
from icevirt.logic.windows import boxes
from icevirt.model.snapshot import Extents

SHARED_REFERENCES = 10_000
"""Arrays with fewer references share manifests, up to this many in one."""

SHARED_BYTES = 16 << 20
"""Hybrid arrays of which more is stored do not share manifests, so that many tasks store them."""

BYTES_PER_REFERENCE = 1024
"""Of values that are read, encoded and stored while one reference is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One window of one array, and the files that it needs."""

    array: PlannedArray
    box: Extents
    of: NDArray[np.int64]  # positions in the array's files

    @property
    def run(self) -> tuple[int, int]:
        """The first of the plan's files that it needs, and the one behind the last."""
        rows = self.array.files[self.of]
        return int(rows.min()), int(rows.max()) + 1

    @property
    def references(self) -> int:
        """An upper bound of the references in the window."""
        inside = math.prod(high - low for low, high in self.box)
        return min(inside, self.array.references.total)

    @property
    def is_alone(self) -> bool:
        """Whether the window is work enough for a manifest of its own."""
        hybrid = self.array.hybrid
        return self.references > SHARED_REFERENCES or (
            hybrid is not None and hybrid.nbytes > SHARED_BYTES
        )

    @property
    def work(self) -> int:
        """How long it takes, in references; storing values counts for many."""
        hybrid = self.array.hybrid
        if hybrid is None:
            return self.references
        share = self.references / max(1, self.array.references.total)
        return self.references + int(share * hybrid.nbytes) // BYTES_PER_REFERENCE


def write_items(plan: BuildPlan) -> Iterator[WriteItem]:
    """Yield the items of a plan; small arrays over the same run of files share one.

    No item holds two windows of one array. They are made one at a time, because each knows the
    URLs of its files: those of all items together may be more than a driver can hold.
    """
    for number, together in enumerate(_together(plan)):
        yield _item(plan, number, together)


def manifests_of(plan: BuildPlan) -> int:
    """Return how many items there are, without making them."""
    return sum(1 for _ in _together(plan))


def _together(plan: BuildPlan) -> Iterator[list[Cut]]:
    """Yield the windows that share a manifest."""
    shared: dict[tuple[int, int], list[Cut]] = {}
    for array in plan.arrays:
        for cut in cuts(array):
            if cut.is_alone:
                yield [cut]
                continue
            open_cuts = shared.setdefault(cut.run, [])
            full = sum(each.references for each in open_cuts) + cut.references > SHARED_REFERENCES
            # a manifest has one table for each array, so an array's windows never share one
            if full or any(each.array is array for each in open_cuts):
                yield list(open_cuts)
                open_cuts.clear()
            open_cuts.append(cut)
    yield from (open_cuts for open_cuts in shared.values() if open_cuts)


def cuts(array: PlannedArray) -> Iterator[Cut]:
    """Yield the windows of an array that some file has chunks in."""
    everything = np.arange(len(array.files))
    for box in boxes(array.grid, array.window):
        of = _files_of(array, box) if array.mode is Mode.concat else everything
        if len(of):  # else nobody wrote any of its chunks
            yield Cut(array=array, box=box, of=of)


def _files_of(array: PlannedArray, box: Extents) -> NDArray[np.int64]:
    """Return the files whose chunks can lie in the box; starts along the first axis ascend."""
    if not array.axes:
        return np.arange(len(array.files))
    grids = array.grids
    bounds = np.stack([grids[axis].begins(np.array(box[axis])) for axis in array.axes])
    (low, high), starts, lengths = bounds[0], array.starts, array.lengths
    first = int(np.searchsorted(starts[:, 0] + lengths[:, 0], low, side="right"))
    last = int(np.searchsorted(starts[:, 0], high, side="left"))
    of = np.arange(first, max(first, last))
    ends = starts[of] + lengths[of]
    inside = ((ends > bounds[:, 0]) & (starts[of] < bounds[:, 1])).all(axis=1)
    return of if inside.all() else of[inside]


def _item(plan: BuildPlan, number: int, together: Sequence[Cut]) -> WriteItem:
    rows = np.unique(np.concatenate([cut.array.files[cut.of] for cut in together]))
    return WriteItem(
        number=number,
        first=int(rows[0]),
        files=plan.files.take(rows),
        windows=tuple(_window(cut, rows) for cut in together),
        expected=sum(cut.work for cut in together),
        origin=None if plan.origin is None else plan.origin.take(rows),
    )


def _window(cut: Cut, rows: NDArray[np.int64]) -> WindowTask:
    """Return the window; what it knows of files is spread over those of the item."""
    array, of = cut.array, cut.of
    at = np.searchsorted(rows, array.files[of])

    def spread[T: np.generic](column: NDArray[T]) -> NDArray[T]:
        out = np.zeros((len(rows), *column.shape[1:]), column.dtype)
        out[at] = column[of]
        return out

    takes = spread(np.ones(len(array.files), np.bool_))
    reads = () if array.sources is None else _reads(array.sources, spread, takes)
    return WindowTask(
        source_path=array.source_path,
        node_id=array.node_id,
        mode=array.mode,
        direct=array.mode is Mode.once or array.schema.whole,
        axes=array.axes,
        box=cut.box,
        zarr_json=array.zarr_json,
        chunk_shape=array.chunk_shape,
        shape=array.shape,
        takes=takes,
        starts=spread(array.starts),
        lengths=spread(array.lengths),
        whole=spread(array.whole),
        whole_schema=array.whole_schema,
        times=None if array.times is None else array.times.take(rows),
        values=array.values,
        hybrid=None if array.hybrid is None else array.hybrid.spread(at, of, len(rows)),
        reads=reads,
    )


def _reads(
    sources: Coded,
    spread: Callable[[NDArray[np.integer]], NDArray[np.integer]],
    takes: NDArray[np.bool_],
) -> tuple[tuple[str, NDArray[np.bool_]], ...]:
    """Return under which paths an array is read, and of which of the item's files."""
    codes = spread(sources.codes)
    return tuple(
        (path, takes & (codes == code))
        for code, path in enumerate(sources.values)
        if (takes & (codes == code)).any()
    )


class Load(Protocol):
    """What dealing work must know of an item."""

    @property
    def number(self) -> int:
        """Of the item in the plan."""

    @property
    def first(self) -> int:
        """The first of the plan's files that it needs."""

    @property
    def expected(self) -> int:
        """References."""


def balanced[T: Load](items: Sequence[T], tasks: int) -> tuple[tuple[T, ...], ...]:
    """Deal items to at most ``tasks`` tasks so that their references are near equal.

    A task gets items of neighbouring files, whatever their arrays, so that it reads each part of
    the catalog once.
    """
    order = sorted(items, key=lambda each: (each.first, each.number))
    loads = np.array([item.expected + 1 for item in order], np.int64)
    middles = np.cumsum(loads) - loads / 2
    pile = (middles * tasks / max(1, int(loads.sum()))).astype(np.int64)
    return tuple(
        tuple(order[at] for at in np.flatnonzero(pile == number).tolist())
        for number in np.unique(pile).tolist()
    )
