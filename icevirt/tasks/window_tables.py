"""Collect the chunks of one window: references of its files, and values that the scan read.

References move to where the plan puts their files: each block once, while it is in the processor's
cache, into the columns that the manifest is written from. Values are joined and encoded again,
where files hold pieces of one chunk.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.blocks.cutting import join, part_of
from icevirt.archive.blocks.packing import Block
from icevirt.archive.plan import ArrayMode, WindowTask
from icevirt.archive.schema import ArraySchema
from icevirt.catalog.parquet import naming
from icevirt.catalog.task_inputs import TaskFiles, WindowBlocks
from icevirt.errors import CombineError, FormatError
from icevirt.model.chunks import ChunkTable, ChunkType, Locations
from icevirt.model.indices import inside
from icevirt.model.strings import Strings, copy_ranges
from icevirt.planning.equality import first_difference, same_values
from icevirt.planning.remedies import drop_window_fix
from icevirt.planning.times.recoding import recode_values
from icevirt.remedy_notation import write_code, write_remedy
from icevirt.tasks.chunk_encoding import decode_whole, encode_chunks, fill_of, plain_dtype
from icevirt.tasks.shuffle import Bound, bounds_of, within
from icevirt.wire.header import empty_bytes

_FEW = 64  # URLs that Python compares faster
_TOGETHER = 4096  # chunks of a window up to which others are collected with it
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
        return _Columns(*(getattr(self, name)[..., low:high] for name in self.__slots__))


@lru_cache(64)
def _no_room(ndim: int) -> _Columns:
    return _Columns.of(0, ndim)


class WindowColumns:
    """The references of a window, as their blocks come.

    Args:
        files: Of the item.
        window: Of one array.
    """

    def __init__(self, files: TaskFiles, window: WindowTask) -> None:
        self._files, self._window = files, window
        self._ndim, self._used = len(window.chunk_shape), 0
        self._room = _no_room(self._ndim)
        self._first: Block | None = None  # until there is another one
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
        if not self._used and self._first is None:
            self._first = block
            return
        self._put_first()
        self._put(block)

    def _put_first(self) -> None:
        if self._first is not None:
            block, self._first = self._first, None
            self._put(block)

    def _put(self, block: Block) -> None:
        block, stretched = self._stretch(block)
        edges = np.flatnonzero(block.file[1:] != block.file[:-1]) + 1
        first = np.concatenate([[0], edges])[: len(block)]
        files, counts = block.file[first], np.diff(np.append(first, len(block)))
        rows = self._more(len(block), len(files))
        rows.offset[:], rows.length[:], rows.kind[:] = block.offset, block.length, block.kind
        if len(block.data):
            rows.offset[block.kind == ChunkType.inline] += np.uint64(self._stored)
            self._data.append(block.data)
            self._stored += len(block.data)
        rows.source[:] = block.file  # locations: files first, then what else references lead to
        if len(block.targets):
            target = block.source > 0
            rows.source[target] = block.source[target] + np.uint32(len(self._occurs) - 1)
            self._occurs = np.append(self._occurs, np.zeros(len(block.targets), np.bool_))
            self._occurs[rows.source] = True
            self._targets += block.targets
        else:
            self._occurs[files] = True
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
        return self.unsorted().sort()

    def unsorted(self) -> ChunkTable:
        """Return the references as they came."""
        if self._first is not None and (alone := self._alone(self._first)) is not None:
            return alone
        self._put_first()
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
        )

    def _alone(self, block: Block) -> ChunkTable | None:
        """Return the only block as a table if nothing of it moves: objects of a store.

        A plate has thousands of arrays of a few chunks, each with its own object.
        """
        count = len(block)
        if self._window.axes or block.index.shape[1] != self._ndim or len(block.targets) != count:
            return None
        if len(block.data) or not np.array_equal(block.source, np.arange(1, count + 1)):
            return None
        return ChunkTable(
            index=block.index,
            kind=block.kind,
            source=block.source - np.uint32(1),
            offset=block.offset,
            length=block.length,
            locations=block.targets,
        )

    def _more(self, count: int, files: int) -> _Columns:
        """Return room for more rows, which are references of so many files."""
        begin, self._used = self._used, self._used + count
        if self._used > len(self._room.kind):
            ahead = count * (int(np.count_nonzero(self._window.takes)) // files + 1)
            rows = max(begin + begin // 2, min(ahead, _MOST_AHEAD), self._used)
            room, self._room = self._room, _Columns.of(rows, self._ndim)
            for name in room.__slots__:
                getattr(self._room, name)[..., :begin] = getattr(room, name)[..., :begin]
        return self._room.rows(begin, self._used)

    def _step(self, axis: int, *, of_file: bool) -> NDArray[np.uint32] | None:
        """Return the number of the first chunk of each file along an axis, None if all are 0."""
        window = self._window
        if axis in window.axes and (axis, of_file) not in self._steps:
            at = window.axes.index(axis)
            begin = window.grids[axis].chunk_at(window.starts[:, at])
            if of_file and (own := window.chunks_of_files(at)) is not None:
                begin = begin - own[0]
            self._steps[axis, of_file] = begin.astype(np.uint32) if begin.any() else None
        return self._steps.get((axis, of_file))

    def _stretch(self, block: Block) -> tuple[Block, dict[int, NDArray[np.integer]]]:
        """Return a chunk for each step along dimensions that its variable lacks, and its places."""
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

    def _locations(self, rows: NDArray[np.int64], targets: Locations) -> Locations:
        """Return files with the checksum of their scan, in whole seconds rounded up, and others."""
        if not len(rows):
            return targets
        named = self._files.name_files()
        etag = named.etag[rows]
        seconds = -(-named.last_modified[rows] // 1_000_000_000)
        own = Locations(
            url=named.url[rows],
            etag=etag,
            last_modified=np.where(etag.lengths > 0, 0, seconds).astype(np.uint32),
        )
        return own + targets if len(targets) else own

    def _refuse_astray(self, block: Block) -> None:
        """Refuse references that lead out of their files to where they may not."""
        beyond = self._beyond(block)
        row = int(beyond[0]) if len(beyond) else -1
        if len(block.targets):
            there = self._are_led(block.targets.url)
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

    def _are_led(self, urls: Strings) -> NDArray[np.bool_]:
        """Say which places references of the files may lead to."""
        if len(urls) <= _FEW:
            prefixes = tuple(self._files.led)
            return np.array([url.startswith(prefixes) for url in urls], np.bool_)
        there = np.zeros(len(urls), np.bool_)
        for prefix in self._files.led:
            there |= urls.begin_with(prefix.encode())
        return there

    def _beyond(self, block: Block) -> NDArray[np.int64]:
        """Return the references into the files themselves that end behind their file."""
        if self._least < 0:
            self._sizes = self._files.name_files().size.astype(np.uint64)
            self._least = int(self._sizes.min())
        end = block.offset + block.length
        wrapped = end < block.offset
        if not wrapped.any() and int(end.max()) <= self._least:
            return np.zeros(0, np.int64)
        own = (block.kind == ChunkType.virtual) & (block.source == 0)
        return np.flatnonzero(own & (wrapped | (end > self._sizes[block.file])))


def window_table(
    refs: WindowBlocks, files: TaskFiles, window: WindowTask
) -> tuple[ChunkTable, int]:
    """Collect the references of a window: virtual and inline rows.

    Returns:
        They, and how many others there are of steps that do not count.

    Raises:
        FormatError: A value-bearing chunk of the plan is not there.
    """
    if window.values is not None or window.mode is ArrayMode.join:
        values = join_values(refs, files, window) if window.values is None else window.values
        if values is None:
            return ChunkTable.empty(len(window.chunk_shape)), 0
        return _clip(_encode(window, values), window), 0
    columns, encoded, dropped = WindowColumns(files, window), list[ChunkTable](), 0
    bounds = bounds_of(window, np.arange(len(files)))
    for found in refs.of(files.rows, window, window.takes):
        for block in _inside(found, bounds):
            with naming(files.rows.parts):
                kept = _some(block, _counts(window, block))
                dropped += len(block) - len(kept)
                if not window.direct and (whole := window.whole[kept.file]).any():
                    encoded += [
                        _encode(window, _decode(window, kept, row), int(kept.file[row]))
                        for row in np.flatnonzero(whole).tolist()
                    ]
                    kept = _some(kept, ~whole)
                columns.add(kept)
    with naming(files.rows.parts):
        table = ChunkTable.concatenate([*encoded, columns.table()])
        return _clip(table, window), dropped


def group_alike(windows: Iterable[WindowTask]) -> list[list[WindowTask]]:
    """Return windows, those together whose references move to the same places."""
    groups: dict[tuple[Any, ...], list[WindowTask]] = {}
    for window in windows:
        made = (window.hybrid, window.times, window.values, window.skips)
        chunks = math.prod(high - low for low, high in window.box)
        key: tuple[Any, ...] = (id(window),)
        is_plain = window.mode is not ArrayMode.join and not window.reads and made == (None,) * 4
        if is_plain and chunks <= _TOGETHER and not window.whole.any():
            columns = (window.takes, window.starts, window.lengths)  # which equal ones share
            where = (window.mode, window.axes, window.box, window.chunk_shape, window.shape)
            key = (*map(id, columns), *where)
        groups.setdefault(key, []).append(window)
    return list(groups.values())


def alike_tables(
    refs: WindowBlocks, files: TaskFiles, windows: Sequence[WindowTask]
) -> tuple[ChunkTable, list[int]] | None:
    """Collect the references of windows that `group_alike` put together.

    Returns:
        The references of all, end to end, and where those of each begin, and the last end; None
        where they do not come as plainly as that.

    Raises:
        FormatError: The catalog has references that no scan would find.
    """
    first, found, ends = windows[0], list[Block](), [0]
    for window in windows:
        blocks = [*refs.of(files.rows, window, first.takes)]
        found += blocks
        ends.append(ends[-1] + sum(map(len, blocks)))
    ndim = len(first.chunk_shape)
    if not found or any(
        block.index.shape[1] != ndim or len(block.data) or len(block.targets) for block in found
    ):
        return None
    with naming(files.rows.parts):
        block = join(found)
        if not all(bound.covers(block) for bound in bounds_of(first, np.arange(len(files)))):
            return None
        columns = WindowColumns(files, first)
        columns.add(block)
        return columns.unsorted(), ends


def _some(block: Block, chosen: NDArray[np.bool_]) -> Block:
    rows = np.flatnonzero(chosen)
    return block if len(rows) == len(block) else part_of(block, rows, block.file[rows])


def _counts(window: WindowTask, block: Block) -> NDArray[np.bool_]:
    """Say which chunks count; values that the scan read count in part."""
    good = np.ones(len(block), np.bool_)
    if window.skips is None:
        return good
    given = len(window.chunk_shape) - block.index.shape[1]
    for at, axis in enumerate(window.axes):
        if axis >= given and (own := window.chunks_of_files(at)) is not None:
            index = block.index[:, axis - given].astype(np.int64)
            good &= (index >= own[0][block.file]) & (index <= own[1][block.file])
    return good | window.whole[block.file]


def _inside(block: Block, bounds: Sequence[Bound]) -> Iterator[Block]:
    """Yield what the window wants of a block, so that no array of a huge file is ever whole."""
    cutting = [bound for bound in bounds if not bound.covers(block)]
    rows = within(block, np.arange(len(block)), cutting, block.file) if cutting else None
    if rows is None or len(rows) == len(block):
        yield block
    elif len(rows):
        yield part_of(block, rows, block.file[rows])


def _clip(table: ChunkTable, window: WindowTask) -> ChunkTable:
    if not window.box or not len(table):
        return table
    box = zip(table.extents(), window.box, strict=True)
    if all(low <= first and last <= high for (first, last), (low, high) in box):
        return table
    low, high = zip(*window.box, strict=True)
    return table.take(inside(table.index, high, low))


def _file_shape(window: WindowTask, place: int) -> tuple[int, ...]:
    shape = list(window.shape)
    for axis, length in zip(window.axes, window.in_files[place].tolist(), strict=True):
        shape[axis] = length
    return tuple(shape)


def _corner(window: WindowTask, place: int) -> tuple[int, ...]:
    """Return where the box of a file begins in the array, in elements."""
    at = [0] * len(window.shape)
    for axis, start in zip(window.axes, window.starts[place].tolist(), strict=True):
        at[axis] = start
    return tuple(at)


def _decode(
    window: WindowTask, block: Block, row: int, schema: ArraySchema | None = None
) -> NDArray[Any]:
    """Return what counts of the values of a file, whose variable has the array's last axes."""
    schema = schema or window.whole_schema
    assert schema is not None
    place, at, size = (int(column[row]) for column in (block.file, block.offset, block.length))
    shape = _file_shape(window, place)
    given = len(shape) - block.index.shape[1]
    raw = block.data[at : at + size].tobytes()
    values = decode_whole(schema, (*[1] * given, *shape[given:]), raw)
    box = [slice(None)] * len(shape)
    if window.skips is not None:
        columns = (window.axes, window.skips[place].tolist(), window.lengths[place].tolist())
        for axis, skip, length in zip(*columns, strict=True):
            box[axis] = slice(skip, skip + length)
    return np.broadcast_to(values, shape)[tuple(box)]


