"""Hold read-only columns of strings in two numpy arrays, without Python string objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, overload

import numpy as np
import zstandard
from numpy.lib.stride_tricks import as_strided, sliding_window_view
from numpy.typing import NDArray

from icevirt.model.indices import are_all

ROWS_AT_ONCE = 1 << 14
_FEW_RANGES = 16  # that are copied one by one
type Bytes = NDArray[np.uint8]
type Places = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Strings:
    """``n`` UTF-8 strings: their bytes end to end, and where each begins."""

    data: NDArray[np.uint8]  # (bytes,)
    starts: NDArray[np.int64]  # (n + 1,) row i is data[starts[i]:starts[i + 1]]

    def __post_init__(self) -> None:
        starts = self.starts
        if len(starts) == 0 or starts.item(0) != 0 or starts.item(-1) != len(self.data):
            raise ValueError("starts do not cover the data")
        self.data.setflags(write=False)
        starts.setflags(write=False)

    @classmethod
    def of(cls, values: Iterable[str]) -> Strings:
        """Make a column from Python strings."""
        texts = values if isinstance(values, list | tuple) else list(values)
        if len(texts) == 1:
            raw = np.frombuffer(texts[0].encode(), np.uint8)
            return cls(raw, np.array([0, len(raw)], np.int64))
        starts = _starts(texts)
        data = np.empty(int(starts[-1]), np.uint8)
        for low in range(0, len(texts), ROWS_AT_ONCE):
            joined = "".join(texts[low : low + ROWS_AT_ONCE])
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

    @classmethod
    def join(cls, pieces: Sequence[Strings]) -> Strings:
        """Make a column of several, one behind the other."""
        sizes = [len(piece.data) for piece in pieces]
        begins = np.cumsum([0, *sizes])
        starts = [piece.starts[1:] + at for piece, at in zip(pieces, begins[:-1], strict=True)]
        return cls(
            np.concatenate([np.zeros(0, np.uint8), *(piece.data for piece in pieces)]),
            np.concatenate([np.zeros(1, np.int64), *starts]),
        )

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Bytes of each string, shape (n,)."""
        return self.starts[1:] - self.starts[:-1]

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return self.data.nbytes + self.starts.nbytes

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __iter__(self) -> Iterator[str]:
        for low in range(0, len(self), ROWS_AT_ONCE):
            starts = self.starts[low : low + ROWS_AT_ONCE + 1].tolist()
            first = starts[0]
            held = self.data[first : starts[-1]].tobytes()
            for begin, end in pairwise(starts):
                yield held[begin - first : end - first].decode()

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
            rows = row.astype(np.int64)
            if are_all(rows, len(self)):
                return self
            return self._gather(np.where(rows < 0, rows + len(self), rows))
        row = int(row)
        if not 0 <= row < len(self):
            raise IndexError(row)
        return self._one(row)

    def _one(self, row: int) -> str:
        return self.data[self.starts[row] : self.starts[row + 1]].tobytes().decode()

    def _gather(self, rows: NDArray[np.int64]) -> Strings:
        start = self.starts[rows]
        return Strings(*gather(self.data, start, self.starts[rows + 1] - start))

    def part(self, low: int, high: int) -> Strings:
        """Return the rows from one up to another, which share their bytes with these."""
        starts = self.starts[low : high + 1]
        return Strings(self.data[starts[0] : starts[-1]], starts - starts[0])

    def begin_with(self, prefix: bytes, rows: NDArray[np.int64] | None = None) -> NDArray[np.bool_]:
        """Say of each of the rows (None: of all) whether its string begins with the prefix."""
        data, starts, size = self.data, self.starts, len(prefix)
        found = np.ones(len(self) if rows is None else len(rows), np.bool_)
        for low in range(0, len(found) if size else 0, ROWS_AT_ONCE):
            part = found[low : low + ROWS_AT_ONCE]
            some = slice(low, low + len(part)) if rows is None else rows[low : low + len(part)]
            at = starts[:-1][some]
            np.less_equal(at + size, starts[1:][some], out=part)
            if not part.all():
                at = at[part]
            if len(at):
                part[part] = _hold(data, at, prefix)
        return found

    def hashes(self) -> NDArray[np.int64]:
        """Return a number for each row, shape (n,), that equal rows of this process share."""
        found = np.empty(len(self), np.int64)
        for low in range(0, len(self), ROWS_AT_ONCE):
            some = self.starts[low : low + ROWS_AT_ONCE + 1]
            raw = self.data[some[0] : some[-1]].tobytes()
            cuts = pairwise((some - some[0]).tolist())
            found[low:][: len(some) - 1] = [hash(raw[begin:end]) for begin, end in cuts]
        return found

    def __add__(self, other: Strings) -> Strings:
        return Strings.join([self, other])


