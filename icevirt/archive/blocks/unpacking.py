"""Unpack any number of packed blocks to references at once.

An archive of small files has mostly blocks of a few references each. They are not unpacked one by
one: joined end to end as columns of bytes, a thousand of them take as long as one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.blocks.packing import Block, PackedBlock
from icevirt.errors import FormatError
from icevirt.model.chunks import ChunkType, Locations
from icevirt.model.strings import Strings, gather

COLUMNS = tuple(field.name for field in fields(PackedBlock) if field.name != "ndim")
"""Those of a packed block that are bytes."""


@dataclass(frozen=True, slots=True)
class BinaryColumn:
    """A column of bytes: those of all rows end to end, of a missing one none."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]  # (k + 1,)
    there: NDArray[np.bool_]  # (k,)

    @classmethod
    def of(cls, values: Sequence[bytes | None]) -> BinaryColumn:
        """Make a column."""
        raw = [value or b"" for value in values]
        starts = np.cumsum([0, *map(len, raw)])
        data = raw[0] if len(raw) == 1 else b"".join(raw)
        there = np.array([value is not None for value in values], np.bool_)
        return cls(np.frombuffer(data, np.uint8), starts, there)

    @classmethod
    def missing(cls, rows: int) -> BinaryColumn:
        """Return a column of which no row is there."""
        return cls(np.zeros(0, np.uint8), np.zeros(rows + 1, np.int64), np.zeros(rows, np.bool_))

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Bytes of each row."""
        return self.starts[1:] - self.starts[:-1]

    def part(self, low: int, high: int) -> BinaryColumn:
        """Return some rows."""
        first, last = self.starts[low], self.starts[high]
        return BinaryColumn(
            self.data[first:last], self.starts[low : high + 1] - first, self.there[low:high]
        )

    def numbers(self, dtype: str) -> NDArray[np.generic]:
        """Return what all rows hold as numbers."""
        if len(self.data) % np.dtype(dtype).itemsize:
            raise _cut_short(len(self.there), len(self.data))
        return self.data.view(dtype)


@dataclass(frozen=True, slots=True)
class PackedBlocks:
    """Packed blocks of one array as columns, a row each."""

    ndim: NDArray[np.int64]  # (k,)
    columns: Mapping[str, BinaryColumn]  # by the names of `COLUMNS`

    @classmethod
    def of(cls, blocks: Sequence[PackedBlock]) -> PackedBlocks:
        """Make the columns."""
        ndim = np.array([block.ndim for block in blocks], np.int64)
        columns = {
            name: BinaryColumn.of([getattr(each, name) for each in blocks]) for name in COLUMNS
        }
        return cls(ndim, columns)

    def __len__(self) -> int:
        return len(self.ndim)

    def part(self, low: int, high: int) -> PackedBlocks:
        """Return some rows."""
        if high - low == len(self):
            return self
        columns = {name: column.part(low, high) for name, column in self.columns.items()}
        return PackedBlocks(self.ndim[low:high], columns)

    def runs(self, references: int) -> Iterator[tuple[int, int]]:
        """Yield runs of blocks of as many axes that hold so many references, or are one block."""
        ends = np.cumsum(self.columns["gaps"].sizes // 8)
        low = 0
        while low < len(self):
            done = int(ends[low - 1]) if low else 0
            high = max(low + 1, int(np.searchsorted(ends, done + references, side="right")))
            other = np.flatnonzero(self.ndim[low:high] != self.ndim[low])
            high = low + int(other[0]) if len(other) else high
            yield low, high
            low = high


def unpack(packed: PackedBlock) -> Block:
    """Undo `pack`. Raises `FormatError`."""
    return unpack_all(PackedBlocks.of([packed]))


def unpack_all(
    packed: PackedBlocks,
    first: NDArray[np.int64] | None = None,
    place: NDArray[np.int32] | None = None,
) -> Block:
    """Unpack blocks of as many axes, the rows of one behind those of the other.

    Args:
        packed: The blocks.
        first: (k,) Numbers that are added to those of the files of each block.
        place: New numbers of the files, by what that makes.

    Raises:
        FormatError: The columns do not fit together.
    """
    columns, ndim = packed.columns, int(packed.ndim[0])
    files = columns["files"].numbers("<i4").astype(np.int64)
    counts = columns["counts"].numbers("<u4").astype(np.int64)
    _check_files(columns)
    if first is not None:
        files += np.repeat(first, columns["files"].sizes // 4)
    file = files.astype(np.int32) if place is None else place[files]
    n = _sums(counts, columns["counts"].starts // 4)
    length = _straight(columns["lengths"], n)
    kind = np.full(len(length), ChunkType.virtual, np.uint8)
    _spread(kind, columns["kinds"], n, "u1")
    offset = _summed(_straight(columns["gaps"], n), length, n)
    if len(columns["data"].data):
        moved = np.repeat(columns["data"].starts[:-1], n)
        offset[kind == ChunkType.inline] += moved[kind == ChunkType.inline].astype(np.uint64)
    return Block(
        file=np.repeat(file, counts),
        index=_indices(columns, counts, n, ndim),
        kind=kind,
        offset=offset,
        length=length,
        data=columns["data"].data,
        **_sources(columns, n),
    )


def _check_files(columns: Mapping[str, BinaryColumn]) -> None:
    files, counts = columns["files"].sizes, columns["counts"].sizes
    if (wrong := np.flatnonzero(files != counts)).size:
        raise FormatError(
            "a packed block of the catalog is damaged",
            do="Delete this part of the catalog and scan again.",
            files=int(files[wrong[0]]) // 4,
            counts=int(counts[wrong[0]]) // 4,
        )


def _cut_short(rows: int, size: int) -> FormatError:
    return FormatError("a packed column of the catalog is cut short", rows=rows, bytes=size)


def _sums(values: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sum of each run of values."""
    done = np.concatenate([[0], np.cumsum(values)])
    sums: NDArray[np.int64] = np.diff(done[starts])
    return sums


