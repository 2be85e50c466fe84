"""Move a plan of the ends of a dataset and its new files to where the new files belong.

The plan combines the files at both ends with the new ones as if there were no others. If it decides
what the last build decided, and puts the new files last, then one build of all files would leave
everything as it is and only add to it. Chunks of values that a build stores are cut anew as they
become more, so how they are cut and whether they are compressed is no decision.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import ArrayColumns, CatalogFacts
from icevirt.archive.joining import find_fixed_dtype
from icevirt.archive.plan import ArrayMode, BuildPlan, PlannedArray
from icevirt.archive.reports.build import ReferenceCounts
from icevirt.ids import ObjectId12
from icevirt.model.json import JSON
from icevirt.model.snapshot import ArrayNode, Snapshot, document_of
from icevirt.planning.coarsening import Coarsening
from icevirt.planning.combine.options import CombineSpec
from icevirt.planning.combine.plan_variable import (
    JOINED_CHUNK_BYTES,
    STORED_CODEC,
    WORTH_COMPRESSING,
    choose_joined_edges,
)
from icevirt.planning.combine.prepare import PreparedFacts
from icevirt.planning.schedule.write_tasks import window_of
from icevirt.planning.stored_form import StoredForm, StoredForms

_MOST_KINDS = 1 << 24  # combinations of path and schema that are looked at
_OTHERS = 6  # files beside the first and the last, one for each other schema


class Growing(StrEnum):
    """How an array becomes longer."""

    never = "never"  # it is the same in all files
    by_references = "references"
    by_values = "values"  # that are stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What a plan decided about one array."""

    kind: Growing
    digest: str  # of its metadata, but for what growth changes
    shape: tuple[int, ...]

    def dumps(self) -> list[JSON]:
        """Return it as JSON."""
        return [self.kind.value, self.digest, list(self.shape)]

    @classmethod
    def loads(cls, raw: Any) -> Decided:
        """Undo `dumps`. Raises ``ValueError``, ``TypeError``."""
        kind, digest, shape = raw
        return cls(kind=Growing(kind), digest=str(digest), shape=tuple(map(int, shape)))


def decision_of(array: PlannedArray) -> Decided:
    """Return what was decided about an array."""
    kind = kind_of(array)
    return Decided(kind=kind, digest=_digest_of(kind, array.zarr_json), shape=array.shape)


@lru_cache(maxsize=4096)
def _digest_of(kind: Growing, zarr_json: bytes) -> str:
    """Return the digest of an array's metadata; files that are appended decide the same again."""
    document = json.loads(zarr_json)
    document.pop("shape")
    if kind is Growing.by_values:
        document.pop("chunk_grid")
        document["codecs"] = [each for each in document["codecs"] if each != STORED_CODEC]
    return _digest(document)


def kind_of(array: PlannedArray) -> Growing:
    """Return how an array becomes longer."""
    if array.mode is ArrayMode.once:
        return Growing.never
    if array.mode is not ArrayMode.concat or (array.hybrid is None and bool(array.whole.all())):
        return Growing.by_values
    return Growing.by_references


def groups_decided(groups: Mapping[str, bytes]) -> dict[str, str]:
    """Return digests of the metadata of groups, by path."""
    return {path: _digest(json.loads(raw)) for path, raw in groups.items()}


