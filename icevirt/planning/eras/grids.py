"""Find files of different grids: lengths and coordinates of dimensions that are not concatenated.

One array cannot hold variables of two grids, so files of each grid are an era. Where there are more
than a few grids, files rather have swaths or profiles of different lengths, which are padded, or
coordinates that differ by rounding. These are no eras.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.schema import ArraySchema
from icevirt.model import paths
from icevirt.planning.combine.dimension_lengths import FullLengths
from icevirt.planning.combine.options import CombineSpec
from icevirt.planning.combine.tolerance import limits_of
from icevirt.planning.combine.variables import by_path
from icevirt.planning.meaning.grid_mappings import unlike_mappings
from icevirt.planning.meaning.local_indices import local_indices

_MOST = 5  # grids of a variable

LENGTHS = "lengths"
"""Name of the lengths of dimensions, among the facts of a signature."""

VALUES = "values"
"""Name of the values of a coordinate, by their digest."""

type _Axes = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grids:
    """The grid of each array, numbered; 0 where all files have the same one."""

    of_row: NDArray[np.integer]  # (arrays,)
    facts: tuple[Mapping[str, Any], ...]  # by number

    @classmethod
    def of(cls, facts: CatalogFacts, spec: CombineSpec) -> Grids | None:
        """Compare the grids of all files; None where they have the same one."""
        full = FullLengths.of(facts, spec.pad)
        rounded = limits_of(facts, spec.tolerance)
        indices = local_indices(facts)
        found: list[Mapping[str, Any]] = [{}]
        of_row = np.zeros(len(facts.arrays.path), np.int32)
        for path, rows in by_path(facts):
            codes = facts.arrays.schema.codes[rows]
            schemas = (
                ArraySchema.loads(facts.arrays.schema.values[code])
                for code in facts.arrays.schema.used(codes).tolist()
            )
            names = {schema.dimension_names for schema in schemas}
            if len(names) > 1:
                continue  # which is a difference of another kind
            (own,) = names
            fixed = tuple(
                axis
                for axis, name in enumerate(own)
                if name not in spec.concat_dim and axis not in full.of_array(path, own)
            )
            is_coordinate = own == (paths.name(path),) and bool(fixed) and path not in rounded
            numbers, kinds = _lengths(facts, rows, own, fixed)
            if path in indices and fixed:
                of_row[rows], kinds = _of_indices(facts, rows, numbers, kinds, len(found))
                found += kinds
                continue
            if is_coordinate and len(kinds) == 1:
                numbers, kinds = _values(facts, rows)
            if 1 < len(kinds) <= _MOST:
                of_row[rows] = numbers + len(found)
                found += kinds
        for each in unlike_mappings(facts):
            code = facts.arrays.path.values.index(each.path)
            rows = np.flatnonzero(facts.arrays.path.codes == code)
            kind = np.array([each.kind.get(at, 0) for at in range(max(each.kind) + 1)], np.int64)
            of_row[rows] = kind[facts.arrays.schema.codes[rows]] + len(found)
            found += [
                {f"attribute {name}": [value, None] for name, value in said.items()}
                for said in each.said
            ]
        return cls(of_row=of_row, facts=tuple(found)) if len(found) > 1 else None


def _lengths(
    facts: CatalogFacts, rows: NDArray[np.integer], names: Sequence[str | None], axes: _Axes
) -> tuple[NDArray[np.integer], list[Mapping[str, Any]]]:
    """Number the lengths of some axes."""
    used, codes = facts.arrays.shape.renumbered(rows)
    known: dict[tuple[int, ...], int] = {}
    numbers = []
    for code in used.tolist():
        shape = json.loads(facts.arrays.shape.values[code])
        fixed = tuple(shape[axis] for axis in axes) if len(shape) == len(names) else ()
        numbers.append(known.setdefault(fixed, len(known)))
    called = [str(names[axis]) for axis in axes]
    kinds: list[Mapping[str, Any]] = [
        {LENGTHS: dict(zip(called, each, strict=False))} for each in known
    ]
    return np.array(numbers, np.int64)[codes], kinds


def _of_indices(
    facts: CatalogFacts,
    rows: NDArray[np.integer],
    numbers: NDArray[np.integer],
    kinds: Sequence[Mapping[str, Any]],
    begin: int,
) -> tuple[NDArray[np.integer], list[Mapping[str, Any]]]:
    """Number the values of indices, however many: each mesh is another grid.

    Returns:
        The number of each row, from ``begin`` on, 0 where all are alike; and what is numbered.
    """
    digest = facts.arrays.digest
    many = len(digest.values)
    key = numbers.astype(np.int64) * many + digest.codes[rows]
    used, number = np.unique(key, return_inverse=True)
    if len(used) < 2:
        return np.zeros(len(rows), np.int64), []
    pairs = (divmod(each, many) for each in used.tolist())
    return number.reshape(-1) + begin, [
        {**kinds[kind], VALUES: digest.values[code]} for kind, code in pairs
    ]


def _values(
    facts: CatalogFacts, rows: NDArray[np.integer]
) -> tuple[NDArray[np.integer], list[Mapping[str, Any]]]:
    """Number the values of a coordinate; digests are of bytes, and -0 is 0."""
    digest = facts.arrays.digest
    used, codes = digest.renumbered(rows)
    texts = [digest.values[code] for code in used.tolist()]
    if not 1 < len(texts) <= _MOST or not all(texts):
        return np.zeros(len(rows), np.int64), [{}]
    own = facts.arrays.path if facts.arrays.own_path is None else facts.arrays.own_path
    rows_of = [int(rows[int(np.argmax(codes == number))]) for number in range(len(texts))]
    places = [(facts.url_of(row), own[row]) for row in rows_of]
    numbers: list[int] = []
    for at, place in enumerate(places):
        same = (
            numbers[other]
            for other in range(at)
            if facts.compare is not None and facts.compare(places[other], place) is None
        )
        numbers.append(next(same, len(set(numbers))))
    kinds: list[Mapping[str, Any]] = [
        {VALUES: texts[numbers.index(number)]} for number in range(len(set(numbers)))
    ]
    return np.array(numbers, np.int64)[codes], kinds
