"""Read and write the ``refs`` table of a catalog part; large arrays have their own row groups.

Small arrays share a row group, because finding one takes longer than reading a few kilobytes. Only
paths have statistics; they identify the row groups of an array. The bytes depend on the content
only.

A part of small files holds a few kilobytes for each of its arrays, and opening it takes longer than
reading them. So a task that reads one array of many parts also reads the other arrays that it will
need from them, and keeps these compressed in a `ReferenceCache`.
"""

from __future__ import annotations

import io
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import accumulate, batched, chain, groupby
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from icevirt.archive import catalog
from icevirt.archive.blocks.cutting import part_of
from icevirt.archive.blocks.packing import (
    COLUMNS,
    BinaryColumn,
    Block,
    PackedBlock,
    PackedBlocks,
    unpack_all,
    unpack_each,
)
from icevirt.archive.plan import FileRows
from icevirt.catalog.arrow_columns import are_known, bytes_of, numbers_of, one_array, rows_of
from icevirt.catalog.parquet import (
    check_run,
    naming,
    of_run,
    open_parquet,
    table_of,
    telling_damage,
)
from icevirt.storage.protocol import Storage

_BLOCKS = 16  # of one array in a row group: what a reader of a huge file has in memory at once
_SHARED = 256 << 10  # bytes of blocks up to which arrays share a row group
_SMALL = 1 << 20  # bytes of decoded columns up to which all arrays of a part are read at once
_TOGETHER = 16 << 20  # bytes of decoded columns of small parts that are read at a time
_BUDGET = 48 << 20  # bytes of encoded parts that a reader keeps
_PLAIN = 16 << 10  # bytes of blocks that are not worth compressing, however little room there is
_FEW_FILES = 4096  # that are looked for once for several arrays
_TABLE = 4 << 10  # bytes that a table takes beside its columns
_PART = "part"
_METADATA = 8  # bytes that one of the encoded metadata takes in memory
_COLUMNS = tuple(column.name for column in fields(PackedBlock))
_SCHEMA = pa.schema([(name, getattr(pa, kind)()) for name, kind in catalog.REFS])


def encode(refs: Iterable[tuple[str, PackedBlock]], run: str = "") -> bytes:
    """Encode blocks of a run of files with the paths of arrays; blocks of one array are adjacent.

    Blocks may be made one by one: no more than a row group is in memory.
    """
    sink = io.BytesIO()
    # bytes of blocks never repeat, and a dictionary of them takes as long again to read
    how: dict[str, Any] = {"write_statistics": ["path"], "use_dictionary": ["path"]}
    schema = of_run(_SCHEMA, run)
    how["write_page_checksum"] = True
    with pq.ParquetWriter(sink, schema, compression="zstd", **how) as writer:
        for rows in _row_groups(refs):
            columns: dict[str, list[Any]] = {"path": [path for path, _ in rows]}
            for name in _COLUMNS:
                columns[name] = [getattr(block, name) for _, block in rows]
            writer.write_table(table_of(columns, schema))
    return sink.getvalue()


def _row_groups(refs: Iterable[tuple[str, PackedBlock]]) -> Iterator[list[tuple[str, PackedBlock]]]:
    """Yield rows group by group: some of one large array, or all of small ones."""
    shared: list[tuple[str, PackedBlock]] = []
    size = 0
    for _, rows in groupby(refs, key=lambda row: row[0]):
        for group in batched(rows, _BLOCKS):
            mine = sum(block.nbytes for _, block in group)
            if shared and size + mine > _SHARED:
                yield shared
                shared, size = [], 0
            shared += group
            size += mine
    if shared:
        yield shared


class WindowReferences(Protocol):
    """Where a window finds its references: in the catalog, or in what was shuffled to it."""

    def expect(self, files: FileRows, paths: Collection[str]) -> None:
        """Take note of arrays that will be read of some files, each once; forget all else."""

    def locate(self, files: FileRows, takes: NDArray[np.bool_], path: str) -> Iterator[Block]:
        """Yield the references of one array in some of the files, which number these."""


