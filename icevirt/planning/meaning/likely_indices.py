"""Find integers that seem to number elements of their own file, where no attribute says so.

Names and descriptions raise a suspicion; values of a few files confirm it. They stay within a
concatenated dimension and reach its second half, no other dimension fits them more closely, and
they do not just count the steps that they lie along. What lies along steps of a time numbers none
of them: indices of vegetation are measures.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts, distinct
from icevirt.archive.schema import ArraySchema
from icevirt.model import paths
from icevirt.planning.axes.dimension_scopes import DimensionScopes
from icevirt.planning.meaning.index_fits import IndexFits, Numbered, parts_of
from icevirt.planning.times.units import units_of

_READ = 4  # files, the values of which are looked at
_WORDS = frozenset(
    (
        *("index", "indices", "indexes", "idx", "ndx", "indx", "pointer", "pointers", "ptr"),
        *("offset", "offsets", "address", "addresses", "connectivity", "conn", "connect"),
        *("adjacency", "adjacent", "neighbor", "neighbors", "neighbour", "neighbours"),
        *("triangles", "ikle"),
    )
)
_COUNTS = frozenset(("n", "num", "number", "count", "counts", "size", "sizes"))
_IN_TEXT = re.compile(r"\b(index|indices|indexes|pointers?)\b", re.IGNORECASE)
_TEXTS = ("long_name", "description")
_OTHERWISE = frozenset(  # attributes of measures, flags and counts
    (
        *("scale_factor", "add_offset", "standard_name", "sample_dimension", "calendar"),
        *("flag_values", "flag_masks", "flag_meanings"),
    )
)
_NO_UNITS = frozenset(("", "-", "1", "none", "unitless", "dimensionless", "count", "counts"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LikelyIndex:
    """A variable whose values seem to number elements of its own file."""

    path: str
    numbers: tuple[Numbered, ...]  # what it may number, the most likely first


def likely_indices(
    facts: CatalogFacts, placed: Collection[str], known: AbstractSet[str]
) -> list[LikelyIndex]:
    """Return the variables that nothing calls an index, and that seem to be one.

    Args:
        facts: Of the files.
        placed: Dimensions along which files follow one another.
        known: Names and paths of variables of which it is known whether they are indices.
    """
    if facts.values is None:
        return []
    suspects = [
        (path, schema)
        for path, schema in _suspects(facts)
        if not {path, paths.name(path)} & known and not {*placed}.isdisjoint(schema.dimension_names)
    ]
    if not suspects:
        return []
    rows = np.concatenate([_some_rows(facts, path) for path, _ in suspects])
    few = facts.only(np.unique(facts.arrays.file[rows]).astype(np.int64))
    schemas = map(ArraySchema.loads, few.arrays.schema.values)
    names = {name for each in schemas for name in each.dimension_names if name}
    scopes = {name: DimensionScopes.of(few, name) for name in sorted(names)}
    judged = (_judge(few, path, schema, scopes, placed) for path, schema in suspects)
    return [each for each in judged if each is not None]


def _some_rows(facts: CatalogFacts, path: str) -> NDArray[np.int64]:
    """Return the rows of an array in a few files, the first and the last among them."""
    rows = np.flatnonzero(facts.arrays.path.codes == facts.arrays.path.values.index(path))
    some: NDArray[np.int64] = rows[np.unique(np.linspace(0, len(rows) - 1, _READ).astype(int))]
    return some


def _suspects(facts: CatalogFacts) -> Iterator[tuple[str, ArraySchema]]:
    """Yield the integers whose names or texts say that they number something, each once."""
    arrays = facts.arrays
    said = [_IN_TEXT.search(text) is not None for text in arrays.schema.values]
    named = [not _WORDS.isdisjoint(parts_of(paths.name(path))) for path in arrays.path.values]
    seen: set[int] = set()
    pairs = (each.tolist() for each in distinct((arrays.path, arrays.schema)))
    for path, code in zip(*pairs, strict=True):
        if path in seen or not (named[path] or said[code]):
            continue
        seen.add(path)
        name, schema = arrays.path.values[path], ArraySchema.loads(arrays.schema.values[code])
        if _may_number(paths.name(name), schema, is_named=named[path]):
            yield name, schema


def _may_number(name: str, schema: ArraySchema, *, is_named: bool) -> bool:
    said = schema.attributes.values
    parts = parts_of(name)
    return (
        re.fullmatch(r"u?int\d+", str(schema.data_type)) is not None
        and _OTHERWISE.isdisjoint(said)
        and str(said.get("units", "")).strip().lower() in _NO_UNITS
        and not (parts and (parts[0] in _COUNTS or parts[-1] in _COUNTS))
        and (name,) != schema.dimension_names
        and (is_named or any(_IN_TEXT.search(str(said.get(each, ""))) for each in _TEXTS))
    )


def _judge(
    facts: CatalogFacts,
    path: str,
    schema: ArraySchema,
    scopes: Mapping[str, DimensionScopes],
    placed: Collection[str],
) -> LikelyIndex | None:
    fits = IndexFits(schema, scopes, paths.parent(path))
    fits.leave_out_own(partial(_are_times, facts))
    for row in _some_rows(facts, path)[::-1].tolist():
        values = facts.values(*facts.place_of(row)) if facts.values else None
        if values is None or values.dtype.kind not in "iu":
            return None
        fits.see(values, int(facts.arrays.file[row]))
        if not any(name in placed for name, _ in fits.slack) or fits.count_steps():
            return None
    found = tuple(each for each in fits.closest(path, placed) if each.dimension in placed)
    return LikelyIndex(path=path, numbers=found) if found else None


def _are_times(facts: CatalogFacts, dimension: str, group: str) -> bool:
    """Say whether the coordinate of a dimension has units of times."""
    arrays, path = facts.arrays, paths.join(group, dimension)
    if path not in arrays.path.values:
        return False
    rows = np.flatnonzero(arrays.path.codes == arrays.path.values.index(path))
    schemas = {arrays.schema.values[code] for code in arrays.schema.codes[rows].tolist()}
    return any(units_of(ArraySchema.loads(each).attributes.values) is not None for each in schemas)


def options_for(found: Sequence[LikelyIndex], choice: int) -> Mapping[str, Any]:
    """Return the options by which indices count elements of the dataset.

    Args:
        found: The indices.
        choice: Which of the dimensions that each may number.
    """
    numbered = {each.path: each.numbers[min(choice, len(each.numbers) - 1)] for each in found}
    names = names_of(found)
    return {
        "index_of": {names[path]: _write(path, each) for path, each in numbered.items()},
        "rebase_indices": True,
    } | (
        {"attrs": {names[path]: {"start_index": 1} for path in from_one}}
        if (from_one := [path for path, each in numbered.items() if each.from_one])
        else {}
    )


def names_of(found: Sequence[LikelyIndex]) -> Mapping[str, str]:
    """Return what to call variables in options, by path: names, but for those that are alike."""
    names = [paths.name(each.path) for each in found]
    return {
        each.path: name if names.count(name) == 1 else each.path
        for each, name in zip(found, names, strict=True)
    }


def _write(path: str, numbered: Numbered) -> str:
    """Return what an option calls a dimension, with its group where that is another branch."""
    group = paths.parent(path)
    is_above = group == numbered.group or numbered.group in paths.ancestors(group)
    return numbered.dimension if is_above else paths.join(numbered.group, numbered.dimension)
