"""Read what a write task needs of the catalog: names of files, references, and values beside.

A task knows the part and row of its files: a few bytes each, however long their names are. If the
plan gives files other names than the catalog, these travel with the task instead.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from icevirt.archive import catalog
from icevirt.archive.blocks.cutting import cut, join, part_of
from icevirt.archive.blocks.packing import Block
from icevirt.archive.facts import FileColumns
from icevirt.archive.joining import Form, itemsize_of
from icevirt.archive.plan import FileRows, WindowTask
from icevirt.catalog.arrow_columns import bytes_of, numbers_of, places_by_part, rows_at, rows_of
from icevirt.catalog.facts_beside import ValuesReader
from icevirt.catalog.parquet import read_table, rewritten, table_of
from icevirt.catalog.references import WindowReferences
from icevirt.errors import FormatError
from icevirt.model.chunks import ChunkType
from icevirt.model.strings import Strings
from icevirt.storage.protocol import Storage

_COLUMNS = ["row", "url", "etag", "size", "last_modified"]
_SCHEMA = pa.schema([(name, getattr(pa, dict(catalog.FILES)[name])()) for name in _COLUMNS])


class TaskFiles:
    """The files of some items: where they are described, and their names once these are needed.

    Args:
        storage: The catalog.
        files: The files, with their names where the catalog has not the same.
        led: URL prefixes into which references of the files may lead.
    """

    def __init__(
        self, storage: Storage, files: FileRows | FileColumns, *, led: Sequence[str] = ()
    ) -> None:
        self._storage = storage
        self.led = led
        self._named = files if isinstance(files, FileColumns) else None
        self._last: tuple[int, Any] | None = None  # the part that was read last
        self.rows = files if isinstance(files, FileRows) else FileRows.of(files)

    def __len__(self) -> int:
        return len(self.rows)

    def name_files(self) -> FileColumns:
        """Return the files with their names.

        Raises:
            FormatError: The catalog is damaged.
        """
        if self._named is None:
            self._named = self._read()
        return self._named

    def url(self, place: int) -> str:
        """Return the name of one file; nothing is read of parts that do not describe it."""
        if self._named is not None:
            return self._named.url[place]
        part = int(self.rows.part[place])
        if self._last is None or self._last[0] != part:
            self._last = part, self._table(part)
        table = self._last[1]
        (at,) = self._places(part, table, self.rows.row[[place]]).tolist()
        url: str = table["url"][at].as_py()
        return url

    def remedy(self, place: int) -> str:
        """Return what to do if the part that describes a file is damaged."""
        part = self.rows.parts[int(self.rows.part[place])]
        return rewritten(part)

    def _read(self) -> FileColumns:
        rows, runs = self.rows, places_by_part(self.rows.part, len(self.rows.parts))
        tables = [table_of(dict.fromkeys(_COLUMNS, ()), _SCHEMA)] if not len(rows) else []
        for part, run in enumerate(runs):
            if len(run):
                table = self._table(part)
                tables.append(rows_of(table, self._places(part, table, rows.row[run])))
        place = np.argsort(np.concatenate(runs), kind="stable")
        table = pa.concat_tables(tables)
        return FileColumns(
            parts=rows.parts,
            part=rows.part,
            row=rows.row,
            url=Strings(*bytes_of(table["url"]))[place],
            etag=Strings(*bytes_of(table["etag"]))[place],
            size=numbers_of(table["size"])[place],
            last_modified=numbers_of(table["last_modified"])[place],
        )

    def _table(self, part: int) -> Any:
        path = catalog.path_of("files", self.rows.parts[part])
        return read_table(self._storage, path, _COLUMNS)

    def _places(self, part: int, table: Any, rows: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return where rows of a part stand in its table.

        Raises:
            FormatError: One is not there.
        """
        places = rows_at(numbers_of(table["row"]), rows)
        if (places < 0).any():
            raise FormatError(
                "a part of the catalog lacks files that the plan needs",
                do="Delete the catalog and scan again.",
                part=self.rows.parts[part],
            )
        return places


