"""A read-only column of strings in two numpy arrays: a million URLs are not a million objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

from icevirt.model.ranges import gather

_ROWS_AT_ONCE = 1 << 14


@dataclass(frozen=True, slots=True, eq=False)
class Strings:
    """``n`` UTF-8 strings: their bytes end to end, and where each begins."""

    data: NDArray[np.uint8]  # (bytes,)
    starts: NDArray[np.int64]  # (n + 1,) row i is data[starts[i]:starts[i + 1]]

    def __post_init__(self) -> None:
        if len(self.starts) == 0 or self.starts[0] != 0 or self.starts[-1] != len(self.data):
            raise ValueError("starts do not cover the data")
        self.data.flags.writeable = False
        self.starts.flags.writeable = False

    @classmethod
    def of(cls, values: Iterable[str]) -> Strings:
        """Make a column from Python strings."""
        texts = values if isinstance(values, list | tuple) else list(values)
        starts = _starts(texts)
        data = np.empty(int(starts[-1]), np.uint8)
        for low in range(0, len(texts), _ROWS_AT_ONCE):
            joined = "".join(texts[low : low + _ROWS_AT_ONCE])
            raw = np.frombuffer(joined.encode(), np.uint8)
            if len(raw) != len(joined):  # characters are bytes, nearly always
                encoded = [text.encode() for text in texts]
                return cls(np.frombuffer(b"".join(encoded), np.uint8), _starts(encoded))
            data[starts[low] :][: len(raw)] = raw
        return cls(data, starts)

    @classmethod
    def empty(cls, n: int) -> Strings:
        """Make a column of ``n`` empty strings."""
        return cls(np.zeros(0, np.uint8), np.zeros(n + 1, np.int64))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Bytes of each string, shape (n,)."""
        return np.diff(self.starts)

    def first_bytes(self) -> NDArray[np.uint8]:
        """First byte of each string, shape (n,); 0 where it is empty."""
        first = np.zeros(len(self), np.uint8)
        rows = self.lengths > 0
        first[rows] = self.data[self.starts[:-1][rows]]
        return first

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __iter__(self) -> Iterator[str]:
        return (self[row] for row in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Strings)
            and np.array_equal(self.starts, other.starts)
            and np.array_equal(self.data, other.data)
        )

    __hash__ = None  # type: ignore[assignment]

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: NDArray[np.integer]) -> Strings: ...
    def __getitem__(self, row: int | NDArray[np.integer]) -> str | Strings:
        """Return one string, or the column of the given rows in their order."""
        if isinstance(row, np.ndarray):
            return self._take(row.astype(np.int64))
        row = int(row)
        if not 0 <= row < len(self):
            raise IndexError(row)
        return self.data[self.starts[row] : self.starts[row + 1]].tobytes().decode()

    def _take(self, rows: NDArray[np.int64]) -> Strings:
        if len(rows) == len(self) and np.array_equal(rows, np.arange(len(rows))):
            return self
        rows = np.where(rows < 0, rows + len(self), rows)
        return Strings(*gather(self.data, self.starts[rows], self.lengths[rows]))

    def __add__(self, other: Strings) -> Strings:
        return Strings(
            np.concatenate([self.data, other.data]),
            np.concatenate([self.starts, other.starts[1:] + self.starts[-1]]),
        )


def _starts(texts: Sequence[str] | Sequence[bytes]) -> NDArray[np.int64]:
    starts = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=starts[1:])
    return starts
