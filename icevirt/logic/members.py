"""One array in all files: whether the files agree on it well enough to be one array.

Agreement is of decoding, not of encoding: a compression level may differ, a scale factor may not.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.schema import ArraySchema, differences
from icevirt.errors import CombineError
from icevirt.logic.cells import Axis, Cells


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Member:
    """An array with one row per file that has it, in the order of their cells."""

    path: str
    rows: NDArray[np.int64]  # (files,) rows of the array columns
    schema: ArraySchema  # of the first file that keeps its chunks, else of the first
    shapes: NDArray[np.int64]  # (files, ndim)
    whole: NDArray[np.bool_]  # (files,)
    whole_schema: ArraySchema | None  # of the files whose values were read
    along: tuple[Axis, ...]  # n dimensions of the array along which files are placed
    axes: tuple[int, ...]  # (n,) which axes of the array these are
    cell: NDArray[np.int64]  # (files, n) ascending
    again: NDArray[np.bool_]  # (files,) whether one before it holds the same in the same cells
    ragged: tuple[int, ...]  # axes whose lengths differ, which are padded at their ends

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Elements of each file along the placed axes, shape (files, n)."""
        return self.shapes[:, list(self.axes)]

    @property
    def is_incomplete(self) -> bool:
        """Whether the array has elements that no file holds, though no file is missing."""
        return bool(self.ragged) or any(axis.has_gaps for axis in self.along)


def members_of(facts: CatalogFacts, cells: Cells, pad: Sequence[str] = ()) -> list[Member]:
    """Gather the arrays of all files; along the dimensions of ``pad`` their lengths may differ.

    Raises:
        CombineError: An array decodes differently, has another grid, or is in two files for the
            same box.
    """
    place = cells.place
    schemas = [ArraySchema.loads(text) for text in facts.arrays.schema.values]
    members = []
    for path, rows in by_path(facts):
        codes = facts.arrays.schema.codes[rows]
        if len({schemas[c].dimension_names for c in np.unique(codes).tolist()}) > 1:
            _refuse_unlike(facts, rows, path, schemas, codes)
        member = _member(facts, rows, path, schemas, cells, pad, place)
        codes = facts.arrays.schema.codes[member.rows]
        _refuse_unlike_grids(facts, member)  # says more than unlike chunk shapes would
        _refuse_unlike(facts, member.rows, path, schemas, codes)
        _refuse_twice(facts, member)
        members.append(member)
    return members


def by_path(facts: CatalogFacts) -> list[tuple[str, NDArray[np.int64]]]:
    """Return the rows of each array, in their order."""
    codes = facts.arrays.path.codes
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes, minlength=len(facts.arrays.path.values)).tolist()
    ends = itertools.accumulate(counts)
    found = zip(facts.arrays.path.values, counts, ends, strict=True)
    return [(path, order[end - count : end]) for path, count, end in found]


def _member(  # noqa: PLR0917 - the facts of one array
    facts: CatalogFacts,
    rows: NDArray[np.int64],
    path: str,
    schemas: Sequence[ArraySchema],
    cells: Cells,
    pad: Sequence[str],
    place: NDArray[np.int64],
) -> Member:
    names = schemas[int(facts.arrays.schema.codes[rows[0]])].dimension_names
    along = tuple(axis for axis in cells.axes if axis.dimension in names)
    axes = tuple(_axis(path, names, axis.dimension) for axis in along)
    files = facts.arrays.file[rows]
    cell = np.stack([axis.cell[files] for axis in along], axis=1) if along else _none(len(rows))
    order = np.lexsort([place[files], *cell.T[::-1]])
    rows, cell = rows[order], cell[order]
    used, codes = np.unique(facts.arrays.schema.codes[rows], return_inverse=True)
    is_whole = np.array([schemas[code].whole for code in used.tolist()], np.bool_)
    whole: NDArray[np.bool_] = is_whole[codes]
    first = schemas[int(used[codes[0]])]
    stored = None if whole.all() else schemas[int(used[codes[int(np.argmin(whole))]])]
    sizes, shapes = np.unique(facts.arrays.shape.codes[rows], return_inverse=True)
    distinct = [json.loads(facts.arrays.shape.values[code]) for code in sizes.tolist()]
    lengths = np.array(distinct, np.int64).reshape(len(sizes), len(names))[shapes]
    return Member(
        path=path,
        rows=rows,
        schema=stored or first,
        shapes=lengths,
        whole=whole,
        whole_schema=schemas[int(used[codes[int(np.argmax(whole))]])] if whole.any() else None,
        along=along,
        axes=axes,
        cell=cell,
        again=_again(facts, rows, cell, lengths, comparable=bool(whole.all())),
        ragged=_ragged(names, pad, lengths) if along else (),
    )


