"""Propose dimensions that the files have, where their coordinates do not say how files combine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.schema import ArraySchema
from icevirt.errors import Fix
from icevirt.model import paths
from icevirt.planning.axes.placement import along, data_along
from icevirt.planning.remedies import fix
from icevirt.planning.times.units import units_of

_GROWS = re.compile(r"^(t|nt|n?times?|.*time.*|steps?|records?|n?rec|dates?|days?)$", re.IGNORECASE)
"""Names of dimensions along which archives grow."""


@dataclass(slots=True)
class _Dimension:
    """What the arrays say of a dimension."""

    lengths: dict[str, set[int]] = field(default_factory=dict)  # of its coordinates, by path
    has_times: bool = False  # a variable of times lies along it alone

    @property
    def has_coordinate(self) -> bool:
        """Whether a file holds its labels."""
        return bool(self.lengths)


def _dimensions(facts: CatalogFacts) -> dict[str, _Dimension]:
    arrays = facts.arrays
    found: dict[str, _Dimension] = {}
    kinds = {
        (path, schema, shape)
        for path, schema, shape in zip(
            arrays.path.codes.tolist(),
            arrays.schema.codes.tolist(),
            arrays.shape.codes.tolist(),
            strict=True,
        )
    }
    for path, code, shape in kinds:
        schema = ArraySchema.loads(arrays.schema.values[code])
        name = paths.name(arrays.path.values[path])
        for each in filter(None, schema.dimension_names):
            found.setdefault(each, _Dimension())
        if len(schema.dimension_names) == 1 and (own := schema.dimension_names[0]):
            found[own].has_times |= units_of(schema.attributes.values) is not None
            if name == own:
                held = found[own].lengths.setdefault(arrays.path.values[path], set())
                held.update(json.loads(arrays.shape.values[shape]))
    return found


def in_order_given(facts: CatalogFacts) -> list[Fix]:
    """Return fixes for dimensions without a coordinate, along which files follow one another."""
    return [
        fix(
            f"files follow one another in the order given: they have no coordinate {name}",
            concat_dim=[name],
        )
        for name, each in sorted(_dimensions(facts).items())
        if not each.has_coordinate
        and (each.has_times or _GROWS.match(name))
        and _in_all_files(facts, name)
    ]


def merging(facts: CatalogFacts) -> tuple[str, ...]:
    """Return a dimension of times of files that hold different variables, if no two hold one.

    Files with equal coordinates then are merged, as xarray does.
    """
    for name, each in sorted(_dimensions(facts).items()):
        if each.has_coordinate and each.has_times:
            held = data_along(facts, name)
            if np.bincount(facts.arrays.path.codes[held]).max(initial=0) == 1:
                return (name,)
    return ()


def with_equal_labels(facts: CatalogFacts) -> list[Fix]:
    """Return fixes for dimensions whose coordinates are equal in files that follow one another."""
    return [
        fix(
            f"files follow one another in the order given, and the labels of {name} repeat",
            combine="nested",
            concat_dim=[name],
        )
        for name, each in sorted(_dimensions(facts).items())
        if each.has_coordinate
        and (each.has_times or _GROWS.match(name))
        and _in_all_files(facts, name)
    ]


def groups_in_order(facts: CatalogFacts, price: str) -> list[Fix]:
    """Return the fix that parts files into eras, which follow one another in the order given."""
    found = sorted(_dimensions(facts).items())
    times = [name for name, each in found if each.has_times and _in_all_files(facts, name)]
    return [
        fix(price, on_mismatch="eras", combine="nested", concat_dim=[name]) for name in times[:1]
    ]


def _in_all_files(facts: CatalogFacts, name: str) -> bool:
    """Say whether all files have each variable along a dimension, so that none lacks a step."""
    path = facts.arrays.path.codes[along(facts, name)]
    held = np.bincount(path)
    return bool((held[held > 0] == len(facts.files)).all())


def other_grids(facts: CatalogFacts) -> Iterator[str]:
    """Yield which dimensions have other lengths in other files, in words."""
    for name, each in sorted(_dimensions(facts).items()):
        # groups have a dimension each, whose lengths need not agree
        unlike = next((held for held in each.lengths.values() if len(held) > 1), None)
        if unlike is not None:
            yield f"{name} ({', '.join(map(str, sorted(unlike)))})"
