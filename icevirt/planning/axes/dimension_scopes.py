"""Say which groups share a dimension of one name, and how long it is there in each file.

A dimension belongs to the group that declares it and to the groups below, as in NetCDF: ``y`` of
``/a`` and ``y`` of ``/b`` are two dimensions, whatever their lengths. Scans record names only, so
what groups hold decides: a group has a dimension of its own if it holds the coordinate, if no group
above it has arrays along one of that name, or if such a one has another length in a file. Lengths,
order and duplicates are decided for each of these dimensions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import ArrayColumns, CatalogFacts
from icevirt.archive.kinds import KindColumn, joint, spread
from icevirt.archive.schema import ArraySchema
from icevirt.model import paths

ABSENT = -1
"""The length of a dimension that an array, or all arrays of a file, lack."""

AMBIGUOUS = -2
"""The length of a dimension in a file where groups have several of that name, of other lengths."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DimensionScopes:
    """The dimensions of one name, each with the group that it belongs to."""

    owner: Mapping[str, str]  # of the dimension, by group that has arrays along it
    lengths: Mapping[str, NDArray[np.int64]]  # (files,) by owner, or `ABSENT`

    @classmethod
    def of(cls, facts: CatalogFacts, dimension: str) -> Self:
        """Find the dimensions of a name."""
        found = _lengths_by_group(facts, dimension)
        owner: dict[str, str] = {}
        lengths: dict[str, NDArray[np.int64]] = {}
        for group in sorted(found, key=lambda each: (each.count("/"), each)):
            mine, above = found[group], _nearest(group, owner)
            is_own = paths.join(group, dimension) in facts.arrays.path.values
            if above is None or is_own or _differ(lengths[above], mine).any():
                owner[group], lengths[group] = group, mine
            else:
                owner[group], lengths[above] = above, np.maximum(lengths[above], mine)
        return cls(owner=owner, lengths=lengths)

    def lengths_for(self, group: str) -> NDArray[np.int64] | None:
        """Return the length in each file for arrays of a group; None where no file has one.

        Where neither the group nor one above has the dimension, it is that of all other groups, or
        `AMBIGUOUS`.
        """
        if (owner := _nearest(group, self.owner)) is not None:
            return self.lengths[owner]
        found: NDArray[np.int64] | None = None
        for each in self.lengths.values():
            if found is None:
                found = each
            else:
                is_unclear = _differ(found, each) | (found == AMBIGUOUS)
                found = np.where(is_unclear, AMBIGUOUS, np.maximum(found, each))
        return found


def lengths_along(arrays: ArrayColumns, dimension: str) -> KindColumn:
    """Return how long each array is along a dimension, or `ABSENT`."""
    schemas = [ArraySchema.loads(text).dimension_names for text in arrays.schema.values]
    columns = (arrays.schema, arrays.shape)
    distinct, kind = joint([each.codes for each in columns], [len(e.values) for e in columns])
    lengths = [
        json.loads(arrays.shape.values[shape])[schemas[schema].index(dimension)]
        if dimension in schemas[schema]
        else ABSENT
        for schema, shape in distinct.tolist()
    ]
    return KindColumn(kind.kind, np.array(lengths, np.int64)[kind.of_kind])


def _lengths_by_group(facts: CatalogFacts, dimension: str) -> dict[str, NDArray[np.int64]]:
    """Return the length of a dimension in each file, by group that has arrays along it."""
    arrays = facts.arrays
    lengths = lengths_along(arrays, dimension)
    rows = np.flatnonzero(lengths != ABSENT)
    names = [paths.parent(path) for path in arrays.path.values]
    number = {name: at for at, name in enumerate(dict.fromkeys(names))}
    group = spread(np.array([number[name] for name in names], np.int64), arrays.path.codes)[rows]
    found = {}
    for name, at in number.items():
        mine = rows[group == at]
        if len(mine):
            found[name] = np.full(len(facts.files), ABSENT, np.int64)
            found[name][arrays.file[mine]] = lengths[mine]
    return found


def _nearest(group: str, owner: Mapping[str, str]) -> str | None:
    """Return the owner of the dimension of a group, else of the nearest group above."""
    above = (group, *reversed(paths.ancestors(group)))
    return next((owner[each] for each in above if each in owner), None)


def _differ(one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Say in which files two dimensions have other lengths."""
    found: NDArray[np.bool_] = (one != other) & (one != ABSENT) & (other != ABSENT)
    return found
