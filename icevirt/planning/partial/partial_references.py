"""Decide which chunks of an array stay references, which are stored, and the cost.

The array has one encoding. Files with another encoding, chunks where files meet, and chunks that a
file does not fill are stored in it. Of the encodings in the archive, the one that stores the fewest
bytes wins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts, Coded, by_first_appearance
from icevirt.archive.index_shift import IndexShift
from icevirt.archive.joining import find_fixed_dtype, itemsize_of
from icevirt.archive.plan import AxisGrid, Hybrid, edges_of
from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError
from icevirt.model.attributes import Attributes
from icevirt.model.json import JSON
from icevirt.planning.axes.axis import CombinedVariable
from icevirt.planning.combine.cf_packing import PACKING, decode, packing_of, texts_in
from icevirt.planning.combine.options import CombineOptions
from icevirt.planning.meaning.index_shifts import schema_of_shift
from icevirt.planning.normal_form import differences
from icevirt.planning.partial.chunk_alignment import (
    TooManyError,
    any_native,
    lines_up,
    native_chunks,
    values_in,
)
from icevirt.planning.partial.storage_cost import (
    counts_differ,
    make_stored_times,
    remedy,
    signature,
)
from icevirt.planning.reader_support import can_encode
from icevirt.planning.remedies import leave_out
from icevirt.remedy_notation import write_option, write_remedy

_LOSSY = (
    "numcodecs.fixedscaleoffset",
    "numcodecs.quantize",
    "numcodecs.bitround",
    "numcodecs.zfpy",
    "numcodecs.astype",
)
_FLOAT_CODECS: tuple[JSON, ...] = (
    {"name": "bytes", "configuration": {"endian": "little"}},
    {"name": "zstd", "configuration": {"level": 3, "checksum": False}},
)
_SHOWN = 3  # files in a message
_TRIED = 8  # encodings among which the best is looked for


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Place:
    """Where the files of an array lie in it, a row each."""

    axes: tuple[int, ...]  # along which files are concatenated
    starts: NDArray[np.int64]  # (k, n) in elements
    lengths: NDArray[np.int64]  # (k, n)
    shape: tuple[int, ...]  # of the array
    new: int = 0  # axes that the files do not have; they are the first ones
    skips: NDArray[np.int64] | None = None  # (k, n) elements of the file before those that count
    held: NDArray[np.int64] | None = None  # (k, n) elements of the whole file

    def grids(self, edges: Sequence[int]) -> list[AxisGrid]:
        """Return the grids of the concatenated axes."""
        return [AxisGrid(total=self.shape[axis], edge=edges[axis]) for axis in self.axes]

    @property
    def others(self) -> list[int]:
        """The lengths of the other axes."""
        return [length for axis, length in enumerate(self.shape) if axis not in self.axes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The encoding of a hybrid array, and what is stored."""

    edges: tuple[int, ...]
    hybrid: Hybrid


def decide(
    facts: CatalogFacts,
    member: CombinedVariable,
    rows: NDArray[np.integer],
    place: Place,
    options: CombineOptions,
    *,
    joined: tuple[tuple[int, ...], tuple[JSON, ...]],
    shift: IndexShift | None = None,
) -> Decision | None:
    """Return how an array is made of references and stored chunks; None where one kind suffices.

    Args:
        facts: Of the catalog.
        member: The array.
        rows: Of the array columns: the files that it is made of.
        place: Where they lie.
        options: What may be stored.
        joined: Edges and codecs of chunks where no file keeps its own.
        shift: What is added to the values of each file, where they number elements.

    Raises:
        CombineError: Chunks must be stored that cannot be.
    """
    used, own = facts.arrays.schema.renumber(rows)
    schemas = tuple(ArraySchema.loads(facts.arrays.schema.values[code]) for code in used.tolist())
    files = _ArrayFiles(facts, rows, member, place, schemas, own, options, shift)
    if shift is None and files.whole.all() and files.alike_at_all and not member.as_floats:
        return None
    found = _choose(files, joined)
    if found is None:
        return None
    _refuse_impossible(files, found)
    return found


