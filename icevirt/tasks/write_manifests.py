"""Run the write stage: items of the plan in, manifests out; only names return to the driver.

A task holds one manifest at a time. Its bytes follow from the item and the catalog alone and its id
covers them, so a retried, speculative or late attempt writes the same object again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.blocks.cutting import joined, part_of
from icevirt.archive.blocks.packing import Block
from icevirt.archive.facts import FileColumns
from icevirt.archive.plan import (
    ArrayMode,
    ManifestTask,
    WindowResult,
    WindowTask,
    WriteResult,
    dump_result,
    load_result,
)
from icevirt.archive.reports.build import ReferenceCounts
from icevirt.catalog.facts_beside import ValuesReader
from icevirt.catalog.file_names import TaskFiles
from icevirt.catalog.references import RefsReader, naming
from icevirt.catalog.window_blocks import WindowBlocks
from icevirt.errors import CombineError, FormatError
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.chunks import ChunkTable, ChunkType, Locations
from icevirt.model.container_coverage import begins
from icevirt.model.ranges import copy_ranges
from icevirt.objects.source_access import granted
from icevirt.planning.axes.time_recoding import recoded_values
from icevirt.planning.equality import first_difference, same_values
from icevirt.planning.relative_urls import with_names
from icevirt.repo.maintenance import content_names
from icevirt.storage.protocol import Storage
from icevirt.tasks.chunk_encoding import decode_whole, encode_chunks, fill_of, plain_dtype
from icevirt.tasks.materialize import Sink, plain_only, rechunked
from icevirt.tasks.shuffle import Arrived, Bound, bounds_of, within
from icevirt.tasks.source_values import Reading
from icevirt.tasks.task_payload import PackedTasks
from icevirt.versioning.id_columns import column
from icevirt.wire.manifests import manifest
from icevirt.wire.manifests.manifest import ManifestEncoding


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTask:
    """Some items to write, in order."""

    parcels: tuple[PackedTasks, ...]
    catalog: Storage
    repo: Storage
    record: Storage  # of finished items, for a build that is resumed
    inline_threshold: int  # bytes
    encoding: ManifestEncoding
    led: tuple[str, ...] = ()  # URL prefixes into which references of the files may lead
    named: tuple[tuple[str, str], ...] = ()  # (url_prefix, name) to which locations are relative
    reading: Reading = field(default_factory=Reading)


def run_write(task: WriteTask) -> tuple[WriteResult, ...]:
    """Write the manifests of a task, skipping those that an earlier run finished.

    The names of chunk objects stay in the record: the driver is told manifests only.
    """
    return _run(task, WindowBlocks(RefsReader(task.catalog), ValuesReader(task.catalog)))


def run_write_shuffled(task: WriteTask, rows: list[bytes]) -> tuple[WriteResult, ...]:
    """Do the same for a task of one item, whose references were sent to it."""
    return _run(task, WindowBlocks(Arrived(rows), ValuesReader(task.catalog)))


def _run(task: WriteTask, refs: WindowBlocks) -> tuple[WriteResult, ...]:
    with granted(task.reading.access):
        results = (result for parcel in task.parcels for result in _written(task, parcel, refs))
        return tuple(replace(result, chunk_ids=frozenset()) for result in results)


def _written(task: WriteTask, parcel: PackedTasks, refs: WindowBlocks) -> Iterator[WriteResult]:
    """Write the items of a parcel that are not finished."""
    finished = {number: _finished(task, number) for number in parcel.numbers}
    yield from (result for result in finished.values() if result is not None)
    if None not in finished.values():
        return
    items = [item for item in parcel.unpack() if finished[item.number] is None]
    files = TaskFiles(task.catalog, items[0].files, led=task.led)
    for at, item in enumerate(items):
        refs.expect(files.rows, {path for other in items[at:] for path in other.paths()})
        yield _write(task, item, files, refs)


def recorded(record: Storage) -> Iterator[WriteResult]:
    """Yield the results of all items that are recorded as finished."""
    for info in record.list("items"):
        yield load_result(record.get(info.path))


def recorded_chunks(record: Storage, number: int) -> frozenset[bytes]:
    """Return the ids of the chunk objects that were written with an item."""
    return load_result(record.get(record_path(number))).chunk_ids


def record_path(number: int) -> str:
    """Return where the result of an item is recorded."""
    return f"items/{number:08d}"


def _finished(task: WriteTask, number: int) -> WriteResult | None:
    """Return the recorded result if there is one and its objects are still there."""
    path = record_path(number)
    if next(task.record.list(path), None) is None:
        return None
    result = load_result(task.record.get(path))
    if result.manifest_id is None:
        return result
    name = f"manifests/{ObjectId12(result.manifest_id)}"
    sizes = [info.size for info in task.repo.list(name)]
    chunks = (f"chunks/{ObjectId12(key)}" for key in result.chunk_ids)
    there = all(next(task.repo.list(path), None) is not None for path in chunks)
    return result if sizes == [result.size_bytes] and there else None


def _write(
    task: WriteTask, item: ManifestTask, files: TaskFiles, refs: WindowBlocks
) -> WriteResult:
    tables = {}
    replaced: dict[ObjectId8, int] = {}
    for window in item.windows:
        assert window.node_id not in tables, "an item holds two windows of one array"
        table, replaced[window.node_id] = _table(task, files, item.origin, refs, window)
        if len(table):
            tables[window.node_id] = with_names(table, task.named)
    result = WriteResult(
        number=item.number, manifest_id=None, size_bytes=0, num_chunk_refs=0, windows=()
    )
    if tables:
        how = task.encoding
        encoded = manifest.encode(tables, level=how.level, locations=how.locations)
        named = frozenset(bytes(row) for table in tables.values() for row in table.chunk_ids)
        content_names.record(task.repo, column(named))
        task.repo.put(f"manifests/{encoded.id}", encoded.raw)
        result = replace(
            result,
            manifest_id=bytes(encoded.id),
            size_bytes=len(encoded.raw),
            num_chunk_refs=encoded.num_chunk_refs,
            windows=tuple(
                _window_result(node, table, replaced[node]) for node, table in tables.items()
            ),
            chunk_ids=named,
        )
    task.record.put(record_path(item.number), dump_result(result))
    return result


def _table(
    task: WriteTask,
    files: TaskFiles,
    origin: FileColumns | None,
    refs: WindowBlocks,
    window: WindowTask,
) -> tuple[ChunkTable, int]:
    """Return the chunks of a window, and how many references were replaced by stored chunks."""
    table = _stored(window_table(refs, files, plain_only(window)), task)
    if window.hybrid is None:
        return table, 0
    sink = Sink(repo=task.repo, inline_threshold=task.inline_threshold)
    return rechunked(table, refs, origin or files.named(), window, sink, task.reading)


def _window_result(node_id: ObjectId8, table: ChunkTable, replaced: int) -> WindowResult:
    virtual = table.kind == ChunkType.virtual
    return WindowResult(
        node_id=bytes(node_id),
        extents=table.extents(),
        references=ReferenceCounts(
            virtual=int(virtual.sum()),
            native=table.count(ChunkType.native),
            inline=table.count(ChunkType.inline),
            bytes_referenced=int(table.length[virtual].sum()),
            bytes_stored=int(table.length[~virtual].sum()),
        ),
        replaced=replaced,
    )


# -- references of one window --------------------------------------------------------------------


def window_table(refs: WindowBlocks, files: TaskFiles, window: WindowTask) -> ChunkTable:
    """Collect the references of a window: virtual and inline rows.

    Raises:
        FormatError: A value-bearing chunk of the plan is not there.
    """
    if window.values is not None:
        return _clipped(_encoded_values(window, window.values), window)
    if window.mode is ArrayMode.join:
        return _clipped(_joined(files, window, refs), window)
    block = _wanted(files, window, refs)
    if block is None:
        return ChunkTable.empty(len(window.chunk_shape))
    with naming(files.rows.parts):
        return _clipped(ChunkTable.concatenate([*_shifted(files, window, block)]), window)


def _wanted(files: TaskFiles, window: WindowTask, refs: WindowBlocks) -> Block | None:
    """Return what a window wants of its files; None where that is nothing."""
    bounds = bounds_of(window, np.arange(len(files)))
    blocks = [kept for block in _found(files, window, refs) for kept in _inside(block, bounds)]
    return joined(blocks) if blocks else None


def _found(files: TaskFiles, window: WindowTask, refs: WindowBlocks) -> Iterator[Block]:
    yield from refs.of(files.rows, window, window.takes)


def _inside(block: Block, bounds: Sequence[Bound]) -> Iterator[Block]:
    """Yield what the window wants of a block, so that no array of a huge file is ever whole."""
    rows = within(block, np.arange(len(block)), bounds, block.file)
    if len(rows) == len(block):
        yield block
    elif len(rows):
        yield part_of(block, rows, block.file[rows])


def _clipped(table: ChunkTable, window: WindowTask) -> ChunkTable:
    if not window.box or not len(table):
        return table
    inside = np.ones(len(table), np.bool_)
    for at, (low, high) in enumerate(np.array(window.box, np.int64)):
        inside &= (table.index[:, at] >= low) & (table.index[:, at] < high)
    return table if inside.all() else table.take(inside)


def _shifted(files: TaskFiles, window: WindowTask, block: Block) -> Iterator[ChunkTable]:
    """Yield the chunks where the plan puts their files, encoding those stored whole."""
    whole = window.whole[block.file]
    if not window.direct and whole.any():
        for row in np.flatnonzero(whole).tolist():
            yield _encoded(window, int(block.file[row]), _data(block, row), block.index.shape[1])
        rows = np.flatnonzero(~whole)
        block = part_of(block, rows, block.file[rows])
    yield _moved(files, window, block)


def _moved(files: TaskFiles, window: WindowTask, block: Block) -> ChunkTable:
    block, places = _placed(window, block)
    source, locations = _sources(files, block)
    return ChunkTable(
        index=places,
        kind=block.kind,
        source=source,
        offset=block.offset,
        length=block.length,
        locations=locations,
        inline=block.data,
    ).sorted()


def _placed(window: WindowTask, block: Block) -> tuple[Block, NDArray[np.uint32]]:
    """Return chunks and where they lie in the array, each once for every step of its file.

    There are several along a dimension of the file which its variable does not have.
    """
    given = range(len(window.chunk_shape) - block.index.shape[1])
    index = _with_new_axes(block.index.astype(np.int64), len(window.chunk_shape))
    for at, axis in enumerate(window.axes):
        index[:, axis] += window.grids[axis].chunk_at(window.starts[:, at])[block.file]
    for at, axis in enumerate(window.axes):
        if axis not in given or ((times := window.lengths[block.file, at]) == 1).all():
            continue
        # a file may have millions of steps, of which a window has a few
        low, high = window.box[axis] if window.box else (0, window.shape[axis])
        first = np.maximum(index[:, axis], low)
        times = np.maximum(np.minimum(index[:, axis] + times, high) - first, 0)
        rows = np.repeat(np.arange(len(index)), times)
        index = index[rows]
        index[:, axis] = first[rows] + np.arange(len(rows)) - (np.cumsum(times) - times)[rows]
        block = part_of(block, rows, block.file[rows])
    return block, index.astype(np.uint32)


def _sources(files: TaskFiles, block: Block) -> tuple[NDArray[np.uint32], Locations]:
    """Return which location each chunk of a block lies in, and those that some lie in."""
    _refuse_astray(files, block)
    target = block.source.astype(np.int64)
    places = np.where(target > 0, len(files) + target - 1, block.file)
    occurs = np.zeros(len(files) + len(block.targets), np.bool_)
    occurs[places] = True
    used, source = np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[places]
    own = used < len(files)
    virtual = block.kind == ChunkType.virtual
    return (
        np.where(virtual, source, 0).astype(np.uint32),
        _locations(files, used[own], block.targets.take(used[~own] - len(files))),
    )


def _refuse_astray(files: TaskFiles, block: Block) -> None:
    """Refuse references that lead out of their files, and were never let.

    Raises:
        FormatError: The catalog says of some what no scan would.
    """
    beyond = _beyond(files, block)
    there = np.zeros(len(block.targets), np.bool_)
    for prefix in files.led:
        there |= begins(block.targets.url, np.arange(len(there)), prefix.encode())
    row = int(beyond[0]) if len(beyond) else -1
    if len(astray := np.flatnonzero(~there)):
        found = np.flatnonzero(block.source == astray[0] + 1)
        row = int(found[0]) if len(found) else row
    if row >= 0:
        place = int(block.file[row])
        part = files.rows.parts[int(files.rows.part[place])]
        raise FormatError(
            "a reference points beyond the end of its file, or to another file",
            do=f"Delete files/{part}.parquet from the catalog; the next scan writes this part"
            " again.",
            file=files.url(place),
            offset=int(block.offset[row]),
            length=int(block.length[row]),
        )


def _beyond(files: TaskFiles, block: Block) -> NDArray[np.int64]:
    """Return the references into the files themselves that end behind these."""
    end = block.offset + block.length
    wrapped, sizes = end < block.offset, files.named().size.astype(np.uint64)
    if not len(end) or (not wrapped.any() and end.max() <= sizes.min()):
        return np.zeros(0, np.int64)
    own = (block.kind == ChunkType.virtual) & (block.source == 0)
    return np.flatnonzero(own & (wrapped | (end > sizes[block.file])))


def _with_new_axes(index: NDArray[np.int64], ndim: int) -> NDArray[np.int64]:
    """Put the axes before those of the files along which these are stacked."""
    return np.pad(index, ((0, 0), (ndim - index.shape[1], 0)))


def _locations(files: TaskFiles, rows: NDArray[np.int64], targets: Locations) -> Locations:
    """Return files with the checksum of their scan, in whole seconds rounded up, and others."""
    if not len(rows):
        return targets
    named = files.named()
    etag = named.etag[rows]
    seconds = -(-named.last_modified[rows] // 1_000_000_000)
    own = Locations(
        url=named.url[rows],
        etag=etag,
        last_modified=np.where(etag.lengths > 0, 0, seconds).astype(np.uint32),
    )
    return own + targets if len(targets) else own


# -- values that were read at scan time ----------------------------------------------------------


def _data(block: Block, row: int) -> bytes:
    at, size = int(block.offset[row]), int(block.length[row])
    return block.data[at : at + size].tobytes()


def _file_shape(window: WindowTask, place: int) -> tuple[int, ...]:
    shape = list(window.shape)
    for axis, length in zip(window.axes, window.lengths[place].tolist(), strict=True):
        shape[axis] = length
    return tuple(shape)


def _corner(window: WindowTask, place: int) -> tuple[int, ...]:
    """Return where the box of a file begins in the array, in elements."""
    at = [0] * len(window.shape)
    for axis, start in zip(window.axes, window.starts[place].tolist(), strict=True):
        at[axis] = start
    return tuple(at)


def _decoded(window: WindowTask, place: int, raw: bytes, ndim: int) -> NDArray[Any]:
    """Return the values of one file, whose variable has the last ``ndim`` axes of the array."""
    assert window.whole_schema is not None
    shape = _file_shape(window, place)
    given = len(shape) - ndim
    values = decode_whole(window.whole_schema, (*[1] * given, *shape[given:]), raw)
    return np.broadcast_to(values, shape)


def _encoded(window: WindowTask, place: int, raw: bytes, ndim: int) -> ChunkTable:
    """Encode the values of one file for the grid that the other files' chunks have."""
    values = _decoded(window, place, raw, ndim)
    return encode_chunks(
        window.zarr_json,
        values,
        _corner(window, place),
        _chunks_in(values.shape, window.chunk_shape),
    )


