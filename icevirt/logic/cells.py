"""Where each file lies along the concatenated dimension.

A cell is a run of steps that one file covers, or several that hold different variables of the same
steps: files whose labels are the same lie in one cell. Cells are in the order of the labels; where
these say nothing, each file is a cell, in the order given.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.facts import CatalogFacts
from icevirt.archive.schema import ArraySchema
from icevirt.logic.labels import labels_of
from icevirt.logic.ordering import order_files
from icevirt.logic.recoding import bounds_of
from icevirt.logic.stacking import Stack
from icevirt.model import paths

NOWHERE = -1
"""The cell of a file that has no array with the dimension."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cells:
    """The cell of each file."""

    cell: NDArray[np.int64]  # (files,) or `NOWHERE`
    count: int
    reason: str  # why they are in this order; empty where there is no order to speak of

    @property
    def rows(self) -> NDArray[np.int64]:
        """The files in the order of the dataset; those of no cell come last."""
        return np.argsort(np.where(self.cell == NOWHERE, self.count, self.cell), kind="stable")


def as_given(facts: CatalogFacts, dimension: str | None) -> Cells:
    """Return a cell for each file, without a look at labels."""
    there = files_along(facts, dimension)
    return _numbered(len(facts.files), there, np.arange(len(there)), len(there), "")


def place_files(facts: CatalogFacts, dimension: str | None) -> Cells:
    """Return the cells of the files.

    Raises:
        CombineError: Labels are missing (NaN), repeat, or the files' ranges overlap.
    """
    there = files_along(facts, dimension)
    if dimension is None or len(facts.files) == 1:
        return as_given(facts, dimension)
    labels = labels_of(facts, dimension, there)
    urls = [facts.files.url[row] for row in there.tolist()]
    groups = np.arange(len(there))
    if labels is not None:
        groups = _grouped([held.tobytes() for held in labels])
        if groups.max(initial=0) == 0 and _shares_variables(facts, dimension):
            groups = np.arange(len(there))  # all hold one label, so it orders nothing
    firsts = np.unique(groups, return_index=True)[1]
    order = order_files(
        [urls[at] for at in firsts.tolist()],
        None if labels is None else [labels[at] for at in firsts.tolist()],
        dimension=dimension,
    )
    rank = np.empty(len(firsts), np.int64)
    rank[order.rows] = np.arange(len(firsts))
    return _numbered(len(facts.files), there, rank[groups], len(firsts), order.reason)


def stacked_files(stack: Stack, dimension: str) -> Cells:
    """Return the cells of files that are stacked along a new dimension."""
    return Cells(
        cell=stack.cell,
        count=len(stack.values),
        reason=f"stacked along the new dimension {dimension!r}",
    )


def files_along(facts: CatalogFacts, dimension: str | None) -> NDArray[np.int64]:
    """Return the rows of the files that have an array with the dimension; all where none is asked.

    Where no dimension is asked for, everything is one cell's.
    """
    if dimension is None:
        return np.arange(len(facts.files))
    return np.unique(facts.arrays.file[_along(facts, dimension)])


def _along(facts: CatalogFacts, dimension: str) -> NDArray[np.bool_]:
    """Say which arrays have the dimension."""
    texts = facts.arrays.schema.values
    has = np.array([dimension in ArraySchema.loads(text).dimension_names for text in texts])
    return has[facts.arrays.schema.codes] if len(texts) else np.zeros(0, np.bool_)


def _grouped(keys: list[bytes]) -> NDArray[np.int64]:
    """Number equal keys alike, by first appearance; an empty one is like no other."""
    number: dict[object, int] = {}
    return np.array(
        [number.setdefault(key or ("empty", at), len(number)) for at, key in enumerate(keys)],
        np.int64,
    )


def data_along(facts: CatalogFacts, dimension: str) -> NDArray[np.bool_]:
    """Say which arrays hold data along the dimension: neither its coordinate nor that one's bounds.

    Coordinates are repeated in every file that has data for these steps.
    """
    arrays = facts.arrays
    coordinates = [
        code for code, path in enumerate(arrays.path.values) if paths.name(path) == dimension
    ]
    repeated = set(coordinates)
    number = {path: code for code, path in enumerate(arrays.path.values)}
    for code in coordinates:
        for schema in np.unique(arrays.schema.codes[arrays.path.codes == code]).tolist():
            attributes = ArraySchema.loads(arrays.schema.values[schema]).attributes.values
            for bounds in bounds_of(arrays.path.values[code], attributes):
                repeated.add(number.get(bounds, code))
    return _along(facts, dimension) & ~np.isin(arrays.path.codes, list(repeated))


def _shares_variables(facts: CatalogFacts, dimension: str) -> bool:
    """Say whether data of one variable are in several files."""
    codes = facts.arrays.path.codes[data_along(facts, dimension)]
    return len(codes) == 0 or int(np.bincount(codes).max()) > 1


def _numbered(
    files: int, there: NDArray[np.int64], cells: NDArray[np.int64], count: int, reason: str
) -> Cells:
    cell = np.full(files, NOWHERE, np.int64)
    cell[there] = cells
    return Cells(cell=cell, count=count, reason=reason)
