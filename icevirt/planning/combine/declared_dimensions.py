"""Decide which dimensions an array gets beside its own, by rules and never by its values.

In this order: the user's ``data_vars``; without it, what the last build of the group made; the
variable that gives labels has their dimension; the words of ``data_vars``; the default of xarray.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.roles import coordinates_of
from icevirt.archive.schema import ArraySchema
from icevirt.errors import InvalidInputError
from icevirt.model import paths
from icevirt.planning.axes.new_dimensions import NewDimension
from icevirt.planning.combine import data_vars
from icevirt.planning.combine.data_vars import DimensionRules


class Declared:
    """What the rules make of the arrays of some files."""

    def __init__(
        self, facts: CatalogFacts, new: Sequence[NewDimension], rules: DimensionRules
    ) -> None:
        self._facts = facts
        self._new = {each.name: each for each in new}
        self._rules = rules
        self.schemas = [ArraySchema.loads(text) for text in facts.arrays.schema.values]
        data_vars.refuse_unknown_dimensions(rules.asked, rules.dimensions)
        data_vars.refuse_unknown_names(rules.asked, facts.arrays.path.values)

    def dimensions_of(self, path: str, schema: ArraySchema) -> tuple[str, ...]:
        """Return the dimensions that an array gets, in the order of the dataset's.

        Raises:
            InvalidInputError: The coordinate of a dimension is to have another one.
        """
        own = schema.dimension_names
        return tuple(
            name
            for name in self._rules.dimensions
            if name not in own and self._gets(name, path, own)
        )

    def _gets(self, dimension: str, path: str, own: Sequence[str | None]) -> bool:
        told, kept = self._new.get(dimension), self._rules.kept
        if any(each.variable == path for each in self._new.values()):
            return told is not None and told.variable == path
        words = data_vars.said(self._rules.asked, dimension)
        if words is not None and data_vars.is_named(words, path):
            if tuple(own) == (paths.name(path),):
                raise InvalidInputError(
                    f"{path} is a dimension coordinate and cannot have another dimension",
                    do="Remove it from data_vars.",
                    data_vars=list(words),
                )
            return True
        if tuple(own) == (paths.name(path),):
            return False
        if words is None and told is not None and kept.has(dimension) and path in kept.dimensions:
            return dimension in kept.dimensions[path]
        if any(each.told_by == path for each in self._new.values()):
            return told is not None and told.told_by == path
        return data_vars.gets(
            kept.data_vars if words is None else self._rules.asked,
            dimension,
            path,
            is_new=told is not None,
            is_coordinate=path in self._coordinates,
        )

    @cached_property
    def _coordinates(self) -> frozenset[str]:
        return coordinates_of(self._variables(), self._groups())

    def _variables(self) -> Iterator[tuple[str, Sequence[str | None], Mapping[str, Any]]]:
        """Yield each kind of each array once."""
        arrays = self._facts.arrays
        kinds = len(self.schemas)
        pairs = np.unique(arrays.path.codes.astype(np.int64) * kinds + arrays.schema.codes)
        for path, code in zip(*(each.tolist() for each in np.divmod(pairs, kinds)), strict=True):
            schema = self.schemas[code]
            yield arrays.path.values[path], schema.dimension_names, schema.attributes.values

    def _groups(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield groups that list coordinates, those that say the same once."""
        told = {
            (group.path, text): group.attributes.values
            for row in range(len(self._facts.files))
            for group in self._facts.groups_of(row, saying="coordinates")
            if isinstance(text := group.attributes.values.get("coordinates"), str)
        }
        for (path, _), values in told.items():
            yield path, values