def _digest(document: Any) -> str:
    text = json.dumps(document, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def files_at_ends(plan: BuildPlan) -> NDArray[np.int64] | None:
    """Return the files at both ends of the dimension that grows; None where none can grow.

    Returns:
        Rows of the plan's files, ascending.
    """
    growing = [each for each in plan.arrays if each.mode is not ArrayMode.once]
    if plan.eras is not None or len(plan.concat_dim) != 1 or not growing:
        return None
    ends = [np.array([0, len(plan.files) - 1], np.int64)]
    for array in growing:
        if array.mode is ArrayMode.given:
            continue
        if len(array.axes) != 1 or not len(array.files):
            return None
        begin = array.starts[:, 0]
        last = begin + array.lengths[:, 0] == array.shape[array.axes[0]]
        ends.append(array.files[(begin == 0) | last].astype(np.int64))
    return np.unique(np.concatenate(ends))


def files_of_schemas(arrays: ArrayColumns) -> NDArray[np.int64]:
    """Return files (rows of the facts) that show how arrays are described otherwise than first.

    They spare plans that differ for want of a file; no decision depends on them.
    """
    schemas = len(arrays.schema.values)
    kinds = schemas * len(arrays.path.values)
    if not len(arrays.file) or kinds > _MOST_KINDS or schemas == len(arrays.path.values):
        return np.zeros(0, np.int64)
    key = arrays.path.codes.astype(np.int64) * schemas + arrays.schema.codes
    first = np.full(kinds, -1, np.int64)
    first[key[::-1]] = arrays.file[::-1]
    found = np.unique(first[first >= 0])
    return found[:_OTHERS]


_LAID_OUT = (
    *("data_type", "fill_value", "chunk_key_encoding", "storage_transformers"),
    *("codecs", "chunk_grid"),
)
MOST_REWRITTEN = 4 * JOINED_CHUNK_BYTES  # bytes of stored values that are cut anew


class OtherwiseError(Exception):
    """The plan would change more than the end of the dataset; the text says what."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scattered:
    """Where new values belong that do not all lie behind the others."""

    into: Mapping[int, NDArray[np.int64]]  # by axis: (steps,) in the array
    of: Mapping[int, NDArray[np.int64]]  # by axis: (steps,) among the new values
    may_fill: bool  # whether a place may have been reserved; else values there are the same


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LengthenedArray:
    """An array of the dataset, and what is added to it."""

    node: ArrayNode  # as it is
    zarr_json: bytes  # as it will be
    axis: int
    added: PlannedArray  # the new files alone; of values and where cut: as if there were no others
    kept: int  # elements along the axis whose chunks stay; those behind are written again
    expected: int | None  # references that are added; None: not known before
    is_cut: bool = False  # chunks are encoded anew, in the form in which the variable is stored
    coarsen: Coarsening | None = None  # what is stored for blocks of values
    scattered: Scattered | None = None  # of values; None: they follow the others along the axis

    @property
    def first(self) -> int:
        """The number of the first chunk along the axis that is added or written again."""
        edges: list[int] = json.loads(self.zarr_json)["chunk_grid"]["configuration"]["chunk_shape"]
        return self.kept // edges[self.axis]

    @property
    def manifests_changed(self) -> frozenset[ObjectId12]:
        """The manifests of the array that hold chunks which are written again."""
        return frozenset(
            ref.object_id
            for ref in self.node.manifests
            if not ref.extents or ref.extents[self.axis][1] > self.first
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lengthened:
    """What new files add to a dataset."""

    references: tuple[LengthenedArray, ...]
    values: tuple[LengthenedArray, ...]
    stored: tuple[LengthenedArray, ...] = ()  # by references, which are stored in the repository

    @property
    def arrays(self) -> tuple[LengthenedArray, ...]:
        """All arrays that become longer."""
        return (*self.references, *self.values, *self.stored)

    def plan_added(self, plan: BuildPlan) -> BuildPlan:
        """Return a plan of what is added."""
        made = (each.added for each in self.arrays)
        found = [e for e in made if e.mode is not ArrayMode.given and len(e.files)]
        return replace(plan, arrays=tuple(found))


def lengthen(  # noqa: PLR0917 - a plan, and what it is held against
    plan: BuildPlan,
    facts: CatalogFacts,
    ends: int,
    decided: Mapping[str, Decided],
    groups: Mapping[str, str],
    tip: Snapshot,
    steps: int | None = None,
    forms: StoredForms = MappingProxyType({}),
) -> Lengthened:
    """Return what the new files of a plan add to the dataset at the tip of a branch.

    Args:
        plan: Of the files at the ends and the new ones; with the node ids of the dataset.
        facts: That it was made of; files at the ends come first.
        ends: How many files at the ends there are.
        decided: What the last build decided about arrays, by path.
        groups: The same of groups.
        tip: What the branch holds.
        steps: How many steps the dimension has, if a person said how far apart they are.
        forms: How variables are stored that are stored in the repository.

    Raises:
        OtherwiseError: The plan changes something else, too.
    """
    _check_files(plan, facts, ends)
    check_as_before(plan, decided, groups)
    found: dict[Growing, list[LengthenedArray]] = {kind: [] for kind in Growing}
    stored: list[LengthenedArray] = []
    behind = _steps_behind(plan, ends)
    for array in plan.arrays:
        before, now = decided[array.path], decision_of(array)
        form = forms.get(array.path)
        now = now if form is None else replace(now, shape=form.shape(now.shape))
        node = as_decided(array, before, now, tip)
        if steps is not None and _length_along(node, plan.concat_dim[0]) not in (None, steps):
            raise OtherwiseError(f"steps are missing between {array.path} and the new files")
        if now.kind is Growing.by_references:
            made = found[now.kind] if form is None else stored
            made.append(_by_references(array, facts, ends, node, form))
        elif now.kind is Growing.by_values:
            begin, axis = _place_of_values(array, plan.concat_dim[0], behind, ends)
            found[now.kind].append(_by_values(array, begin, axis, ends, node, form))
        elif now.shape != before.shape:
            raise OtherwiseError(f"{array.path} would have another shape")
    return Lengthened(
        references=tuple(found[Growing.by_references]),
        values=tuple(found[Growing.by_values]),
        stored=tuple(stored),
    )


def check_as_before(
    plan: BuildPlan, decided: Mapping[str, Decided], groups: Mapping[str, str]
) -> None:
    """Make sure that a plan has the arrays and groups of the last build.

    Raises:
        OtherwiseError: It has others, or other attributes of a group.
    """
    _check_same({each.path for each in plan.arrays}, {*decided}, "variable")
    _check_same({*plan.groups}, {*groups}, "group")
    for path, digest in groups_decided(plan.groups).items():
        if digest != groups[path]:
            raise OtherwiseError(f"the attributes of {path} would change")


def as_decided(array: PlannedArray, before: Decided, now: Decided, tip: Snapshot) -> ArrayNode:
    """Return an array as it is, if the plan decides about it what was decided before."""
    if (now.kind, now.digest) != (before.kind, before.digest):
        raise OtherwiseError(f"{array.path} would be described or encoded otherwise")
    node = tip.find(array.path)
    if not isinstance(node, ArrayNode) or node.id != array.node_id:
        raise OtherwiseError(f"{array.path} is no longer there, or another array")
    if node.shape != before.shape:
        raise OtherwiseError(f"{array.path} has another shape than the last build gave it")
    return node


def steps_behind(prepared: PreparedFacts, spec: CombineSpec, ends: int) -> int | None:
    """Return behind which step new files follow; None where nobody said how far apart steps are.

    Raises:
        OtherwiseError: There are steps between.
        CombineError: Files do not lie on the steps.
    """
    if not spec.spacing:
        return None
    cells = prepared.cells(spec)
    (axis,) = cells.axes
    if cells.of_groups:
        raise OtherwiseError("groups have steps of their own")
    if axis.steps is None:
        return None
    is_new = np.zeros(axis.count, np.bool_)
    is_new[axis.cell[ends:]] = True
    begins, lengths = axis.steps.begins, axis.steps.lengths
    behind = int((begins + lengths)[~is_new].max())
    first = np.sort(begins[is_new])
    if int(first[0]) != behind or len(axis.steps.values) - behind != int(lengths[is_new].sum()):
        raise OtherwiseError("steps are missing before the new files, or between them")
    return behind


def _length_along(node: ArrayNode, dimension: str) -> int | None:
    names = node.dimension_names or ()
    return node.shape[names.index(dimension)] if dimension in names else None


def _check_files(plan: BuildPlan, facts: CatalogFacts, ends: int) -> None:
    if plan.eras is not None or len(plan.concat_dim) != 1:
        raise OtherwiseError("the dataset has several eras or grows along several dimensions")
    if plan.left_out or len(plan.files) != len(facts.files):
        raise OtherwiseError("files hold the same steps, and one of them counts")
    if {*plan.files.url[np.arange(ends)]} != {*facts.files.url[np.arange(ends)]}:
        raise OtherwiseError("new files do not all lie behind the last step")


def _check_same(planned: set[str], there: set[str], what: str) -> None:
    if more := sorted(planned - there):
        raise OtherwiseError(f"{what} {more[0]} is new")
    if lacking := sorted(there - planned):
        raise OtherwiseError(f"no file at the end has {what} {lacking[0]}")


def _steps_behind(plan: BuildPlan, ends: int) -> int | None:
    """Return where the new files begin along the dimension, as arrays that have it tell."""
    found = {
        _behind(each, ends)[1]
        for each in plan.arrays
        if each.axes and each.schema.dimension_names[each.axes[0]] == plan.concat_dim[0]
    }
    return found.pop() if len(found) == 1 else None


def _place_of_values(
    array: PlannedArray, dimension: str, behind: int | None, ends: int
) -> tuple[int, int]:
    """Return where values of new files begin along the axis that grows, and the axis."""
    if array.mode is not ArrayMode.given:
        axis, begin = _behind(array, ends)
        return begin, axis
    names = array.schema.dimension_names
    if behind is None or dimension not in names:
        raise OtherwiseError(f"the labels {array.path} do not grow")
    return behind, names.index(dimension)


def _by_references(
    array: PlannedArray, facts: CatalogFacts, ends: int, node: ArrayNode, form: StoredForm | None
) -> LengthenedArray:
    """Return what is added to an array; in chunks or codecs of its own its chunks are cut anew."""
    path, document, is_cut = array.path, document_of(node), form is not None and not form.is_copy
    if array.hybrid is not None or array.times is not None:
        why = "are no chunks of files" if is_cut else "have to be stored"
        raise OtherwiseError(f"some chunks of {path} {why}")
    axis, begin = _behind(array, ends)
    planned = json.loads(array.zarr_json)
    check_layout(array, form.apply(planned, path) if form and is_cut else planned, node, document)
    length, edge, more = node.shape[axis], array.chunk_shape[axis], array.shape[axis] - begin
    if begin % edge or (length % edge and not is_cut):
        raise OtherwiseError(f"the last chunk of {path} is not full{' in its files' * is_cut}")
    shape, kept = _shape(array, node, axis, more, form), length
    alone, zarr_json = shape, with_shape(document, shape)
    if is_cut:
        edge = document["chunk_grid"]["configuration"]["chunk_shape"][axis]
        alone, kept = _with_length(array.shape, axis, more), length // edge * edge
    new = np.flatnonzero(array.files >= ends)
    grid = [-(-size // step) for size, step in zip(alone, array.chunk_shape, strict=True)]
    counts, expected = count_new(array, facts, ends, array.whole[new])
    added = replace(
        only_new(array, new),
        shape=alone,
        zarr_json=with_shape(planned, alone) if is_cut else zarr_json,
        starts=array.starts[new] + (0 if is_cut else length) - begin,
        window=window_of(grid, axis, math.prod(array.window)),
        references=counts,
        expected=counts.total,
    )
    return LengthenedArray(
        node=node,
        zarr_json=zarr_json,
        axis=axis,
        added=added,
        kept=kept,
        expected=expected,
        is_cut=is_cut,
        coarsen=None if form is None else form.coarsen,
    )


def only_new(array: PlannedArray, new: NDArray[np.int64]) -> PlannedArray:
    """Return an array of some of its files."""
    return replace(
        array,
        files=array.files[new],
        lengths=array.lengths[new],
        whole=array.whole[new],
        sources=None if array.sources is None else array.sources.take(new),
        form=None if array.form is None else array.form[new],
    )


def _behind(array: PlannedArray, ends: int) -> tuple[int, int]:
    """Return the axis that grows, and where the new files begin along it."""
    if len(array.axes) != 1 or array.skips is not None:
        raise OtherwiseError(f"files of {array.path} differ in length, or count in part")
    (axis,) = array.axes
    columns = (each.tobytes() for each in (array.files, array.starts, array.lengths))
    begin = _begin(*columns, array.shape[axis], ends)
    if begin < 0:
        raise OtherwiseError(f"steps of {array.path} are missing")
    return axis, begin


@lru_cache(maxsize=64)
def _begin(files: bytes, starts: bytes, lengths: bytes, total: int, ends: int) -> int:
    """Return where new files begin, -1 unless they follow others without a gap.

    Nearly all arrays of a dataset lie alike, so that few of them are looked at.

    Args:
        files: Rows of the plan's files, int64.
        starts: Where each begins along the axis, int64.
        lengths: How long each is along it, int64.
        total: Of the axis.
        ends: How many files are not new.
    """
    new = np.frombuffer(files, np.int64) >= ends
    begins, counts = (np.frombuffer(each, np.int64) for each in (starts, lengths))
    if not new.any() or new.all():
        return -1
    begin = int(begins[new].min())
    for some, low, high in ((~new, 0, begin), (new, begin, total)):
        boxes = np.unique(np.stack([begins[some], counts[some]], axis=1), axis=0)
        if boxes[0, 0] != low or int(boxes[:, 1].sum()) != high - low:
            return -1
    return begin


def check_layout(
    array: PlannedArray,
    planned: Mapping[str, Any],
    node: ArrayNode,
    document: Mapping[str, Any],
    but: Sequence[str] = (),
) -> None:
    """Make sure that nobody changed how chunks are cut and decoded."""
    for name in (each for each in _LAID_OUT if each not in but):
        if (document.get(name) or None) != (planned.get(name) or None):
            raise OtherwiseError(f"{name} of {array.path} was changed since the last build")
    if (node.dimension_names or ()) != tuple(planned.get("dimension_names") or ()):
        raise OtherwiseError(f"the dimensions of {array.path} were renamed since the last build")


def _shape(
    array: PlannedArray, node: ArrayNode, axis: int, more: int, form: StoredForm | None
) -> tuple[int, ...]:
    shape = _with_length(node.shape, axis, node.shape[axis] + more)
    planned = array.shape if form is None else form.shape(array.shape)
    if _with_length(planned, axis, shape[axis]) != shape:
        raise OtherwiseError(f"{array.path} would have another shape")
    return shape


def _with_length(shape: tuple[int, ...], axis: int, length: int) -> tuple[int, ...]:
    return (*shape[:axis], length, *shape[axis + 1 :])


def with_shape(document: Mapping[str, Any], shape: tuple[int, ...], **more: JSON) -> bytes:
    """Return the metadata of an array with another shape, and what else differs."""
    made = {**document, "shape": list(shape), **more}
    return json.dumps(made, ensure_ascii=False).encode()  # other clients write NaN


def count_new(
    array: PlannedArray, facts: CatalogFacts, ends: int, whole: NDArray[np.bool_]
) -> tuple[ReferenceCounts, int | None]:
    """Return the references of new files, and how many are written of them, if that is plain."""
    arrays = facts.arrays
    code = arrays.path.values.index(array.source_path)
    rows = np.flatnonzero((arrays.path.codes == code) & (arrays.file >= ends))
    counts = ReferenceCounts(
        virtual=int(arrays.virtual[rows].sum()),
        inline=int(arrays.inline[rows].sum()),
        bytes_referenced=int(arrays.virtual_bytes[rows].sum()),
        bytes_stored=int(arrays.inline_bytes[rows].sum()),
    )
    return counts, counts.total if array.schema.whole or not whole.any() else None


def _by_values(  # noqa: PLR0917 - an array, and where it goes on
    array: PlannedArray, begin: int, axis: int, ends: int, node: ArrayNode, form: StoredForm | None
) -> LengthenedArray:
    """Return what is added to values that are stored, and which of their chunks are cut anew."""
    document = document_of(node)
    more = array.shape[axis] - begin
    shape = _shape(array, node, axis, more, form)
    if form is None or form.is_copy:
        edges, codecs = choose_joined_edges(shape, (axis,)), choose_codecs(array, document, shape)
    else:
        edges = document["chunk_grid"]["configuration"]["chunk_shape"]
        codecs = document["codecs"]
    planned = json.loads(array.zarr_json)
    check_layout(array, planned, node, document, ("codecs", "chunk_grid"))
    grid = regular_grid(edges)
    is_same = document["chunk_grid"] == grid and document["codecs"] == codecs
    kept = node.shape[axis] // edges[axis] * edges[axis] if is_same else 0
    rewritten = math.prod(_with_length(node.shape, axis, node.shape[axis] - kept))
    if 8 * rewritten > MOST_REWRITTEN:
        raise OtherwiseError(f"the stored values of {array.path} would be cut otherwise")
    alone = _with_length(shape, axis, more)
    chunk = tuple(max(1, size) for size in alone)
    if array.values is None:
        new = np.flatnonzero(array.files >= ends)
        added = replace(
            only_new(array, new), mode=ArrayMode.join, starts=array.starts[new] - begin, held=None
        )
    else:
        added = replace(array, values=array.values[(slice(None),) * axis + (slice(begin, None),)])
    return LengthenedArray(
        node=node,
        zarr_json=with_shape(document, shape, chunk_grid=grid, codecs=codecs),
        axis=axis,
        added=replace(
            added,
            shape=alone,
            chunk_shape=chunk,
            zarr_json=with_shape(document, alone, chunk_grid=regular_grid(chunk)),
            window=(1,) * len(alone),
        ),
        kept=kept,
        expected=None,
    )


def regular_grid(edges: Sequence[int]) -> dict[str, JSON]:
    """Return the chunk grid of chunks of one shape."""
    return {"name": "regular", "configuration": {"chunk_shape": list(edges)}}


def choose_codecs(
    array: PlannedArray, document: Mapping[str, Any], shape: tuple[int, ...]
) -> list[JSON]:
    """Return the codecs of stored values, compressed from a few hundred bytes on."""
    plain = [each for each in array.schema.codecs if each != STORED_CODEC]
    dtype = find_fixed_dtype(array.schema.data_type)
    large = STORED_CODEC in document["codecs"] or STORED_CODEC in array.schema.codecs
    if dtype is not None:
        large = dtype.itemsize * math.prod(shape) > WORTH_COMPRESSING
    there = [each for each in document["codecs"] if each != STORED_CODEC]
    if there != plain:
        raise OtherwiseError(f"codecs of {array.path} were changed since the last build")
    return [*plain, STORED_CODEC] if large else plain
