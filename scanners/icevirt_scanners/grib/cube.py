"""Place the fields of a file along its dimensions.

Dimensions are those of the whole file: a variable that lacks a time, a step, a member or a level
that another one has gets no reference there, and reads as missing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from icevirt_scanners.grib.products import NO_MEMBER, Products
from icevirt_scanners.grib.variables import VariableKey, Variables

TIME, STEP, NUMBER = "time", "step", "number"
_DECREASING = ("isobaricInhPa",)  # as cfgrib orders them
# units of levels that ecCodes counts in others than a message does: Pa, and units of vorticity
_SCALES = {"isobaricInhPa": 1e-2, "isobaricLayer": 1e-2, "potentialVorticity": 1e9}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LevelAxis:
    """The levels of one kind in a file, or layers between two."""

    values: NDArray[np.float64]  # of the first surface; of the second one if the first has none
    bounds: NDArray[np.float64] | None  # (n, 2) of layers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cube:
    """The dimensions of a file beside those of its grid."""

    times: NDArray[np.int64]
    steps: NDArray[np.int64]
    members: NDArray[np.int64]
    levels: dict[str, LevelAxis]  # by kind

    def dimensions(self, key: VariableKey) -> tuple[str, ...]:
        """Return the dimensions of a variable before those of the grid."""
        members = (NUMBER,) if key.has_members else ()
        return (TIME, STEP, *members, *((key.type_of_level,) if key.has_levels else ()))

    def length(self, dimension: str) -> int:
        """Return how long a dimension is."""
        if dimension in (TIME, STEP, NUMBER):
            return len({TIME: self.times, STEP: self.steps, NUMBER: self.members}[dimension])
        return len(self.levels[dimension].values)

    def index(
        self, key: VariableKey, rows: NDArray[np.int64], products: Products
    ) -> NDArray[np.int64]:
        """Return (n, axes) the place of each field of a variable."""
        columns = [
            np.searchsorted(self.times, products.time[rows]),
            np.searchsorted(self.steps, products.step[rows]),
        ]
        if key.has_members:
            columns.append(np.searchsorted(self.members, products.member[rows]))
        if key.has_levels:
            axis = self.levels[key.type_of_level]
            columns.append(_level_index(axis, _levels(key.type_of_level, rows, products)))
        return np.column_stack(columns).astype(np.int64)


def make_cube(variables: Variables, products: Products) -> Cube:
    """Return the dimensions that the fields of some variables need."""
    rows = variables.of >= 0
    kinds: dict[str, list[int]] = {}
    for number, key in enumerate(variables.keys):
        if key.has_levels:
            kinds.setdefault(key.type_of_level, []).append(number)
    return Cube(
        times=np.unique(products.time[rows]),
        steps=np.unique(products.step[rows]),
        members=np.unique(products.member[rows & (products.member != NO_MEMBER)]),
        levels={
            kind: _axis(kind, np.nonzero(np.isin(variables.of, held))[0], products)
            for kind, held in kinds.items()
        },
    )


def _levels(kind: str, rows: NDArray[np.int64], products: Products) -> NDArray[np.float64]:
    """Return (n, 2) the surfaces of fields, the second one NaN where there is but one."""
    first, second = products.level[rows], products.second_level[rows]
    is_lone = np.isnan(first)
    pairs = np.column_stack([np.where(is_lone, second, first), np.where(is_lone, np.nan, second)])
    scale = _SCALES.get(kind, 1.0)
    return pairs * scale if scale > 1 else pairs / round(1 / scale)


def _axis(kind: str, rows: NDArray[np.int64], products: Products) -> LevelAxis:
    # numpy sorts NaN behind all numbers, each as a value of its own
    pairs = _sortable(_levels(kind, rows, products))
    distinct = np.unique(pairs, axis=0)
    if kind in _DECREASING:
        distinct = distinct[::-1]
    second = np.where(np.isinf(distinct[:, 1]), np.nan, distinct[:, 1])
    bounds = None if np.isnan(second).all() else np.column_stack([distinct[:, 0], second])
    return LevelAxis(values=distinct[:, 0], bounds=bounds)


def _sortable(pairs: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isnan(pairs), np.inf, pairs)


def _level_index(axis: LevelAxis, pairs: NDArray[np.float64]) -> NDArray[np.int64]:
    if axis.bounds is None:  # in order, one way or the other
        is_falling = axis.values[-1] < axis.values[0]
        at = np.searchsorted(axis.values[::-1] if is_falling else axis.values, pairs[:, 0])
        return len(axis.values) - 1 - at if is_falling else at
    held = np.column_stack([axis.values, axis.bounds[:, 1]])
    places = {pair: at for at, pair in enumerate(map(tuple, _sortable(held).tolist()))}
    distinct, number = np.unique(_sortable(pairs), axis=0, return_inverse=True)
    found = np.array([places[pair] for pair in map(tuple, distinct.tolist())], np.int64)
    return found[number.reshape(-1)]


def find_repeated(index: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return pairs of rows that have one place: the first, and each later one."""
    order = np.lexsort(index.T[::-1])
    same = (index[order][1:] == index[order][:-1]).all(axis=1)
    pairs: list[tuple[int, int]] = []
    first = 0
    for at in np.nonzero(same)[0].tolist():  # few: usually there are none
        first = first if at and same[at - 1] else int(order[at])
        pairs.append((first, int(order[at + 1])))
    return pairs