def _joined(files: TaskFiles, window: WindowTask, refs: WindowBlocks) -> ChunkTable:
    """Put the values of all files where their boxes lie, and encode them.

    Boxes that no file fills hold the array's fill value, which the plan made the missing one.
    """
    assert window.whole_schema is not None
    if (values := _in_a_row(window, _found(files, window, refs))) is not None:
        return _encoded_values(window, values)
    pieces: dict[tuple[int, ...], NDArray[Any]] = {}  # by where they begin
    origin: dict[tuple[int, ...], int] = {}
    for block in _found(files, window, refs):
        for row, place in enumerate(block.file.tolist()):
            values = _decoded(window, place, _data(block, row), block.index.shape[1])
            values = _recoded(files, window, place, values)
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
        part = files.rows.parts[int(files.rows.part[lacking[0]])]
        raise FormatError(
            "the catalog lacks values that the plan needs",
            do=f"Delete files/{part}.parquet from the catalog; the next scan writes this part"
            " again.",
            variable=window.source_path,
            file=files.url(lacking[0]),
        )
    if not pieces:
        return ChunkTable.empty(len(window.chunk_shape))
    return _encoded_values(window, _assembled(window, pieces))


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
        alike = len(np.unique(place)) == len(place) and (block.length == size).all()
        if not alike or not lacking[place].all():
            return None
        lacking[place] = False
        at = row * window.starts[place, 0]
        copy_ranges(block.data, block.offset.astype(np.int64), values, at, size)
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
        values = np.full(window.shape, fill_of(window.zarr_json), dtype)
    for start, piece in pieces.items():
        box = (slice(at, at + n) for at, n in zip(start, piece.shape, strict=True))
        values[tuple(box)] = piece
    return values


