"""Read the bytes of a FlatBuffer as numbers of any size, from many positions at once.

Numbers must lie at multiples of their size, as FlatBuffers requires and the official reader
verifies; so rows can be picked out of a payload viewed as an array of numbers. Equally spaced
positions are a ``range``: those need no index, and only their two ends are checked.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from icevirt.wire.flatbuffer.reader import Damage
from icevirt.wire.row_order import Bytes, Places

type Where = Places | range

_ROWS_AT_ONCE = 1 << 14
_DTYPES = {size: np.dtype(f"<u{size}") for size in (1, 2, 4, 8)}


def moved(at: Where, by: int) -> Where:
    """Return all places ``by`` bytes further on."""
    if isinstance(at, range):
        return range(at.start + by, at.stop + by, at.step)
    return at + by


def array(at: Where) -> Places:
    """Return the places as an array."""
    if isinstance(at, range):
        return np.arange(at.start, at.stop, at.step, dtype=np.int64)
    return at


def condensed(at: Places) -> Where:
    """Return a range if the places are one."""
    if len(at) < 2 or (step := int(at[1] - at[0])) == 0:
        return at
    even = range(int(at[0]), int(at[0]) + step * len(at), step)
    # the last one tells most other cases apart without looking at every place
    return even if at[-1] == even[-1] and bool((np.diff(at) == step).all()) else at


class Payload:
    """A FlatBuffer that numbers and bytes can be fetched from; all of it checked."""

    def __init__(self, raw: bytes) -> None:
        self.bytes: Bytes = np.frombuffer(raw, np.uint8)
        self.size = len(raw)
        # up to three zeros behind the end, for those who read whole words of a string
        self.padded = self.bytes if self.size % 4 == 0 else np.pad(self.bytes, (0, -self.size % 4))
        self._views: dict[int, NDArray[np.unsignedinteger]] = {
            size: self.bytes[: self.size // size * size].view(dtype)
            for size, dtype in _DTYPES.items()
        }

    def numbers(self, at: Where, size: int) -> NDArray[np.unsignedinteger]:
        """Return the unsigned numbers of ``size`` bytes at the places ``at``."""
        self.check(at, size)
        self._check_aligned(at, size)
        if isinstance(at, range):
            return self._strided(at, size)
        return np.asarray(self._views[size][at >> (size.bit_length() - 1)])

    def vectors(self, at: Where, count: int) -> NDArray[np.uint32]:
        """Return ``count`` numbers of four bytes at each place, shape (n, count); not a copy."""
        self.check(at, 4 * count)
        self._check_aligned(at, 4)
        if isinstance(at, range):
            shape, strides = (len(at), count), (at.step, 4)
            found = np.ndarray(shape, "<u4", self.bytes, at.start, strides) if len(at) else None
            return np.zeros(shape, np.uint32) if found is None else found
        found = self._views[4][(at >> 2)[:, None] + np.arange(count)]
        return np.asarray(found, np.uint32)

    def _strided(self, at: range, size: int) -> NDArray[np.unsignedinteger]:
        if not at:
            return np.zeros(0, _DTYPES[size])
        return np.ndarray((len(at),), _DTYPES[size], self.bytes, at.start, (at.step,))

    def check(self, at: Where, size: int | Places) -> None:
        """Make sure that ``size`` bytes at each place are in the file."""
        if not len(at):
            return
        if isinstance(at, range) and isinstance(size, int):
            low, high = min(at[0], at[-1]), max(at[0], at[-1]) + size
        else:
            places = array(at)
            low, high = int(places.min()), int((places + size).max())
        if low < 0 or high > self.size:
            raise Damage("something points outside the file", low if low < 0 else high)

    def _check_aligned(self, at: Where, size: int) -> None:
        if not len(at):
            return
        if isinstance(at, range):
            odd = at.start % size or (len(at) > 1 and at.step % size)
        else:
            odd = size > 1 and int(np.bitwise_or.reduce(at, axis=None)) & (size - 1)
        if odd:
            raise Damage("a number is not aligned", int(at[0]))

    def targets(self, places: Where) -> Where:
        """Follow the references at ``places``."""
        distance = self.numbers(places, 4)
        if isinstance(places, range) and len(places) > 1 and bool((distance == distance[0]).all()):
            return moved(places, int(distance[0]))
        found = np.empty(len(places), np.int64)
        for low in range(0, len(places), _ROWS_AT_ONCE):
            rows = slice(low, low + _ROWS_AT_ONCE)
            np.add(array(places[rows]), distance[rows], out=found[rows])
        return condensed(found)
