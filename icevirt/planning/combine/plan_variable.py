"""Plan one array: its shape, its chunks, and where each file's share begins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import ArrayColumns, CatalogFacts, by_first_appearance
from icevirt.archive.index_shift import IndexShift
from icevirt.archive.plan import ArrayMode, AxisGrid, Hybrid, PlannedArray, grids_of
from icevirt.archive.scanned import ScannedArray
from icevirt.archive.schema import DECODING, ArraySchema, Recoding
from icevirt.errors import CombineError, OverlapError
from icevirt.ids import ObjectId8
from icevirt.model import paths
from icevirt.model.chunks import ChunkTable
from icevirt.model.json import JSON
from icevirt.planning.axes.axis import AxisPlacement, AxisSteps, CombinedVariable, Placement
from icevirt.planning.axes.gaps import Gap, steps_of_label
from icevirt.planning.axes.placement import number_rows, without_spacing
from icevirt.planning.combine.cf_packing import OWN, PACKING
from icevirt.planning.combine.combine_attrs import combine_attributes
from icevirt.planning.combine.options import CombineSpec
from icevirt.planning.combine.tolerance import fixes_of, largest_difference
from icevirt.planning.combine.unlike_files import unequal_refusal
from icevirt.planning.meaning.index_shifts import index_shift
from icevirt.planning.meaning.local_indices import LocalIndex
from icevirt.planning.partial.partial_references import Decision, Place, decide
from icevirt.planning.partial.storage_cost import (
    hybrid_counts,
    hybrid_window,
    signature,
    with_grid,
)
from icevirt.planning.remedies import drop_fix, fix
from icevirt.remedy_notation import write_option, write_remedy

JOINED_CHUNK_BYTES = 4 << 20
"""Values that are stored in the repository are cut into chunks of about this size."""

STORED_CODEC: JSON = {"name": "zstd", "configuration": {"level": 3, "checksum": False}}
"""Follows the codecs of values that are stored, if they are worth it."""
WORTH_COMPRESSING = 512
"""Bytes of values; below it chunks are inline anyway."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Share(Place):
    """The files that an array is made of, and the box that each has along the placed axes."""

    mode: ArrayMode
    of: NDArray[np.intp]  # (k,) positions in the member's rows


