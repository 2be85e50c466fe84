"""Find arrays that mean the same in all files, though these store them in several ways.

An array without the dimension along which files follow one another is stored once, as the first
file has it. So others need not store it so: a duration of 1 day is one of 24 hours, a latitude of
32 bits one of 64 if both are the same number. And CF 5.6 gives the variable of a grid mapping
attributes, and no value: GDAL stores a character there, xarray a zero.

Only values that the scan kept are looked at: one value, or the coordinate of a dimension.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import ArrayColumns, CatalogFacts, Coded, distinct
from icevirt.archive.joining import NUMBERS
from icevirt.archive.schema import DURATION, ArraySchema
from icevirt.model import paths
from icevirt.planning.combine.cf_packing import PACKING, decode, packing_of, same_numbers, texts_in
from icevirt.planning.meaning.grid_mappings import are_no_codes, find_mappings, hold_attributes
from icevirt.planning.measures import are_equal, factor_between
from icevirt.planning.normal_form import differences
from icevirt.planning.times.calendars import REFORM, SINCE_REFORM
from icevirt.planning.times.instants import InexactError
from icevirt.planning.times.targets import LabelGroup, declare, storage_of
from icevirt.planning.times.units import missing_of, units_to_count

_MOST = 1000  # ways to store an array that are looked at
_READ = 16  # values that are read for one array
_UNITS = "attribute units"
_NUMBERED = {"data type", *(f"attribute {name}" for name in PACKING)}
_COUNTED = {*_NUMBERED, *(f"attribute {name}" for name in ("units", "calendar", "dtype"))}
_SAME = "means the same"
"""In the place of a digest."""


def with_equal_meaning(facts: CatalogFacts, dimensions: Sequence[str]) -> CatalogFacts:
    """Return the facts, in which arrays that mean the same in all files are equal.

    Args:
        facts: With the values that the scan kept.
        dimensions: Along which files follow one another.
    """
    found = frozenset(_find_alike(facts, frozenset(dimensions))) if dimensions else frozenset()
    return say_alike(facts, found)


def say_alike(facts: CatalogFacts, alike: frozenset[str]) -> CatalogFacts:
    """Return facts in which some arrays, by path, count as equal in all files."""
    if not alike:
        return facts
    arrays = facts.arrays
    is_alike = np.array([path in alike for path in arrays.path.values], np.bool_)
    codes = arrays.digest.codes.astype(np.int64)
    codes[is_alike[arrays.path.codes]] = len(arrays.digest.values)
    digest = Coded(codes, (*arrays.digest.values, _SAME)).compact()
    alike |= facts.alike
    return replace(facts, arrays=replace(arrays, digest=digest), alike=alike)


def _find_alike(facts: CatalogFacts, dimensions: frozenset[str]) -> Iterator[str]:
    arrays = facts.arrays
    columns = distinct((arrays.path, arrays.schema, arrays.digest))
    ways: dict[int, list[int]] = {}  # codes of schemas, by that of a path: one for each digest
    for path, schema, _ in zip(*(each.tolist() for each in columns), strict=True):
        ways.setdefault(path, []).append(schema)
    mappings: frozenset[str] | None = None
    for path, codes in ways.items():
        name, own = arrays.path.values[path], _dimensions_of(arrays, codes[0])
        if not 1 < len(codes) <= _MOST or not dimensions.isdisjoint(own):
            continue
        stored = _stored_ways(facts, path)
        if {each.schema.dimension_names for each in stored} != {own}:
            continue
        is_label = own in {(), (paths.name(name),)} and all(each.schema.whole for each in stored)
        if is_label and _mean_the_same(stored):
            yield name
        elif all(each.count == 1 for each in stored):
            if mappings is None:
                mappings = find_mappings(hold_attributes(facts))
            if name in mappings and _mean_nothing(stored):
                yield name


def _dimensions_of(arrays: ArrayColumns, code: int) -> tuple[str | None, ...]:
    return ArraySchema.loads(arrays.schema.values[code]).dimension_names


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Stored:
    """An array as some files store it."""

    schema: ArraySchema
    count: int  # of values
    values: NDArray[Any] | None  # None where the scan did not keep them


def _stored_ways(facts: CatalogFacts, path: int) -> list[_Stored]:
    """Return the ways in which files store an array, in the order of the files.

    A few single values that the scan did not keep are read now: a grid mapping may have an axis.
    """
    arrays = facts.arrays
    rows = np.flatnonzero(arrays.path.codes == path)
    pair = np.stack([arrays.schema.codes[rows], arrays.digest.codes[rows]], axis=1)
    first = np.sort(rows[np.unique(pair, axis=0, return_index=True)[1]]).tolist()

    def values(row: int, count: int) -> NDArray[Any] | None:
        known = arrays.labels.get(row) if arrays.digest[row] else None
        is_small = count == 1 and json.loads(arrays.shape[row]) and len(first) <= _READ
        if known is not None or not is_small or facts.values is None:
            return known
        own = arrays.path if arrays.own_path is None else arrays.own_path
        return facts.values(facts.url_of(row), own[row])

    counts = [prod(json.loads(arrays.shape[row])) for row in first]
    return [
        _Stored(
            schema=ArraySchema.loads(arrays.schema[row]), count=count, values=values(row, count)
        )
        for row, count in zip(first, counts, strict=True)
    ]


def _mean_nothing(stored: Sequence[_Stored]) -> bool:
    """Say whether the values of a grid mapping mean nothing."""
    kinds = {str(each.schema.data_type) for each in stored}
    if len(kinds) > 1 and not all(each.schema.whole for each in stored):
        return False  # the first file's type would not be that of its values
    numbers = [each.values for each in stored if str(each.schema.data_type) in NUMBERS]
    known = [each for each in numbers if each is not None]
    return len(known) == len(numbers) and are_no_codes(known)


def _mean_the_same(stored: Sequence[_Stored]) -> bool:
    first, *others = stored
    return all(
        each.values is not None and str(each.schema.data_type) in NUMBERS for each in stored
    ) and all(_means(first, each) for each in others)


def _means(one: _Stored, other: _Stored) -> bool:
    texts = [texts_in(packing_of(each.schema.attributes)) for each in (one, other)]
    if texts[0] != texts[1]:
        return False
    signatures = (each.schema.decode_signature(stored=False) for each in (one, other))
    unlike = differences(*signatures).keys()
    if unlike <= _NUMBERED:
        shown = [
            decode(np.asarray(each.values), packing_of(each.schema.attributes))
            for each in (one, other)
        ]
        return shown[0].shape == shown[1].shape and bool(same_numbers(*shown).all())
    if _UNITS in unlike and unlike <= {_UNITS, *_NUMBERED}:
        said = [each.schema.attributes.values.get("units") for each in (one, other)]
        if (factor := factor_between(*said)) is not None:
            floats = [
                decode(np.asarray(each.values), packing_of(each.schema.attributes)).astype("f8")
                for each in (one, other)
            ]
            return are_equal(floats[0], floats[1], factor)
    if not unlike <= _COUNTED:
        return False
    instants = [_instants(each) for each in (one, other)]
    return None not in instants and instants[0] == instants[1]


def _instants(stored: _Stored) -> tuple[object, ...] | None:
    """Return what is equal for equal times and durations; None of other values."""
    attributes = stored.schema.attributes
    units = units_to_count(attributes.values)
    if units is None:
        return None
    one = np.zeros(1, np.int64)
    storage = storage_of(stored.schema), missing_of(attributes)
    values = np.asarray(stored.values)
    ends = np.array([0, len(values)])
    try:
        times = LabelGroup.of(declare([units], [storage], one, one), one, values, ends).times
    except InexactError:
        return None
    late = bool((times.microseconds[times.there] >= REFORM).all())
    calendar = "" if late and units.calendar in SINCE_REFORM else units.calendar
    is_marked = bool(units.mark) if units.calendar == DURATION else None
    shown = [np.where(times.there, each, 0).tolist() for each in (times.microseconds, times.rest)]
    return calendar, is_marked, times.there.tolist(), *shown
