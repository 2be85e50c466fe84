"""Cut arrays into manifest windows, choose the route of references, and deal windows to tasks.

Windows are regular multiples of ``k`` chunks per axis, because ``manifest.splitting`` can persist
nothing else and official writers respect it: without that rule they would merge all windows into
one manifest at their first commit.

A window reads the references of one array from every part of the catalog that describes one of its
files. If files have the same order in the dataset and in the catalog, a window along the first
concatenated dimension is a contiguous run of files, and each part is read about once. Otherwise
each window would read nearly all parts, and one shuffle is cheaper.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import Coded, FileColumns
from icevirt.archive.plan import (
    ArrayMode,
    BuildPlan,
    FileRows,
    ManifestTask,
    PlannedArray,
    WindowTask,
)
from icevirt.model.config.document import SplitRule
from icevirt.model.snapshot import Extents

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
    pairs = zip(grid, window, strict=True)
    axes = ([(low, min(low + edge, n)) for low in range(0, n, edge)] for n, edge in pairs)
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
    for number, together in enumerate(_share_manifests(plan)):
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
    return sum(1 for _ in _share_manifests(plan))


def _share_manifests(plan: BuildPlan) -> Iterator[list[ManifestWindow]]:
    """Yield the windows that share a manifest."""
    shared: dict[tuple[int, int], list[ManifestWindow]] = defaultdict(list)
    references: dict[tuple[int, int], int] = defaultdict(int)
    for cut in itertools.chain.from_iterable(map(cuts, plan.arrays)):
        if cut.is_alone:
            yield [cut]
            continue
        open_cuts, mine = shared[cut.run], cut.references
        full = references[cut.run] + mine > SHARED_REFERENCES
        # a manifest has one table for each array, so an array's windows never share one: they
        # follow one another
        if full or (open_cuts and open_cuts[-1].array is cut.array):
            yield list(open_cuts)
            open_cuts.clear()
            references[cut.run] = 0
        open_cuts.append(cut)
        references[cut.run] += mine
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


OPENING = 1_500
"""References that are written in the time in which a part of the catalog is opened."""
_TASKS_PER_SLOT = (4, 2)  # so that no slot waits long for another; fewer open fewer parts
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

    def describe(self) -> str:
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


def deal_items(
    plan: BuildPlan, items: Sequence[PlannedManifest], slots: int
) -> tuple[tuple[PlannedManifest, ...], ...]:
    """Deal items to a few tasks for each slot, fewer where these would open parts for longest."""
    piles: tuple[tuple[PlannedManifest, ...], ...] = ()
    work = sum(item.expected + 1 for item in items)
    for each in _TASKS_PER_SLOT:
        piles = balance(plan, items, slots * each)
        if sum(float(_loads(plan, pile).sum()) for pile in piles) <= 2 * work:
            break
    return piles


def balance(
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
    """Return the work of the items of a task, in references; items of a run share its parts."""
    parts_of_file = len(plan.files.parts) / max(1, len(plan.files))
    loads: list[float] = []
    for (low, high), alike in groupby(items, key=lambda item: item.run):
        together = list(alike)
        opening = OPENING * (high - low) * parts_of_file / len(together)
        loads += [item.expected + 1 + opening for item in together]
    return np.array(loads, np.float64)


def write_items(plan: BuildPlan) -> Iterator[ManifestTask]:
    """Yield all items of a plan, with the names of their files."""
    for draft in drafts(plan):
        yield from bundle(plan, [draft], plan.files)


def bundles(
    plan: BuildPlan, pile: Sequence[PlannedManifest], files: FileRows | FileColumns
) -> Iterator[tuple[ManifestTask, ...]]:
    """Yield the items of a task, in its order, those together that need the same run of files."""
    for _, alike in groupby(pile, key=lambda draft: draft.run):
        yield bundle(plan, list(alike), files)


def bundle(
    plan: BuildPlan, pile: Sequence[PlannedManifest], files: FileRows | FileColumns
) -> tuple[ManifestTask, ...]:
    """Return items that share what they know of files.

    Args:
        plan: Theirs.
        pile: Their drafts.
        files: Those of the plan, with their names where the catalog has not the same.
    """
    needed = np.zeros(len(files), np.int64)
    taken = {id(cut): cut.of for draft in pile for cut in draft.cuts}
    for cut in (cut for draft in pile for cut in draft.cuts):
        places = cut.array.files[taken[id(cut)]]
        needed[places] = np.maximum(needed[places], 1)
        if cut.array.skips is not None:  # two boxes of a file are two files to the items
            needed = np.maximum(needed, np.bincount(places, minlength=len(files)))
    rows = np.repeat(np.arange(len(files)), needed)
    mine = files.take(rows)
    origin = None if plan.origin is None else plan.origin.take(rows)
    spread = _Spread(rows)
    return tuple(
        ManifestTask(
            number=draft.number,
            files=mine,
            windows=tuple(_window(cut, taken[id(cut)], spread) for cut in draft.cuts),
            origin=origin,
        )
        for draft in pile
    )


@dataclass(frozen=True, slots=True)
class _Spread:
    """Puts columns of an array's files where these files are among the items' files."""

    rows: NDArray[np.int64]  # of the plan's files
    made: dict[tuple[str, tuple[int, ...], bytes], NDArray[np.generic]] = field(
        default_factory=dict
    )

    def column[T: np.generic](
        self, values: NDArray[T], at: NDArray[np.int64], of: NDArray[np.int64]
    ) -> NDArray[T]:
        """Return the rows ``of`` of a column at the places ``at``, nothing elsewhere."""
        out = np.zeros((len(self.rows), *values.shape[1:]), values.dtype)
        out[at] = values[of]
        return self.share(out)

    def share[T: np.generic](self, column: NDArray[T]) -> NDArray[T]:
        """Return the first column that was equal to this one."""
        digest = hashlib.blake2b(np.ascontiguousarray(column).data, digest_size=16).digest()
        key = (column.dtype.str, column.shape, digest)
        found: NDArray[T] = self.made.setdefault(key, column)  # type: ignore[assignment]
        return found


def _window(cut: ManifestWindow, of: NDArray[np.int64], spread: _Spread) -> WindowTask:
    """Return a window's task; ``of`` are its files among those of the array."""
    array = cut.array
    at = np.searchsorted(spread.rows, array.files[of])
    if array.skips is not None:
        at += _earlier(array.files[of])
    takes = spread.column(np.ones(len(array.files), np.bool_), at, of)
    return WindowTask(
        source_path=array.source_path,
        node_id=array.node_id,
        mode=array.mode,
        direct=array.mode is ArrayMode.once or array.schema.whole,
        axes=array.axes,
        box=cut.box,
        zarr_json=array.zarr_json,
        chunk_shape=array.chunk_shape,
        shape=array.shape,
        takes=takes,
        starts=spread.column(array.starts, at, of),
        lengths=spread.column(array.lengths, at, of),
        whole=spread.column(array.whole, at, of),
        whole_schema=array.whole_schema,
        times=None if array.times is None else array.times.take(spread.rows),
        values=array.values,
        hybrid=None if array.hybrid is None else array.hybrid.spread(at, of, len(spread.rows)),
        form=None if array.form is None else spread.column(array.form, at, of),
        skips=None if array.skips is None else spread.column(array.skips, at, of),
        held=None if array.held is None else spread.column(array.held, at, of),
        reads=() if array.sources is None else _reads(array.sources, spread, (at, of), takes),
    )


def _earlier(files: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many rows before each one are of the same file."""
    order = np.argsort(files, kind="stable")
    held = files[order]
    found = np.empty(len(files), np.int64)
    found[order] = np.arange(len(files)) - np.searchsorted(held, held)
    return found


def _reads(
    sources: Coded,
    spread: _Spread,
    where: tuple[NDArray[np.int64], NDArray[np.int64]],
    takes: NDArray[np.bool_],
) -> tuple[tuple[str, NDArray[np.bool_]], ...]:
    """Return under which paths an array is read, and of which of the items' files."""
    codes = spread.column(np.asarray(sources.codes), *where)
    found = ((path, takes & (codes == code)) for code, path in enumerate(sources.values))
    return tuple((path, spread.share(mine)) for path, mine in found if mine.any())