class _ArrayFiles:
    """The files of one array and how they store it."""

    def __init__(  # noqa: PLR0917 - the facts of one array
        self,
        facts: CatalogFacts,
        rows: NDArray[np.integer],
        member: CombinedVariable,
        place: Place,
        schemas: tuple[ArraySchema, ...],
        own: NDArray[np.integer],
        options: CombineOptions,
        shift: IndexShift | None,
    ) -> None:
        self.facts, self.rows, self.member, self.place = facts, rows, member, place
        self.schemas, self.own, self.options, self.shift = schemas, own, options, shift
        values = [signature(each, stored=False) for each in schemas]
        self.alike_at_all = len(set(values)) == 1  # whether values mean the same in all files
        self.by_storage = Coded.of(
            [signature(s, stored=True, but=self.free) for s in schemas]
        ).codes
        self.whole = np.array([each.whole for each in schemas])[own]
        home = signature(member.schema, stored=False)
        self.home = np.array([each == home for each in values])

    @property
    def free(self) -> int | None:
        """The axis along which chunks may have other lengths in other files."""
        rectilinear = self.options.chunk_grid == "rectilinear" and len(self.place.axes) == 1
        return self.place.axes[0] if rectilinear else None

    def candidates(self) -> list[int]:
        """Return one schema of each encoding that the array may have, the largest first."""
        if not (~self.whole).any():
            return []
        volume = np.bincount(
            self.own, self.place.lengths.prod(axis=1).astype(np.float64), len(self.schemas)
        )
        best: dict[int, float] = {}
        first: dict[int, int] = {}
        for at, schema in enumerate(self.schemas):
            if not schema.whole and self.home[at]:
                kind = int(self.by_storage[at])
                first.setdefault(kind, at)
                best[kind] = best.get(kind, 0.0) + float(volume[at])
        order = sorted(best, key=lambda kind: -best[kind])
        return [first[kind] for kind in order[:_TRIED]]


def _choose(
    files: _ArrayFiles, joined: tuple[tuple[int, ...], tuple[JSON, ...]]
) -> Decision | None:
    edges, codecs = joined
    kept = files.candidates()
    shape = files.schemas[kept[0]].chunk_shape if kept else edges
    if files.shift is not None:
        target = schema_of_shift(files.member.schema, files.schemas, files.shift)
        return _measure(files, replace(target, codecs=codecs, chunk_shape=edges), edges)
    if files.member.as_floats:
        return _measure(files, _make_float_schema(files), shape)
    if counts_differ(files.schemas):
        return _measure(files, _make_time_schema(files), shape)
    if not kept:
        target = replace(files.member.schema, codecs=codecs, chunk_shape=edges)
        return _measure(files, target, edges)
    found: list[Decision] = []
    for at in kept:
        target = files.schemas[at]
        made = _measure(files, target, target.chunk_shape, kind=int(files.by_storage[at]))
        if made is None:
            return None
        found.append(made)
    return min(found, key=lambda each: each.hybrid.nbytes)


