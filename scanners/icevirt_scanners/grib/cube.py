"""Place the fields of a file along its dimensions.

Dimensions are those of the whole file: a variable that lacks a time, a step, a member or a level
that another one has gets no reference there, and reads as missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from icevirt_scanners.grib.products import NO_MEMBER, Products
from icevirt_scanners.grib.variables import VariableKey, Variables

TIME, STEP, NUMBER = "time", "step", "number"
_DECREASING = ("isobaricInhPa",)  # as cfgrib orders them
# layers that ecCodes counts by their lower surface: the first one is that of number 1
_BY_SECOND = ("soilLayer", "seaIceLayer", "snowLayer", "oceanModelLayer")
# units of levels that ecCodes counts in others than a message does: Pa, and units of vorticity
_SCALES = {"isobaricInhPa": 1e-2, "isobaricLayer": 1e-2, "potentialVorticity": 1e9}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LevelAxis:
    """The levels of one kind in a file, or layers between two."""

    values: NDArray[np.float64]  # of the surface that counts, or of the one that has a value
    bounds: NDArray[np.float64] | None  # (n, 2) of layers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cube:
    """The dimensions of a file beside those of its grid."""

    times: NDArray[np.int64]
    steps: NDArray[np.int64]
    members: NDArray[np.int64]
    levels: Mapping[str, LevelAxis]  # by kind
    places: NDArray[np.int32]  # (n, 4) of each field in times, steps, members and its levels

    def dimensions(self, key: VariableKey) -> tuple[str, ...]:
        """Return the dimensions of a variable before those of the grid."""
        members = (NUMBER,) if key.has_members else ()
        return (TIME, STEP, *members, *((key.type_of_level,) if key.has_levels else ()))

    def length(self, dimension: str) -> int:
        """Return how long a dimension is."""
        if dimension in (TIME, STEP, NUMBER):
            return len({TIME: self.times, STEP: self.steps, NUMBER: self.members}[dimension])
        return len(self.levels[dimension].values)

    def lengths(self) -> tuple[int, ...]:
        """Return how long all dimensions are."""
        axes = (self.times, self.steps, self.members, *(e.values for e in self.levels.values()))
        return tuple(map(len, axes))

    def index(self, key: VariableKey, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return (n, axes) the place of each field of a variable."""
        axes = [0, 1, *([2] if key.has_members else []), *([3] if key.has_levels else [])]
        return self.places[rows][:, axes].astype(np.int64)


def make_cube(variables: Variables, products: Products) -> Cube:
    """Return the dimensions that the fields of some variables need."""
    rows = variables.of >= 0
    levels = _find_levels(variables, products.level.tobytes(), products.second_level.tobytes())
    times, steps, members = (
        _number(column, among)
        for column, among in (
            (products.time, rows),
            (products.step, rows),
            (products.member, rows & (products.member != NO_MEMBER)),
        )
    )
    return Cube(
        times=times[0],
        steps=steps[0],
        members=members[0],
        levels=levels[0],
        places=np.column_stack([times[1], steps[1], members[1], levels[1]]).astype(np.int32),
    )


def _number(
    column: NDArray[np.int64], rows: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers in some rows, each once, and which of them a row has."""
    places = np.zeros(len(column), np.int64)
    mine = column[rows]
    if (mine == mine[:1]).all():  # nearly always
        return mine[:1], places
    distinct, places[rows] = np.unique(mine, return_inverse=True)
    return distinct, places


@lru_cache(64)  # files of an archive have the same ones
def _find_levels(
    variables: Variables, first: bytes, second: bytes
) -> tuple[Mapping[str, LevelAxis], NDArray[np.int64]]:
    """Return the levels of each kind, and which of them each field has."""
    surfaces = (np.frombuffer(first, np.float64), np.frombuffer(second, np.float64))
    kinds: dict[str, list[int]] = {}
    for number, key in enumerate(variables.keys):
        if key.has_levels:
            kinds.setdefault(key.type_of_level, []).append(number)
    axes, places = dict[str, LevelAxis](), np.zeros(len(variables.of), np.int64)
    for kind, held in kinds.items():
        rows = np.nonzero(np.isin(variables.of, held))[0]
        axes[kind], places[rows] = _axis(kind, *(surface[rows] for surface in surfaces))
    return axes, places


def _axis(
    kind: str, first: NDArray[np.float64], second: NDArray[np.float64]
) -> tuple[LevelAxis, NDArray[np.int64]]:
    """Return the levels of one kind, given the surfaces of its fields, and that of each field."""
    is_lone = np.isnan(first)
    pairs = np.column_stack([np.where(is_lone, second, first), np.where(is_lone, np.nan, second)])
    scale = _SCALES.get(kind, 1.0)
    pairs = pairs * scale if scale > 1 else pairs / round(1 / scale)
    # numpy sorts NaN behind all numbers, each as a value of its own
    distinct, places = np.unique(
        np.where(np.isnan(pairs), np.inf, pairs), axis=0, return_inverse=True
    )
    places = places.reshape(-1)
    if kind in _DECREASING:
        distinct, places = distinct[::-1], len(distinct) - 1 - places
    upper = np.where(np.isinf(distinct[:, 1]), np.nan, distinct[:, 1])
    bounds = None if np.isnan(upper).all() else np.column_stack([distinct[:, 0], upper])
    values = distinct[:, int(kind in _BY_SECOND and bool(np.isfinite(distinct).all()))]
    return LevelAxis(values=values, bounds=bounds), places


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
