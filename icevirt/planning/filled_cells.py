"""Move a plan of some files of a cube and its new files to where the new ones belong.

Files of a cube lie along several dimensions, like forecasts by run and lead: a new one makes a
dimension longer, or fills a place that was reserved. A few files at the corners of the cube and the
new ones are planned by themselves. Where their steps lie in the dataset, labels say that it stores.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.plan import ArrayMode, BuildPlan, PlannedArray
from icevirt.archive.reports.build import ReferenceCounts
from icevirt.model import paths
from icevirt.model.snapshot import ArrayNode, Snapshot, document_of
from icevirt.planning.combine.plan_variable import choose_joined_edges
from icevirt.planning.lengthened import (
    MOST_REWRITTEN,
    Decided,
    Growing,
    Lengthened,
    LengthenedArray,
    OtherwiseError,
    Scattered,
    as_decided,
    check_as_before,
    check_layout,
    choose_codecs,
    count_new,
    decision_of,
    kind_of,
    only_new,
    regular_grid,
    with_shape,
)
from icevirt.planning.schedule.write_tasks import window_of
from icevirt.planning.times.recoding import recode_values


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CubeAxis:
    """Where the steps of a plan lie along one dimension of a dataset."""

    dimension: str
    places: NDArray[np.int64]  # (steps of the plan,) ascending
    before: int  # steps of the dataset
    is_whole: bool  # each file has all of them

    @property
    def after(self) -> int:
        """Steps that the dataset will have."""
        return max(self.before, int(self.places.max(initial=-1)) + 1)


def files_at_corners(plan: BuildPlan) -> NDArray[np.int64] | None:
    """Return the files that stand for all of a cube; None where one has some steps of several.

    For each array these are one at the begin of each dimension, and one at its end.
    """
    found: list[int] = []
    seen = set()
    for array in plan.arrays:
        if array.mode in (ArrayMode.once, ArrayMode.given):
            continue
        ends = tuple(array.shape[axis] for axis in array.axes)
        alike = (id(array.files), id(array.starts), array.lengths[:1].tobytes(), ends)
        if alike in seen:  # nearly all arrays of a dataset lie alike
            continue
        if not array.axes or not len(array.files) or not _is_celled(array):
            return None
        if not array.lengths.strides[0]:  # all files have this length
            seen.add(alike)
        for at, end in enumerate(ends):
            starts, lengths = array.starts[:, at], array.lengths[:, at]
            last = len(starts) - 1 - np.argmax((starts + lengths == end)[::-1])
            found += array.files[[np.argmax(starts == 0), last]].tolist()
    return np.unique(np.array(found, np.int64)) if found else None


def _is_celled(array: PlannedArray) -> bool:
    """Say whether each file has one step along a dimension, or all of them."""
    if array.skips is not None:
        return False
    return all(
        (array.lengths[:, at] == 1).all() or _is_whole(array, at) for at in range(len(array.axes))
    )


def _is_whole(array: PlannedArray, at: int) -> bool:
    return bool((array.lengths[:, at] == array.shape[array.axes[at]]).all())


def coordinate_along(plan: BuildPlan, dimension: str) -> PlannedArray:
    """Return the array whose values are the labels along a dimension.

    Raises:
        OtherwiseError: There is none, or there are several.
    """
    found = [
        each
        for each in plan.arrays
        if paths.name(each.path) == dimension and each.schema.dimension_names == (dimension,)
    ]
    if len(found) != 1 or kind_of(found[0]) is not Growing.by_values:
        raise OtherwiseError(f"no labels say where new files lie along {dimension!r}")
    return found[0]


def labels_of(array: PlannedArray, plan: BuildPlan, facts: CatalogFacts) -> NDArray[Any]:
    """Return the labels along a dimension, as the dataset stores them.

    Raises:
        OtherwiseError: They are not known.
    """
    if array.values is not None:
        return array.values
    rows = {facts.files.url[row]: row for row in range(len(facts.files))}
    arrays, found = facts.arrays, dict[int, NDArray[Any]]()
    code = arrays.path.values.index(array.source_path)
    held = np.flatnonzero(arrays.path.codes == code)
    of_file = dict(zip(np.asarray(arrays.file[held]).tolist(), held.tolist(), strict=True))
    for place, start in zip(array.files.tolist(), array.starts[:, 0].tolist(), strict=True):
        url = plan.files.url[place]
        raw = arrays.labels.get(of_file[rows[url]])
        if raw is None or raw.dtype.kind not in "iuf":
            raise OtherwiseError(f"labels of {array.path} are not known")
        values: NDArray[Any] = raw.astype(raw.dtype.newbyteorder("="))
        if array.times is not None:
            values = recode_values(values, array.times, place, path=array.source_path, url=url)
        found[start] = values
    joined = np.concatenate([found[start] for start in sorted(found)])
    if len(joined) != array.shape[0]:
        raise OtherwiseError(f"labels of {array.path} are not known")
    return joined


def place_along(
    array: PlannedArray, labels: NDArray[Any], held: NDArray[Any], is_new: NDArray[np.bool_]
) -> CubeAxis:
    """Return where the steps of a plan lie.

    Args:
        array: The coordinate.
        labels: Its values in the plan.
        held: The same of the dataset.
        is_new: Which of the plan's files are new.

    Raises:
        OtherwiseError: New steps lie before others.
    """
    (dimension,) = array.schema.dimension_names
    assert dimension is not None
    if not len(held) or held.dtype.kind not in "iuf" or labels.dtype != held.dtype:
        raise OtherwiseError(f"labels of {dimension!r} are no numbers, or stored otherwise")
    order = np.argsort(held, kind="stable")
    at = order[np.minimum(np.searchsorted(held, labels, sorter=order), len(held) - 1)]
    known = held[at] == labels
    places = np.where(known, at, len(held) - 1 + np.cumsum(~known))
    if (np.diff(places) <= 0).any():
        raise OtherwiseError(f"new steps of {dimension!r} lie before others")
    if array.mode is not ArrayMode.given:
        old = array.starts[~is_new[array.files], 0]
        if not known[old].all():
            raise OtherwiseError(f"labels of {dimension!r} were changed since the last build")
    is_whole = len(labels) > 1 and array.mode is not ArrayMode.given and _is_whole(array, 0)
    return CubeAxis(dimension=dimension, places=places, before=len(held), is_whole=is_whole)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CubeGrowth:
    """A plan of some files of a cube, and what it is held against."""

    plan: BuildPlan
    facts: CatalogFacts  # that it was made of; files of the dataset come first
    ends: int  # how many these are
    is_new: NDArray[np.bool_]  # which of the plan's files are new
    axes: Mapping[str, CubeAxis]
    is_reserving: bool  # whether places without a file read as missing

    def find(
        self, decided: Mapping[str, Decided], groups: Mapping[str, str], tip: Snapshot
    ) -> Lengthened:
        """Return what the new files add to the dataset at the tip of a branch.

        Args:
            decided: What the last build decided about arrays, by path.
            groups: The same of groups.
            tip: What the branch holds.

        Raises:
            OtherwiseError: The plan changes something else, too.
        """
        plan = self.plan
        if plan.eras is not None or plan.left_out or len(plan.files) != len(self.facts.files):
            raise OtherwiseError("files hold the same steps, or are several eras")
        check_as_before(plan, decided, groups)
        references, values = [], []
        for array in plan.arrays:
            before, now = decided[array.path], decision_of(array)
            now = replace(now, shape=self._shape(array))
            node = as_decided(array, before, now, tip)
            if now.kind is Growing.never:
                if now.shape != before.shape:
                    raise OtherwiseError(f"{array.path} would have another shape")
                continue
            if now.kind is Growing.by_references:
                references.append(self._by_references(array, node, now.shape))
            elif now.shape != before.shape or self._new(array).any():
                values.append(self._by_values(array, node, now.shape))
        if {*np.flatnonzero(self.is_new).tolist()} - self._with_references():
            raise OtherwiseError("only stored values would say whether a place is taken")
        return Lengthened(references=tuple(references), values=tuple(values))

    def _with_references(self) -> set[int]:
        """Return the files with references, which find those that lie at the same places."""
        found = (each for each in self.plan.arrays if kind_of(each) is Growing.by_references)
        alike = {id(each.files): each.files for each in found}  # which nearly all arrays share
        return {row for files in alike.values() for row in files.tolist()}

    def _shape(self, array: PlannedArray) -> tuple[int, ...]:
        """Return the shape that an array will have."""
        found = list(array.shape)
        for axis, name in enumerate(array.schema.dimension_names):
            if name is not None and name in self.axes:
                if array.shape[axis] != len(self.axes[name].places):
                    raise OtherwiseError(f"{array.path} has steps of {name!r} of its own")
                found[axis] = self.axes[name].after
        return tuple(found)

    def _new(self, array: PlannedArray) -> NDArray[np.bool_]:
        return self.is_new[array.files]

    def _along(self, array: PlannedArray) -> list[CubeAxis]:
        names = array.schema.dimension_names
        return [self.axes[str(names[axis])] for axis in array.axes]

    def _by_references(
        self, array: PlannedArray, node: ArrayNode, shape: tuple[int, ...]
    ) -> LengthenedArray:
        path, document, along = array.path, document_of(node), self._along(array)
        if array.hybrid is not None or array.times is not None or not _is_celled(array):
            raise OtherwiseError(f"some chunks of {path} have to be stored, or count in part")
        if len(along) != len(self.axes):
            raise OtherwiseError(f"{path} does not lie along all dimensions that files lie along")
        check_layout(array, json.loads(array.zarr_json), node, document)
        if any(
            e.before % array.chunk_shape[axis] for e, axis in zip(along, array.axes, strict=True)
        ):
            raise OtherwiseError(f"the last chunk of {path} is not full")
        new = np.flatnonzero(self._new(array))
        starts = np.empty_like(array.starts[new])
        for at, axis in enumerate(along):
            starts[:, at] = axis.places[array.starts[new, at]]
        if len(np.unique(starts, axis=0)) < len(starts):
            raise OtherwiseError(f"several files hold the same steps of {path}")
        order = np.lexsort(starts.T[::-1])
        new, starts = new[order], starts[order]
        counts, expected = ReferenceCounts(), 0
        if len(new):
            counts, made = count_new(array, self.facts, self.ends, array.whole[new])
            if made is None:
                raise OtherwiseError(f"how many chunks are added to {path} is not known")
            expected = made
        grid = _grid(shape, array.chunk_shape)
        if not self.is_reserving and expected != math.prod(grid) - math.prod(node.num_chunks):
            raise OtherwiseError(f"steps of {path} would be missing")
        first = array.axes[0]
        return LengthenedArray(
            node=node,
            zarr_json=with_shape(document, shape),
            axis=first,
            added=replace(
                only_new(array, new),
                shape=shape,
                zarr_json=with_shape(document, shape),
                starts=starts,
                window=window_of(grid, first, math.prod(array.window)),
                references=counts,
                expected=expected,
            ),
            kept=node.shape[first],
            expected=expected,
        )

    def _by_values(
        self, array: PlannedArray, node: ArrayNode, shape: tuple[int, ...]
    ) -> LengthenedArray:
        document, is_given = document_of(node), array.mode is ArrayMode.given
        names = array.schema.dimension_names
        axes = tuple(at for at, name in enumerate(names) if name in self.axes)
        if (
            not axes
            or (array.times is not None and is_given)
            or not (is_given or _is_celled(array))
        ):
            raise OtherwiseError(f"values of {array.path} count in part")
        edges, codecs = choose_joined_edges(shape, axes), choose_codecs(array, document, shape)
        check_layout(array, json.loads(array.zarr_json), node, document, ("codecs", "chunk_grid"))
        grid = regular_grid(edges)
        first, along = axes[0], [self.axes[str(names[axis])] for axis in axes]
        new = np.flatnonzero(self._new(array))
        rows = np.arange(array.shape[first])[:, None] if is_given else array.starts[new]
        moving = [at for at, each in enumerate(along) if not each.is_whole]
        into = {axes[at]: along[at].places[rows[:, at]] for at in moving}
        if not self.is_reserving and not is_given:
            _refuse_missing(array.path, [(along[at], into[axes[at]]) for at in moving])
        scattered = Scattered(
            into=into,
            of={axes[at]: rows[:, at] for at in moving},
            may_fill=self.is_reserving,
        )
        is_same = document["chunk_grid"] == grid and document["codecs"] == codecs
        low = min(
            int(into[first].min(initial=node.shape[first])) if first in into else 0,
            node.shape[first],
        )
        kept = low // edges[first] * edges[first] if is_same else 0
        if (
            8 * math.prod((*shape[:first], shape[first] - kept, *shape[first + 1 :]))
            > MOST_REWRITTEN
        ):
            raise OtherwiseError(f"the stored values of {array.path} would be cut otherwise")
        chunk = tuple(max(1, size) for size in array.shape)
        added = (
            array
            if is_given
            else replace(
                only_new(array, new), mode=ArrayMode.join, starts=array.starts[new], held=None
            )
        )
        return LengthenedArray(
            node=node,
            zarr_json=with_shape(document, shape, chunk_grid=grid, codecs=codecs),
            axis=first,
            added=replace(
                added,
                chunk_shape=chunk,
                zarr_json=with_shape(document, array.shape, chunk_grid=regular_grid(chunk)),
                window=(1,) * len(chunk),
            ),
            kept=kept,
            expected=None,
            scattered=scattered,
        )


def _refuse_missing(path: str, new: Sequence[tuple[CubeAxis, NDArray[np.int64]]]) -> None:
    """Make sure that new values are at all places that an array gets, by axis: where they lie."""
    before, after = ([getattr(axis, name) for axis, _ in new] for name in ("before", "after"))
    places = np.unique(np.stack([places for _, places in new], axis=1), axis=0) if new else None
    added = 0 if places is None else int((places >= before).any(axis=1).sum())
    if added != math.prod(after) - math.prod(before):
        raise OtherwiseError(f"steps of {path} would be missing")


def _grid(shape: Sequence[int], edges: Sequence[int]) -> list[int]:
    return [-(-size // edge) for size, edge in zip(shape, edges, strict=True)]
