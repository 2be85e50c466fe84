"""Build write tasks; tasks over the same files share file columns.

What a window knows of files is columns with one row per file. Arrays of the same files nearly
always have equal columns, so these travel, and occupy a task's memory, only once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import Coded, FileColumns
from icevirt.archive.plan import ArrayMode, BuildPlan, FileRows, ManifestTask, WindowTask
from icevirt.planning.schedule.manifest_units import ManifestWindow, PlannedManifest, drafts


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
    needed = np.zeros(len(files), np.bool_)
    for cut in (cut for draft in pile for cut in draft.cuts):
        needed[cut.array.files[cut.of]] = True
    rows = np.flatnonzero(needed)
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
    """Puts columns of an array's files where these are among those of the items."""

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
        reads=() if array.sources is None else _reads(array.sources, spread, (at, of), takes),
    )


def _reads(
    sources: Coded,
    spread: _Spread,
    where: tuple[NDArray[np.int64], NDArray[np.int64]],
    takes: NDArray[np.bool_],
) -> tuple[tuple[str, NDArray[np.bool_]], ...]:
    """Return under which paths an array is read, and of which of the items' files."""
    codes = spread.column(sources.codes, *where)
    found = ((path, takes & (codes == code)) for code, path in enumerate(sources.values))
    return tuple((path, spread.shared(mine)) for path, mine in found if mine.any())