def _encode(window: WindowTask, values: NDArray[Any], place: int | None = None) -> ChunkTable:
    """Encode values of one file, or of the whole array, for the grid of the array."""
    at = (0,) * values.ndim if place is None else _corner(window, place)
    sides = zip(values.shape, window.chunk_shape, strict=True)
    chunks = math.prod(-(-length // edge) for length, edge in sides)
    return encode_chunks(window.zarr_json, values, at, chunks)


def join_values(refs: WindowBlocks, files: TaskFiles, window: WindowTask) -> NDArray[Any] | None:
    """Put the values of all files where their boxes lie.

    Boxes that no file fills hold the array's fill value, which the plan made the missing one. None
    where there are no values at all.

    Raises:
        FormatError: The catalog lacks values that the plan needs.
        CombineError: Two files hold different values of the same steps.
    """
    assert window.whole_schema is not None
    if (values := _join_in_a_row(window, refs.of(files.rows, window, window.takes))) is not None:
        return values
    pieces: dict[tuple[int, ...], NDArray[Any]] = {}  # by where they begin
    origin: dict[tuple[int, ...], int] = {}
    for block in refs.of(files.rows, window, window.takes):
        for row, place in enumerate(block.file.tolist()):
            times = window.times
            schema = None if times is None else times.storage(place).schema
            values = _decode(window, block, row, schema)
            if times is not None:
                path, url = window.source_path, files.url(place)
                values = recode_values(values, times, place, path=path, url=url)
            start = _corner(window, place)
            if start in pieces and values.size:
                _refuse_unlike(files, window, (origin[start], place), pieces[start], values)
            elif values.size:
                pieces[start], origin[start] = values, place
    lacking = [
        place
        for place in np.flatnonzero(window.takes).tolist()
        if _corner(window, place) not in pieces and 0 not in _file_shape(window, place)
    ]
    if lacking:
        raise FormatError(
            "the catalog lacks values that the plan needs",
            do=files.remedy(lacking[0]),
            variable=window.source_path,
            file=files.url(lacking[0]),
        )
    return _assemble(window, pieces) if pieces else None


def _assemble(window: WindowTask, pieces: Mapping[tuple[int, ...], NDArray[Any]]) -> NDArray[Any]:
    """Return the values of the whole array; its boxes do not overlap."""
    dtype = next(iter(pieces.values())).dtype
    if sum(piece.size for piece in pieces.values()) == math.prod(window.shape):
        values = np.empty(window.shape, dtype)
    else:
        values = np.full(window.shape, fill_of(json.loads(window.zarr_json)), dtype)
    for start, piece in pieces.items():
        box = (slice(at, at + n) for at, n in zip(start, piece.shape, strict=True))
        values[tuple(box)] = piece
    return values


def _join_in_a_row(window: WindowTask, blocks: Iterator[Block]) -> NDArray[Any] | None:
    """Return the values of an array whose files lie end to end along its first axis.

    They are put in their places as they come. None where anything is not as plain as that: a box
    that no file or several files fill, values that are recoded, or no plain numbers.
    """
    schema = window.whole_schema
    assert schema is not None
    dtype = plain_dtype(schema.data_type, schema.codecs)
    plain = dtype is not None and len(schema.codecs) == 1 and window.times is None
    if dtype is None or not plain or window.axes != (0,) or not _end_to_end(window):
        return None
    row = dtype.itemsize * math.prod(window.shape[1:])
    values = np.empty(row * window.shape[0], np.uint8)
    lacking = window.takes.copy()
    for block in blocks:
        place, size = block.file, row * window.lengths[block.file, 0]
        held = row * window.in_files[block.file, 0]
        alike = len(np.unique(place)) == len(place) and (block.length == held).all()
        if not alike or not lacking[place].all():
            return None
        lacking[place] = False
        at, begin = row * window.starts[place, 0], block.offset.astype(np.int64)
        if window.skips is not None:
            begin += row * window.skips[place, 0]
        copy_ranges(block.data, begin, values, at, size)
    return None if lacking.any() else decode_whole(schema, window.shape, values.data)


def _end_to_end(window: WindowTask) -> bool:
    """Say whether the boxes of the files fill the first axis, each once and none of them empty."""
    begin, count = window.starts[:, 0], window.lengths[:, 0]
    if not window.takes.all():
        begin, count = begin[window.takes], count[window.takes]
    if (begin[1:] < begin[:-1]).any():
        order = np.argsort(begin, kind="stable")
        begin, count = begin[order], count[order]
    if not len(begin) or begin[0] != 0 or (count <= 0).any():
        return False
    ends = begin + count
    return bool(ends[-1] == window.shape[0] and (ends[:-1] == begin[1:]).all())


def _refuse_unlike(
    files: TaskFiles,
    window: WindowTask,
    places: tuple[int, int],
    one: NDArray[Any],
    other: NDArray[Any],
) -> None:
    """Refuse values of the same steps that differ between files."""
    if same_values(one, other) is not True:
        raise CombineError(
            f"two files hold different values of {window.source_path} for the same steps",
            fixes=[drop_window_fix(window.source_path, window.reads)],
            do=write_remedy(
                "You can also leave one of them out; or, if the files differ along a"
                " dimension that the variable lacks, add that dimension with ",
                write_code("data_vars", f"--data-vars DIMENSION:{window.source_path}"),
                ".",
            ),
            variable=window.source_path,
            first=files.url(places[0]),
            second=files.url(places[1]),
            **(first_difference(one, other) or {}),
        )