@dataclass(frozen=True, slots=True)
class WindowBlocks:
    """Where windows find what they are made of."""

    refs: WindowReferences
    values: ValuesReader

    def expect(self, files: FileRows, paths: Collection[str]) -> None:
        """Take note of arrays that will be read of some files, each once; forget all else."""
        self.refs.expect(files, paths)

    def of(self, files: FileRows, window: WindowTask, takes: NDArray[np.bool_]) -> Iterator[Block]:
        """Yield the references of a window in some of the files, which number these."""
        beside = takes & window.is_form(Form.beside)
        is_beside = bool(beside.any())
        # of windows that take the same files the reader finds these once
        for path, mine in window.read_from(takes & ~beside if is_beside else takes):
            for block in self.refs.locate(files, mine, path):
                yield _cut(window, block)
        for path, mine in window.read_from(beside) if is_beside else ():
            part = np.where(mine, files.part, -1).astype(np.int32)
            if (found := self.values.locate(files.parts, part, files.row, path)) is not None:
                yield found


def _cut(window: WindowTask, block: Block) -> Block:
    """Return a block whose runs of values are cut as the array is."""
    if window.form is None or not (is_cut := window.is_form(Form.cut)[block.file]).any():
        return block
    ndim = block.index.shape[1]
    size = itemsize_of(json.loads(window.zarr_json)["data_type"])
    row = prod(window.chunk_shape[len(window.chunk_shape) - ndim + 1 :]) * size
    edge = _edges(window, ndim)[block.file]
    parts = [np.flatnonzero(~is_cut)]
    parts += [np.flatnonzero(is_cut & (edge == each)) for each in np.unique(edge[is_cut]).tolist()]
    found = [part_of(block, parts[0], block.file[parts[0]])]
    for some in parts[1:]:
        step = row * int(edge[some[0]])
        kept = _inside(window, block, some, step)
        mine = part_of(block, kept, block.file[kept])
        rows = np.arange(len(kept))
        if len(kept):
            found.append(cut(mine, rows, step, _extent(window, mine, edge[kept])))
    return join([each for each in found if len(each)] or found)


def _edges(window: WindowTask, ndim: int) -> NDArray[np.int64]:
    """Return how long the chunks of each file are along its first axis."""
    if window.hybrid is None:
        edge = window.chunk_shape[len(window.chunk_shape) - ndim]
        return np.full(len(window.takes), edge, np.int64)
    own = [each.chunk_shape[0] if each.chunk_shape else 1 for each in window.hybrid.schemas]
    found: NDArray[np.int64] = np.array(own, np.int64)[window.hybrid.own]
    return found


def _extent(window: WindowTask, block: Block, edge: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many chunks of its first axis the array has in the file of each row."""
    axis = len(window.chunk_shape) - block.index.shape[1]
    steps: NDArray[np.int64] = np.full(len(block), window.shape[axis])
    if axis in window.axes:
        steps = window.in_files[block.file, window.axes.index(axis)]
    found: NDArray[np.int64] = -(-steps // edge)
    return found


def _inside(
    window: WindowTask, block: Block, rows: NDArray[np.int64], step: int
) -> NDArray[np.int64]:
    """Return the rows of which the window wants a step, so that no huge file is ever cut whole.

    Runs that the catalog holds encoded are all wanted: how many steps they have is not known here.
    """
    axis = len(window.chunk_shape) - block.index.shape[1]
    if not window.box or axis not in window.axes:
        return rows
    low, high = window.box[axis]
    starts = window.starts[:, window.axes.index(axis)]
    begin = window.grids[axis].chunk_at(starts)[block.file[rows]]
    steps = block.length[rows].astype(np.int64) // step
    first = block.index[rows, 0].astype(np.int64) * steps
    last = first + steps - 1
    if (own := window.chunks_of_files(window.axes.index(axis))) is not None:
        # what does not count is looked at with what does, so that each reference is counted once
        lows, highs = (each[block.file[rows]] for each in own)
        first, last = np.clip(first, lows, highs) - lows, np.clip(last, lows, highs) - lows
    inside = (begin + first < high) & (begin + last >= low)
    kept: NDArray[np.int64] = rows[inside | (block.kind[rows] != ChunkType.virtual)]
    return kept
