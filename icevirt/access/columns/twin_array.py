"""Read a selection from a variable or from its twin, whichever costs less.

The grids of both tell how many chunks a selection touches, and how many values these hold. So the
choice reads nothing, and only manifests of the chosen array are read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import zarr

from icevirt.access.columns.grid import grid_of
from icevirt.access.columns.selections import Index, OrthogonalSelection, PointSelection
from icevirt.amounts import plural, volume
from icevirt.escaping import Pictured

type Layout = Literal["auto", "own", "twin", "all"]
"""From which array the engine reads; ``all``: twins are shown as variables of their own."""

REQUEST = 1 << 20
"""Bytes of values that cost about as much as a chunk by itself: ten milliseconds at 100 MB/s."""


class SelectionCost(NamedTuple):
    """What a selection takes in one layout."""

    chunks: int  # that are read; each is a request, unless several lie together in a file
    bytes: int  # of the values in them, decoded

    @property
    def weight(self) -> int:
        """The bytes that a plan counts."""
        return self.chunks * REQUEST + self.bytes

    def __str__(self) -> str:
        return f"{plural(self.chunks, 'chunk')}, {volume(self.bytes)}"


class ReadChoice(NamedTuple):
    """From which of two arrays a selection is read, and what it takes in both."""

    variable: str
    layout: Literal["own", "twin"]
    own: SelectionCost
    twin: SelectionCost | None = None  # None: there is none, or it was left behind
    note: str = ""  # why the twin does not count

    def __repr__(self) -> str:
        other = self.note if self.twin is None else f"twin: {self.twin}"
        return f"<{self.variable} is read from {self.layout} chunks  own: {self.own}  {other}>"


class ArrayChoices(Pictured, dict[str, ReadChoice]):
    """From which array a selection of each variable is read, by its name."""


class Readable(Protocol):
    """An array whose elements can be read by index."""

    zarr: zarr.Array[Any]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def oindex(self, key: tuple[Any, ...]) -> Any:
        """Return the elements that an index along each axis selects."""

    def vindex(self, key: tuple[Any, ...]) -> Any:
        """Return the elements that arrays select together."""


class TwinnedArray:
    """A variable that has a twin: an array of the same values in other chunks.

    Args:
        own: The variable.
        twin: The twin, which is in step.
        layout: From which of them it is read.
    """

    def __init__(self, own: Readable, twin: Readable, layout: Layout) -> None:
        self.own, self.twin = own, twin
        self.zarr, self.shape, self.dtype = own.zarr, own.shape, own.dtype
        self.layout = layout

    def oindex(self, key: tuple[Any, ...]) -> Any:
        """Return the elements that an index along each axis selects, as of any array."""
        chosen = self.twin if self.choose(key).layout == "twin" else self.own
        return chosen.oindex(key)

    def vindex(self, key: tuple[Any, ...]) -> Any:
        """Return the elements that arrays select together, as of any array."""
        is_twin = self.choose(key, together=True).layout == "twin"
        return (self.twin if is_twin else self.own).vindex(key)

    def choose(self, key: Sequence[Index], *, together: bool = False) -> ReadChoice:
        """Say from which array a selection is read.

        Args:
            key: An index along each axis.
            together: Whether arrays in it select points.
        """
        own = cost_of(self.own, key, together=together)
        twin = cost_of(self.twin, key, together=together)
        is_less = twin.weight < own.weight if self.layout == "auto" else self.layout == "twin"
        return ReadChoice(f"/{self.zarr.path}", "twin" if is_less else "own", own, twin)


def cost_of(array: Readable, key: Sequence[Index], *, together: bool = False) -> SelectionCost:
    """Return what a selection of an array takes, by its grid alone. Raises ``IndexError``."""
    grid = grid_of(array.zarr)
    count = (PointSelection if together else OrthogonalSelection)(grid, key).count
    width = math.prod(axis.size or math.ceil(axis.length / axis.chunk_count) for axis in grid)
    return SelectionCost(count, count * width * array.dtype.itemsize)