def _starts(texts: Sequence[str] | Sequence[bytes]) -> NDArray[np.int64]:
    starts = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=starts[1:])
    return starts


class StringsWithin(Strings):
    """Strings within larger data, copied out when they are used.

    The larger data is held as long as the column is. `data` and `starts` return all strings end to
    end, as of every column.
    """

    _around: NDArray[np.uint8]
    _at: NDArray[np.int32]
    _size: NDArray[np.int32]
    _whole: Strings | None

    def __init__(
        self, around: NDArray[np.uint8], at: NDArray[np.int64], size: NDArray[np.int64]
    ) -> None:
        """Take over places that were checked: all inside data of less than 2 GiB, all UTF-8."""
        vars(self).update(  # past those who keep the class frozen
            _around=around, _at=at.astype(np.int32), _size=size.astype(np.int32), _whole=None
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Strings, (self.data, self.starts)

    @property
    def data(self) -> NDArray[np.uint8]:
        """All strings end to end."""
        return self._all.data

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each string begins in `data`."""
        return self._all.starts

    @property
    def _all(self) -> Strings:
        if self._whole is None:
            vars(self)["_whole"] = self._gather(np.arange(len(self)))
        assert self._whole is not None
        return self._whole

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Bytes of each string, shape (n,)."""
        return self._size.astype(np.int64)

    @property
    def nbytes(self) -> int:
        """Memory held, what lies around the strings included."""
        whole = 0 if self._whole is None else self._whole.nbytes
        return self._around.nbytes + self._at.nbytes + self._size.nbytes + whole

    def __len__(self) -> int:
        return len(self._at)

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def _one(self, row: int) -> str:
        at = int(self._at[row])
        return self._around[at : at + int(self._size[row])].tobytes().decode()

    def _gather(self, rows: NDArray[np.int64]) -> Strings:
        at, size = self._at[rows], self._size[rows]
        return Strings(*gather(self._around, at.astype(np.int64), size.astype(np.int64)))


def copy_ranges(source: Bytes, start: Places, into: Bytes, at: Places, length: Places) -> None:
    """Copy ``source[start:start + length]`` to ``into[at:at + length]`` for every row.

    All ranges must lie inside. Rows of one length are copied together: as many steps as there are
    lengths, never as many as there are rows, and no index for each byte.
    """
    if len(length) <= _FEW_RANGES:
        for here, there, size in zip(start.tolist(), at.tolist(), length.tolist(), strict=True):
            into[there : there + size] = source[here : here + size]
        return
    if (length == length[0]).all():
        _copy_equal(source, start, into, at, int(length[0]))
        return
    order = np.argsort(length, kind="stable")
    lengths, first = np.unique(length[order], return_index=True)
    bounds = [*first.tolist(), len(order)]
    for size, low, high in zip(lengths.tolist(), bounds, bounds[1:], strict=False):
        rows = order[low:high]
        _copy_equal(source, start[rows], into, at[rows], size)


def gather(source: Bytes, start: Places, length: Places) -> tuple[Bytes, Places]:
    """Return the ranges end to end, and where each begins (one entry more than there are rows)."""
    starts = np.zeros(len(start) + 1, np.int64)
    np.cumsum(length, out=starts[1:])
    data = np.empty(int(starts[-1]), np.uint8)
    copy_ranges(source, start, data, starts[:-1], length)
    return data, starts


def _copy_equal(source: Bytes, start: Places, into: Bytes, at: Places, size: int) -> None:
    if not size:
        return
    here, there = _step(start), _step(at)
    if here is not None and there is not None:  # evenly spaced on both sides: no index at all
        shape = (len(start), size)
        rows = as_strided(source[int(start[0]) :], shape, (here, 1), writeable=False)
        as_strided(into[int(at[0]) :], shape, (there, 1))[:] = rows
        return
    windows = sliding_window_view(into, size, writeable=True)
    windows[at] = sliding_window_view(source, size)[start]


def bytes_at(data: Bytes, at: Places, size: int) -> Bytes:
    """Return ``size`` bytes from each place on, shape (n, size); all of them must lie inside."""
    step = _step(at)
    if step is None:
        return sliding_window_view(data, size)[at]
    return as_strided(data[int(at[0]) :], (len(at), size), (step, 1), writeable=False)


def _hold(data: Bytes, at: Places, wanted: bytes) -> NDArray[np.bool_]:
    """Say of each place whether these bytes stand there; all of them must lie inside."""
    size, rows = len(wanted), bytes_at(data, at, len(wanted))
    width = next(each for each in (8, 4, 2, 1) if each <= size)
    found = np.ones(len(at), np.bool_)
    for low in (*range(0, size - width, width), size - width):  # the last may overlap
        word = np.frombuffer(wanted[low : low + width], f"u{width}")
        found &= (rows[:, low : low + width].view(word.dtype) == word)[:, 0]
    return found


def _step(places: Places) -> int | None:
    """Return the one distance between neighbours, or None; backward ones count as none."""
    if len(places) < 2:
        return 0
    step = int(places[1] - places[0])
    # the last one decides most other cases without looking at every place
    if step < 0 or int(places[-1] - places[0]) != step * (len(places) - 1):
        return None
    return step if bool((places[1:] - places[:-1] == step).all()) else None


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
            self._blocks[at] = _fold(self._block(at))
            at -= 1

    @property
    def data(self) -> NDArray[np.uint8]:
        """All strings end to end, made each time."""
        return self.open_all().data

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each string begins in `data`, made each time."""
        return self.open_all().starts

    def open_all(self) -> Strings:
        """Return all strings as they are when nothing is compressed."""
        return self._block(0) if len(self._blocks) == 1 else Strings.join([*self._each()])

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
            last = vars(self)["_last"] = (at, _unfold(held))
        return last[1]

    def _one(self, row: int) -> str:
        return self._block(row // self.block_rows)[row % self.block_rows]

    def _gather(self, rows: NDArray[np.int64]) -> Strings:
        block = rows // self.block_rows
        if (block[1:] < block[:-1]).any():  # each block would be opened again and again
            return self.open_all()[rows]
        cuts = [0, *(np.flatnonzero(np.diff(block)) + 1).tolist(), len(rows)]
        return Strings.join(
            [
                self._block(int(block[low]))[rows[low:high] % self.block_rows]
                for low, high in pairwise(cuts)
                if low < high
            ]
        )


def _fold(strings: Strings) -> bytes:
    raw = strings.lengths.astype(np.int32).tobytes() + strings.data.tobytes()
    packed = zstandard.ZstdCompressor(level=1).compress(raw)
    # joined, which copies: what the compressor returns keeps the room that it might have needed
    return b"".join((len(strings).to_bytes(4, "little"), packed))


def _unfold(folded: bytes) -> Strings:
    rows = int.from_bytes(folded[:4], "little")
    raw = np.frombuffer(zstandard.ZstdDecompressor().decompress(folded[4:]), np.uint8)
    starts = np.zeros(rows + 1, np.int64)
    np.cumsum(raw[: 4 * rows].view(np.int32), out=starts[1:])
    return Strings(raw[4 * rows :], starts)