def plan_array(
    facts: CatalogFacts,
    member: CombinedVariable,
    cells: Placement,
    spec: CombineSpec,
    *,
    gap: Gap | None = None,
    times: Recoding | None = None,
    given: Sequence[str] = (),
    limits: Mapping[str, float] = MappingProxyType({}),
    index: LocalIndex | None = None,
) -> PlannedArray:
    """Plan one array; ``gap`` holds the boxes without a file, ``times`` its units.

    ``given`` are the dimensions that it does not have in the files; ``limits`` say how far values
    may differ that must be equal, by path; ``index`` says what its values number, if they are to
    count elements of the dataset.

    Raises:
        CombineError: Its files do not fit together.
    """
    if not member.axes:
        _refuse_unequal(facts, member, cells, spec, limits.get(member.path))
    repeats = [  # dimensions along which a file has several steps
        axis.dimension
        for at, axis in enumerate(member.along)
        if axis.dimension in given and (member.lengths[:, at] > 1).any()
    ]
    share = _find_share(facts, member, gap, as_stored=times is None and not repeats)
    rows = member.rows[share.of]
    schema = _combine_attributes(facts, member, spec)
    schema = schema if gap is None else gap.readable(schema)
    edges = _choose_edges(member, share)
    if index is not None and member.as_floats:
        raise CombineError(
            f"{member.path} numbers elements, and numbers that are counted anew are stored as such",
            do=write_remedy("Leave it out of ", write_option("float_variables"), "."),
            variable=member.path,
        )
    shift = None if index is None else index_shift(facts, rows, member.path, index, cells)
    made = _decide(facts, member, share, spec, times, given, repeats, shift)
    if made is not None:
        share, edges = replace(share, mode=ArrayMode.concat), list(made.edges)
        fill = made.hybrid.target.fill_value if gap is None else schema.fill_value
        if shift is not None and shift.fill is not None:
            fill = shift.fill
        schema = _as_stored(schema, replace(made.hybrid.target, fill_value=fill), member)
        made = replace(made, hybrid=replace(made.hybrid, target=schema))
    elif share.mode is ArrayMode.join:
        schema = replace(schema, codecs=_choose_codecs(schema, facts.arrays, rows))
    path = paths.join(spec.group, member.path)
    hybrid = None if made is None else made.hybrid
    grids = grids_of(share.shape, edges, share.axes, hybrid)
    grid = list(map(len, grids))
    axis = share.axes[0] if share.axes else 0
    steps = steps_of_label(member)
    own = None if facts.arrays.own_path is None else facts.arrays.own_path.take(rows)
    array = PlannedArray(
        path=path,
        source_path=member.path,
        node_id=ObjectId8.of_content(spec.build_id.encode(), path.encode()),
        mode=share.mode,
        axes=share.axes,
        shape=share.shape,
        chunk_shape=tuple(edges),
        zarr_json=_write_zarr_json(schema, share.shape, edges, grids),
        schema=schema,
        files=cells.place[facts.arrays.file[rows]],
        starts=share.starts,
        lengths=share.lengths,
        # what is said of all alike goes on taking no room
        whole=np.broadcast_to(member.whole[0], len(rows))
        if member.whole.strides == (0,)
        else member.whole[share.of],
        whole_schema=member.whole_schema,
        window=hybrid_window(grid, axis, spec.max_references, hybrid),
        references=hybrid_counts(facts.arrays, rows, hybrid),
        times=times,
        sources=None if own is None or own.values == (member.path,) else own,
        expected=_count_expected(facts.arrays, member, share, rows, edges, grid, hybrid),
        hybrid=hybrid,
        form=None if facts.arrays.form is None else facts.arrays.form[rows],
        skips=share.skips,
        held=share.held,
    )
    return array if steps is None else _as_given(array, steps)


def _decide(  # noqa: PLR0917 - the facts of one array
    facts: CatalogFacts,
    member: CombinedVariable,
    share: _Share,
    spec: CombineSpec,
    times: Recoding | None,
    given: Sequence[str],
    repeats: Sequence[str],
    shift: IndexShift | None,
) -> Decision | None:
    """Return how the array is made of references and stored chunks, where it is of both."""
    if not share.axes or steps_of_label(member) is not None:
        return None
    rows = member.rows[share.of]
    edges = _choose_edges(member, replace(share, mode=ArrayMode.join))
    made = decide(
        facts,
        member,
        rows,
        replace(share, new=len(given)),
        spec.options,
        joined=(tuple(edges), _choose_codecs(member.schema, facts.arrays, rows)),
        shift=shift,
    )
    if made is None:
        return None
    if repeats:
        raise CombineError(
            f"{member.path} would be repeated for several steps of a file along "
            f"{', '.join(map(repr, repeats))}, so its values would have to be stored: "
            f"{made.hybrid.why}",
            fixes=[drop_fix(facts.arrays, member.rows, f"the dataset lacks {member.path}")],
            do=f"You can also leave {member.path} out of data_vars, or build the files that differ"
            " into another group.",
            variable=member.path,
        )
    begins = np.unique(share.starts, axis=0)
    if len(begins) < len(share.starts):
        raise OverlapError(
            f"several files hold {member.path} for the same steps, in different encodings",
            fixes=[
                fix("one file of each step counts, by its time of change", duplicates="newest"),
                fix("one file of each step counts, by its name", duplicates="version"),
                drop_fix(facts.arrays, member.rows, f"the dataset lacks {member.path}"),
            ],
            variable=member.path,
            why=made.hybrid.why,
        )
    if times is not None:
        raise CombineError(
            f"the times of {member.path} have different reference dates and encodings: "
            f"{made.hybrid.why}",
            do="Build the deviating files into another group.",
            variable=member.path,
        )
    return made


