"""One array in all files: whether the files agree on it well enough to be one array.

Agreement is of decoding, not of encoding: a compression level may differ, a scale factor may not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.schema import ArraySchema, differences
from icevirt.errors import CombineError
from icevirt.logic.cells import Cells


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Member:
    """An array with one row per file that has it, in the order of their cells."""

    path: str
    rows: NDArray[np.int64]  # (files,) rows of the array columns
    cell: NDArray[np.int64]  # (files,) ascending
    schema: ArraySchema  # of the first file that keeps its chunks, else of the first
    shapes: NDArray[np.int64]  # (files, ndim)
    whole: NDArray[np.bool_]  # (files,)
    whole_schema: ArraySchema | None  # of the files whose values were read
    axis: int | None  # of the concatenated dimension


def members_of(facts: CatalogFacts, cells: Cells, dimension: str | None) -> list[Member]:
    """Gather the arrays of all files.

    Raises:
        CombineError: An array decodes differently, has another grid, or is in two files for the
            same steps.
    """
    place = np.empty(len(facts.files), np.int64)
    place[cells.rows] = np.arange(len(facts.files))
    schemas = [ArraySchema.loads(text) for text in facts.arrays.schema.values]
    members = []
    for code, path in enumerate(facts.arrays.path.values):
        rows = np.flatnonzero(facts.arrays.path.codes == code)
        rows = rows[np.argsort(place[facts.arrays.file[rows]], kind="stable")]
        codes = facts.arrays.schema.codes[rows]
        if len({schemas[c].dimension_names for c in codes.tolist()}) > 1:
            _refuse_unlike(facts, rows, path, schemas, codes)
        member = _member(facts, rows, path, schemas, dimension, cells)
        _refuse_unlike_grids(facts, member)  # says more than unlike chunk shapes would
        _refuse_unlike(facts, rows, path, schemas, codes)
        if member.axis is not None:
            _refuse_twice(facts, member, dimension)
        members.append(member)
    return members


def _member(  # noqa: PLR0917 - the facts of one array
    facts: CatalogFacts,
    rows: NDArray[np.int64],
    path: str,
    schemas: Sequence[ArraySchema],
    dimension: str | None,
    cells: Cells,
) -> Member:
    used, codes = np.unique(facts.arrays.schema.codes[rows], return_inverse=True)
    is_whole = np.array([schemas[code].whole for code in used.tolist()], np.bool_)
    whole: NDArray[np.bool_] = is_whole[codes]
    first = schemas[int(used[codes[0]])]
    stored = None if whole.all() else schemas[int(used[codes[int(np.argmin(whole))]])]
    schema = stored or first
    sizes, shapes = np.unique(facts.arrays.shape.codes[rows], return_inverse=True)
    distinct = [json.loads(facts.arrays.shape.values[code]) for code in sizes.tolist()]
    return Member(
        path=path,
        rows=rows,
        cell=cells.cell[facts.arrays.file[rows]],
        schema=schema,
        shapes=np.array(distinct, np.int64).reshape(len(sizes), len(schema.dimension_names))[
            shapes
        ],
        whole=whole,
        whole_schema=schemas[int(used[codes[int(np.argmax(whole))]])] if whole.any() else None,
        axis=_axis(path, schema, dimension),
    )


def _axis(path: str, schema: ArraySchema, dimension: str | None) -> int | None:
    if dimension is None or dimension not in schema.dimension_names:
        return None
    if schema.dimension_names.count(dimension) > 1:
        raise CombineError(
            f"variable {path} has the concatenated dimension twice",
            do=f"Leave it out with drop_variables=[{path!r}].",
            variable=path,
            dimensions=list(schema.dimension_names),
        )
    return schema.dimension_names.index(dimension)


def _refuse_twice(facts: CatalogFacts, member: Member, dimension: str | None) -> None:
    """Refuse an array that two files hold for the same steps, unless its values can be compared.

    Those that were read by the scan are compared where they are written.
    """
    again = np.zeros(len(member.rows), np.bool_)
    again[1:] = member.cell[1:] == member.cell[:-1]
    again[1:] &= ~member.whole.all() | ~_same_length(member)
    if again.any():
        second = int(np.argmax(again))
        raise CombineError(
            f"two files overlap along {dimension!r}: both hold {member.path} for the same steps",
            do="Leave one of them out, or say which one counts with"
            ' duplicates="newest" or "version".',
            variable=member.path,
            first=facts.files.url[int(facts.arrays.file[member.rows[second - 1]])],
            second=facts.files.url[int(facts.arrays.file[member.rows[second]])],
        )


def _same_length(member: Member) -> NDArray[np.bool_]:
    lengths = member.shapes[:, member.axis or 0]
    same: NDArray[np.bool_] = lengths[1:] == lengths[:-1]
    return same


def _refuse_unlike(
    facts: CatalogFacts,
    rows: NDArray[np.int64],
    path: str,
    schemas: Sequence[ArraySchema],
    codes: NDArray[np.int32],
) -> None:
    """Refuse arrays that decode differently; files that share a schema are compared once."""
    distinct, at = np.unique(codes, return_index=True)
    distinct = distinct[np.argsort(at)]
    stored = [schemas[c] for c in distinct.tolist() if not schemas[c].whole]
    for group, kind in ((stored, True), ([schemas[c] for c in distinct.tolist()], False)):
        for other in group[1:]:
            unlike = differences(
                group[0].decode_signature(stored=kind), other.decode_signature(stored=kind)
            )
            if unlike:
                raise CombineError(
                    f"variable {path} is not decoded alike in all files: {_told(unlike)}",
                    do="Build the deviating files into another group, or leave the variable out"
                    f" with drop_variables=[{path!r}].",
                    variable=path,
                    first=_file_with(facts, rows, codes, schemas.index(group[0])),
                    other=_file_with(facts, rows, codes, schemas.index(other)),
                )


def _file_with(
    facts: CatalogFacts, rows: NDArray[np.int64], codes: NDArray[np.int32], code: int
) -> str:
    row = rows[int(np.argmax(codes == code))]
    return facts.files.url[int(facts.arrays.file[row])]


def _told(unlike: dict[str, tuple[object, object]]) -> str:
    return "; ".join(f"{name} {one!r} and {other!r}" for name, (one, other) in unlike.items())


def _refuse_unlike_grids(facts: CatalogFacts, member: Member) -> None:
    fixed = (
        np.delete(member.shapes, member.axis, axis=1)
        if member.axis is not None
        else (member.shapes)
    )
    unlike = np.any(fixed != fixed[:1], axis=1)
    if unlike.any():
        other = int(np.argmax(unlike))
        names = [name or f"axis {n}" for n, name in enumerate(member.schema.dimension_names)]
        raise CombineError(
            f"the grids of variable {member.path} differ",
            do="Build the files of each grid into a group of its own.",
            variable=member.path,
            first=facts.files.url[int(facts.arrays.file[member.rows[0]])],
            first_shape=dict(zip(names, member.shapes[0].tolist(), strict=True)),
            other=facts.files.url[int(facts.arrays.file[member.rows[other]])],
            other_shape=dict(zip(names, member.shapes[other].tolist(), strict=True)),
        )
