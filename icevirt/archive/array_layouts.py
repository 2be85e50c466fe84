"""Hold the arrays that a file shares with another file: all is shared but where chunks lie.

A file of GRIB has hundreds of arrays of a chunk each. What files share is described once, and the
references of all arrays are columns, one array behind the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import overload

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.scanned import ScannedArray
from icevirt.model.chunks import Locations


class ArrayLayout:
    """Arrays that files have alike; plans need no facts about their values.

    Args:
        arrays: As they are in one of the files, with virtual references into this file only.
    """

    def __init__(self, arrays: Iterable[ScannedArray]) -> None:
        self.arrays = tuple(arrays)
        counts = [len(array.references) for array in self.arrays]
        self.starts: NDArray[np.int64] = np.cumsum([0, *counts])
        self.paths = tuple(array.path for array in self.arrays)
        if any(len(array.references.inline) for array in self.arrays):
            raise ValueError("files share the layout of referenced arrays only")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaidOutArrays(Sequence[ScannedArray]):
    """The arrays of a file: some of its own, and those of a layout behind them."""

    own: tuple[ScannedArray, ...]
    layout: ArrayLayout
    offset: NDArray[np.uint64]  # (n,) of the references, array after array
    length: NDArray[np.uint64]  # (n,)
    locations: Locations  # the file

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of all arrays."""
        return (*(array.path for array in self.own), *self.layout.paths)

    def __len__(self) -> int:
        return len(self.own) + len(self.layout.arrays)

    @overload
    def __getitem__(self, at: int) -> ScannedArray: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[ScannedArray, ...]: ...
    def __getitem__(self, at: int | slice) -> ScannedArray | tuple[ScannedArray, ...]:
        places = range(len(self))[at]
        return self._array(places) if isinstance(places, int) else tuple(map(self._array, places))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def _array(self, at: int) -> ScannedArray:
        if at < len(self.own):
            return self.own[at]
        number = at - len(self.own)
        array = self.layout.arrays[number]
        mine = slice(*self.layout.starts[number : number + 2].tolist())
        table = replace(
            array.references,
            offset=self.offset[mine],
            length=self.length[mine],
            locations=self.locations,
        )
        return replace(array, references=table)


def paths_of(arrays: Sequence[ScannedArray]) -> tuple[str, ...]:
    """Return the paths of arrays; those of a layout are there already."""
    if isinstance(arrays, LaidOutArrays):
        return arrays.paths
    return tuple(array.path for array in arrays)


def own_arrays(arrays: Sequence[ScannedArray]) -> Sequence[ScannedArray]:
    """Return arrays that may have facts beside them, or be stored: those of no layout."""
    return arrays.own if isinstance(arrays, LaidOutArrays) else arrays


def locations_of(arrays: Sequence[ScannedArray]) -> Iterable[Locations]:
    """Return the locations that each array refers to; those of a layout share one."""
    more = (arrays.locations,) if isinstance(arrays, LaidOutArrays) else ()
    return chain((array.references.locations for array in own_arrays(arrays)), more)