def _as_stored(schema: ArraySchema, target: ArraySchema, member: CombinedVariable) -> ArraySchema:
    """Return the schema of a hybrid array: encoded like ``target``, described by its attributes."""
    if signature(target, stored=False) != signature(member.schema, stored=False):
        if not member.as_floats:  # times that files count differently
            names = ("units", "calendar", *OWN)
            kept = schema.attributes.without(*names)
            return replace(target, attributes=kept | target.attributes.only(*names))
    elif not member.as_floats:
        return replace(
            schema,
            codecs=target.codecs,
            chunk_shape=target.chunk_shape,
            fill_value=target.fill_value,
        )
    kept = schema.attributes.without(*PACKING)
    return replace(target, attributes=kept | target.attributes.only("_FillValue"))


def _as_given(array: PlannedArray, steps: AxisSteps) -> PlannedArray:
    """Return the coordinate of an axis with steps that no file holds."""
    nowhere = np.zeros((1, 0), np.int64)
    return replace(
        array,
        mode=ArrayMode.given,
        axes=(),
        files=array.files[:1],
        starts=nowhere,
        lengths=nowhere,
        whole=array.whole[:1],
        skips=None,
        held=None,
        times=None,
        expected=math.prod(array.grid),
        values=steps.values,
        form=None,
    )


def _find_share(
    facts: CatalogFacts,
    member: CombinedVariable,
    gap: Gap | None,
    *,
    as_stored: bool,
) -> _Share:
    """Return where the files' shares begin; all files of a cell begin at one place.

    ``as_stored`` says whether the dataset holds the values of each file as the file does: none is
    recoded, or repeated for several steps.
    """
    first = member.sizes[int(member.size[0])].tolist()
    if not member.axes:
        nowhere = np.zeros((1, 0), np.int64)
        return _Share(
            mode=ArrayMode.once,
            of=np.zeros(1, np.intp),
            axes=(),
            starts=nowhere,
            lengths=nowhere,
            shape=tuple(first),
        )
    of = np.flatnonzero(~member.again)
    axes = (*member.axes, *member.ragged)
    lengths, cell = member.along_axes(axes)[of], member.cell[of]
    shape = list(first)
    starts = np.zeros_like(lengths)
    for at, axis in enumerate(member.along):
        of_cell = _measure_cells(facts, member, at)
        of_cell = of_cell if gap is None else gap.lengths[at]
        begins, total = np.cumsum(of_cell) - of_cell, int(of_cell.sum())
        if axis.steps is not None:
            _refuse_other_steps(facts, member, axis, axis.steps, at)
            begins, total = axis.steps.begins, len(axis.steps.values)
        starts[:, at] = begins[cell[:, at]]
        shape[member.axes[at]] = total
    for ragged, length in zip(member.ragged, member.full, strict=True):
        shape[ragged] = length
    # many values of a single file are cut as those of several are, so that more can follow
    few = 8 * math.prod(shape) <= JOINED_CHUNK_BYTES
    alone = len(of) == 1 and as_stored and shape == first and few
    skips = held = None
    if facts.cuts is not None:
        names = [axis.dimension for axis in member.along]
        alone = False
        boxes = _boxes_of(facts, member.rows[of], names, starts, lengths)
        if not member.whole.all():  # values that are joined are compared cell by cell
            for at in range(len(names)):
                boxes = _join_along(boxes, at)
        of, starts, lengths = of[boxes.rows], boxes.starts, boxes.lengths
        if boxes.skips.any() or (boxes.held != boxes.lengths).any():  # not all files are whole
            skips, held = boxes.skips, boxes.held
    if (lengths == lengths[:1]).all():  # nearly always; it then takes no room
        lengths = np.broadcast_to(lengths[:1].copy(), lengths.shape)
    return _Share(
        mode=ArrayMode.join if member.whole.all() and not alone else ArrayMode.concat,
        of=of,
        axes=axes,
        starts=starts,
        lengths=lengths,
        shape=tuple(shape),
        skips=skips,
        held=held,
    )


