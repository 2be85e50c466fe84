"""Normalize facts: new dimensions, time units, duplicates.

These decisions hold for all files, whether they become one dataset or several: a new axis, the
units of times, and which of several files with the same steps counts.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import ArrayColumns, CatalogFacts
from icevirt.archive.plan import LeftOut
from icevirt.archive.schema import ArraySchema, Recoding
from icevirt.errors import CombineError, Fix
from icevirt.model import paths
from icevirt.model.strings import Strings
from icevirt.planning.axes import candidates, duplicates, overlaps
from icevirt.planning.axes.group_order import with_groups
from icevirt.planning.axes.label_proposals import label_fixes, odd_names
from icevirt.planning.axes.new_dimensions import (
    NewDimension,
    nested_dimension,
    nested_places,
    new_dimension,
    relabeled,
)
from icevirt.planning.axes.placement import Placement, place_files, placed_axis
from icevirt.planning.combine.data_vars import Declared
from icevirt.planning.combine.dimension_lengths import with_texts_alike
from icevirt.planning.combine.options import CombineSpec
from icevirt.planning.combine.stacking import stacked
from icevirt.planning.edits.renames import LabelEdits
from icevirt.planning.remedies import drop_fixes, fix, listed
from icevirt.planning.times.recoding import recode_times

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

    def only(self, rows: NDArray[np.int64]) -> PreparedFacts:
        """Return some of the files, in the order given."""
        return self._taken(rows, self.facts.only(rows))

    def cut(self, settled: duplicates.ResolvedDuplicates) -> PreparedFacts:
        """Return the pieces of files that are kept where files overlap in part.

        Raises:
            CombineError: A variable is shorter or longer along a dimension than its coordinate.
        """
        assert settled.pieces is not None
        facts = overlaps.cut(self.facts, settled.pieces, settled.labels)
        return self._taken(settled.pieces.file, facts)

    def _taken(self, rows: NDArray[np.int64], facts: CatalogFacts) -> PreparedFacts:
        return replace(
            self,
            facts=facts,
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
        facts, times = recode_times(self.facts, spec.concat_dim)
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
        cells = place_files(self.facts, spec.concat_dim, known, spec.spacing)
        return with_groups(self.facts, cells, known, spec.spacing)


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
    facts, new = _new(facts, spec, nest)
    existing = tuple(name for name in spec.concat_dim if name not in {e.name for e in new})
    _check_dimensions(facts, spec, existing)
    facts, times = recode_times(facts, spec.concat_dim)
    found = PreparedFacts(
        facts=facts, new=new, times=times, left_out=(), nest=nest, label_edits=spec.label_edits
    )
    if nest is None:
        settled = duplicates.settled(facts, existing, spec.options.duplicates, new)
        if settled.pieces is not None:
            found = found.cut(settled)
        elif settled.left_out:
            found = found.only(settled.kept)
        found = replace(found, left_out=settled.left_out, cuts=settled.cuts, twice=settled.refused)
        _refuse_losses(facts, found.facts)
    is_ruled = bool(new or spec.dimension_rules.lasting)
    return _stacked(found, spec) if is_ruled else found


def _refuse_losses(before: CatalogFacts, after: CatalogFacts) -> None:
    """Refuse to leave out the only files that hold a variable."""
    if len(after.files) == len(before.files):
        return
    lost = sorted({*before.arrays.path.values} - {*after.arrays.path.values})
    if lost:
        gone = [before.arrays.path.values.index(each) for each in lost]
        rows = np.flatnonzero(np.isin(before.arrays.path.codes, gone))
        raise CombineError(
            f"no file that counts holds {listed(lost, _NAMED)}: all their files are left out,"
            " because other files hold the same steps",
            fixes=drop_fixes(
                before.arrays, np.flatnonzero(np.isin(before.arrays.path.codes, gone))
            ),
            variables=lost[:_NAMED],
            file=before.url_of(rows[0]),
        )


def _new(
    facts: CatalogFacts, spec: CombineSpec, nest: NDArray[np.int64] | None
) -> tuple[CatalogFacts, tuple[NewDimension, ...]]:
    """Return the dimensions that have labels, or that nested files lack, and what these replace."""
    there = _dimensions(facts.arrays)
    found: list[NewDimension] = []
    for at, name in enumerate(spec.concat_dim):
        labels, said = spec.labels.get(name), spec.said_of(name)
        if nest is not None:
            if labels is not None or name not in there:
                found.append(nested_dimension(facts, name, nest[:, at], labels, said))
        elif labels is not None and name in there:
            facts, made = relabeled(facts, name, labels, said)
            found.append(made)
        elif labels is not None:
            found.append(new_dimension(facts, name, labels, said))
    return facts, tuple(found)


def _stacked(found: PreparedFacts, spec: CombineSpec) -> PreparedFacts:
    """Give arrays the dimensions that they get, and bring times that get one to one count."""
    facts, given = stacked(found.facts, Declared(found.facts, found.new, spec.dimension_rules))
    there = _dimensions(facts.arrays)
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
                do="You can also name the variables that get it in data_vars (--data-vars NAME).",
                dimensions=there,
            )
    facts, times = recode_times(facts, spec.concat_dim)
    return replace(found, facts=facts, times={**found.times, **times}, given=given)


def _check_dimensions(facts: CatalogFacts, spec: CombineSpec, existing: Sequence[str]) -> None:
    there = _dimensions(facts.arrays)
    if len(facts.files) > 1 and not spec.concat_dim:
        if grids := [*candidates.other_grids(facts)]:
            raise CombineError(
                f"{len(facts.files)} files of several grids: they have other lengths along"
                f" {', '.join(grids)}, and their other coordinates are equal",
                do='Build the files of each grid into a group of its own: group="..." (--group'
                ' NAME). If the grids are parts of one, name the dimension: concat_dim="..."'
                " (--concat-dim NAME).",
                first=facts.files.url[0],
                last=facts.files.url[len(facts.files) - 1],
            )
        known = (
            *candidates.in_order_given(facts),
            *label_fixes(facts, tolerance=spec.tolerance),
            *candidates.with_equal_labels(facts),
        )
        fixes = [*{frozenset(each.flags): each for each in reversed(known)}.values()][::-1]
        raise CombineError(
            f"{len(facts.files)} files but no dimension to concatenate along",
            fixes=fixes,
            do=odd_names(facts)
            or "Pass concat_dim (on the command line --concat-dim); labels say where files lie"
            " along a dimension that they do not have."
            if not fixes
            else "",
            first=facts.files.url[0],
            last=facts.files.url[len(facts.files) - 1],
            dimensions=there,
        )
    for name in existing:
        if name not in there:
            labels = label_fixes(facts, name) if len(spec.concat_dim) == 1 else []
            raise CombineError(
                f"no variable has the dimension {name!r}",
                fixes=(*_similar(name, there, spec), *labels, *_stacked_as_given(name, spec)),
                do="You can also name another dimension that the files have. To stack them along a"
                ' new one, give its labels: combine_options={"labels": ...} (--labels).',
                dimensions=there,
            )


def _similar(name: str, there: Sequence[str], spec: CombineSpec) -> list[Fix]:
    """Return the fix by a dimension that files have and whose name is like one that none has."""
    others = [each for each in there if each not in spec.concat_dim]
    return [
        fix(
            f"files have the dimension {other}",
            concat_dim=[other if each == name else each for each in spec.concat_dim],
        )
        for other in difflib.get_close_matches(name, others, n=1)
    ]


def _stacked_as_given(name: str, spec: CombineSpec) -> list[Fix]:
    """Return the fix by a new dimension without labels, if it is the only one."""
    if len(spec.concat_dim) > 1 or spec.options.combine == "nested":
        return []
    price = f"files are stacked along a new dimension {name}, in the order given"
    return [fix(price, combine="nested")]


def _dimensions(arrays: ArrayColumns) -> list[str]:
    names = {
        name
        for text in arrays.schema.values
        for name in ArraySchema.loads(text).dimension_names
        if name is not None
    }
    return sorted(names)


def without_values(
    facts: CatalogFacts, spec: CombineSpec, absent: Collection[str], dimensions: Sequence[str]
) -> tuple[CatalogFacts, CombineSpec]:
    """Return facts in which absent files hold nothing but labels, and a spec that reserves steps.

    Args:
        facts: Of all files.
        spec: Of the plan.
        absent: URLs of files.
        dimensions: Along which files lie beside each other.
    """
    if not absent:
        return facts, spec
    gone = np.isin(facts.files.url.hashes(), Strings.of(sorted(absent)).hashes())
    labels = np.array([paths.name(each) in dimensions for each in facts.arrays.path.values])
    kept = labels[facts.arrays.path.codes] | ~gone[facts.arrays.file]
    options = replace(spec.options, missing="reserve")
    return replace(facts, arrays=facts.arrays.take(np.flatnonzero(kept))), replace(
        spec, options=options
    )