def _measure(
    files: _ArrayFiles,
    target: ArraySchema,
    edges: tuple[int, ...] | None,
    *,
    kind: int | None = None,
) -> Decision | None:
    """Return what is stored where the array is encoded like ``target``; None where nothing is."""
    assert edges is not None
    place = files.place
    grids = place.grids(edges)
    same = files.by_storage[files.own] == kind if kind is not None else np.zeros_like(files.whole)
    # values that the scan read fill chunks wherever they begin on the grid
    fits = same | (files.whole & files.home[files.own] & (kind is not None))
    try:
        aligned = lines_up(grids, place.starts, place.lengths)
        on_grid = np.ones(len(files.own), np.bool_)  # counts from where an own chunk begins
        if place.skips is not None:
            for at, axis in enumerate(place.axes):
                on_grid &= place.skips[:, at] % edges_of(files.schemas, files.own, axis, 1) == 0
        aligned &= on_grid
        own = edges_of(files.schemas, files.own, place.axes[0], edges[place.axes[0]])
        alike = bool(fits.all() and (own[same] == edges[place.axes[0]]).all())
        # values that the scan read fill chunks up, where they begin on the grid
        rest = np.flatnonzero(~(files.whole & aligned))
        if alike and not any_native(grids, place.starts, place.lengths, aligned, rest):
            return None
        bounds = None if files.free is None else _find_bounds(files, edges, same)
        if bounds is not None:
            grids = [replace(grids[0], bounds=bounds)]
        plain = same & ~files.whole & on_grid & lines_up(grids, place.starts, place.lengths)
        chunks = native_chunks(grids, place.starts, place.lengths, plain, own_edges=own)
        replaced = native_chunks(
            grids, place.starts[plain], place.lengths[plain], plain[plain], own_edges=own[plain]
        )
    except TooManyError as error:
        path = files.member.path
        raise CombineError(
            f"more than {int(str(error)):,} chunks of variable {path} would have to be stored",
            do=remedy(path),
            variable=path,
            chunk_shape=list(edges),
        ) from error
    counts = [-(-n // e) for n, e in zip(place.shape, edges, strict=True)]
    beside = math.prod(n for axis, n in enumerate(counts) if axis not in place.axes)
    arrays, held = files.facts.arrays, files.rows[plain]
    itemsize = itemsize_of(target.data_type)
    return Decision(
        edges=edges,
        hybrid=Hybrid(
            plain=plain,
            own=files.own.astype(np.int32),
            schemas=files.schemas,
            target=target,
            new_axes=place.new,
            bounds=bounds,
            chunks=len(chunks) * beside,
            nbytes=values_in(grids, chunks, place.others) * itemsize,
            replaced=len(replaced) * beside,
            scanned=int((arrays.virtual[held] + arrays.inline[held]).sum()),
            why=_explain(files, target, plain, fits, edges),
            shift=files.shift,
        ),
    )


def _find_bounds(
    files: _ArrayFiles, edges: Sequence[int], same: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Return where chunks begin that follow each file's own grid; files that are not there too."""
    starts, lengths = files.place.starts[:, 0], files.place.lengths[:, 0]
    axis = files.place.axes[0]
    edge = np.where(same, edges_of(files.schemas, files.own, axis, edges[axis]), edges[axis])
    total = files.place.shape[axis]
    begins, at = np.unique(starts[lengths > 0], return_index=True)
    ends = begins + lengths[lengths > 0][at]
    steps = edge[lengths > 0][at]
    # what lies between files is cut as the array is
    gap_begins, gap_ends = np.append(0, ends), np.append(begins, total)
    gaps = gap_begins < gap_ends
    begins = np.append(begins, gap_begins[gaps])
    ends = np.append(ends, gap_ends[gaps])
    steps = np.append(steps, np.full(int(gaps.sum()), edges[axis]))
    counts = -(-(ends - begins) // steps)
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    bounds = np.repeat(begins, counts) + within * np.repeat(steps, counts)
    return np.append(np.unique(bounds), total)


def _is_number(schema: ArraySchema) -> bool:
    return isinstance(schema.data_type, str) and find_fixed_dtype(schema.data_type) is not None


def _refuse_impossible(files: _ArrayFiles, found: Decision) -> None:
    target, path = found.hybrid.target, files.member.path
    cause = None
    if any(find_fixed_dtype(each.data_type) is None for each in (target, *files.schemas)):
        cause = "they are neither numbers nor characters"
    elif not _is_number(target) and not files.alike_at_all:
        cause = "files hold texts of different types or attributes"
    for codec in target.codecs:
        name = codec.get("name") if isinstance(codec, Mapping) else codec
        if name in _LOSSY:
            cause = f"its codec {name} is lossy"
        elif not can_encode([codec]):
            cause = f"its codec {name} has no encoder"
    if cause is not None and found.hybrid.chunks:
        raise CombineError(
            f"chunks of variable {path} cannot be stored, because {cause}: {found.hybrid.why}",
            do=write_remedy(
                "Leave the variable out with ",
                leave_out(path),
                ", or build the files that differ into another group.",
            ),
            variable=path,
        )


# -- decoded floats ----------------------------------------------------------------------------


def _make_float_schema(files: _ArrayFiles) -> ArraySchema:
    packings = {}  # by what decides the type of decoded values; the values of scales do not
    for each in filter(_is_number, files.schemas):
        dtypes = (f"{k} {np.asarray(v).dtype}" for k, v in packing_of(each.attributes).items())
        packings[str(each.data_type), *dtypes] = each
    kinds = {
        decode(np.zeros(1, str(each.data_type)), packing_of(each.attributes)).dtype
        for each in packings.values()
    }
    path = files.member.path
    dtype = np.result_type(*kinds) if kinds else np.dtype("U1")
    has_texts = any(texts_in(packing_of(each.attributes)) for each in files.schemas)
    if dtype.kind != "f" or has_texts:
        raise CombineError(
            f"variable {path} does not decode to floats",
            do=write_remedy("Leave it out of ", write_option("float_variables"), "."),
            variable=path,
            decodes_to=str(dtype),
        )
    plain = files.member.schema.attributes.without(*PACKING)
    missing = Attributes.of({"_FillValue": dtype.type("nan")})
    return replace(
        files.member.schema,
        data_type=dtype.name,
        codecs=_FLOAT_CODECS,
        fill_value="NaN",
        attributes=plain | missing,
    )


def _make_time_schema(files: _ArrayFiles) -> ArraySchema:
    first = by_first_appearance(files.own, len(files.schemas)).tolist()
    made = make_stored_times([files.schemas[at] for at in first], files.member.schema)
    if made is None:
        path = files.member.path
        raise CombineError(
            f"the times of {path} are of calendars that differ",
            do=write_remedy("Leave the variable out with ", leave_out(path), "."),
            variable=path,
        )
    return replace(made, codecs=_FLOAT_CODECS)


# -- what it takes -----------------------------------------------------------------------------


def _explain(
    files: _ArrayFiles,
    target: ArraySchema,
    plain: NDArray[np.bool_],
    fits: NDArray[np.bool_],
    edges: Sequence[int],
) -> str:
    if files.member.as_floats:
        return "the variable becomes decoded floats"
    if files.shift is not None:
        return f"they number all {files.shift.total:,} elements along {files.shift.dimension!r}"
    reasons: list[str] = []
    groups: dict[str, list[int]] = {}
    counts = np.bincount(files.own, minlength=len(files.schemas))
    for at, schema in enumerate(files.schemas):
        here = np.flatnonzero((files.own == at) & ~fits)
        if not len(here):
            continue
        stored = not schema.whole and not target.whole
        unlike = differences(
            target.decode_signature(stored=stored), schema.decode_signature(stored=stored)
        )
        reason = ", ".join(name.removeprefix("attribute ") for name in unlike) or "encoding"
        groups.setdefault(reason, []).extend(here.tolist())
    for reason, members in groups.items():
        first = files.facts.url_of(files.rows[min(members)])
        reasons.append(
            f"{len(members)} of {int(counts.sum())} files differ in {reason} (first: {first})"
        )
    axes = files.place.axes
    uneven = (files.place.lengths % np.array([edges[axis] for axis in axes]) != 0).any(axis=1)
    ending = np.flatnonzero(fits & files.whole & uneven)
    if len(ending):
        first = files.facts.url_of(files.rows[int(ending[0])])
        reasons.append(
            f"{len(ending):,} {'files end' if len(ending) > 1 else 'file ends'} within a chunk of"
            f" {'×'.join(map(str, edges))} (first: {first})"
        )
    shifted = np.flatnonzero(fits & ~plain & ~files.whole)
    if len(shifted):
        reasons.append(
            f"{len(shifted)} {'files do' if len(shifted) > 1 else 'file does'} not begin where a"
            f" chunk of {'×'.join(map(str, edges))} begins"
            f" (first: {files.facts.url_of(files.rows[int(shifted[0])])})"
        )
    if not reasons:
        reasons.append("files end within a chunk")
    return "; ".join(reasons)
