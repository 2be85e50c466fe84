"""Cache packed references of many small parts that are read together.

A part of small files holds a few kilobytes for each of its arrays, and opening it takes longer than
reading them. So a task that reads one array of many parts also reads the other arrays that it will
need from them, and keeps these compressed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from icevirt.archive.blocks.unpacking import COLUMNS, BinaryColumn, PackedBlocks
from icevirt.catalog.arrow_columns import bytes_of, known, numbers_of, rows_of
from icevirt.catalog.parquet import table_of

_PART = "part"


@dataclass(frozen=True, slots=True)
class BlockBatch:
    """Packed blocks of one array in some parts of the catalog."""

    parts: Mapping[str, int]  # their numbers, by name
    part: NDArray[np.int64]  # (k,) the number of each block's
    blocks: PackedBlocks  # (k,)

    @classmethod
    def of(cls, parts: Mapping[str, int], table: Any) -> BlockBatch:
        """Make a pile of a table that `numbered` made."""
        columns = {name: _cells(table[name]) for name in COLUMNS}
        blocks = PackedBlocks(_integers(table["ndim"]), columns)
        return cls(parts, _integers(table[_PART]), blocks)


def numbered(table: Any, part: int) -> Any:
    """Return a table of packed blocks with the number of their part."""
    column = {_PART: [part] * len(table)}
    return table.append_column(_PART, table_of(column, pa.schema({_PART: pa.int32()}))[_PART])


def of_array(table: Any, path: str) -> Any:
    """Return the blocks of one array; Arrow's own comparison would import pandas."""
    rows = [row for row, each in enumerate(table["path"].to_pylist()) if each == path]
    return rows_of(table, np.array(rows, np.int64))


@dataclass(frozen=True, slots=True)
class _Kept:
    parts: Mapping[str, int]
    raw: Any  # a buffer of Arrow: the blocks of one array

    @classmethod
    def of(cls, parts: Mapping[str, int], table: Any) -> _Kept:
        sink = pa.BufferOutputStream()
        how = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
        with pa.ipc.new_stream(sink, table.schema, options=how) as writer:
            writer.write_table(table.combine_chunks())
        return cls(parts, sink.getvalue())

    def load(self) -> BlockBatch:
        how = pa.ipc.IpcReadOptions(use_threads=False)
        with pa.ipc.open_stream(self.raw, options=how) as reader:
            return BlockBatch.of(self.parts, reader.read_all())


class ReferenceCache:
    """Keeps what was read before its time, as long as there is room.

    Args:
        budget: Bytes that may be kept, compressed.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._kept: dict[str, dict[str, _Kept]] = {}  # by array and part

    def keep_only(self, paths: Collection[str]) -> None:
        """Let go of all but some arrays."""
        self._kept = {path: kept for path, kept in self._kept.items() if path in paths}

    def put(self, path: str, parts: Mapping[str, int], table: Any) -> None:
        """Keep the blocks of an array in some parts, if there is room; else they are read again."""
        kept = _Kept.of(parts, table)
        if self._size() + kept.raw.size <= self._budget:
            self._kept.setdefault(path, {}).update(dict.fromkeys(parts, kept))

    def holds(self, path: str, part: str) -> bool:
        """Say whether the blocks of an array in a part are kept."""
        return part in self._kept.get(path, ())

    def load(self, path: str, part: str) -> BlockBatch:
        """Return the pile that the blocks of an array in a part are kept in."""
        return self._kept[path][part].load()

    def _size(self) -> int:
        piles = {id(each): each.raw.size for kept in self._kept.values() for each in kept.values()}
        return sum(piles.values())


def _integers(column: Any) -> NDArray[np.int64]:
    return numbers_of(column).astype(np.int64)


def _cells(column: Any) -> BinaryColumn:
    """Return a binary column of Arrow where it stands."""
    return BinaryColumn(*bytes_of(column), known(column.combine_chunks()))
