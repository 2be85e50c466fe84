"""Run the write stage: items of the plan in, manifests out; only names return to the driver.

A task holds one manifest at a time. Its bytes follow from the item and the catalog alone and its id
covers them, so a retried, speculative or late attempt writes the same object again.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

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
from icevirt.catalog.references import RefsReader
from icevirt.catalog.task_inputs import TaskFiles, WindowBlocks
from icevirt.ids import ObjectId8, ObjectId12
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.objects.source_access import grant_access
from icevirt.planning.containers import with_names
from icevirt.repo.maintenance import content_names
from icevirt.storage.protocol import Storage
from icevirt.tasks.chunk_encoding import Sink, store_large
from icevirt.tasks.materialize import rechunk
from icevirt.tasks.shuffle import Arrived
from icevirt.tasks.source_values import Reading
from icevirt.tasks.window_tables import alike_tables, group_alike, join_values, window_table
from icevirt.versioning.chunk_tables import compact
from icevirt.versioning.id_columns import column
from icevirt.wire.manifests import manifest
from icevirt.wire.manifests.encoding import ManifestEncoding

_FEW = 64  # numbers that are not worth packing


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


def run_write(task: WriteTask, rows: list[bytes] | None = None) -> tuple[WriteResult, ...]:
    """Write the manifests of a task, skipping those that an earlier run finished.

    The names of chunk objects stay in the record: only manifests return to the driver.

    Args:
        task: What to write.
        rows: Of a task of one item, the references that were sent to it; None: the catalog's.
    """
    source = RefsReader(task.catalog) if rows is None else Arrived(rows)
    refs = WindowBlocks(source, ValuesReader(task.catalog))
    with grant_access(task.reading.access):
        results = (result for parcel in task.parcels for result in _write_all(task, parcel, refs))
        return tuple(replace(result, chunk_ids=frozenset()) for result in results)


def _write_all(task: WriteTask, parcel: PackedTasks, refs: WindowBlocks) -> Iterator[WriteResult]:
    """Write the items of a parcel that are not finished."""
    finished = {number: _find_result(task, number) for number in parcel.numbers}
    yield from (result for result in finished.values() if result is not None)
    if None not in finished.values():
        return
    items = [item for item in parcel.unpack() if finished[item.number] is None]
    files = TaskFiles(task.catalog, items[0].files, led=task.led)
    for at, item in enumerate(items):
        refs.expect(files.rows, {path for other in items[at:] for path in other.paths()})
        yield _write(task, item, files, refs)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AddedChunks:
    """What files add to arrays, before it is put beside what these hold."""

    references: tuple[tuple[ObjectId8, ChunkTable], ...]  # an array may have several tables
    values: Mapping[ObjectId8, NDArray[Any]]  # of those whose values are stored


def add_chunks(task: WriteTask, bundles: Iterable[Sequence[ManifestTask]]) -> AddedChunks:
    """Return the chunks and values of some items, of which nothing but chunk objects is written."""
    refs = WindowBlocks(RefsReader(task.catalog), ValuesReader(task.catalog))
    tables: list[tuple[ObjectId8, ChunkTable]] = []
    values: dict[ObjectId8, NDArray[Any]] = {}
    with grant_access(task.reading.access):
        for items in bundles:
            files = TaskFiles(task.catalog, items[0].files, led=task.led)
            for at, item in enumerate(items):
                refs.expect(files.rows, {path for other in items[at:] for path in other.paths()})
                for windows in group_alike(item.windows):
                    if len(windows) > 1 and (alike := alike_tables(refs, files, windows)):
                        tables += _apart(with_names(alike[0], task.named), alike[1], windows)
                        continue
                    for window in windows:
                        if window.mode is ArrayMode.join:
                            found = join_values(refs, files, window)
                            values |= {} if found is None else {window.node_id: found}
                            continue
                        table, _ = _table(task, files, item.origin, refs, window)
                        tables.append((window.node_id, with_names(table, task.named)))
    return AddedChunks(references=tuple(tables), values=values)


def _apart(
    table: ChunkTable, ends: Sequence[int], windows: Sequence[WindowTask]
) -> Iterator[tuple[ObjectId8, ChunkTable]]:
    """Yield the references of each window, of a table of all."""
    manifest.refuse_empty(table)
    for window, (low, high) in zip(windows, pairwise(ends), strict=True):
        some = table.part(low, high).sort()
        yield window.node_id, some if len(table.locations) == 1 and len(some) else compact(some)


def read_chunk_ids(record: Storage, number: int) -> frozenset[bytes]:
    """Return the ids of the chunk objects that were written with an item."""
    return load_result(record.get(record_path(number))).chunk_ids


def record_path(number: int) -> str:
    """Return where the result of an item is recorded."""
    return f"items/{number:08d}"


def _find_result(task: WriteTask, number: int) -> WriteResult | None:
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
        number=item.number,
        manifest_id=None,
        size_bytes=0,
        num_chunk_refs=0,
        windows=tuple(
            _count(node, tables.get(node, ChunkTable.empty(0)), count)
            for node, count in replaced.items()
            if node in tables or count
        ),
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
    """Return the chunks of a window, and how many references of the catalog are not among them."""
    sink = Sink(repo=task.repo, inline_threshold=task.inline_threshold)
    if window.hybrid is None:
        table, dropped = window_table(refs, files, window)
        manifest.refuse_empty(table)
        return store_large(table, sink), dropped
    plain = replace(window, takes=window.takes & window.hybrid.plain)
    found, dropped = window_table(refs, files, plain)
    manifest.refuse_empty(found)
    table, replaced = rechunk(
        store_large(found, sink), refs, origin or files.name_files(), window, sink, task.reading
    )
    return table, replaced + dropped


def _count(node_id: ObjectId8, table: ChunkTable, replaced: int) -> WindowResult:
    virtual = table.kind == ChunkType.virtual
    count, total = int(np.count_nonzero(virtual)), int(table.length.sum())
    referenced = total if count == len(table) else int(table.length[virtual].sum())
    return WindowResult(
        node_id=bytes(node_id),
        extents=table.extents(),
        references=ReferenceCounts(
            virtual=count,
            native=table.count(ChunkType.native),
            inline=table.count(ChunkType.inline),
            bytes_referenced=referenced,
            bytes_stored=total - referenced,
        ),
        replaced=replaced,
    )


# -- packing -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedTasks:
    """Items of the same files, packed as small as possible for the way to an executor.

    Rows of the catalog and positions of files nearly always ascend in equal steps, so their
    differences compress a thousand to one.
    """

    numbers: tuple[int, ...]  # of the items
    payload: bytes

    @classmethod
    def of(cls, items: Sequence[ManifestTask]) -> PackedTasks:
        """Pack items; what they share is packed once, and shared again when it is unpacked."""
        raw = io.BytesIO()
        _Pickler(raw).dump(tuple(items))
        packed = zstandard.ZstdCompressor(level=1).compress(raw.getbuffer())
        # a copy: what the compressor returns keeps the room that it might have needed
        return cls(numbers=tuple(item.number for item in items), payload=bytes(memoryview(packed)))

    def unpack(self) -> tuple[ManifestTask, ...]:
        """Return the items."""
        raw = zstandard.ZstdDecompressor().decompress(self.payload)
        items: tuple[ManifestTask, ...] = pickle.loads(raw)  # noqa: S301  # made by `of`
        return items


class _Pickler(pickle.Pickler):
    """Writes columns of whole numbers as differences, and what is alike everywhere once."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is not np.ndarray or len(value.shape) == 0 or len(value) < _FEW:
            return NotImplemented
        if value.dtype.kind not in "iub" or not value.dtype.isnative:
            return NotImplemented
        head = value[:1].tobytes(), value.dtype.str, value.shape
        signed = value.view(f"i{value.itemsize}")
        steps = signed[1:] - signed[:-1]
        if not steps.any():
            return _repeat, head
        ends = (np.min_scalar_type(int(end)) for end in (steps.min(), steps.max()))
        kind = np.promote_types(*ends)
        if kind.kind in "iu" and kind.itemsize < steps.itemsize:
            steps = steps.astype(kind)
        return _add_up, (*head, steps.tobytes(), steps.dtype.str)


def _repeat(first: bytes, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return a column of equal rows, which takes the memory of one."""
    return np.broadcast_to(np.frombuffer(first, dtype).reshape(1, *shape[1:]), shape)


def _add_up(
    first: bytes, dtype: str, shape: tuple[int, ...], steps: bytes, narrow: str
) -> NDArray[Any]:
    """Undo the differences; sums wrap as these did."""
    column = np.empty(shape, f"i{np.dtype(dtype).itemsize}")
    column[0] = np.frombuffer(first, column.dtype).reshape(shape[1:])
    column[1:] = np.frombuffer(steps, narrow).reshape(shape[0] - 1, *shape[1:])
    return np.cumsum(column, axis=0, dtype=column.dtype, out=column).view(dtype)