class RefsReader:
    """Reads the references of arrays, keeping the parts that it used last.

    Args:
        storage: The catalog.
        budget: Bytes of encoded parts to keep, the last of which is kept whatever its size, and as
            many of references that are read before their time.
    """

    def __init__(self, storage: Storage, *, budget: int = _BUDGET) -> None:
        self._storage = storage
        self._budget = budget
        self._parts: OrderedDict[str, _Part] = OrderedDict()  # the one used last at the end
        self._size = 0  # of all of them
        self._whole: tuple[str, Any] | None = None  # the small part that was decoded last
        self._shared: _SharedGroup | None = None  # the one that was decoded last
        self._expected: frozenset[str] = frozenset()
        self._cache = ReferenceCache(budget)
        self._finder: _Finder | None = None  # of the files that were looked for last

    def expect(self, files: FileRows, paths: Collection[str]) -> None:
        """Take note of arrays that will be read of some files, each once; forget all else."""
        self._expected = frozenset(paths)
        self._cache.keep_only(self._expected)
        for name in self._parts.keys() - set(files.parts):
            self._size -= self._parts.pop(name).size

    def blocks(self, part: str, path: str) -> Iterator[PackedBlock]:
        """Yield the packed references of one array in a part."""
        held = self._part(part)
        if held.is_small and (self._whole is None or self._whole[0] != part):
            self._whole = part, held.read(None)
        if held.is_small and self._whole:
            tables: Iterable[Any] = [of_array(self._whole[1], path)]
        else:
            tables = (group.table(path) for group in self._groups(part, path))
        for table in tables:
            for row in table.select(_COLUMNS).to_pylist():
                yield PackedBlock(**row)

    def _groups(self, name: str, path: str) -> Iterator[_OwnGroup | _SharedGroup]:
        """Yield the row groups of a large part that may hold an array; one that is shared is kept.

        Arrays are read in their order, and thousands may share one.
        """
        part = self._part(name)
        for number in part.numbers(path):
            if number in part.by_path.get(path, ()):
                yield _OwnGroup(part.group(number))
                continue
            if self._shared is None or self._shared.place != (name, number):
                self._shared = _SharedGroup((name, number), part.group(number))
            yield self._shared

    def locate(self, files: FileRows, takes: NDArray[np.bool_], path: str) -> Iterator[Block]:
        """Yield the references of one array in some of the files.

        Blocks hold no others, and number the files as ``files`` does.
        """
        finder = self._finder
        if finder is None or not finder.is_of(files, takes):
            finder = _Finder(files, takes)
            self._finder = finder if len(takes) <= _FEW_FILES else None
        for batch in self._batches(finder.names, path):
            with naming([*batch.parts]):
                yield from finder.find(batch)

    def _batches(self, names: Sequence[str], path: str) -> Iterator[BlockBatch | UnpackedBatch]:
        """Yield the blocks of one array in some parts, as they are kept or come together."""
        left = list(names)
        while left:
            if self._cache.holds(path, left[0]):
                batch = self._cache.load(path, left[0])
                left = [name for name in left if name not in batch.parts]
                yield batch
            elif len(names) > 1 and self._part(left[0]).is_small:
                count, batch = self._gather(left, path)
                left = left[count:]
                yield batch
            else:
                name = left.pop(0)
                for group in self._groups(name, path):
                    with naming([name]):
                        found = group.batch({name: 0}, path)
                    yield found

    def _gather(self, names: Sequence[str], path: str) -> tuple[int, BlockBatch]:
        """Read an array of the first parts, and keep what else is expected of these."""
        paths = {path, *self._expected}
        tables: list[Any] = []
        size = 0
        for number, name in enumerate(names):
            full = tables and size >= _TOGETHER
            if full or self._cache.holds(path, name) or not self._part(name).is_small:
                break
            tables.append(number_rows(self._part(name).read(paths), number))
            size += tables[-1].nbytes
        parts = {name: number for number, name in enumerate(names[: len(tables)])}
        by_path = _cut_by_path(pa.concat_tables(tables).combine_chunks(), sorted(paths))
        for each in self._expected - {path}:
            self._cache.put(each, parts, by_path[each])
        return len(parts), BlockBatch.of(parts, by_path[path])

    def _part(self, name: str) -> _Part:
        if name not in self._parts:
            path = catalog.path_of("refs", name)
            self._parts[name] = _Part.of(self._storage.get(path), path)
            self._size += self._parts[name].size
            while len(self._parts) > 1 and self._size > self._budget:
                self._size -= self._parts.popitem(last=False)[1].size
        self._parts.move_to_end(name)
        return self._parts[name]