def _refuse_other_steps(
    facts: CatalogFacts, member: CombinedVariable, axis: AxisPlacement, steps: AxisSteps, at: int
) -> None:
    other = member.lengths[:, at] != steps.lengths[member.cell[:, at]]
    if other.any():
        row = int(np.argmax(other))
        raise CombineError(
            f"variable {member.path} has another length along {axis.dimension!r} than the "
            "coordinate that defines the missing steps",
            fixes=[
                without_spacing(axis.dimension),
                drop_fix(facts.arrays, member.rows, f"the dataset lacks {member.path}"),
            ],
            variable=member.path,
            file=facts.url_of(member.rows[row]),
            length=int(member.lengths[row, at]),
        )


def _measure_cells(facts: CatalogFacts, member: CombinedVariable, at: int) -> NDArray[np.int64]:
    """Return the elements of each cell along one placed axis, which all its files must have.

    Raises:
        CombineError: Files at one place of the axis have other lengths along it.
    """
    lengths, cell = member.lengths[:, at], member.cell[:, at]
    of_cell = np.zeros(member.along[at].count, np.int64)
    of_cell[cell] = lengths
    unlike = of_cell[cell] != lengths
    if unlike.any():
        one = int(np.argmax(unlike))
        other = int(np.flatnonzero(cell == cell[one])[-1])
        axis = member.along[at]
        raise CombineError(
            f"files at one position along {axis.dimension!r} have different lengths of "
            f"{member.path}",
            fixes=[drop_fix(facts.arrays, member.rows, f"the dataset lacks {member.path}")],
            do="You can also build the files of each length into a group of its own.",
            variable=member.path,
            place=axis.name(int(cell[one])),
            first=facts.url_of(member.rows[one]),
            first_length=int(lengths[one]),
            other=facts.url_of(member.rows[other]),
            other_length=int(lengths[other]),
        )
    return of_cell


def _combine_attributes(
    facts: CatalogFacts, member: CombinedVariable, spec: CombineSpec
) -> ArraySchema:
    schema = facts.arrays.schema
    codes = by_first_appearance(schema.codes[member.rows], len(schema.values)).tolist()
    found = [ArraySchema.loads(schema.values[code]).attributes for code in codes]
    combined = combine_attributes(
        found,
        spec.options.combine_attrs,
        path=member.path,
        keep=(*DECODING, "coordinates", "bounds"),
    )
    if not member.alike.all():
        # what decodes values is that of the array's own packing
        combined = combined.without(*OWN) | member.schema.attributes.only(*OWN)
    return replace(member.schema, attributes=combined)


def _refuse_unequal(
    facts: CatalogFacts,
    member: CombinedVariable,
    cells: Placement,
    spec: CombineSpec,
    limit: float | None,
) -> None:
    """Refuse static arrays that hold other values in other files; the first file's are used."""
    codes = facts.arrays.digest.codes[member.rows]
    unlike = codes != codes[0]
    if unlike.any() and limit is not None:
        largest_difference(facts, member, limit)
        return
    if unlike.any() or (len(codes) > 1 and not facts.arrays.digest[int(member.rows[0])]):
        error = unequal_refusal(facts, cells, spec)
        rounding = fixes_of(facts, member.path, spec.concat_dim, spec.tolerance)
        error.fixes = (*rounding, *error.fixes)
        raise error


def _choose_edges(member: CombinedVariable, share: _Share) -> list[int]:
    if member.schema.chunk_shape is not None and share.mode is not ArrayMode.join:
        return list(member.schema.chunk_shape)
    if share.mode is ArrayMode.join:
        return choose_joined_edges(share.shape, share.axes)
    return [max(1, length) for length in share.shape]