def _check_sizes(column: BinaryColumn, wanted: NDArray[np.int64]) -> None:
    wrong = np.flatnonzero(column.there & (column.sizes != wanted))
    if len(wrong):
        raise _cut_short(int(wanted[wrong[0]]), int(column.sizes[wrong[0]]))


def _straight(column: BinaryColumn, n: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Put the bytes of each number together again; in a block, equal bytes of all stand so.

    The upper bytes of most columns are zeros, which are not looked at one by one.
    """
    _check_sizes(column, 8 * n)
    if not column.there.all():
        raise _cut_short(int(n.sum()), len(column.data))
    out = np.zeros((len(column.data) // 8, 8), np.uint8)
    at = column.starts[:-1] // 8
    for count in np.unique(n[n > 0]).tolist():
        mine = np.flatnonzero(n == count)
        if len(mine) == len(n):
            _turn(column.data.reshape(len(n), 8, count), out.reshape(len(n), count, 8))
        else:
            raw, _ = gather(column.data, column.starts[:-1][mine], 8 * n[mine])
            rows = np.zeros((len(mine), count, 8), np.uint8)
            _turn(raw.reshape(len(mine), 8, count), rows)
            out[at[mine][:, None] + np.arange(count)] = rows
    return out.reshape(-1).view("<u8").view(np.uint64)


def _turn(turned: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    """Put bytes of a number beside each other; ``out`` is zeros."""
    for byte in range(8):
        if (column := turned[:, byte]).any():
            out[:, :, byte] = column


def _spread(
    out: NDArray[np.generic], column: BinaryColumn, n: NDArray[np.int64], dtype: str, width: int = 1
) -> None:
    """Put what the blocks that have a column hold in it into their rows."""
    if not column.there.any():
        return
    _check_sizes(column, n * width * np.dtype(dtype).itemsize)
    rows = np.repeat(column.there, n)
    out[rows] = column.numbers(dtype).reshape(np.count_nonzero(rows), *out.shape[1:])


def _summed(
    gaps: NDArray[np.uint64], length: NDArray[np.uint64], n: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Return offsets, in the place of gaps: sums of gaps and lengths, for each block anew.

    Sums wrap as they did in `pack`.
    """
    begins = (np.cumsum(n) - n)[n > 0]
    first = gaps[begins]
    gaps[1:] += length[:-1]
    gaps[begins] = first
    if len(begins) > 1:  # what a block adds up to is taken away where the next one begins
        gaps[begins[1:]] -= np.add.reduceat(gaps, begins)[:-1]
    return np.cumsum(gaps, dtype=np.uint64, out=gaps)


def _indices(
    columns: Mapping[str, BinaryColumn], counts: NDArray[np.int64], n: NDArray[np.int64], ndim: int
) -> NDArray[np.uint32]:
    """Return the indices, those of an axis side by side."""
    out = np.empty((ndim, int(n.sum())), np.uint32).T
    sparse = columns["index"].there
    _spread(out, columns["index"], n, "<u4", ndim)
    if not sparse.all():
        _fill_boxes(out, columns, counts, ndim)
    return out


def _fill_boxes(
    out: NDArray[np.uint32],
    columns: Mapping[str, BinaryColumn],
    counts: NDArray[np.int64],
    ndim: int,
) -> None:
    """Put the indices of files that fill a box into their rows."""
    files = columns["files"].sizes // 4
    dense = ~columns["index"].there
    _check_sizes(columns["boxes"], 4 * ndim * files)
    mine = np.repeat(dense, files)
    begins, raw = (np.cumsum(counts) - counts)[mine], _of_rows(columns["boxes"], dense)
    if len(raw) != 4 * ndim * len(begins):
        raise _cut_short(len(begins), len(raw))
    boxes = raw.view("<u4").reshape(len(begins), ndim)
    if (boxes.astype(np.int64).prod(axis=1) != counts[mine]).any():
        raise _cut_short(len(begins), len(raw))
    distinct, which = boxes[:1], np.zeros(len(boxes), np.intp)
    if (boxes != distinct).any():  # seldom
        distinct, which = np.unique(boxes, axis=0, return_inverse=True)
    for number, box in enumerate(distinct):
        grid = np.indices(tuple(box), np.uint32).reshape(ndim, math.prod(box.tolist()))
        if len(distinct) == 1 and len(out) == begins.size * grid[:1].size:  # as nearly always
            for own, axis in zip(out.T, grid, strict=True):
                own.reshape(len(begins), len(axis))[:] = axis
            return
        members = begins[which.reshape(-1) == number]
        out[members[:, None] + np.arange(len(grid.T))] = grid.T


def _of_rows(column: BinaryColumn, chosen: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return the bytes of some rows."""
    if chosen.all():
        return column.data
    return gather(column.data, column.starts[:-1][chosen], column.sizes[chosen])[0]


def _sources(columns: Mapping[str, BinaryColumn], n: NDArray[np.int64]) -> dict[str, Any]:
    source = np.zeros(int(n.sum()), np.uint32)
    if not columns["sources"].there.any():
        return {"source": source, "targets": Locations.none()}
    _spread(source, columns["sources"], n, "<u4")
    targets, ends = columns["targets"], np.cumsum(n)
    rows: list[tuple[str, str, int]] = []
    for block in np.flatnonzero(columns["sources"].there).tolist():
        raw = targets.data[targets.starts[block] : targets.starts[block + 1]].tobytes()
        found = json.loads(raw or b"[]")
        mine = source[ends[block] - n[block] : ends[block]]
        if int(mine.max(initial=0)) > len(found):
            raise FormatError(
                "a packed column of the catalog refers to missing targets",
                rows=int(n[block]),
            )
        mine[mine > 0] += np.uint32(len(rows))
        rows += found
    return {
        "source": source,
        "targets": Locations(
            url=Strings.of(row[0] for row in rows),
            etag=Strings.of(row[1] for row in rows),
            last_modified=np.array([row[2] for row in rows], np.uint32),
        ),
    }
