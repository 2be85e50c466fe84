"""Collect the chunks of one window: references of its files, and values that the scan read.

References move to where the plan puts their files. Values are joined and encoded again, where files
hold pieces of one chunk.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.blocks.cutting import part_of
from icevirt.archive.blocks.packing import Block
from icevirt.archive.plan import ArrayMode, WindowTask
from icevirt.archive.schema import ArraySchema
from icevirt.catalog.parquet import naming
from icevirt.catalog.task_inputs import TaskFiles, WindowBlocks
from icevirt.errors import CombineError, FormatError
from icevirt.model.chunks import ChunkTable
from icevirt.model.indices import inside
from icevirt.model.strings import copy_ranges
from icevirt.planning.equality import first_difference, same_values
from icevirt.planning.remedies import drop_window_fix
from icevirt.planning.times.recoding import recoded_values
from icevirt.tasks.chunk_encoding import decode_whole, encode_chunks, fill_of, plain_dtype
from icevirt.tasks.shuffle import Bound, bounds_of, within
from icevirt.tasks.window_columns import WindowColumns


def window_table(
    refs: WindowBlocks, files: TaskFiles, window: WindowTask
) -> tuple[ChunkTable, int]:
    """Collect the references of a window: virtual and inline rows.

    Returns:
        They, and how many others there are of steps that do not count.

    Raises:
        FormatError: A value-bearing chunk of the plan is not there.
    """
    if window.values is not None:
        return _clipped(_encoded(window, window.values), window), 0
    if window.mode is ArrayMode.join:
        values = joined_values(refs, files, window)
        if values is None:
            return ChunkTable.empty(len(window.chunk_shape)), 0
        return _clipped(_encoded(window, values), window), 0
    columns, encoded, dropped = WindowColumns(files, window), list[ChunkTable](), 0
    bounds = bounds_of(window, np.arange(len(files)))
    for found in refs.of(files.rows, window, window.takes):
        for block in _inside(found, bounds):
            with naming(files.rows.parts):
                counts = _counting(window, block)
                kept = block if counts is None else _some(block, counts)
                dropped += len(block) - len(kept)
                if not window.direct and (whole := window.whole[kept.file]).any():
                    encoded += _encoded_rows(window, kept, np.flatnonzero(whole))
                    kept = _some(kept, ~whole)
                columns.add(kept)
    with naming(files.rows.parts):
        table = ChunkTable.concatenate([*encoded, columns.table()])
        return _clipped(table, window), dropped


def _some(block: Block, chosen: NDArray[np.bool_]) -> Block:
    rows = np.flatnonzero(chosen)
    return block if len(rows) == len(block) else part_of(block, rows, block.file[rows])


def _counting(window: WindowTask, block: Block) -> NDArray[np.bool_] | None:
    """Say which chunks count; values that the scan read count in part. None: all do."""
    if window.skips is None:
        return None
    good = np.ones(len(block), np.bool_)
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


def _clipped(table: ChunkTable, window: WindowTask) -> ChunkTable:
    if not window.box or not len(table):
        return table
    box = zip(table.extents(), window.box, strict=True)
    if all(low <= first and last <= high for (first, last), (low, high) in box):
        return table
    low, high = zip(*window.box, strict=True)
    return table.take(inside(table.index, high, low))


def _encoded_rows(
    window: WindowTask, block: Block, rows: NDArray[np.int64]
) -> Iterator[ChunkTable]:
    """Yield the chunks of some rows, which hold the values of whole files."""
    for row in rows.tolist():
        yield _encoded(window, _decoded(window, block, row), int(block.file[row]))


def _file_shape(window: WindowTask, place: int) -> tuple[int, ...]:
    shape = list(window.shape)
    for axis, length in zip(window.axes, window.in_files[place].tolist(), strict=True):
        shape[axis] = length
    return tuple(shape)


def _box(window: WindowTask, place: int) -> tuple[slice, ...]:
    """Return which part of a file's values counts."""
    box = [slice(None)] * len(window.shape)
    if window.skips is not None:
        columns = (window.axes, window.skips[place].tolist(), window.lengths[place].tolist())
        for axis, skip, length in zip(*columns, strict=True):
            box[axis] = slice(skip, skip + length)
    return tuple(box)


def _corner(window: WindowTask, place: int) -> tuple[int, ...]:
    """Return where the box of a file begins in the array, in elements."""
    at = [0] * len(window.shape)
    for axis, start in zip(window.axes, window.starts[place].tolist(), strict=True):
        at[axis] = start
    return tuple(at)


def _decoded(
    window: WindowTask, block: Block, row: int, schema: ArraySchema | None = None
) -> NDArray[Any]:
    """Return the values of one file, whose variable has the last axes of the array."""
    schema = schema or window.whole_schema
    assert schema is not None
    place, at, size = (int(column[row]) for column in (block.file, block.offset, block.length))
    shape = _file_shape(window, place)
    given = len(shape) - block.index.shape[1]
    raw = block.data[at : at + size].tobytes()
    values = decode_whole(schema, (*[1] * given, *shape[given:]), raw)
    return np.broadcast_to(values, shape)[_box(window, place)]


def _encoded(window: WindowTask, values: NDArray[Any], place: int | None = None) -> ChunkTable:
    """Encode values of one file, or of the whole array, for the grid of the array."""
    at = (0,) * values.ndim if place is None else _corner(window, place)
    sides = zip(values.shape, window.chunk_shape, strict=True)
    chunks = math.prod(-(-length // edge) for length, edge in sides)
    return encode_chunks(window.zarr_json, values, at, chunks)


def joined_values(refs: WindowBlocks, files: TaskFiles, window: WindowTask) -> NDArray[Any] | None:
    """Put the values of all files where their boxes lie.

    Boxes that no file fills hold the array's fill value, which the plan made the missing one. None
    where there are no values at all.

    Raises:
        FormatError: The catalog lacks values that the plan needs.
        CombineError: Two files hold different values of the same steps.
    """
    assert window.whole_schema is not None
    if (values := _in_a_row(window, refs.of(files.rows, window, window.takes))) is not None:
        return values
    pieces: dict[tuple[int, ...], NDArray[Any]] = {}  # by where they begin
    origin: dict[tuple[int, ...], int] = {}
    for block in refs.of(files.rows, window, window.takes):
        for row, place in enumerate(block.file.tolist()):
            if window.times is None:
                values = _decoded(window, block, row)
            else:
                path, url = window.source_path, files.url(place)
                values = _decoded(window, block, row, window.times.storage(place).schema)
                values = recoded_values(values, window.times, place, path=path, url=url)
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
    return _assembled(window, pieces) if pieces else None


def _in_a_row(window: WindowTask, blocks: Iterator[Block]) -> NDArray[Any] | None:
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


def _assembled(window: WindowTask, pieces: Mapping[tuple[int, ...], NDArray[Any]]) -> NDArray[Any]:
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
            fixes=[drop_window_fix(window)],
            do="You can also leave one of them out; or, if the files differ along a dimension that"
            " the variable lacks, add that dimension with data_vars (--data-vars"
            f" DIMENSION:{window.source_path}).",
            variable=window.source_path,
            first=files.url(places[0]),
            second=files.url(places[1]),
            **(first_difference(one, other) or {}),
        )
