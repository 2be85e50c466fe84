"""Build write tasks: choose the route of references, deal items to tasks, share file columns.

A window reads the references of one array from every part of the catalog that describes one of its
files. If files have the same order in the dataset and in the catalog, it reads each part about
once. Otherwise each window would read nearly all parts, and one shuffle is cheaper.

What a window knows of files is columns with one row per file. Arrays of the same files nearly
always have equal columns, so these travel, and occupy a task's memory, only once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import Coded, FileColumns
from icevirt.archive.plan import ArrayMode, BuildPlan, FileRows, ManifestTask, WindowTask
from icevirt.planning.schedule.manifest_units import ManifestWindow, PlannedManifest, cuts, drafts

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
    for cut in (cut for draft in pile for cut in draft.cuts):
        places = cut.array.files[cut.of]
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
            windows=tuple(_window(cut, spread) for cut in draft.cuts),
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
        return self.shared(out)

    def shared[T: np.generic](self, column: NDArray[T]) -> NDArray[T]:
        """Return the first column that was equal to this one."""
        digest = hashlib.blake2b(np.ascontiguousarray(column).data, digest_size=16).digest()
        key = (column.dtype.str, column.shape, digest)
        found: NDArray[T] = self.made.setdefault(key, column)  # type: ignore[assignment]
        return found


def _window(cut: ManifestWindow, spread: _Spread) -> WindowTask:
    array, of = cut.array, cut.of
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
    return tuple((path, spread.shared(mine)) for path, mine in found if mine.any())
