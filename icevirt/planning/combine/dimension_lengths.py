"""Say how long dimensions are in files: those that are padded, and those that count characters.

No reader of texts sees how many characters there was room for: xarray makes one text of the
characters along a dimension that nothing but texts has, and so do files that were written with room
for the longest name of each. Such dimensions are padded without a word, with NULs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from icevirt.archive.facts import ArrayColumns, CatalogFacts, Coded, distinct
from icevirt.archive.joining import dimensions_of_texts, is_character
from icevirt.archive.schema import ArraySchema
from icevirt.model import paths
from icevirt.planning.axes.dimension_scopes import DimensionScopes


def _find_texts(schemas: Iterable[ArraySchema]) -> frozenset[str]:
    return dimensions_of_texts(
        (each.dimension_names, is_character(each.data_type)) for each in schemas
    )


class ArrayKind(NamedTuple):
    """Path, schema and shape that some arrays have, as codes of the columns."""

    path: int
    schema: int
    shape: int


def kinds_of(arrays: ArrayColumns) -> list[ArrayKind]:
    """Return the kinds of arrays, each once."""
    columns = (arrays.path, arrays.schema, arrays.shape)
    codes = (each.tolist() for each in distinct(columns))
    return [ArrayKind(*each) for each in zip(*codes, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FullLengths:
    """How long padded dimensions are in the dataset, and which of them count characters."""

    lengths: Mapping[tuple[str, str], int]  # by group of the arrays and name
    texts: frozenset[str]

    @classmethod
    def of(cls, facts: CatalogFacts, pad: Sequence[str]) -> FullLengths:
        """Look up the longest of all files."""
        arrays = facts.arrays
        schemas = [ArraySchema.loads(text) for text in arrays.schema.values]
        texts = _find_texts(schemas)
        wanted = {*pad, *texts}
        lengths: dict[tuple[str, str], int] = {}
        for kind in kinds_of(arrays) if wanted else ():
            names = schemas[kind.schema].dimension_names
            if wanted.isdisjoint(names):
                continue
            group = paths.parent(arrays.path.values[kind.path])
            shape = json.loads(arrays.shape.values[kind.shape])
            for name, length in zip(names, shape, strict=True):
                if name in wanted and name is not None:
                    lengths[group, name] = max(length, lengths.get((group, name), 0))
        return cls(lengths=_share_lengths(facts, lengths), texts=texts)

    def of_array(self, path: str, names: Sequence[str | None]) -> dict[int, int]:
        """Return the lengths of an array's padded axes, by axis."""
        group = paths.parent(path)
        return {
            axis: self.lengths[group, name]
            for axis, name in enumerate(names)
            if name is not None and (group, name) in self.lengths
        }


def _share_lengths(
    facts: CatalogFacts, lengths: Mapping[tuple[str, str], int]
) -> dict[tuple[str, str], int]:
    """Return the lengths of dimensions by group, where groups share some."""
    found = dict(lengths)
    groups: dict[str, list[str]] = {}
    for group, name in lengths:
        groups.setdefault(name, []).append(group)
    for name, several in groups.items():
        if len(several) > 1:
            scopes = DimensionScopes.of(facts, name)
            for group in several:
                found[group, name] = int(scopes.lengths[scopes.owner[group]].max())
    return found


def with_texts_alike(facts: CatalogFacts) -> CatalogFacts:
    """Return the facts with one name for the characters of each array, that of the longest texts.

    Libraries call a dimension by its length: ``string4`` in one file, ``string9`` in the next.
    """
    arrays = facts.arrays
    schemas = [ArraySchema.loads(text) for text in arrays.schema.values]
    texts = _find_texts(schemas)
    if len(texts) < 2:
        return facts
    longest: dict[int, dict[str, int]] = {}
    for kind in kinds_of(arrays):
        names = schemas[kind.schema].dimension_names
        if names and (name := names[-1]) is not None and name in texts:
            held = longest.setdefault(kind.path, {})
            length = json.loads(arrays.shape.values[kind.shape])[-1]
            held[name] = max(length, held.get(name, 0))
    unlike = {path: held for path, held in longest.items() if len(held) > 1}
    if not unlike:
        return facts
    made, codes = list(arrays.schema.values), arrays.schema.codes.astype(np.int64)
    for path, held in unlike.items():
        best = max(held, key=lambda name: held[name])
        rows = np.flatnonzero(arrays.path.codes == path)
        for code in arrays.schema.find_used(arrays.schema.codes[rows]).tolist():
            names = schemas[code].dimension_names
            if names[-1] in held and names[-1] != best:
                codes[rows[arrays.schema.codes[rows] == code]] = len(made)
                made.append(replace(schemas[code], dimension_names=(*names[:-1], best)).dumps())
    numbers: dict[str, int] = {}  # equal texts count once
    mapped = np.array([numbers.setdefault(text, len(numbers)) for text in made], np.int64)
    schema = Coded(mapped[codes], tuple(numbers)).take(np.arange(len(codes)))
    return replace(facts, arrays=replace(arrays, schema=schema))
