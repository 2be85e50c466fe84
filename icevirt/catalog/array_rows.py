"""Gather the rows of arrays of a part: what files have in common is held, and encoded, once.

An archive of files of hundreds of arrays has millions of such rows, and they differ in little more
than the file and in bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from icevirt.archive import catalog

type ArrayRow = tuple[Any, ...]
"""The columns of an array but that of its file, in the order of the catalog."""

_NAMES = tuple(name for name, _ in catalog.ARRAYS)
_VIRTUAL_BYTES = _NAMES.index("virtual_bytes")


class NumberedColumn(Sequence[Any]):
    """A column of values that repeat, by their numbers.

    Args:
        values: The values, perhaps some of them twice.
        numbers: (n,) of the value in each row.
    """

    def __init__(self, values: Sequence[Any], numbers: NDArray[np.integer]) -> None:
        self.values, self.numbers = values, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> NumberedColumn: ...
    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return NumberedColumn(self.values, self.numbers[at])
        return self.values[self.numbers[at]]

    def __iter__(self) -> Iterator[Any]:
        return map(self.values.__getitem__, self.numbers.tolist())


class ArrayRows:
    """Rows of files, one file after the other."""

    def __init__(self) -> None:
        self._said: list[ArrayRow] = []
        self._files, self._counts = array("i"), array("i")  # of each run of rows
        self._numbers, self._virtual_bytes = array("i"), array("q")  # of each row

    def say(self, row: ArrayRow) -> int:
        """Take what a row says; return its number."""
        self._said.append(row)
        return len(self._said) - 1

    def add(
        self, file: int, numbers: Sequence[int], virtual_bytes: Iterable[int] | None = None
    ) -> None:
        """Add rows of a file, by the numbers of what they say, perhaps with bytes of their own."""
        self._files.append(file)
        self._counts.append(len(numbers))
        self._numbers.extend(numbers)
        if virtual_bytes is None:
            virtual_bytes = [self._said[number][_VIRTUAL_BYTES - 1] for number in numbers]
        self._virtual_bytes.extend(virtual_bytes)

    def columns(self) -> Mapping[str, Sequence[Any]]:
        """Return all rows as columns by name."""
        numbers = np.array(self._numbers, np.int32)
        runs = np.repeat(np.arange(len(self._counts)), np.array(self._counts, np.int32))
        said = zip(*self._said, strict=True) if self._said else [()] * len(_NAMES[1:])
        found = {
            name: NumberedColumn(values, numbers)
            for name, values in zip(_NAMES[1:], said, strict=True)
        }
        own = {"row": NumberedColumn(self._files, runs), "virtual_bytes": self._virtual_bytes}
        return {"row": own["row"], **found, **own}