type _Places = list[NDArray[np.int32]]
type _Parts = tuple[tuple[str, int], ...]  # with their numbers in a batch


class _Finder:
    """Finds some files in parts."""

    def __init__(self, files: FileRows, takes: NDArray[np.bool_]) -> None:
        taken = np.flatnonzero(takes)
        part = files.part[taken]
        if (part[1:] < part[:-1]).any():
            taken = taken[np.argsort(part, kind="stable")]
            part = files.part[taken]
        self._files, self._taken, self._takes = files, taken, takes
        self._starts = np.searchsorted(part, np.arange(len(files.parts) + 1))
        used = np.flatnonzero(np.diff(self._starts)).tolist()
        self._code = {files.parts[code]: code for code in used}
        self.names = tuple(self._code)
        self._last: tuple[_Parts, int, _Places] | None = None  # of one part

    def is_of(self, files: FileRows, takes: NDArray[np.bool_]) -> bool:
        """Say whether it was made of these very columns, which never change."""
        return self._files is files and self._takes is takes

    def find(self, batch: BlockBatch | UnpackedBatch) -> Iterator[Block]:
        """Yield the references in these files, of which they get the places."""
        stride, places = self._places(tuple(batch.parts.items()), batch.last_file)
        for place in places:
            for block in batch.unpack(stride, place):
                if not len(block) or int(block.file.min()) >= 0:
                    yield block
                elif len(kept := np.flatnonzero(block.file >= 0)):
                    yield part_of(block, kept, block.file[kept])

    def _places(self, parts: _Parts, last_file: int) -> tuple[int, _Places]:
        """Return places of files by part and row, and how many rows a part takes there.

        A file of which several boxes count has several places, each in a column of its own.
        """
        if self._last is not None and self._last[0] == parts and self._last[1] > last_file:
            return self._last[1:]
        wanted = [(self._code[name], at) for name, at in parts if name in self._code]
        spans = [self._taken[self._starts[code] : self._starts[code + 1]] for code, _ in wanted]
        number = np.repeat([at for _, at in wanted], [len(span) for span in spans])
        mine = np.concatenate(spans)
        rows = self._files.row[mine]
        stride = 1 + max(last_file, int(rows.max()))
        key = number * stride + rows
        found: _Places = []
        while len(mine):
            place = np.full(stride * len(parts), -1, np.int32)
            place[key] = mine
            found.append(place)
            again = place[key] != mine
            mine, key = mine[again], key[again]
        if len(parts) == 1:
            self._last = parts, stride, found
        return stride, found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """An encoded part, of which nothing but the metadata is decoded."""

    size: int  # bytes, with what the metadata takes
    path: str  # in the catalog
    file: Any  # pq.ParquetFile
    by_path: Mapping[str, Sequence[int]]  # row groups of one array
    shared: Sequence[tuple[int, tuple[str, str] | None]]  # others, with their first and last path
    is_small: bool  # and arrays of it are read together

    @classmethod
    def of(cls, raw: bytes, path: str) -> _Part:
        with telling_damage(path):
            file: Any = open_parquet(raw)
            if not file.schema_arrow.equals(_SCHEMA):
                raise pa.ArrowInvalid("it has other columns")
            check_run(file.schema_arrow, path)
            metadata = file.metadata
            groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
            spans = [_paths(group) for group in groups]
        by_path: dict[str, list[int]] = defaultdict(list)
        shared: list[tuple[int, tuple[str, str] | None]] = []
        inside = 0
        for number, paths in enumerate(spans):
            if paths is not None and paths[0] == paths[1]:
                by_path[paths[0]].append(number)
            else:
                shared.append((number, paths))
            inside += groups[number].total_byte_size
        # of an array of a shared group no more can be decoded than the group
        most = _TOGETHER if 2 * len(shared) > len(groups) else _SMALL
        return cls(
            size=len(raw) + _METADATA * metadata.serialized_size,
            path=path,
            file=file,
            by_path=dict(by_path),
            shared=shared,
            is_small=inside <= most,
        )

    def read(self, paths: Collection[str] | None) -> Any:
        """Return a table with all blocks of some arrays, or of all; there may be others in it."""
        if paths is None:
            numbers = list(range(self.file.metadata.num_row_groups))
        else:
            numbers = sorted({number for path in paths for number in self.numbers(path)})
        with telling_damage(self.path):
            if not numbers:  # which old releases of pyarrow take for damage
                return self.file.schema_arrow.empty_table()
            # threads cost more than they bring where a row group holds a few blocks
            return self.file.read_row_groups(numbers, use_threads=False)

    def group(self, number: int) -> Any:
        """Return one row group."""
        with telling_damage(self.path):
            return self.file.read_row_group(number, use_threads=False)

    def numbers(self, path: str) -> list[int]:
        """Return the row groups that may hold blocks of an array."""
        shared = (n for n, span in self.shared if span is None or span[0] <= path <= span[1])
        return sorted([*self.by_path.get(path, ()), *shared])


