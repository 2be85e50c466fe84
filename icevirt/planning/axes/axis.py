"""Values: where files lie along dimensions, and the steps and labels that these have."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.schema import ArraySchema
from icevirt.errors import InvalidInputError
from icevirt.model import paths
from icevirt.model.attributes import Attributes
from icevirt.planning.axes.dates import show_labels, write_labels
from icevirt.planning.remedies import list_names

_SHOWN = 10  # steps in a note
UNITS = {  # microseconds
    "us": 1, "ms": 1_000, "s": 1_000_000, "min": 60_000_000, "h": 3_600_000_000,
    "d": 86_400_000_000, "w": 604_800_000_000,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AxisSteps:
    """All steps of an axis, and where the steps of each cell are among them."""

    path: str  # of the coordinate
    begins: NDArray[np.int64]  # (cells,) the step at which each begins
    lengths: NDArray[np.int64]  # (cells,) steps of each
    values: NDArray[Any]  # (steps,) of the coordinate, as files store them
    attributes: Attributes  # of the coordinate

    @property
    def absent(self) -> NDArray[np.int64]:
        """The steps that no file holds."""
        there = np.zeros(len(self.values) + 1, np.int64)
        np.add.at(there, self.begins, 1)
        np.add.at(there, self.begins + self.lengths, -1)
        return np.flatnonzero(np.cumsum(there)[:-1] == 0)

    def describe(self, dimension: str) -> str:
        """Return the line that lists the steps that no file holds."""
        absent = self.absent
        labels = write_labels(self.values[absent], self.attributes)
        return (
            f"{len(absent):,} of {len(self.values):,} steps along {dimension!r} have no file and"
            f" read as missing: {list_names(labels, _SHOWN)}"
        )


def spacing_of(given: Any) -> str | float:
    """Return how far apart steps are, as a person says it: ``"6h"``, ``"1D"``, or a number.

    Raises:
        InvalidInputError: It is neither, or not above zero.
    """
    if isinstance(given, str) and duration_of(given):
        return given
    with suppress(TypeError, ValueError):
        if (number := float(given)) > 0 and np.isfinite(number):
            return number
    raise InvalidInputError(
        "the spacing must be a time like 6h or 1D, or a number above zero",
        do=f"Correct spacing; units of time are {', '.join(UNITS)}.",
        spacing=given,
    )


def duration_of(text: str) -> int:
    """Return the microseconds of a time like ``6h`` or ``30D``, 0 where the text says none."""
    found = re.fullmatch(r"\s*([0-9]+)?\s*([A-Za-z]+)\s*", text)
    return int(found[1] or 1) * UNITS.get(found[2].lower(), 0) if found else 0


NOWHERE = -1
"""The cell of a file that has no array with the dimension."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AxisPlacement:
    """The cell of each file along one dimension."""

    dimension: str
    cell: NDArray[np.int64]  # (files,) or `NOWHERE`
    count: int
    reason: str = ""  # why they are in this order; empty where there is no order to speak of
    names: Sequence[Any] | NDArray[Any] = ()  # (count,) what people call a cell; empty: nothing
    attributes: Attributes | None = None  # of the names, where these are raw values
    is_new: bool = False  # no file has the dimension
    coordinate: str = ""  # path of the one whose labels place the files
    steps: AxisSteps | None = None  # where cells lie, if a person said how far apart steps are

    @property
    def has_gaps(self) -> bool:
        """Whether there are steps that no cell holds."""
        return self.steps is not None and len(self.steps.values) > int(self.steps.lengths.sum())

    @property
    def falls(self) -> bool:
        """Whether labels place the files, the highest first; those without any are last."""
        return bool(self.coordinate) and self.count > 1 and bool(self.names[0] > self.names[1])

    def name(self, cell: int) -> Any:
        """Return what a cell is called in messages: its first label, else its number."""
        if not len(self.names):
            return f"number {cell}"
        held = np.asarray(self.names[cell : cell + 1])
        return held[0] if self.attributes is None else show_labels(held, self.attributes)[0]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placement:
    """Where files lie along all dimensions, and the order that follows from it."""

    axes: tuple[AxisPlacement, ...]
    rows: NDArray[np.int64]  # the files in the order of the dataset; files without a cell come last
    of_groups: Mapping[tuple[str, str], AxisPlacement] = field(default_factory=dict)
    """Other cells of files, by group and dimension: those of a dimension of the group's own."""

    @classmethod
    def of(cls, axes: Sequence[AxisPlacement], files: int) -> Placement:
        """Order the files by their cells, the first dimension counting most."""
        keys = [np.where(axis.cell == NOWHERE, axis.count, axis.cell) for axis in axes]
        if len(keys) == 1 and (keys[0][1:] >= keys[0][:-1]).all():  # nothing is sorted
            keys = []
        rows = np.lexsort(keys[::-1]) if keys else np.arange(files)
        return cls(axes=tuple(axes), rows=rows.astype(np.int64, copy=False))

    def along(self, path: str, names: Sequence[str | None]) -> tuple[AxisPlacement, ...]:
        """Return where files lie along the dimensions of an array, given its path and these."""
        group = paths.parent(path)
        return tuple(
            self.of_groups.get((group, axis.dimension), axis)
            for axis in self.axes
            if axis.dimension in names
        )

    @property
    def place(self) -> NDArray[np.int64]:
        """The place of each file in the order of the dataset."""
        place = np.empty(len(self.rows), np.int64)
        place[self.rows] = np.arange(len(self.rows))
        return place

    def alike(self, other: Placement) -> bool:
        """Say whether files have equal cells, whatever these are called."""
        return (
            not (self.of_groups or other.of_groups)
            and np.array_equal(self.rows, other.rows)
            and len(self.axes) == len(other.axes)
            and all(
                (one.dimension, one.count) == (two.dimension, two.count)
                and np.array_equal(one.cell, two.cell)
                for one, two in zip(self.axes, other.axes, strict=True)
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NewDimension:
    """The labels of a new dimension, and where each file lies along it."""

    name: str
    cell: NDArray[np.int64]  # (files,)
    count: int
    values: NDArray[Any] | None  # (count,) in the order of the dataset; None: it has none
    attributes: Attributes = field(default_factory=Attributes)
    variable: str | None = None  # path of the variable that becomes its coordinate, if one does
    label_variable: str | None = None  # path of the variable that holds the labels
    is_new: bool = True  # no file has the dimension; else each has one step, and the cell may lack

    @property
    def axis(self) -> AxisPlacement:
        """The cells of the files."""
        new, named = (
            "stacked along the new dimension",
            "labels in the place of the files' own along",
        )
        return AxisPlacement(
            dimension=self.name,
            cell=self.cell,
            count=self.count,
            reason=f"{new if self.is_new else named} {self.name!r}",
            names=() if self.values is None else show_labels(self.values, self.attributes),
            is_new=self.is_new,
        )

    def take(self, rows: NDArray[np.int64]) -> NewDimension:
        """Return the dimension of some files; labels that none of them has are gone."""
        used, cell = np.unique(self.cell[rows], return_inverse=True)
        lacking = int((used == NOWHERE).sum())  # the first of them, if any file lacks the dimension
        used, cell = used[lacking:], cell.astype(np.int64) - lacking
        values = None if self.values is None else self.values[used]
        return replace(self, cell=cell, count=len(used), values=values)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CombinedVariable:
    """An array with one row per file that has it, in the order of their cells."""

    path: str
    held: NDArray[np.integer] | range  # (files,) rows of the array columns
    schema: ArraySchema  # of the first file that keeps its chunks and decodes as most values do
    sizes: NDArray[np.int64]  # (m, ndim) the shapes that occur
    size: NDArray[np.integer]  # (files,) which of them a file has
    whole: NDArray[np.bool_]  # (files,)
    whole_schema: ArraySchema | None  # of the files whose values were read
    along: tuple[AxisPlacement, ...]  # n dimensions of the array along which files are placed
    axes: tuple[int, ...]  # (n,) which axes of the array these are
    cell: NDArray[np.int64]  # (files, n) ascending
    again: NDArray[np.bool_]  # (files,) whether one before it holds the same in the same cells
    ragged: tuple[int, ...]  # axes whose lengths differ, which are padded at their ends
    full: tuple[int, ...]  # lengths of these in the dataset
    spells: bool  # whether the last axis counts the characters of texts
    alike: NDArray[np.bool_]  # (files,) whether the values mean what the schema says
    as_floats: bool  # whether it is to be stored as decoded floats

    @property
    def rows(self) -> NDArray[np.integer]:
        """Rows of the array columns, shape (files,)."""
        if not isinstance(self.held, range):
            return self.held
        narrow = np.int32 if self.held.stop <= np.iinfo(np.int32).max else np.int64
        return np.arange(self.held.start, self.held.stop, self.held.step, dtype=narrow)

    @property
    def shapes(self) -> NDArray[np.int64]:
        """The shape of each file's share, (files, ndim)."""
        shapes: NDArray[np.int64] = self.sizes[self.size]
        return shapes

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Elements of each file along the placed axes, shape (files, n)."""
        return self.along_axes(self.axes)

    def along_axes(self, axes: Sequence[int]) -> NDArray[np.int64]:
        """Return the elements of each file along some axes, shape (files, axes)."""
        lengths: NDArray[np.int64] = self.sizes[:, list(axes)][self.size]
        return lengths

    @property
    def is_incomplete(self) -> bool:
        """Whether the array has elements that no file holds, though no file is missing."""
        return bool(self.ragged) or any(axis.has_gaps for axis in self.along)
