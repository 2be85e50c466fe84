"""Put the references of blocks where the plan puts their files: the columns of one chunk table.

Each block is placed once, while it is in the processor's cache, into the columns that the manifest
is written from. A window is never in memory as blocks and as a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.blocks.cutting import part_of
from icevirt.archive.blocks.packing import Block
from icevirt.archive.plan import WindowTask
from icevirt.catalog.task_inputs import TaskFiles
from icevirt.errors import FormatError
from icevirt.model.chunks import ChunkTable, ChunkType, Locations
from icevirt.wire.header import empty_bytes

_MOST_AHEAD = 1 << 20  # rows that there is room for before they are known


@dataclass(frozen=True, slots=True)
class _Columns:
    """Room for references; the columns are those of a chunk table."""

    offset: NDArray[np.uint64]  # (rows,)
    length: NDArray[np.uint64]  # (rows,)
    index: NDArray[np.uint32]  # (ndim, rows)
    source: NDArray[np.uint32]  # (rows,)
    kind: NDArray[np.uint8]  # (rows,)

    @classmethod
    def of(cls, rows: int, ndim: int) -> Self:
        sizes = [8 * rows, 8 * rows, 4 * ndim * rows, 4 * rows, rows]
        ends = np.cumsum(sizes)
        raw = np.split(empty_bytes(int(ends[-1])), ends[:-1])  # one piece, which is used again
        offset, length = (each.view(np.uint64) for each in raw[:2])
        index, source = (each.view(np.uint32) for each in raw[2:4])
        return cls(offset, length, index.reshape(ndim, rows), source, raw[4])

    def rows(self, low: int, high: int) -> _Columns:
        """Return some rows, which share their memory with these."""
        return _Columns(
            self.offset[low:high],
            self.length[low:high],
            self.index[:, low:high],
            self.source[low:high],
            self.kind[low:high],
        )

    def grown(self, rows: int, used: int) -> _Columns:
        """Return more room, with the rows that are used."""
        more = _Columns.of(rows, len(self.index))
        for name in self.__slots__:
            getattr(more, name)[..., :used] = getattr(self, name)[..., :used]
        return more


class WindowColumns:
    """The references of a window, as their blocks come.

    Args:
        files: Of the item.
        window: Of one array.
    """

    def __init__(self, files: TaskFiles, window: WindowTask) -> None:
        self._files, self._window = files, window
        self._ndim, self._used = len(window.chunk_shape), 0
        self._room = _Columns.of(0, self._ndim)
        self._steps: dict[tuple[int, bool], NDArray[np.uint32] | None] = {}
        self._sizes = np.zeros(0, np.uint64)  # of the files, once they are needed
        self._least = -1  # of these sizes
        self._occurs = np.zeros(len(files), np.bool_)
        self._targets = Locations.none()
        self._data: list[NDArray[np.uint8]] = []  # of inline rows
        self._stored = 0  # bytes of it

    def add(self, block: Block) -> None:
        """Put the references of a block in their places.

        Raises:
            FormatError: The catalog has references that no scan would find.
        """
        if not len(block):
            return
        self._refuse_astray(block)
        block, stretched = self._stretched(block)
        edges = np.flatnonzero(block.file[1:] != block.file[:-1]) + 1
        first = np.concatenate([[0], edges])[: len(block)]
        files, counts = block.file[first], np.diff(np.append(first, len(block)))
        rows = self._more(len(block), len(files))
        rows.offset[:], rows.length[:], rows.kind[:] = block.offset, block.length, block.kind
        if len(block.data):
            rows.offset[block.kind == ChunkType.inline] += np.uint64(self._stored)
            self._data.append(block.data)
            self._stored += len(block.data)
        self._put_sources(rows.source, block, files)
        given = self._ndim - block.index.shape[1]  # new axes, before those of the file
        for axis, out in enumerate(rows.index):
            if axis in stretched:
                out[:] = stretched[axis]
                continue
            out[:] = block.index[:, axis - given] if axis >= given else 0
            steps = self._step(axis, of_file=axis >= given)
            if steps is not None:  # sums wrap, and no chunk lies before the first
                np.add(out, np.repeat(steps[files], counts), out=out)

    def table(self) -> ChunkTable:
        """Return the references, sorted."""
        rows, count = self._room.rows(0, self._used), len(self._files)
        used, source = np.flatnonzero(self._occurs), rows.source
        if len(used) < len(self._occurs):
            source = (np.cumsum(self._occurs) - 1).astype(np.uint32)[source]
        if self._used and (other := rows.kind != ChunkType.virtual).any():
            source[other] = 0
        own = used < count
        targets = self._targets.take(used[~own] - count)
        return ChunkTable(
            index=rows.index.T,
            kind=rows.kind,
            source=source,
            offset=rows.offset,
            length=rows.length,
            locations=self._locations(used[own], targets),
            inline=np.concatenate([np.zeros(0, np.uint8), *self._data]),
        ).sorted()

    def _more(self, count: int, files: int) -> _Columns:
        """Return room for more rows, which are references of so many files."""
        begin, self._used = self._used, self._used + count
        if self._used > len(self._room.kind):
            ahead = count * (int(np.count_nonzero(self._window.takes)) // files + 1)
            rows = max(begin + begin // 2, min(ahead, _MOST_AHEAD), self._used)
            self._room = self._room.grown(rows, begin)
        return self._room.rows(begin, self._used)

    # -- places ------------------------------------------------------------------------------------

    def _step(self, axis: int, *, of_file: bool) -> NDArray[np.uint32] | None:
        """Return the number of the first chunk of each file along an axis, None if all are 0."""
        if (axis, of_file) not in self._steps:
            begin = self._begins(axis, of_file=of_file)
            self._steps[axis, of_file] = begin.astype(np.uint32) if begin.any() else None
        return self._steps[axis, of_file]

    def _begins(self, axis: int, *, of_file: bool) -> NDArray[np.int64]:
        window = self._window
        if axis not in window.axes:
            return np.zeros(0, np.int64)
        at = window.axes.index(axis)
        begin = window.grids[axis].chunk_at(window.starts[:, at])
        if of_file and (own := window.chunks_of_files(at)) is not None:
            begin = begin - own[0]
        return begin

    def _stretched(self, block: Block) -> tuple[Block, dict[int, NDArray[np.integer]]]:
        """Return a chunk for every step of its file along dimensions that its variable lacks.

        Returns:
            They, and where they lie along these axes.
        """
        window, found = self._window, dict[int, NDArray[np.integer]]()
        given = self._ndim - block.index.shape[1]
        for at, axis in enumerate(window.axes):
            if axis >= given or ((times := window.lengths[block.file, at]) == 1).all():
                continue
            # a file may have millions of steps, of which a window has a few
            low, high = window.box[axis] if window.box else (0, window.shape[axis])
            begins = window.grids[axis].chunk_at(window.starts[:, at])[block.file]
            first = np.maximum(begins, low)
            times = np.maximum(np.minimum(begins + times, high) - first, 0)
            rows = np.repeat(np.arange(len(block)), times)
            found = {each: places[rows] for each, places in found.items()}
            found[axis] = first[rows] + np.arange(len(rows)) - (np.cumsum(times) - times)[rows]
            block = part_of(block, rows, block.file[rows])
        return block, found

    # -- locations ---------------------------------------------------------------------------------

    def _put_sources(
        self, out: NDArray[np.uint32], block: Block, files: NDArray[np.integer]
    ) -> None:
        """Number locations: files first, then what else references lead to."""
        out[:] = block.file
        if not len(block.targets):
            self._occurs[files] = True
            return
        target = block.source > 0
        out[target] = block.source[target] + np.uint32(len(self._occurs) - 1)
        self._occurs = np.append(self._occurs, np.zeros(len(block.targets), np.bool_))
        self._occurs[out] = True
        self._targets += block.targets

    def _locations(self, rows: NDArray[np.int64], targets: Locations) -> Locations:
        """Return files with the checksum of their scan, in whole seconds rounded up, and others."""
        if not len(rows):
            return targets
        named = self._files.named()
        etag = named.etag[rows]
        seconds = -(-named.last_modified[rows] // 1_000_000_000)
        own = Locations(
            url=named.url[rows],
            etag=etag,
            last_modified=np.where(etag.lengths > 0, 0, seconds).astype(np.uint32),
        )
        return own + targets if len(targets) else own

    def _refuse_astray(self, block: Block) -> None:
        """Refuse references that lead out of their files to where they may not.

        Raises:
            FormatError: The catalog has references that no scan would find.
        """
        beyond = self._beyond(block)
        row = int(beyond[0]) if len(beyond) else -1
        if len(block.targets):
            there = np.zeros(len(block.targets), np.bool_)
            for prefix in self._files.led:
                there |= block.targets.url.begin_with(prefix.encode())
            if len(astray := np.flatnonzero(~there)):
                found = np.flatnonzero(block.source == astray[0] + 1)
                row = int(found[0]) if len(found) else row
        if row >= 0:
            place = int(block.file[row])
            raise FormatError(
                "a reference points beyond the end of its file, or to another file",
                do=self._files.remedy(place),
                file=self._files.url(place),
                offset=int(block.offset[row]),
                length=int(block.length[row]),
            )

    def _beyond(self, block: Block) -> NDArray[np.int64]:
        """Return the references into the files themselves that end behind their file."""
        if self._least < 0:
            self._sizes = self._files.named().size.astype(np.uint64)
            self._least = int(self._sizes.min())
        end = block.offset + block.length
        wrapped = end < block.offset
        if not wrapped.any() and int(end.max()) <= self._least:
            return np.zeros(0, np.int64)
        own = (block.kind == ChunkType.virtual) & (block.source == 0)
        return np.flatnonzero(own & (wrapped | (end > self._sizes[block.file])))
