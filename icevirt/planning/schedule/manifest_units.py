"""Cut arrays into manifest windows, and divide a plan into manifests, one item each.

Windows are regular multiples of ``k`` chunks per axis, because ``manifest.splitting`` can persist
nothing else and official writers respect it: without that rule they would merge all windows into
one manifest at their first commit.

On the direct route files are in the order of the dataset, so a window along the first concatenated
dimension is a contiguous run of files, and its task reads only their parts of the catalog.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.plan import ArrayMode, BuildPlan, PlannedArray
from icevirt.model.config.document import SplitRule
from icevirt.model.snapshot import Extents

MAX_REFERENCES = 500_000
"""Of one manifest. GDAL's reader stops at 1,000,000 FlatBuffers tables."""
SHARED_REFERENCES = 10_000
"""Arrays with fewer references share manifests, up to this many in one."""
SHARED_BYTES = 16 << 20
"""Hybrid arrays of which more is stored do not share manifests, so that many tasks store them."""
BYTES_PER_REFERENCE = 1024
"""Of values that are read, encoded and stored while one reference is written."""
WHOLE = 0xFFFFFFFF
"""Chunks per manifest along an axis that is not cut: the official client's own default."""
_SPECIAL = set(r"\.+*?()|[]{}^$#&-~")


def window_of(grid: Sequence[int], axis: int, limit: int) -> tuple[int, ...]:
    """Return how many chunks a manifest spans along each axis, at most ``limit`` in all.

    The axis that grows is cut first, so that a manifest covers whole steps where it can.
    """
    window = list(grid)
    order = [axis, *(other for other in range(len(grid)) if other != axis)] if grid else []
    for at in order:
        rest = 1
        for other, edge in enumerate(window):
            rest *= max(edge, 1) if other != at else 1
        most = max(1, limit // rest)
        window[at] = most if at == axis else max(1, min(window[at], most))
    return tuple(window)


def boxes(grid: Sequence[int], window: Sequence[int]) -> Iterator[Extents]:
    """Yield the windows of a grid in C order; none where an axis has no chunks."""
    axes = [
        [(low, min(low + edge, size)) for low in range(0, size, edge)]
        for size, edge in zip(grid, window, strict=True)
    ]
    return itertools.product(*axes)


def split_rules(
    arrays: Mapping[str, tuple[Sequence[int], Sequence[int], int | None]],
) -> tuple[SplitRule, ...]:
    """Return the splitting rules that reproduce the windows of arrays.

    Args:
        arrays: path -> (grid, window, axis that grows or None). The growing axis always gets its
            rule, so that later appends keep the windows. A rule speaks of every axis, so that no
            older rule of the same array can add to it.
    """
    alike: dict[tuple[tuple[int, int], ...], list[str]] = defaultdict(list)
    for path, (grid, window, growing) in arrays.items():
        cut = [
            axis == growing or edge < size
            for axis, (size, edge) in enumerate(zip(grid, window, strict=True))
        ]
        if any(cut):
            edges = (edge if here else WHOLE for edge, here in zip(window, cut, strict=True))
            alike[tuple(enumerate(edges))].append(path)
    return tuple(
        SplitRule(path_regex=any_of(paths), num_chunks=cuts) for cuts, paths in alike.items()
    )


def any_of(paths: Iterable[str]) -> str:
    """Return a regex, the same in Rust and RE2, that matches exactly these paths."""
    escaped = (
        "".join("\\" + letter if letter in _SPECIAL else letter for letter in path)
        for path in sorted(paths)
    )
    return f"^(?:{'|'.join(escaped)})$"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestWindow:
    """One window of one array."""

    array: PlannedArray
    box: Extents
    run: tuple[int, int]  # the first of the plan's files that it needs, and the one behind the last

    @property
    def of(self) -> NDArray[np.int64]:
        """The files that it needs: their positions among the files of the array."""
        if self.array.mode is not ArrayMode.concat:
            return np.arange(len(self.array.files))
        return _files_of(self.array, self.box)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedManifest:
    """An item to be: what the driver holds of it until its task is sent."""

    number: int
    cuts: tuple[ManifestWindow, ...]

    @property
    def run(self) -> tuple[int, int]:
        """The first of the plan's files that it needs, and the one behind the last."""
        return min(cut.run[0] for cut in self.cuts), max(cut.run[1] for cut in self.cuts)

    @property
    def expected(self) -> int:
        """References, and what counts as such."""
        return sum(cut.work for cut in self.cuts)


def drafts(plan: BuildPlan) -> Iterator[PlannedManifest]:
    """Yield the items of a plan; small arrays over the same run of files share one.

    No item holds two windows of one array.
    """
    for number, together in enumerate(_together(plan)):
        yield PlannedManifest(number=number, cuts=tuple(together))


def few_drafts(plan: BuildPlan) -> Iterator[PlannedManifest]:
    """Yield as few items as there can be, whatever is in them; no item holds two windows of one."""
    queues = [list(cuts(array))[::-1] for array in plan.arrays]
    for number in itertools.count():
        together = tuple(queue.pop() for queue in queues if queue)
        if not together:
            return
        yield PlannedManifest(number=number, cuts=together)


def manifests_of(plan: BuildPlan) -> int:
    """Return how many items there are, without making them."""
    return sum(1 for _ in _together(plan))


def _together(plan: BuildPlan) -> Iterator[list[ManifestWindow]]:
    """Yield the windows that share a manifest."""
    shared: dict[tuple[int, int], list[ManifestWindow]] = {}
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


def cuts(array: PlannedArray) -> Iterator[ManifestWindow]:
    """Yield the windows of an array that some file has chunks in."""
    everything = np.arange(len(array.files))
    for box in boxes(array.grid, array.window):
        of = _files_of(array, box) if array.mode is ArrayMode.concat else everything
        if len(of):  # else none of its chunks was ever written
            rows = array.files[of]
            yield ManifestWindow(array=array, box=box, run=(int(rows.min()), int(rows.max()) + 1))


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
