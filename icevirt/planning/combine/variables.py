"""Check that one array agrees in all files well enough to be one array.

Agreement means decoding, not encoding: a compression level may differ, a scale factor may not.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts, by_first_appearance, by_path
from icevirt.archive.joining import find_fixed_dtype
from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError, OverlapError
from icevirt.model import paths
from icevirt.planning.axes import duplicates
from icevirt.planning.axes.axis import CombinedVariable, Placement
from icevirt.planning.combine.data_vars import DimensionRules
from icevirt.planning.combine.dimension_lengths import FullLengths
from icevirt.planning.combine.known_decisions import NOTHING, Decisions
from icevirt.planning.combine.options import CombineOptions, CombineSpec
from icevirt.planning.combine.unlike_files import Unequal, lacking, refusal, ways_to_fit
from icevirt.planning.normal_form import differences
from icevirt.planning.partial import mismatch
from icevirt.planning.partial.storage_cost import converts, is_storage, permits, signature
from icevirt.planning.remedies import scan_fix
from icevirt.remedy_notation import write_code, write_remedy

_OF_TYPE = frozenset(("data type", "attribute _FillValue", "attribute missing_value"))


def members_of(
    facts: CatalogFacts,
    cells: Placement,
    spec: CombineSpec,
    compared: Collection[str] = (),
    decided: Decisions = NOTHING,
) -> Iterator[CombinedVariable]:
    """Yield the arrays of all files; ``compared`` are paths with a tolerance.

    Of ``decided`` ones that is yielded which they were found to be.

    Raises:
        CombineError: An array decodes differently, has another grid, is in two files for the
            same box, or is shorter than a padded dimension in all files.
    """
    given, options = spec.dimension_rules, spec.options
    schemas = [ArraySchema.loads(text) for text in facts.arrays.schema.values]
    full = FullLengths.of(facts, spec.pad)
    before: CombinedVariable | None = None
    alone: dict[tuple[int, int, bool], CombinedVariable] = {}  # of one file: a plate has thousands
    for path, rows in by_path(facts):
        if path in decided:
            member, _ = decided[path]
            names = [member.schema.dimension_names[axis] for axis in member.axes]
            yield replace(member, along=cells.along(path, names))
            continue
        kind = None
        if len(rows) == 1 and not cells.axes and not spec.pad:  # nothing to compare it with
            columns = facts.arrays.schema, facts.arrays.shape
            schema, shape = (int(column.codes[rows[0]]) for column in columns)
            kind = schema, shape, options.as_floats(path)
            if kind in alone:
                yield replace(alone[kind], path=path, held=rows)
                continue
        codes = facts.arrays.schema.codes[rows]
        used = facts.arrays.schema.find_used(codes).tolist()
        if len({schemas[c].dimension_names for c in used}) > 1:
            _refuse_unlike(facts, rows, path, schemas, codes, CombineOptions(), ())
        member = _combine_rows(facts, rows, path, schemas, cells, spec, full)
        codes = facts.arrays.schema.codes[member.rows]
        # before what chunk shapes say, which is less
        _refuse_unlike_grids(facts, member, cells, spec)
        _refuse_too_short(facts, member, spec, full)
        is_one = path in facts.alike and not member.axes  # of which the first file's is stored
        if not (
            is_one
            or (path in compared and _differs_in_type(member, [schemas[code] for code in used]))
        ):
            _refuse_unlike(facts, member.rows, path, schemas, codes, options, member.axes)
        _refuse_twice(facts, member, cells, given)
        is_alike = before is not None and before.along == member.along
        if before is not None and is_alike and np.array_equal(before.cell, member.cell):
            member = replace(member, cell=before.cell)  # nearly always: they are held once
        before = member
        if kind is not None:
            alone[kind] = member
        yield before


def place_in_cells(member: CombinedVariable, cells: Placement) -> CombinedVariable:
    """Return an array of files in equal cells, with the labels and reasons of these."""
    names = [axis.dimension for axis in member.along]
    return replace(member, along=cells.along(member.path, names))


def without_repeats(facts: CatalogFacts, member: CombinedVariable) -> CombinedVariable:
    """Return an array that files hold once which repeat it, also where its values were read."""
    again = _find_repeated(facts, member.rows, member.cell, member.size, comparable=False)
    return replace(member, again=again)


def _combine_rows(  # noqa: PLR0917 - the facts of one array
    facts: CatalogFacts,
    rows: NDArray[np.integer],
    path: str,
    schemas: Sequence[ArraySchema],
    cells: Placement,
    spec: CombineSpec,
    full: FullLengths,
) -> CombinedVariable:
    names = schemas[int(facts.arrays.schema.codes[rows[0]])].dimension_names
    along = cells.along(path, names)
    axes = tuple(_find_axis(path, names, axis.dimension) for axis in along)
    files = facts.arrays.file[rows]
    cell = (
        np.stack([axis.cell[files] for axis in along], axis=1)
        if along
        else np.zeros((len(rows), 0), np.int64)
    )
    keys = [cells.place[files], *cell.T[::-1]]
    if not _ascend(keys):
        order = np.lexsort(keys)
        rows, cell = rows[order], cell[order]
    used, codes = facts.arrays.schema.renumber(rows)
    is_whole = np.array([schemas[code].whole for code in used.tolist()], np.bool_)
    whole = _spread(is_whole, codes)
    first = schemas[int(used[codes[0]])]
    stored = None if whole.all() else schemas[int(used[codes[int(np.argmin(whole))]])]
    schema, alike = stored or first, np.ones(len(used), np.bool_)
    keys = [signature(schemas[code], stored=False) for code in used.tolist()]
    if len(set(keys)) > 1 and along:  # else the first file's values are those of all
        schema, alike = _choose(facts, rows, [schemas[c] for c in used.tolist()], keys, codes)
    shapes, size = facts.arrays.shape.renumber(rows)
    distinct = [json.loads(facts.arrays.shape.values[code]) for code in shapes.tolist()]
    sizes = np.array(distinct, np.int64).reshape(len(shapes), len(names))
    ragged = {
        axis: length
        for axis, length in full.of_array(path, names).items()
        if along and axis not in axes and (sizes[:, axis] != length).any()
    }
    step = int(rows[1]) - int(rows[0]) if len(rows) > 1 else 0
    is_even = step > 0 and bool((np.diff(rows) == step).all())
    return CombinedVariable(
        path=path,
        held=range(int(rows[0]), int(rows[-1]) + 1, step) if is_even else rows,
        schema=schema,
        sizes=sizes,
        size=_spread(np.arange(len(shapes), dtype=size.dtype), size),
        whole=whole,
        whole_schema=schemas[int(used[codes[int(np.argmax(whole))]])] if whole.any() else None,
        along=along,
        axes=axes,
        cell=cell,
        again=_find_repeated(facts, rows, cell, size, comparable=bool(whole.all())),
        ragged=tuple(ragged),
        full=tuple(ragged.values()),
        spells=bool(names) and names[-1] in full.texts,
        alike=_spread(alike, codes),
        as_floats=spec.options.as_floats(path),
    )


def _ascend(keys: Sequence[NDArray[np.int64]]) -> bool:
    """Say whether rows are in the order of keys already, of which the last counts most."""
    less = np.zeros(max(0, len(keys[0]) - 1), np.bool_)
    equal = ~less
    for key in reversed(keys):
        less |= equal & (key[1:] > key[:-1])
        equal &= key[1:] == key[:-1]
    return bool((less | equal).all())


def _spread[Value: np.generic](
    of_code: NDArray[Value], codes: NDArray[np.integer]
) -> NDArray[Value]:
    """Return what is said of codes for each row; it takes no room where all say the same."""
    if (of_code == of_code[:1]).all():
        return np.broadcast_to(of_code[0], len(codes))
    found: NDArray[Value] = of_code[codes]
    return found


def _choose(
    facts: CatalogFacts,
    rows: NDArray[np.integer],
    schemas: Sequence[ArraySchema],
    keys: Sequence[str],
    codes: NDArray[np.integer],
) -> tuple[ArraySchema, NDArray[np.bool_]]:
    """Return the schema in whose packing all values survive, else most have; and who has it."""
    sizes = np.array([math.prod(json.loads(text)) for text in facts.arrays.shape.values])
    volume = np.bincount(codes, sizes[facts.arrays.shape.codes[rows]], len(schemas))
    order = sorted(range(len(schemas)), key=lambda at: int(np.argmax(codes == at)))
    best: dict[str, float] = {}  # the first file's packing first
    for at in order:
        best[keys[at]] = best.get(keys[at], 0.0) + float(volume[at])
    distinct = [schemas[keys.index(key)] for key in best]
    # where one packing holds what all others hold, no value can be lost in it
    hold = [k for k, holds in zip(best, mismatch.holding(distinct), strict=True) if holds]
    most = max(hold or best, key=lambda key: best[key])
    alike = np.array([key == most for key in keys])
    mine = [schemas[at] for at in order if alike[at]]
    return next((each for each in mine if not each.whole), mine[0]), alike


def _find_axis(path: str, names: Sequence[str | None], dimension: str) -> int:
    if names.count(dimension) > 1:
        raise CombineError(
            f"variable {path} has the concatenated dimension twice",
            fixes=[scan_fix(f"the dataset lacks {path}", drop_variables=[path])],
            variable=path,
            dimensions=list(names),
        )
    return names.index(dimension)


def _find_repeated(
    facts: CatalogFacts,
    rows: NDArray[np.integer],
    cell: NDArray[np.int64],
    size: NDArray[np.integer],
    *,
    comparable: bool,
) -> NDArray[np.bool_]:
    """Say which files hold what the one before them holds, as their digests tell.

    Values that were read by the scan are compared where they are written.
    """
    none = np.broadcast_to(np.False_, len(rows))
    if comparable or not cell.shape[1] or len(rows) < 2:
        return none
    digests = facts.arrays.digest.codes[rows]
    empty = [code for code, text in enumerate(facts.arrays.digest.values) if not text]
    same = (digests[1:] == digests[:-1]) & ~np.isin(digests[1:], empty)
    same &= (cell[1:] == cell[:-1]).all(axis=1) & (size[1:] == size[:-1])
    return np.concatenate([none[:1], same]) if same.any() else none


def _refuse_twice(
    facts: CatalogFacts, member: CombinedVariable, cells: Placement, given: DimensionRules
) -> None:
    """Refuse an array that two files hold for the same box, unless its values can be compared."""
    if not member.axes:
        return
    _refuse_repeated(facts, member, cells, given)
    lengths = member.lengths
    twice = np.zeros(len(member.rows), np.bool_)
    twice[1:] = (member.cell[1:] == member.cell[:-1]).all(axis=1) & ~member.again[1:]
    twice[1:] &= ~member.whole.all() | (lengths[1:] != lengths[:-1]).any(axis=1)
    if twice.any():
        second = int(np.argmax(twice))
        rows = int(member.rows[second - 1]), int(member.rows[second])
        axis = lacking(facts, member.schema.dimension_names, rows, cells.axes)
        if axis is not None and member.size[second - 1] == member.size[second]:
            array = member.path, member.schema.dimension_names
            unequal = Unequal(array=array, rows=rows, axis=axis)
            raise refusal(facts, [unequal], given)
        names = [axis.dimension for axis in member.along]
        files = int(facts.arrays.file[rows[0]]), int(facts.arrays.file[rows[1]])
        raise OverlapError(
            f"two files overlap along {', '.join(map(repr, names))}: both hold {member.path} for"
            " the same steps",
            do=duplicates.remedy(facts, files, names),
            variable=member.path,
            first=facts.files.url[files[0]],
            second=facts.files.url[files[1]],
        )


def _refuse_repeated(
    facts: CatalogFacts, member: CombinedVariable, cells: Placement, given: DimensionRules
) -> None:
    """Refuse values that several files repeat and that differ, where the scan compared them.

    Digests are of bytes, and -0 is 0: what they call different is looked at in two files.
    """
    codes, schemas = facts.arrays.digest.codes[member.rows], facts.arrays.schema.codes[member.rows]
    differ = (codes[1:] != codes[:-1]) & (schemas[1:] == schemas[:-1])
    if facts.compare is None or not differ.any():
        return
    unknown = [code for code, text in enumerate(facts.arrays.digest.values) if not text]
    differ &= ~np.isin(codes[1:], unknown) & ~np.isin(codes[:-1], unknown)
    differ &= (member.cell[1:] == member.cell[:-1]).all(axis=1)
    differ &= member.size[1:] == member.size[:-1]
    if not differ.any():
        return
    second = 1 + int(np.argmax(differ))
    rows = int(member.rows[second - 1]), int(member.rows[second])
    if facts.compare(*map(facts.place_of, rows)) is None:
        return
    names = member.schema.dimension_names
    axis = lacking(facts, names, rows, cells.axes)
    unequal = Unequal(array=(member.path, names), rows=rows, axis=axis)
    raise refusal(facts, [unequal], given)


def _refuse_unlike(  # noqa: PLR0917 - the facts of one array
    facts: CatalogFacts,
    rows: NDArray[np.integer],
    path: str,
    schemas: Sequence[ArraySchema],
    codes: NDArray[np.integer],
    options: CombineOptions,
    axes: Sequence[int],
) -> None:
    """Refuse arrays that decode differently; files that share a schema are compared once."""
    distinct = by_first_appearance(codes, len(schemas)).tolist()
    stored = [code for code in distinct if not schemas[code].whole]
    for group, kind in ((stored, True), (distinct, False)):
        for other in group[1:]:
            both = schemas[group[0]], schemas[other]
            unlike = differences(*(each.decode_signature(stored=kind) for each in both))
            permitted = not unlike or permits(options, path, axes, unlike)
            if not permitted and not converts(options, path, axes, unlike, both):
                pair = group[0], other
                how = {"stored": kind, "has_steps": bool(axes)}
                raise mismatch.refusal(facts, path, rows, schemas, codes, pair, **how)


def _differs_in_type(member: CombinedVariable, schemas: Sequence[ArraySchema]) -> bool:
    """Say whether an array that is stored once differs in the type of its numbers, if at all.

    Then the values of files are compared, and those of the first file are stored.
    """
    kinds = [find_fixed_dtype(each.data_type) for each in schemas]
    if member.axes or member.whole.any() != member.whole.all():
        return False
    if any(kind is None or kind.kind not in "iuf" for kind in kinds):
        return False
    signatures = [each.decode_signature(stored=not each.whole) for each in schemas]
    return all(
        is_storage(differences(signatures[0], each).keys() - _OF_TYPE) for each in signatures
    )


def _refuse_unlike_grids(
    facts: CatalogFacts, member: CombinedVariable, cells: Placement, spec: CombineSpec
) -> None:
    first = member.sizes[int(member.size[0])]
    unlike = member.sizes != first
    unlike[:, [*member.axes, *member.ragged]] = False
    if unlike.any():
        other = int(np.argmax(unlike.any(axis=1)[member.size]))
        names = [name or f"axis {n}" for n, name in enumerate(member.schema.dimension_names)]
        differing = [names[axis] for axis in np.flatnonzero(unlike.any(axis=0)).tolist()]
        raise CombineError(
            f"the grids of variable {member.path} differ along {', '.join(differing)}",
            do=write_remedy(
                "Files of one grid can also be built on their own, into another group: ",
                write_code('group="..."', "--group NAME"),
                ".",
            ),
            fixes=ways_to_fit(facts, cells, spec, member.path),
            variable=member.path,
            first=facts.url_of(member.rows[0]),
            first_shape=dict(zip(names, first.tolist(), strict=True)),
            other=facts.url_of(member.rows[other]),
            other_shape=dict(zip(names, member.shapes[other].tolist(), strict=True)),
        )


def _refuse_too_short(
    facts: CatalogFacts, member: CombinedVariable, spec: CombineSpec, full: FullLengths
) -> None:
    """Refuse an array that is stored once, and only in files where a padded dimension is short."""
    if member.axes:
        return
    names = member.schema.dimension_names
    for axis, length in full.of_array(member.path, names).items():
        longest = int(member.sizes[:, axis].max())
        if names[axis] in spec.pad and longest < length:
            name = paths.name(member.path)
            raise CombineError(
                f"{member.path} has {longest} steps along {names[axis]!r}, which is padded to"
                f" {length}: no file of that length holds it",
                fixes=[scan_fix(f"the dataset lacks {name}", drop_variables=[member.path])],
                variable=member.path,
                file=facts.url_of(member.rows[0]),
            )