def choose_joined_edges(shape: Sequence[int], axes: Sequence[int]) -> list[int]:
    """Return how the chunks of values that are stored are cut along the placed axes."""
    edges = [max(1, length) for length in shape]
    for axis in axes:
        step = 8 * math.prod(edges) // edges[axis]  # 8 bytes: the widest number
        edges[axis] = min(edges[axis], max(1, JOINED_CHUNK_BYTES // max(step, 1)))
    return edges


def _choose_codecs(
    schema: ArraySchema, arrays: ArrayColumns, rows: NDArray[np.integer]
) -> tuple[JSON, ...]:
    large = int(arrays.inline_bytes[rows].sum()) > WORTH_COMPRESSING
    return (*schema.codecs, STORED_CODEC) if large else schema.codecs


def _count_expected(  # noqa: PLR0917 - the facts of one array
    arrays: ArrayColumns,
    member: CombinedVariable,
    share: _Share,
    rows: NDArray[np.integer],
    edges: Sequence[int],
    grid: Sequence[int],
    hybrid: Hybrid | None,
) -> int:
    """Count the references of the files; values stored whole fill chunks of the others' shape."""
    if hybrid is not None:
        return hybrid.scanned + hybrid.chunks
    if share.mode is ArrayMode.join:
        return math.prod(grid)
    counts = arrays.virtual[rows] + arrays.inline[rows]
    whole = member.whole[share.of]
    if member.schema.whole or not whole.any():
        return int(counts.sum())
    sizes = member.shapes[share.of]
    sizes[:, share.axes] = share.lengths
    chunks = np.prod(-(-sizes // np.array(edges, np.int64)), axis=1)
    return int(np.where(whole, chunks, counts).sum())


def _write_zarr_json(
    schema: ArraySchema, shape: Sequence[int], edges: Sequence[int], grids: Sequence[AxisGrid]
) -> bytes:
    made = ScannedArray(
        path="/",
        dimension_names=schema.dimension_names,
        shape=tuple(shape),
        chunk_shape=tuple(edges),
        data_type=schema.data_type,
        codecs=schema.codecs,
        fill_value=schema.fill_value,
        attributes=schema.attributes,
        references=ChunkTable.empty(len(shape)),
    ).zarr_json()
    return with_grid(made, grids)


# -- files that overlap in part --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Boxes:
    """What counts of files, a row for each box of steps that lie end to end."""

    rows: NDArray[np.int64]  # (k,) among those given
    source: NDArray[np.int64]  # (k,) the file
    starts: NDArray[np.int64]  # (k, n) in the array
    lengths: NDArray[np.int64]  # (k, n)
    skips: NDArray[np.int64]  # (k, n) in the file
    held: NDArray[np.int64]  # (k, n) of the whole file


def _boxes_of(
    facts: CatalogFacts,
    rows: NDArray[np.integer],
    dimensions: Sequence[str],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> _Boxes:
    """Return the boxes of an array, whose first axes are ``dimensions``, in pieces of files."""
    cuts = facts.cuts
    assert cuts is not None
    file = facts.arrays.file[rows]
    lengths = np.array(lengths, np.int64)
    skips, held = np.zeros_like(starts), lengths.copy()
    for at, name in enumerate(dimensions):
        if name in cuts.skip:
            skips[:, at], held[:, at] = cuts.skip[name][file], cuts.held[name][file]
    return _Boxes(
        rows=np.arange(len(rows)),
        source=cuts.source[file],
        starts=starts,
        lengths=lengths,
        skips=skips,
        held=held,
    )


def _join_along(boxes: _Boxes, at: int) -> _Boxes:
    """Join boxes of a file that follow one another along an axis, in the array as in the file."""
    starts, lengths, skips = boxes.starts, boxes.lengths, boxes.skips
    others = [axis for axis in range(starts.shape[1]) if axis != at]
    columns = [each[:, axis] for axis in others for each in (starts, lengths, skips)]
    number = number_rows([boxes.source, *columns], len(boxes.rows))
    order = np.lexsort((starts[:, at], number))
    one, two = order[:-1], order[1:]
    follows = np.zeros(len(order), np.bool_)
    follows[1:] = (
        (number[one] == number[two])
        & (starts[one, at] + lengths[one, at] == starts[two, at])
        & (skips[one, at] + lengths[one, at] == skips[two, at])
    )
    if not follows.any():
        return boxes
    first = np.flatnonzero(~follows)
    total = lengths.copy()
    total[order[first], at] = np.add.reduceat(lengths[order, at], first)
    kept = np.sort(order[first])
    columns_of = {each.name: getattr(boxes, each.name)[kept] for each in fields(boxes)}
    return _Boxes(**columns_of | {"lengths": total[kept]})
