"""Hold where the points of a grid are: dimensions, coordinates, grid mapping."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

type Degrees = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Axis:
    """A coordinate of one dimension."""

    values: NDArray[np.float64]
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grid:
    """A grid of points; the first axis is the one whose number changes slowest in a message."""

    kind: str  # ecCodes' gridType
    dimensions: tuple[str, ...]
    axes: Mapping[str, Axis]
    points: int = 0  # of a grid without rows or columns
    number: int = 0  # which other grids without rows or columns do not have
    mapping: Mapping[str, Any] = field(default_factory=dict)  # CF's, with grid_mapping_name
    places: tuple[Degrees, Degrees] | None = None  # of all points, where they were computed
    is_located: bool = False  # whether the codec computes the places of all points
    is_relative: bool = False  # whether winds are relative to the grid
    is_alternating: bool = False  # whether every second row of a message is reversed

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of its dimensions."""
        if self.points:
            return (self.points,)
        return tuple(len(self.axes[name].values) for name in self.dimensions)


DEGREES = {
    "latitude": {"units": "degrees_north", "standard_name": "latitude", "long_name": "latitude"},
    "longitude": {"units": "degrees_east", "standard_name": "longitude", "long_name": "longitude"},
}
"""Attributes of places."""