def _paths(group: Any) -> tuple[str, str] | None:
    """Return the first and the last path of a row group, None where no statistics say it."""
    found = group.column(0).statistics
    return (found.min, found.max) if found is not None and found.has_min_max else None


@dataclass(frozen=True, slots=True)
class BlockBatch:
    """Packed blocks of one array in some parts of the catalog."""

    parts: Mapping[str, int]  # their numbers, by name
    part: NDArray[np.int64]  # (k,) the number of each block's
    blocks: PackedBlocks  # (k,)

    @classmethod
    def of(cls, parts: Mapping[str, int], table: Any) -> BlockBatch:
        """Make a batch of a table of one part, or of several, whose numbers `numbered` added."""
        part = np.zeros(len(table), np.int64)
        if len(parts) > 1:
            part = numbers_of(table[_PART]).astype(np.int64)
        ndim = numbers_of(table["ndim"]).astype(np.int64)
        columns = {name: _binary(table[name]) for name in COLUMNS}
        return cls(parts, part, PackedBlocks(ndim, columns))

    @property
    def last_file(self) -> int:
        """The greatest row of a file in its part, or 0."""
        return int(self.blocks.columns["files"].numbers("<i4").max(initial=0))

    def unpack(self, stride: int, place: NDArray[np.int32]) -> Iterator[Block]:
        """Yield references, whose files are numbered anew by the part's number and their row."""
        for low, high in self.blocks.runs(catalog.BLOCK_REFS):
            yield unpack_all(self.blocks.part(low, high), stride * self.part[low:high], place)


@dataclass(frozen=True, slots=True)
class UnpackedBatch:
    """Blocks of one array in one part, which were unpacked with those of other arrays."""

    parts: Mapping[str, int]
    blocks: Sequence[Block]

    @property
    def last_file(self) -> int:
        """The greatest row of a file in its part, or 0."""
        return max((int(block.file.max(initial=0)) for block in self.blocks), default=0)

    def unpack(self, stride: int, place: NDArray[np.int32]) -> Iterator[Block]:  # noqa: ARG002
        """Yield references as a `BlockBatch` does."""
        for block in self.blocks:
            yield replace(block, file=place[block.file])


@dataclass(frozen=True, slots=True)
class _OwnGroup:
    """A row group of one array."""

    rows: Any

    def table(self, path: str) -> Any:  # noqa: ARG002
        """Return the packed blocks of the array."""
        return self.rows

    def batch(self, parts: Mapping[str, int], path: str) -> BlockBatch:  # noqa: ARG002
        """Return the blocks of the array."""
        return BlockBatch.of(parts, self.rows)