def _ragged(
    names: Sequence[str | None], pad: Sequence[str], shapes: NDArray[np.int64]
) -> tuple[int, ...]:
    """Return the axes that are to be padded, and must be."""
    return tuple(
        axis
        for axis, name in enumerate(names)
        if name in pad and (shapes[:, axis] != shapes[0, axis]).any()
    )


def _none(count: int) -> NDArray[np.int64]:
    return np.zeros((count, 0), np.int64)


def _axis(path: str, names: Sequence[str | None], dimension: str) -> int:
    if names.count(dimension) > 1:
        raise CombineError(
            f"variable {path} has the concatenated dimension twice",
            do=f"Leave it out with drop_variables=[{path!r}].",
            variable=path,
            dimensions=list(names),
        )
    return names.index(dimension)


def _again(
    facts: CatalogFacts,
    rows: NDArray[np.int64],
    cell: NDArray[np.int64],
    shapes: NDArray[np.int64],
    *,
    comparable: bool,
) -> NDArray[np.bool_]:
    """Say which files hold what the one before them holds, as their digests tell.

    Values that were read by the scan are compared where they are written.
    """
    again = np.zeros(len(rows), np.bool_)
    if comparable or not cell.shape[1] or len(rows) < 2:
        return again
    digests = facts.arrays.digest.codes[rows]
    empty = [code for code, text in enumerate(facts.arrays.digest.values) if not text]
    same = (digests[1:] == digests[:-1]) & ~np.isin(digests[1:], empty)
    same &= (cell[1:] == cell[:-1]).all(axis=1) & (shapes[1:] == shapes[:-1]).all(axis=1)
    again[1:] = same
    return again


def _refuse_twice(facts: CatalogFacts, member: Member) -> None:
    """Refuse an array that two files hold for the same box, unless its values can be compared."""
    if not member.axes:
        return
    lengths = member.lengths
    twice = np.zeros(len(member.rows), np.bool_)
    twice[1:] = (member.cell[1:] == member.cell[:-1]).all(axis=1) & ~member.again[1:]
    twice[1:] &= ~member.whole.all() | (lengths[1:] != lengths[:-1]).any(axis=1)
    if twice.any():
        second = int(np.argmax(twice))
        names = ", ".join(repr(axis.dimension) for axis in member.along)
        raise CombineError(
            f"two files overlap along {names}: both hold {member.path} for the same steps",
            do="Leave one of them out, or say which one counts with"
            ' duplicates="newest" or "version".',
            variable=member.path,
            first=facts.files.url[int(facts.arrays.file[member.rows[second - 1]])],
            second=facts.files.url[int(facts.arrays.file[member.rows[second]])],
        )


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
    """Refuse lengths that differ along axes along which files are not placed."""
    unlike = member.shapes != member.shapes[:1]
    unlike[:, [*member.axes, *member.ragged]] = False
    if unlike.any():
        other = int(np.argmax(unlike.any(axis=1)))
        names = [name or f"axis {n}" for n, name in enumerate(member.schema.dimension_names)]
        differing = [names[axis] for axis in np.flatnonzero(unlike.any(axis=0)).tolist()]
        raise CombineError(
            f"the grids of variable {member.path} differ along {', '.join(differing)}",
            do="Build the files of each grid into a group of its own; or, if values are missing at"
            f" the ends, pad them with pad={differing!r} (--pad).",
            variable=member.path,
            first=facts.files.url[int(facts.arrays.file[member.rows[0]])],
            first_shape=dict(zip(names, member.shapes[0].tolist(), strict=True)),
            other=facts.files.url[int(facts.arrays.file[member.rows[other]])],
            other_shape=dict(zip(names, member.shapes[other].tolist(), strict=True)),
        )
