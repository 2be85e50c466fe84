"""Give dimensions that files do not name one name in all files, by the places that they have.

HDF5 needs no names of dimensions, and libraries number those that have none. A file with a dataset
more, or with other datasets of equal length, numbers all that follow in another way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts, Coded, distinct
from icevirt.archive.schema import ArraySchema
from icevirt.model import paths

_PHONY = re.compile(r"phony_dim_([0-9]+)")
_ABSENT = -1

type _Place = tuple[int, int]
"""A path, as its code, and an axis."""


@dataclass(slots=True, eq=False)
class _PhonyDimension:
    """Places that have one number in each file."""

    number: NDArray[np.int64]  # (files,)
    places: list[_Place] = field(default_factory=list)

    def takes(self, number: NDArray[np.int64]) -> bool:
        """Say whether a place has this dimension in all files that have both."""
        both = (self.number != _ABSENT) & (number != _ABSENT)
        return bool(both.any() and (self.number[both] == number[both]).all())

    def add(self, place: _Place, number: NDArray[np.int64]) -> None:
        """Add a place."""
        self.places.append(place)
        self.number = np.where(self.number == _ABSENT, number, self.number)


def with_phony_alike(facts: CatalogFacts) -> CatalogFacts:
    """Return the facts with one name for each dimension that the files do not name."""
    arrays = facts.arrays
    schemas = [ArraySchema.loads(text) for text in arrays.schema.values]
    numbers = [_numbers_of(each) for each in schemas]
    if not _is_unlike(arrays.path, arrays.schema, numbers):
        return facts
    known = _name(_dimensions(facts, numbers))
    made, codes = list(arrays.schema.values), arrays.schema.codes.astype(np.int64)
    for path, schema in _pairs(arrays.path, arrays.schema):
        own = schemas[schema].dimension_names
        names = tuple(known.get((path, axis), name) for axis, name in enumerate(own))
        if names != own:
            rows = np.flatnonzero((arrays.path.codes == path) & (arrays.schema.codes == schema))
            codes[rows] = len(made)
            made.append(replace(schemas[schema], dimension_names=names).dumps())
    places: dict[str, int] = {}  # equal texts count once
    mapped = np.array([places.setdefault(text, len(places)) for text in made], np.int64)
    schema_column = Coded(mapped[codes], tuple(places)).take(np.arange(len(codes)))
    return replace(facts, arrays=replace(arrays, schema=schema_column))


def _numbers_of(schema: ArraySchema) -> Mapping[int, int]:
    """Return the numbers of dimensions without a name, by axis."""
    found = ((axis, _PHONY.fullmatch(n or "")) for axis, n in enumerate(schema.dimension_names))
    return {axis: int(match[1]) for axis, match in found if match is not None}


def _pairs(path: Coded, schema: Coded) -> Iterator[tuple[int, int]]:
    yield from zip(*(each.tolist() for each in distinct((path, schema))), strict=True)


def _is_unlike(path: Coded, schema: Coded, numbers: list[Mapping[int, int]]) -> bool:
    """Say whether a variable has other numbers in other files."""
    if not any(numbers):
        return False
    known: dict[int, Mapping[int, int]] = {}
    return any(
        known.setdefault(one, numbers[other]) != numbers[other]
        for one, other in _pairs(path, schema)
    )


def _dimensions(facts: CatalogFacts, numbers: list[Mapping[int, int]]) -> list[_PhonyDimension]:
    """Return the dimensions of all files, in the order of their first places."""
    arrays = facts.arrays
    found: dict[str, list[_PhonyDimension]] = {}
    for code, path in enumerate(arrays.path.values):
        rows = np.flatnonzero(arrays.path.codes == code)
        files, schemas = arrays.file[rows], arrays.schema.codes[rows]
        for axis in sorted({axis for at in np.unique(schemas).tolist() for axis in numbers[at]}):
            of_schema = np.array([each.get(axis, _ABSENT) for each in numbers], np.int64)
            number = np.full(len(facts.files), _ABSENT, np.int64)
            number[files] = of_schema[schemas]
            there = found.setdefault(paths.parent(path), [])
            held = next((each for each in there if each.takes(number)), None)
            if held is None:
                held = _PhonyDimension(number)
                there.append(held)
            held.add((code, axis), number)
    return [each for some in found.values() for each in some]


def _name(dimensions: list[_PhonyDimension]) -> Mapping[_Place, str]:
    """Return the name of each place: the number of the first file, or one that no other has."""
    taken: set[int] = set()
    free = 1 + max(int(each.number.max()) for each in dimensions)
    found: dict[_Place, str] = {}
    for each in dimensions:
        number = int(each.number[int(np.argmax(each.number != _ABSENT))])
        if number in taken:
            number, free = free, free + 1
        taken.add(number)
        found |= dict.fromkeys(each.places, f"phony_dim_{number}")
    return found