def _encoded_values(window: WindowTask, values: NDArray[Any]) -> ChunkTable:
    """Encode the values of a whole array."""
    return encode_chunks(
        window.zarr_json, values, (0,) * values.ndim, _chunks_in(values.shape, window.chunk_shape)
    )


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
            do="Leave one of them out, or leave the variable out with "
            f"drop_variables=[{window.source_path!r}]; or, if the files differ along a "
            "dimension that the variable lacks, add that dimension with data_vars (--data-vars "
            f"DIMENSION:{window.source_path}).",
            variable=window.source_path,
            first=files.url(places[0]),
            second=files.url(places[1]),
            **(first_difference(one, other) or {}),
        )


def _recoded(
    files: TaskFiles, window: WindowTask, place: int, values: NDArray[Any]
) -> NDArray[Any]:
    if window.times is None:
        return values
    return recoded_values(
        values, window.times, place, path=window.source_path, url=files.url(place)
    )


def _chunks_in(shape: tuple[int, ...], edges: tuple[int, ...]) -> int:
    return math.prod(-(-n // edge) for n, edge in zip(shape, edges, strict=True))


# -- chunks too large to be inline ---------------------------------------------------------------


def _stored(table: ChunkTable, task: WriteTask) -> ChunkTable:
    """Put inline chunks above the threshold into chunk objects; ids cover their content."""
    large = np.flatnonzero(
        (table.kind == ChunkType.inline) & (table.length > task.inline_threshold)
    )
    if not len(large):
        return table
    kind, source, offset = table.kind.copy(), table.source.copy(), table.offset.copy()
    ids = []
    for row in large.tolist():
        at, size = int(table.offset[row]), int(table.length[row])
        body = table.inline[at : at + size].tobytes()
        ids.append(ObjectId12.of_content(body))
        task.repo.put(f"chunks/{ids[-1]}", body)
    kind[large], source[large], offset[large] = ChunkType.native, np.arange(len(ids)), 0
    return replace(
        table,
        kind=kind,
        source=source,
        offset=offset,
        chunk_ids=np.frombuffer(b"".join(ids), np.uint8).reshape(-1, 12).copy(),
    )
