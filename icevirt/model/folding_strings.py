"""Hold columns of very many strings in compressed blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from icevirt.model.strings import ROWS_AT_ONCE, Strings

_OPEN_BLOCKS = 8  # of so many rows, that are not compressed by themselves


class FoldingStrings(Strings):
    """Strings in blocks, which are compressed where they are many, or when they are folded.

    Everybody who shares the column shares what that saves; names of files of an archive take a
    tenth or less. Blocks are opened as they are read, one at a time.
    """

    _rows: int
    _blocks: list[Strings | bytes]  # of `ROWS_AT_ONCE` rows, but for the last
    _last: tuple[int, Strings] | None  # the block that was opened last

    def __init__(self, blocks: Iterable[Strings]) -> None:
        """Take strings over, in blocks of `block_rows` but for the last."""
        vars(self).update(_rows=0, _blocks=[], _last=None)  # past those who keep the class frozen
        for each in blocks:
            self.add(each)

    block_rows = ROWS_AT_ONCE

    def add(self, block: Strings) -> None:
        """Append a block while the column is made."""
        if len(self) % self.block_rows:
            raise ValueError("only the last block may be short")
        self._blocks.append(block)
        vars(self)["_rows"] += len(block)
        if len(self._blocks) > _OPEN_BLOCKS:
            self.fold()

    def fold(self) -> None:
        """Compress what is not compressed."""
        vars(self)["_last"] = None
        at = len(self._blocks) - 1
        while at >= 0 and isinstance(self._blocks[at], Strings):
            self._blocks[at] = _folded(self._block(at))
            at -= 1

    @property
    def data(self) -> NDArray[np.uint8]:
        """All strings end to end, made each time."""
        return self.opened().data

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each string begins in `data`, made each time."""
        return self.opened().starts

    def opened(self) -> Strings:
        """Return all strings as they are when nothing is compressed."""
        return self._block(0) if len(self._blocks) == 1 else Strings.joined([*self._each()])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Bytes of each string, shape (n,)."""
        return np.concatenate([np.zeros(0, np.int64), *(each.lengths for each in self._each())])

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return sum(len(e) if isinstance(e, bytes) else e.nbytes for e in self._blocks)

    def __len__(self) -> int:
        return self._rows

    def __iter__(self) -> Iterator[str]:
        for block in self._each():
            yield from block

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FoldingStrings):
            return super().__eq__(other)
        return len(self) == len(other) and all(map(Strings.__eq__, self._each(), other._each()))

    __hash__ = None

    def __reduce__(self) -> tuple[Any, ...]:
        return FoldingStrings, ([*self._each()],)

    def begin_with(self, prefix: bytes, rows: NDArray[np.int64] | None = None) -> NDArray[np.bool_]:
        """Say of each of the rows (None: of all) whether its string begins with the prefix."""
        if rows is not None:
            return self[rows].begin_with(prefix)
        found = (each.begin_with(prefix) for each in self._each())
        return np.concatenate([np.zeros(0, np.bool_), *found])

    def hashes(self) -> NDArray[np.int64]:
        """Return a number for each row, shape (n,), that equal rows of this process share."""
        found = (each.hashes() for each in self._each())
        return np.concatenate([np.zeros(0, np.int64), *found])

    def _each(self) -> Iterator[Strings]:
        return map(self._block, range(len(self._blocks)))

    def _block(self, at: int) -> Strings:
        held = self._blocks[at]
        if isinstance(held, Strings):
            return held
        last = self._last  # read once: other threads open other blocks
        if last is None or last[0] != at:
            last = vars(self)["_last"] = (at, _unfolded(held))
        return last[1]

    def _one(self, row: int) -> str:
        return self._block(row // self.block_rows)[row % self.block_rows]

    def _gathered(self, rows: NDArray[np.int64]) -> Strings:
        block = rows // self.block_rows
        if (block[1:] < block[:-1]).any():  # each block would be opened again and again
            return self.opened()[rows]
        cuts = [0, *(np.flatnonzero(np.diff(block)) + 1).tolist(), len(rows)]
        return Strings.joined(
            [
                self._block(int(block[low]))[rows[low:high] % self.block_rows]
                for low, high in pairwise(cuts)
                if low < high
            ]
        )


def _folded(strings: Strings) -> bytes:
    raw = strings.lengths.astype(np.int32).tobytes() + strings.data.tobytes()
    return len(strings).to_bytes(4, "little") + _compressed(np.frombuffer(raw, np.uint8))


def _unfolded(folded: bytes) -> Strings:
    rows = int.from_bytes(folded[:4], "little")
    raw = np.frombuffer(zstandard.ZstdDecompressor().decompress(folded[4:]), np.uint8)
    starts = np.zeros(rows + 1, np.int64)
    np.cumsum(raw[: 4 * rows].view(np.int32), out=starts[1:])
    return Strings(raw[4 * rows :], starts)


def _compressed(column: NDArray[Any]) -> bytes:
    packed = zstandard.ZstdCompressor(level=1).compress(np.ascontiguousarray(column).data)
    # a copy: what the compressor returns keeps the room that it might have needed
    return bytes(memoryview(packed))
