"""Normalize facts: new dimensions, time units, duplicates.

Arrays get the dimensions that they are given (`stacking.py`); after that, files are placed along a
new dimension as along any other.

These decisions hold for all files, whether they become one dataset or several: a new axis, the
units of times, and which of several files with the same steps counts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.plan import LeftOut
from icevirt.archive.schema import Recoding
from icevirt.errors import CombineError
from icevirt.model import paths
from icevirt.model.strings import Strings
from icevirt.planning.axes import duplicates, overlaps
from icevirt.planning.axes.axis import NewDimension, Placement
from icevirt.planning.axes.group_order import with_groups
from icevirt.planning.axes.new_dimensions import (
    dimension_of_nest,
    new_dimension,
    places_of_nest,
    relabel,
)
from icevirt.planning.axes.phony_dimensions import with_phony_alike
from icevirt.planning.axes.placement import place_by_order, place_files
from icevirt.planning.axes.positions import with_longest
from icevirt.planning.combine.checked_dimensions import check_dimensions, list_dimensions
from icevirt.planning.combine.dimension_lengths import with_texts_alike
from icevirt.planning.combine.options import CombineSpec
from icevirt.planning.combine.stacking import Declared, stack
from icevirt.planning.edits.file_edits import LabelEdits
from icevirt.planning.edits.renames import with_label_edits
from icevirt.planning.meaning.partitions import place_partitions
from icevirt.planning.remedies import drop_fixes, fix, list_names
from icevirt.planning.times.recoding import recode_times
from icevirt.remedy_notation import write_code, write_remedy

_NAMED = 5  # variables in a message


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreparedFacts:
    """Facts that may be combined, and what was done to make them so."""

    facts: CatalogFacts
    new: tuple[NewDimension, ...]  # (files,) that no file has, in the order of the spec
    times: Mapping[str, Recoding]  # (files,) by path, where files count time differently
    left_out: tuple[LeftOut, ...]
    cuts: tuple[duplicates.StepsCut, ...] = ()
    nest: NDArray[np.int64] | None = None  # (files, dimensions) places that a person gave
    given: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # first axes, by path
    label_edits: LabelEdits | None = None
    twice: CombineError | None = None  # what is wrong where files hold the same steps
    falling: frozenset[str] = frozenset()  # dimensions whose labels fall in all eras together

    def only(self, rows: NDArray[np.int64]) -> PreparedFacts:
        """Return some of the files, in the order given."""
        return self.with_facts(self.facts.only(rows), rows)

    def with_facts(self, facts: CatalogFacts, rows: NDArray[np.int64]) -> PreparedFacts:
        """Return other facts, of files or pieces of files that are ``rows`` of these."""
        return replace(
            self,
            facts=facts,
            new=tuple(each.take(rows) for each in self.new),
            times={path: each.take(rows) for path, each in self.times.items()},
            nest=None if self.nest is None else self.nest[rows],
            label_edits=None if self.label_edits is None else self.label_edits.take(rows),
        )

    def count_again(self, spec: CombineSpec) -> PreparedFacts:
        """Return some of the files by themselves: their times may count alike, and tell more.

        Raises:
            CombineError: The bounds of a coordinate would have to be recoded and cannot be.
        """
        facts, times = recode_times(self.facts, spec.concat_dim)
        twice = self.twice
        if twice is None and self.nest is None:
            twice = duplicates.settle_duplicates(
                facts, self.existing(spec.concat_dim), "refuse", self.new
            ).refused
        return replace(self, facts=facts, times={**self.times, **times}, twice=twice)

    def existing(self, dimensions: Sequence[str]) -> list[str]:
        """Return the dimensions that files have."""
        new = {each.name for each in self.new}
        return [name for name in dimensions if name not in new]

    def describe(
        self, dimension: NewDimension, cells: Placement, spec: CombineSpec
    ) -> NewDimension:
        """Return a new dimension with the attributes that the user set."""
        if self.label_edits is None:
            return dimension
        return with_label_edits(dimension, self.label_edits, cells.rows, spec.options.combine_attrs)

    def cells(self, spec: CombineSpec) -> Placement:
        """Return where the files lie along the concatenated dimensions.

        Raises:
            CombineError: Labels are missing (NaN), repeat, or the files' ranges overlap.
        """
        known = {each.name: each.axis for each in self.new}
        if self.nest is not None:
            for at, name in enumerate(spec.concat_dim):
                known.setdefault(name, place_by_order(self.facts, name, self.nest[:, at]))
        else:
            known |= place_partitions(self.facts, spec, self.existing(spec.concat_dim))
        cells = place_files(self.facts, spec.concat_dim, known, spec.spacing, self.falling)
        return with_groups(self.facts, cells, known, spec.spacing)


def prepare(facts: CatalogFacts, spec: CombineSpec) -> PreparedFacts:
    """Make the facts of all files alike.

    Raises:
        CombineError: A dimension is unknown or not named, a file does not tell its label, a time
            has no exact value in the units of the others, or a variable of files that overlap is
            shorter or longer along a dimension than its coordinate.
        InvalidInputError: There are too few or too many labels, or of several kinds.
    """
    facts = with_longest(with_phony_alike(with_texts_alike(facts)), spec.pad)
    nest = (
        places_of_nest(facts, spec.concat_dim, spec.nest)
        if spec.options.combine == "nested"
        else None
    )
    facts, new = _find_new(facts, spec, nest)
    existing = tuple(name for name in spec.concat_dim if name not in {e.name for e in new})
    check_dimensions(facts, spec, existing)
    facts, times = recode_times(facts, spec.concat_dim)
    found = PreparedFacts(
        facts=facts, new=new, times=times, left_out=(), nest=nest, label_edits=spec.label_edits
    )
    if nest is None:
        settled = duplicates.settle_duplicates(facts, existing, spec.options.duplicates, new)
        if settled.pieces is not None:
            cut = overlaps.cut(found.facts, settled.pieces, settled.labels)
            found = found.with_facts(cut, settled.pieces.file)
        elif settled.left_out:
            found = found.only(settled.kept)
        found = replace(found, left_out=settled.left_out, cuts=settled.cuts, twice=settled.refused)
        _refuse_losses(facts, found.facts)
    is_ruled = bool(new or spec.dimension_rules.lasting)
    return _stack(found, spec) if is_ruled else found


def _refuse_losses(before: CatalogFacts, after: CatalogFacts) -> None:
    if len(after.files) == len(before.files):
        return
    lost = sorted({*before.arrays.path.values} - {*after.arrays.path.values})
    if lost:
        gone = [before.arrays.path.values.index(each) for each in lost]
        rows = np.flatnonzero(np.isin(before.arrays.path.codes, gone))
        raise CombineError(
            f"no file that counts holds {list_names(lost, _NAMED)}: all their files are left out,"
            " because other files hold the same steps",
            fixes=drop_fixes(before.arrays, rows),
            variables=lost[:_NAMED],
            file=before.url_of(rows[0]),
        )


def _find_new(
    facts: CatalogFacts, spec: CombineSpec, nest: NDArray[np.int64] | None
) -> tuple[CatalogFacts, tuple[NewDimension, ...]]:
    there = list_dimensions(facts.arrays)
    found: list[NewDimension] = []
    for at, name in enumerate(spec.concat_dim):
        labels, said = spec.labels.get(name), spec.find_attributes(name)
        if nest is not None:
            if labels is not None or name not in there:
                found.append(dimension_of_nest(facts, name, nest[:, at], labels, said))
        elif labels is not None and name in there:
            facts, made = relabel(facts, name, labels, said)
            found.append(made)
        elif labels is not None:
            found.append(new_dimension(facts, name, labels, said))
    return facts, tuple(found)


def _stack(found: PreparedFacts, spec: CombineSpec) -> PreparedFacts:
    """Give arrays the dimensions that they get, and bring times that get one to one count."""
    facts, given = stack(found.facts, Declared(found.facts, found.new, spec.dimension_rules))
    there = list_dimensions(facts.arrays)
    for each in found.new:
        if each.name not in there:
            raise CombineError(
                f"no variable gets the dimension {each.name!r}",
                fixes=[
                    fix(
                        "every data variable gets it, those that are equal in all files, too",
                        data_vars="all" if len(spec.concat_dim) == 1 else {each.name: ["all"]},
                    )
                ],
                do=write_remedy(
                    "You can also name the variables that get it in ",
                    write_code("data_vars", "--data-vars NAME"),
                    ".",
                ),
                dimensions=there,
            )
    facts, times = recode_times(facts, spec.concat_dim)
    return replace(found, facts=facts, times={**found.times, **times}, given=given)


def without_values(
    facts: CatalogFacts, spec: CombineSpec, absent: Collection[str], dimensions: Sequence[str]
) -> tuple[CatalogFacts, CombineSpec]:
    """Return facts in which absent files hold only labels, and a spec that reserves their steps."""
    if not absent:
        return facts, spec
    gone = np.isin(facts.files.url.hashes(), Strings.of(sorted(absent)).hashes())
    labels = np.array([paths.name(each) in dimensions for each in facts.arrays.path.values])
    kept = labels[facts.arrays.path.codes] | ~gone[facts.arrays.file]
    reserving = replace(spec, options=replace(spec.options, missing="reserve"))
    return replace(facts, arrays=facts.arrays.take(np.flatnonzero(kept))), reserving
