"""Facts of a catalog made alike before they are combined: stacked, counted alike, without doubles.

What is decided here is decided for all files at once, whether they become one dataset or several:
a new axis, the units of times, which of several files with the same steps counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import ArrayColumns, CatalogFacts
from icevirt.archive.plan import LeftOut
from icevirt.archive.schema import ArraySchema
from icevirt.archive.times import Recoding
from icevirt.errors import CombineError
from icevirt.logic import duplicates, recoding
from icevirt.logic.cells import Cells, place_files, stacked_files
from icevirt.logic.stacking import Labels, Stack, labels_told, stacked
from icevirt.logic.wish import Wish
from icevirt.model import paths


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prepared:
    """Facts that may be combined, and what was done to make them so."""

    facts: CatalogFacts
    stack: Stack | None  # (files,) of a new dimension
    times: Mapping[str, Recoding]  # (files,) by path, where files count time differently
    left_out: tuple[LeftOut, ...]

    def only(self, rows: NDArray[np.int64]) -> Prepared:
        """Return some of the files, in the order given."""
        return replace(
            self,
            facts=self.facts.only(rows),
            stack=None if self.stack is None else self.stack.only(rows),
            times={path: each.take(rows) for path, each in self.times.items()},
        )

    def cells(self, dimension: str | None) -> Cells:
        """Return where the files lie along the dimension.

        Raises:
            CombineError: Labels are missing (NaN), repeat, or the files' ranges overlap.
        """
        if self.stack is None or dimension is None:
            return place_files(self.facts, dimension)
        return stacked_files(self.stack, dimension)


def prepare(facts: CatalogFacts, wish: Wish) -> Prepared:
    """Make the facts of all files alike.

    Raises:
        CombineError: The dimension is unknown or not named, a file does not tell its label, or a
            time has no exact value in the units of the others.
        InvalidInputError: There are too few or too many labels, or they are told wrongly.
    """
    stack = None
    if wish.labels is not None:
        facts, stack = _stacked(facts, wish, wish.labels)
    _check_dimension(facts, wish)
    facts, times = recoding.recode_times(facts, wish.concat_dim)
    kept, left_out = duplicates.without_duplicates(facts, wish.concat_dim, wish.duplicates)
    found = Prepared(facts=facts, stack=stack, times=times, left_out=left_out)
    return found.only(kept) if left_out else found


def _stacked(facts: CatalogFacts, wish: Wish, labels: Labels) -> tuple[CatalogFacts, Stack]:
    """Give the arrays the new dimension that was asked for."""
    dimension = wish.concat_dim
    if dimension is None or dimension in {
        *_dimensions(facts.arrays),
        *(paths.name(path) for path in facts.arrays.path.values),
    }:
        raise CombineError(
            "labels are for a new dimension, which the files do not have",
            do="Name it with concat_dim (on the command line --concat-dim), or leave labels out.",
            concat_dim=dimension,
        )
    stack = labels_told(facts, labels, dimension)
    return stacked(facts, dimension, stack), stack


def _check_dimension(facts: CatalogFacts, wish: Wish) -> None:
    if len(facts.files) > 1 and wish.concat_dim is None:
        raise CombineError(
            f"{len(facts.files)} files, and no dimension to concatenate them along",
            do="Pass concat_dim (on the command line --concat-dim).",
            dimensions=_dimensions(facts.arrays),
        )
    if wish.concat_dim is not None and wish.concat_dim not in _dimensions(facts.arrays):
        raise CombineError(
            f"no variable has the dimension {wish.concat_dim!r}",
            do="Name a dimension that the files have; to stack them along a new one, pass labels.",
            dimensions=_dimensions(facts.arrays),
        )


def _dimensions(arrays: ArrayColumns) -> list[str]:
    names = {
        name
        for text in arrays.schema.values
        for name in ArraySchema.loads(text).dimension_names
        if name is not None
    }
    return sorted(names)
