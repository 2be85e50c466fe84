"""Tell coordinates that count positions within a file, and those that go on where another ends.

``0, 1, 2 ...`` in each file are no labels: the scans of an instrument begin anew in each file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.schema import ArraySchema
from icevirt.model import paths
from icevirt.planning.axes.placement import number_rows
from icevirt.planning.normal_form import differences
from icevirt.planning.times.units import units_of

_READ = 32  # coordinates of one path, all of other values


def count_positions(facts: CatalogFacts, dimension: str) -> bool:
    """Say whether the coordinates of a dimension count from 0 or 1 in each of some files."""
    codes = _coordinates(facts, dimension)
    if not codes or facts.values is None:
        return False
    rows = [np.flatnonzero(facts.arrays.path.codes == code) for code in codes]
    some = [each[np.unique(np.linspace(0, len(each) - 1, _READ).astype(int))] for each in rows]
    values = (facts.values(*facts.place_of(int(row))) for each in some for row in each)
    schemas = (facts.arrays.schema[int(each[0])] for each in rows)
    if any("scale_factor" in ArraySchema.loads(each).attributes.values for each in schemas):
        return False
    return all(held is not None and _are_positions(held) for held in values)


def with_longest(facts: CatalogFacts, pad: Sequence[str]) -> CatalogFacts:
    """Return facts in which coordinates of padded dimensions stand only where they are longest.

    This holds for coordinates that are equal as far as they go, with which shorter files agree.
    """
    gone = [_find_shorter(facts, code) for name in pad for code in _coordinates(facts, name)]
    if not any(map(len, gone)):
        return facts
    kept = np.ones(len(facts.arrays.path), np.bool_)
    kept[np.concatenate(gone)] = False
    return replace(facts, arrays=facts.arrays.take(np.flatnonzero(kept)))


def _coordinates(facts: CatalogFacts, dimension: str) -> list[int]:
    """Return the codes of the paths of a dimension's coordinates, without those of times.

    Their numbers mean the same in all files.
    """
    schema, path = facts.arrays.schema, facts.arrays.path
    found = []
    for code in [c for c, each in enumerate(path.values) if paths.name(each) == dimension]:
        used = schema.find_used(schema.codes[np.flatnonzero(path.codes == code)])
        held = [ArraySchema.loads(schema.values[each]) for each in used.tolist()]
        first = held[0].decode_signature(stored=False)
        if all(
            e.dimension_names == (dimension,)
            and units_of(e.attributes.values) is None
            and not differences(first, e.decode_signature(stored=False))
            for e in held
        ):
            found.append(code)
    return found


def _read_distinct(
    facts: CatalogFacts, code: int
) -> list[tuple[NDArray[np.int64], NDArray[Any]]] | None:
    """Return the coordinates of one path, each once, with their rows; None where one is unknown."""
    arrays = facts.arrays
    rows = np.flatnonzero(arrays.path.codes == code)
    columns = [np.asarray(each.codes[rows], np.int64) for each in (arrays.digest, arrays.shape)]
    _, first, number = np.unique(
        number_rows(columns, len(rows)), return_index=True, return_inverse=True
    )
    if facts.values is None or len(first) > _READ:
        return None
    found = []
    for at, row in enumerate(rows[first].tolist()):
        values = facts.values(*facts.place_of(row)) if arrays.digest[row] else None
        if values is None or values.ndim != 1:
            return None
        found.append((rows[number == at], values))
    return found


def _are_positions(values: NDArray[Any]) -> bool:
    is_whole = values.dtype.kind in "iu" and len(values) > 0
    return is_whole and values[0] in (0, 1) and bool((np.diff(values.astype(np.int64)) == 1).all())


def _find_shorter(facts: CatalogFacts, code: int) -> NDArray[np.int64]:
    """Return the rows of coordinates that the longest one goes on with; none where one differs."""
    lengths = {json.loads(each)[0] for each in _shapes(facts, code)}
    found = _read_distinct(facts, code) if len(lengths) > 1 else None
    if found is None:
        return np.zeros(0, np.int64)
    longest = max((values for _, values in found), key=len)
    if not all(np.array_equal(values, longest[: len(values)]) for _, values in found):
        return np.zeros(0, np.int64)
    return np.concatenate([rows for rows, values in found if len(values) < len(longest)])


def _shapes(facts: CatalogFacts, code: int) -> list[str]:
    shape = facts.arrays.shape
    used = shape.find_used(shape.codes[np.flatnonzero(facts.arrays.path.codes == code)])
    return [shape.values[each] for each in used.tolist()]
