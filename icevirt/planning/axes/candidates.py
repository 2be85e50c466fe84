"""Propose dimensions that the files have, where their coordinates do not say how files combine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from icevirt.archive.facts import CatalogFacts, variables_of
from icevirt.archive.schema import ArraySchema
from icevirt.errors import Fix
from icevirt.model import paths
from icevirt.planning.axes.differing import dimension_apart
from icevirt.planning.axes.placement import along, data_along
from icevirt.planning.axes.positions import count_positions
from icevirt.planning.combine.dimension_lengths import kinds_of
from icevirt.planning.meaning.local_indices import differs
from icevirt.planning.remedies import GROUPED, fix
from icevirt.planning.times.units import bounds_of, units_of

_GROWS = re.compile(r"^(t|nt|n?times?|.*time.*|steps?|records?|n?rec|dates?|days?)$", re.IGNORECASE)
"""Names of dimensions along which archives grow."""


@dataclass(slots=True)
class _Dimension:
    """What the arrays say of a dimension."""

    lengths: dict[str, set[int]] = field(default_factory=dict)  # of its coordinates, by path
    has_times: bool = False  # a variable of times lies along it alone
    of_bounds: bool = True  # only bounds have it: it counts the vertices of a cell


def _dimensions(facts: CatalogFacts) -> dict[str, _Dimension]:
    arrays = facts.arrays
    bounds = {
        each
        for path, schema in variables_of(facts)
        for each in bounds_of(path, schema.attributes.values)
    }
    found: dict[str, _Dimension] = {}
    for kind in kinds_of(arrays):
        path, schema = (
            arrays.path.values[kind.path],
            ArraySchema.loads(arrays.schema.values[kind.schema]),
        )
        for each in filter(None, schema.dimension_names):
            found.setdefault(each, _Dimension()).of_bounds &= path in bounds
        if len(schema.dimension_names) == 1 and (own := schema.dimension_names[0]):
            found[own].has_times |= units_of(schema.attributes.values) is not None
            if paths.name(path) == own:
                shape = json.loads(arrays.shape.values[kind.shape])
                found[own].lengths.setdefault(path, set()).update(shape)
    return dict(sorted(found.items()))


def in_order_given(facts: CatalogFacts) -> list[Fix]:
    """Return fixes for dimensions without a coordinate, along which files follow one another."""
    return [
        fix(
            f"files follow one another in the order given: they have no coordinate {name}",
            concat_dim=[name],
        )
        for name, has_labels in _growing(facts)
        if not has_labels
    ]


def _growing(facts: CatalogFacts) -> Iterator[tuple[str, bool]]:
    """Yield dimensions along which archives grow, and whether files hold their labels."""
    for name, each in _dimensions(facts).items():
        is_growing = each.has_times or _GROWS.match(name)
        if is_growing and not each.of_bounds and _in_all_files(facts, name):
            yield name, bool(each.lengths)


def merging(facts: CatalogFacts) -> tuple[str, ...]:
    """Return a dimension of times of files that hold different variables, if no two hold one.

    Files with equal coordinates then are merged, as xarray does.
    """
    for name, each in _dimensions(facts).items():
        if each.lengths and each.has_times:
            held = data_along(facts, name)
            if np.bincount(facts.arrays.path.codes[held]).max(initial=0) == 1:
                return (name,)
    return ()


def with_equal_labels(facts: CatalogFacts) -> list[Fix]:
    """Return fixes for dimensions whose coordinates are equal in files that follow one another."""
    price = "files follow one another in the order given, and the labels of {} repeat"
    return [
        fix(price.format(name), combine="nested", concat_dim=[name])
        for name, has_labels in _growing(facts)
        if has_labels
    ]


def along_positions(facts: CatalogFacts) -> list[Fix]:
    """Return fixes for dimensions of other lengths along which files follow one another.

    Their coordinates count the positions within each file, or times lie along them.
    """
    return [
        fix(
            f"files follow one another in the order given, whatever {name} counts in each",
            combine="nested",
            concat_dim=[name],
        )
        for name, each in _dimensions(facts).items()
        if any(len(held) > 1 for held in each.lengths.values())
        and (each.has_times or count_positions(facts, name))
    ]


def further_dimensions(facts: CatalogFacts, dimensions: Sequence[str]) -> list[Fix]:
    """Return the fix that also names dimensions along which some files lie beside each other.

    What is inferred goes by the first file and the last; here all files are looked at.
    """
    along = list(dimensions)
    files = np.arange(len(facts.files))
    while along and (found := dimension_apart(facts, np.zeros_like(files), files, along)):
        along.append(found[0])
    if len(along) == len(dimensions):
        return []
    more = ", ".join(along[len(dimensions) :])
    return [fix(f"files lie beside each other along {more}, too", concat_dim=along)]


def last_resorts(facts: CatalogFacts, dimensions: Sequence[str]) -> list[Fix]:
    """Return what keeps all values of nearly all files, where nothing better is known."""
    found = [*_beside(facts, dimensions)] if dimensions else []
    if dimensions:
        found.append(fix("values of files that differ are stored", on_mismatch="native"))
    if dimensions:
        found.append(fix(GROUPED, on_mismatch="eras"))
    if len(dimensions) == 1:
        price = f"files follow one another in the order given, whatever {dimensions[0]} says"
        found.append(fix(price, combine="nested", concat_dim=dimensions))
        found.append(
            fix(f"{price}; {GROUPED}", combine="nested", concat_dim=dimensions, on_mismatch="eras")
        )
    if "file" not in _dimensions(facts):
        price = f"files stand in the order given along a new dimension file; {GROUPED}"
        found.append(fix(price, combine="nested", concat_dim=["file"], on_mismatch="eras"))
    return found


def _beside(facts: CatalogFacts, dimensions: Sequence[str]) -> Iterator[Fix]:
    """Yield the fix that also names dimensions without labels, of which each file has its own part.

    No variable has them beside another dimension along which files follow one another.
    """
    known = [*variables_of(facts)]
    apart = [each for each in known if {*dimensions}.isdisjoint(each[1].dimension_names)]
    taken = {name for path, each in known if not {*dimensions}.isdisjoint(each.dimension_names)
             for name in each.dimension_names}  # fmt: skip
    more = [
        name
        for name, each in _dimensions(facts).items()
        if name not in taken and not each.lengths and not each.of_bounds
        and any(name in held.dimension_names and differs(facts, path) for path, held in apart)
    ]  # fmt: skip
    if more:
        price = f"files follow one another along {', '.join(more)}, too, which has no labels"
        yield fix(price, concat_dim=[*dimensions, *more])


def groups_in_order(facts: CatalogFacts, price: str) -> list[Fix]:
    """Return the fix that parts files into eras, which follow one another in the order given."""
    for name, each in _dimensions(facts).items():
        if each.has_times and not each.of_bounds and _in_all_files(facts, name):
            return [fix(price, on_mismatch="eras", combine="nested", concat_dim=[name])]
    return []


def _in_all_files(facts: CatalogFacts, name: str) -> bool:
    """Say whether all files have each variable along a dimension, so that none lacks a step."""
    path = facts.arrays.path.codes[along(facts, name)]
    held = np.bincount(path)
    return bool((held[held > 0] == len(facts.files)).all())


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlikeGrids:
    """A dimension of a group that has other lengths in other files."""

    dimension: str
    group: str
    of_all: tuple[int, ...]  # that occur
    rows: tuple[int, int]  # of the coordinate in two files that differ
    lengths: tuple[int, int]  # there

    def __str__(self) -> str:
        where = "" if self.group == paths.ROOT else f" of {self.group}"
        return f"{self.dimension}{where} ({', '.join(map(str, self.of_all))})"


def other_grids(facts: CatalogFacts) -> Iterator[UnlikeGrids]:
    """Yield the dimensions whose coordinates have other lengths in other files.

    Groups have a dimension each, whose lengths need not agree.
    """
    arrays = facts.arrays
    for each in _dimensions(facts).values():
        for path, held in each.lengths.items():
            if len(held) < 2:
                continue
            rows = np.flatnonzero(arrays.path.codes == arrays.path.values.index(path))
            shapes = arrays.shape.codes[rows]
            pair = int(rows[0]), int(rows[np.argmax(shapes != shapes[0])])
            one, other = (json.loads(arrays.shape[row])[0] for row in pair)
            yield UnlikeGrids(
                dimension=paths.name(path),
                group=paths.parent(path),
                of_all=tuple(sorted(held)),
                rows=pair,
                lengths=(one, other),
            )
            break
