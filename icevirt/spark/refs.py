"""The ``refs`` table of a catalog part: a row group for each array, so that one is read alone.

Only paths have statistics; they say which row group is whose. The bytes depend on the content only.
"""

from __future__ import annotations

import io
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import batched, groupby
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from icevirt.archive import catalog
from icevirt.archive.blocks import part_of
from icevirt.archive.facts import FileColumns
from icevirt.archive.packing import Block, PackedBlock, unpack
from icevirt.spark.tables import table_of, telling_damage
from icevirt.storage.protocol import Storage

_BLOCKS = 16  # of one array in a row group: what a reader of a huge file has in memory at once
_SMALL = 1 << 20  # bytes of decoded columns up to which all arrays of a part are read at once
_BUDGET = 128 << 20  # bytes of encoded parts that a reader keeps
_COLUMNS = tuple(column.name for column in fields(PackedBlock))
_SCHEMA = pa.schema([(name, getattr(pa, kind)()) for name, kind in catalog.REFS])


def encode(refs: Iterable[tuple[str, PackedBlock]]) -> bytes:
    """Encode blocks with the paths of their arrays; those of an array stand together.

    Of blocks that are made one by one, no more than a row group is held.
    """
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, _SCHEMA, compression="zstd", write_statistics=["path"]) as writer:
        for path, rows in groupby(refs, key=lambda row: row[0]):
            for group in batched(rows, _BLOCKS):
                writer.write_table(_table(path, [block for _, block in group]))
    return sink.getvalue()


def _table(path: str, blocks: Sequence[PackedBlock]) -> Any:
    columns: dict[str, list[Any]] = {"path": [path] * len(blocks)}
    for name in _COLUMNS:
        columns[name] = [getattr(block, name) for block in blocks]
    return table_of(columns, _SCHEMA)


class Refs(Protocol):
    """Where a window finds its references: in the catalog, or in what was shuffled to it."""

    def located(self, files: FileColumns, takes: NDArray[np.bool_], path: str) -> Iterator[Block]:
        """Yield the references of one array in some of the files, which number these."""


class RefsReader:
    """Reads the references of arrays, keeping the parts that it used last.

    Args:
        storage: The catalog.
        budget: Bytes of encoded parts to keep; the last part is kept whatever its size.
    """

    def __init__(self, storage: Storage, *, budget: int = _BUDGET) -> None:
        self._storage = storage
        self._budget = budget
        self._parts: OrderedDict[str, _Part] = OrderedDict()  # the one used last at the end

    def blocks(self, part: str, path: str) -> Iterator[PackedBlock]:
        """Yield the packed references of one array in a part."""
        return self._part(part).blocks(path)

    def located(self, files: FileColumns, takes: NDArray[np.bool_], path: str) -> Iterator[Block]:
        """Yield the references of one array in some of the files.

        Blocks hold no others, and number the files as ``files`` does.
        """
        taken = np.flatnonzero(takes)
        taken = taken[np.argsort(files.part[taken], kind="stable")]
        ends = np.searchsorted(files.part[taken], np.arange(len(files.parts)), side="right")
        for part, mine in zip(files.parts, np.split(taken, ends[:-1]), strict=True):
            for packed in self.blocks(part, path) if len(mine) else ():
                block = unpack(packed)
                place = places_of(block, files.row[mine], mine)
                rows = np.flatnonzero(place >= 0)
                if len(rows):
                    yield part_of(block, rows, place[rows])

    def _part(self, name: str) -> _Part:
        if name not in self._parts:
            path = catalog.path_of("refs", name)
            self._parts[name] = _Part.of(self._storage.get(path), path)
            while len(self._parts) > 1 and self._size() > self._budget:
                self._parts.popitem(last=False)
        self._parts.move_to_end(name)
        return self._parts[name]

    def _size(self) -> int:
        return sum(part.size for part in self._parts.values())


def places_of(
    block: Block, rows: NDArray[np.integer], places: NDArray[np.integer]
) -> NDArray[np.int64]:
    """Return the place of each reference's file, -1 where it is none of ``rows``."""
    size = 1 + max(int(rows.max(initial=0)), int(block.file.max(initial=0)))
    place = np.full(size, -1, np.int64)
    place[rows] = places
    found: NDArray[np.int64] = place[block.file]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """An encoded part, of which nothing but the metadata is decoded unless it is small."""

    size: int  # bytes
    path: str  # in the catalog
    file: Any  # pq.ParquetFile
    groups: Mapping[str | None, Sequence[int]]  # row groups by path, under None those of any path
    decoded: Mapping[str, Sequence[PackedBlock]] | None  # by path

    @classmethod
    def of(cls, raw: bytes, path: str) -> _Part:
        with telling_damage(path):
            file: Any = pq.ParquetFile(pa.BufferReader(raw))
        groups: dict[str | None, list[int]] = defaultdict(list)
        for number in range(file.num_row_groups):
            groups[_only_path(file.metadata.row_group(number))].append(number)
        inside = sum(file.metadata.row_group(n).total_byte_size for n in range(file.num_row_groups))
        decoded = None
        if inside <= _SMALL:
            with telling_damage(path):
                decoded = _decoded(file.read(use_threads=False))
        held = len(raw) + inside * (decoded is not None)
        return cls(size=held, path=path, file=file, groups=dict(groups), decoded=decoded)

    def blocks(self, path: str) -> Iterator[PackedBlock]:
        if self.decoded is not None:
            yield from self.decoded.get(path, ())
            return
        for number in sorted([*self.groups.get(path, ()), *self.groups.get(None, ())]):
            with telling_damage(self.path):
                # threads cost more than they bring where a row group holds a few blocks
                group = self.file.read_row_group(number, use_threads=False)
            table = group.filter(pc.equal(group["path"], pa.scalar(path)))
            for row in table.select(_COLUMNS).to_pylist():
                yield PackedBlock(**row)


def _decoded(table: Any) -> dict[str, list[PackedBlock]]:
    """Return all blocks of a table by path, in their order."""
    found: dict[str, list[PackedBlock]] = defaultdict(list)
    paths = table["path"].to_pylist()
    for path, row in zip(paths, table.select(_COLUMNS).to_pylist(), strict=True):
        found[path].append(PackedBlock(**row))
    return dict(found)


def _only_path(group: Any) -> str | None:
    """Return the path of all rows of a row group, None where the statistics do not say it."""
    told = group.column(0).statistics
    if told is None or not told.has_min_max or told.min != told.max:
        return None
    path: str = told.min
    return path
