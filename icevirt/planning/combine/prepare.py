"""Normalize facts: new dimensions, time units, duplicates.

These decisions hold for all files, whether they become one dataset or several: a new axis, the
units of times, and which of several files with the same steps counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import ArrayColumns, CatalogFacts
from icevirt.archive.hybrid import Recoding
from icevirt.archive.plan import LeftOut
from icevirt.archive.schema import ArraySchema
from icevirt.errors import CombineError
from icevirt.planning.axes import duplicates, time_recoding
from icevirt.planning.axes.new_dimensions import (
    NewDimension,
    nested_dimension,
    nested_places,
    new_dimension,
)
from icevirt.planning.axes.placement import Placement, place_files, placed_axis
from icevirt.planning.combine.data_vars import Declared
from icevirt.planning.combine.dimension_lengths import with_texts_alike
from icevirt.planning.combine.options import CombineSpec
from icevirt.planning.combine.stacking import stacked
from icevirt.planning.edits.renames import LabelEdits


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreparedFacts:
    """Facts that may be combined, and what was done to make them so."""

    facts: CatalogFacts
    new: tuple[NewDimension, ...]  # (files,) that no file has, in the order of the spec
    times: Mapping[str, Recoding]  # (files,) by path, where files count time differently
    left_out: tuple[LeftOut, ...]
    nest: NDArray[np.int64] | None = None  # (files, dimensions) places that a person gave
    given: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # first axes, by path
    label_edits: LabelEdits | None = None
    twice: CombineError | None = None  # what is wrong where files hold the same steps

    def only(self, rows: NDArray[np.int64]) -> PreparedFacts:
        """Return some of the files, in the order given."""
        return replace(
            self,
            facts=self.facts.only(rows),
            new=tuple(each.take(rows) for each in self.new),
            times={path: each.take(rows) for path, each in self.times.items()},
            nest=None if self.nest is None else self.nest[rows],
            label_edits=None if self.label_edits is None else self.label_edits.take(rows),
        )

    def counted_again(self, spec: CombineSpec) -> PreparedFacts:
        """Return some of the files by themselves: their times may count alike, and tell more.

        Raises:
            CombineError: The bounds of a coordinate would have to be recoded and cannot be.
        """
        facts, times = time_recoding.recode_times(self.facts, spec.concat_dim)
        twice = self.twice
        if twice is None and self.nest is None:
            twice = duplicates.settled(
                facts, self.existing(spec.concat_dim), "refuse", self.new
            ).refused
        return replace(self, facts=facts, times={**self.times, **times}, twice=twice)

    def existing(self, dimensions: Sequence[str]) -> list[str]:
        """Return the dimensions that files have."""
        new = {each.name for each in self.new}
        return [name for name in dimensions if name not in new]

    def described(
        self, dimension: NewDimension, cells: Placement, spec: CombineSpec
    ) -> NewDimension:
        """Return a new dimension with the attributes that the user set."""
        if self.label_edits is None:
            return dimension
        return self.label_edits.applied(dimension, cells.rows, spec.options.combine_attrs)

    def cells(self, spec: CombineSpec) -> Placement:
        """Return where the files lie along the concatenated dimensions.

        Raises:
            CombineError: Labels are missing (NaN), repeat, or the files' ranges overlap.
        """
        known = {each.name: each.axis for each in self.new}
        if self.nest is not None:
            for at, name in enumerate(spec.concat_dim):
                known.setdefault(name, placed_axis(self.facts, name, self.nest[:, at]))
        return place_files(self.facts, spec.concat_dim, known, spec.spacing)


def prepare(facts: CatalogFacts, spec: CombineSpec) -> PreparedFacts:
    """Make the facts of all files alike.

    Raises:
        CombineError: A dimension is unknown or not named, a file does not tell its label, or a
            time has no exact value in the units of the others.
        InvalidInputError: There are too few or too many labels, or of several kinds.
    """
    facts = with_texts_alike(facts)
    nest = (
        nested_places(facts, spec.concat_dim, spec.nest)
        if spec.options.combine == "nested"
        else None
    )
    new = _new(facts, spec, nest)
    existing = tuple(name for name in spec.concat_dim if name not in {e.name for e in new})
    _check_dimensions(facts, spec, existing)
    facts, times = time_recoding.recode_times(facts, spec.concat_dim)
    found = PreparedFacts(
        facts=facts, new=new, times=times, left_out=(), nest=nest, label_edits=spec.label_edits
    )
    if nest is None:
        settled = duplicates.settled(facts, existing, spec.options.duplicates, new)
        found = found.only(settled.kept) if settled.left_out else found
        found = replace(found, left_out=settled.left_out, twice=settled.refused)
    is_ruled = bool(new or spec.dimension_rules.lasting)
    return _stacked(found, spec) if is_ruled else found


def _new(
    facts: CatalogFacts, spec: CombineSpec, nest: NDArray[np.int64] | None
) -> tuple[NewDimension, ...]:
    """Return the dimensions that the files do not have: those with labels, or nested ones."""
    there = _dimensions(facts.arrays)
    return tuple(
        new_dimension(facts, name, spec.labels[name])
        if nest is None
        else nested_dimension(facts, name, nest[:, at], spec.labels.get(name))
        for at, name in enumerate(spec.concat_dim)
        if name in spec.labels or (nest is not None and name not in there)
    )


def _stacked(found: PreparedFacts, spec: CombineSpec) -> PreparedFacts:
    """Give arrays the dimensions that they get, and bring times that get one to one count."""
    facts, given = stacked(found.facts, Declared(found.facts, found.new, spec.dimension_rules))
    there = _dimensions(facts.arrays)
    for each in found.new:
        if each.name not in there:
            raise CombineError(
                f"no variable gets the dimension {each.name!r}",
                do="Name the variables that get it in data_vars (--data-vars NAME), or omit the "
                "dimension.",
                dimensions=there,
            )
    facts, times = time_recoding.recode_times(facts, spec.concat_dim)
    return replace(found, facts=facts, times={**found.times, **times}, given=given)


def _check_dimensions(facts: CatalogFacts, spec: CombineSpec, existing: Sequence[str]) -> None:
    there = _dimensions(facts.arrays)
    if len(facts.files) > 1 and not spec.concat_dim:
        raise CombineError(
            f"{len(facts.files)} files but no dimension to concatenate along",
            do="Pass concat_dim (on the command line --concat-dim).",
            dimensions=there,
        )
    for name in existing:
        if name not in there:
            raise CombineError(
                f"no variable has the dimension {name!r}",
                do="Name a dimension that the files have; to stack them along a new one, pass"
                " labels.",
                dimensions=there,
            )


def _dimensions(arrays: ArrayColumns) -> list[str]:
    names = {
        name
        for text in arrays.schema.values
        for name in ArraySchema.loads(text).dimension_names
        if name is not None
    }
    return sorted(names)