class _SharedGroup:
    """A row group of several arrays, unpacked at once: most have a few references each."""

    def __init__(self, place: tuple[str, int], rows: Any) -> None:
        self.place = place  # its part and number
        self._rows = rows
        self._by_path = _rows_by_path(rows)

    @cached_property
    def _unpacked(self) -> list[Block]:
        blocks = BlockBatch.of({self.place[0]: 0}, self._rows).blocks
        return list(unpack_each(blocks, catalog.BLOCK_REFS))

    def table(self, path: str) -> Any:
        """Return the packed blocks of an array."""
        return _rows_in(self._rows, self._by_path.get(path, ()))

    def batch(self, parts: Mapping[str, int], path: str) -> UnpackedBatch:
        """Return the blocks of an array."""
        return UnpackedBatch(parts, [self._unpacked[row] for row in self._by_path.get(path, ())])


def _binary(column: Any) -> BinaryColumn:
    if column.null_count == len(column):
        return BinaryColumn.missing(len(column))
    return BinaryColumn(*bytes_of(column), are_known(one_array(column)))


def number_rows(table: Any, part: int) -> Any:
    """Return a table of packed blocks with the number of their part."""
    column = {_PART: [part] * len(table)}
    return table.append_column(_PART, table_of(column, pa.schema({_PART: pa.int32()}))[_PART])


def of_array(table: Any, path: str) -> Any:
    """Return the blocks of one array; Arrow's own comparison would import pandas."""
    return _rows_in(table, _rows_by_path(table).get(path, ()))


def _rows_by_path(table: Any) -> Mapping[str, Sequence[int]]:
    rows: dict[str, list[int]] = defaultdict(list)
    for row, each in enumerate(one_array(table["path"]).to_pylist()):
        rows[each].append(row)
    return dict(rows)


def _cut_by_path(table: Any, paths: Sequence[str]) -> Mapping[str, Any]:
    """Return the blocks of each of some arrays, which share the memory of one table."""
    by_path = _rows_by_path(table)
    rows = [by_path.get(path, ()) for path in paths]
    held = rows_of(table, np.array([*chain.from_iterable(rows)], np.int64))
    begins = accumulate(map(len, rows), initial=0)
    return {
        path: held.slice(begin, len(mine))
        for path, begin, mine in zip(paths, begins, rows, strict=False)
    }


def _rows_in(table: Any, rows: Sequence[int]) -> Any:
    return table if len(rows) == len(table) else rows_of(table, np.array(rows, np.int64))


type _Kept = tuple[Mapping[str, int], Any, int]
"""Parts, the blocks of one array in them, and bytes: a table if it is small, or a buffer of it."""


class ReferenceCache:
    """Keeps what was read before its time, as long as there is room.

    Args:
        budget: Bytes that may be kept, compressed.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._kept: dict[str, dict[str, _Kept]] = {}  # by array and part
        self._size = 0  # of all of it, at most

    def keep_only(self, paths: Collection[str]) -> None:
        """Let go of all but some arrays."""
        self._kept = {path: kept for path, kept in self._kept.items() if path in paths}

    def put(self, path: str, parts: Mapping[str, int], table: Any) -> None:
        """Keep the blocks of an array in some parts, if there is room; else they are read again."""
        held, size = table, table.nbytes + _TABLE
        if size > _PLAIN and 2 * (self._size + size) > self._budget:
            sink = pa.BufferOutputStream()
            how = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
            with pa.ipc.new_stream(sink, table.schema, options=how) as writer:
                writer.write_table(table.combine_chunks())
            held = sink.getvalue()
            size = held.size
        if self._size + size > self._budget:  # some may have made room
            there = {id(each): each for held in self._kept.values() for each in held.values()}
            self._size = sum(each for _, _, each in there.values())
        if self._size + size <= self._budget:
            self._size += size
            self._kept.setdefault(path, {}).update(dict.fromkeys(parts, (parts, held, size)))

    def holds(self, path: str, part: str) -> bool:
        """Say whether the blocks of an array in a part are kept."""
        return part in self._kept.get(path, ())

    def load(self, path: str, part: str) -> BlockBatch:
        """Return the batch that holds the blocks of an array in a part."""
        parts, held, _ = self._kept[path][part]
        if isinstance(held, pa.Table):
            return BlockBatch.of(parts, held)
        how = pa.ipc.IpcReadOptions(use_threads=False)
        with pa.ipc.open_stream(held, options=how) as reader:
            return BlockBatch.of(parts, reader.read_all())
