"""Read the metadata of a file in few stretches, and cut out what is compared and what is taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import NamedTuple

from icevirt_scanners.hdf5.raw.space import PAGE, Place, Space, require


class Stretch(NamedTuple):
    """Bytes that are read at once: pieces, which are compared, and blocks, which are taken."""

    address: int
    length: int
    cut: Callable[[bytes], tuple[bytes, ...]]  # returns the pieces, then the blocks
    pieces: tuple[bytes, ...]

    @classmethod
    def of(cls, pieces: Sequence[Place], blocks: Sequence[tuple[int, int]]) -> Stretch:
        """Return the stretch of pieces, and of blocks by address and length."""
        parts = [*((address, len(data)) for address, data in pieces), *blocks]
        begin = min(address for address, _ in parts)
        slices = [slice(at - begin, at - begin + length) for at, length in parts]
        return cls(
            address=begin,
            length=max(each.stop for each in slices),
            cut=itemgetter(*slices, slice(0, 0)),  # of one it would return no tuple
            pieces=tuple(data for _, data in pieces),
        )

    def blocks(self, space: Space) -> tuple[bytes, ...]:
        """Return the blocks of a file. Raises `NotUnderstoodError` where it has other pieces."""
        found = self.cut(space.at_most(self.address, self.length))
        count = len(self.pieces)
        require(found[:count] == self.pieces, "other metadata")
        return found[count:-1]


def stretches_of(
    pieces: Sequence[Place], holes: Sequence[tuple[int, Place] | None]
) -> tuple[tuple[Stretch, ...], tuple[int, ...]]:
    """Return what is read at once, and the numbers of the datasets whose blocks are taken."""
    blocks = [
        (address, len(data), number)
        for number, (_, (address, data)) in (
            (number, hole) for number, hole in enumerate(holes) if hole is not None
        )
    ]
    parts: dict[int, tuple[list[Place], list[tuple[int, int, int]]]] = {}
    for address, data in pieces:
        parts.setdefault(_page(address, len(data)), ([], []))[0].append((address, data))
    for block in blocks:
        parts.setdefault(_page(*block[:2]), ([], []))[1].append(block)
    stretches = [Stretch.of(some, [each[:2] for each in taken]) for some, taken in parts.values()]
    return tuple(stretches), tuple(each[2] for _, taken in parts.values() for each in taken)


def _page(address: int, length: int) -> int:
    """Return the number of the page that holds a block; others are read by themselves."""
    number = address // PAGE
    return number if (address + length - 1) // PAGE == number else -1 - address
