"""Write the references of cells as manifests; only names return to the driver.

The bytes of a manifest follow from the rows of its cell, in whatever order they come, and its id
covers them: a task that runs twice writes the same object again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import InvalidInputError
from icevirt.model import indices
from icevirt.model.chunks import ChunkTable, ChunkType, Locations
from icevirt.repo.assets import Assets
from icevirt.repo.reader import ArrayReader
from icevirt.storage.protocol import Storage
from icevirt.tasks.references.incoming import TargetArray, WrittenCell, opened, strings_of
from icevirt.versioning import chunk_tables
from icevirt.wire.manifests.distinct_rows import first_uses
from icevirt.wire.manifests.encoding import ManifestEncoding


@dataclass(frozen=True, slots=True, kw_only=True)
class CellWriter:
    """Where manifests go, and what is there."""

    repo: Storage
    level: int
    encoding: ManifestEncoding

    @property
    def assets(self) -> Assets:
        """Reads and writes objects of the repository, as it is configured."""
        return Assets(self.repo, level=self.level, manifests=self.encoding)

    def write(self, target: TargetArray, cell: int, payloads: Sequence[bytes]) -> WrittenCell:
        """Write the references of blocks over those that the cell has.

        Raises:
            InvalidInputError: Two rows are for one chunk.
            FormatError: Existing manifests hold facts of a newer client, which would be lost.
        """
        new = _table(target, payloads)
        assets = self.assets
        before = ArrayReader(assets, target.node).table_to_rewrite(target.in_cell(cell))
        if len(before):
            inside = indices.inside(before.index, target.grid.num_chunks)
            own = np.flatnonzero(inside)
            own = own[target.grid.cells_of(before.index[own]) == cell]
            before = before.take(own)
        table = chunk_tables.compact(chunk_tables.overlay(before, new))
        if not len(table):
            return WrittenCell(path=target.node.path, cell=cell)
        file = assets.put_manifest({target.node.id: _in_order(table)})
        return WrittenCell(
            path=target.node.path,
            cell=cell,
            written=len(new),
            manifest_id=file.id,
            size_bytes=file.size_bytes,
            num_chunk_refs=file.num_chunk_refs,
            extents=table.extents(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RestTask:
    """Cells to which nothing came, whose references lie in manifests that go."""

    writer: CellWriter
    target: TargetArray
    cells: tuple[int, ...]


def write_rest(task: RestTask) -> tuple[WrittenCell, ...]:
    """Write the references of cells that have to be written though nothing came."""
    return tuple(task.writer.write(task.target, cell, ()) for cell in task.cells)


def write_cells(
    writer: CellWriter,
    targets: Sequence[TargetArray],
    blocks: Mapping[tuple[int, int], Sequence[bytes]],
) -> Iterator[WrittenCell]:
    """Write cells, one at a time.

    Args:
        writer: Where to.
        targets: The arrays.
        blocks: By number of the array and cell.
    """
    for (array, cell), payloads in sorted(blocks.items()):
        yield writer.write(targets[array], cell, payloads)


def _table(target: TargetArray, payloads: Sequence[bytes]) -> ChunkTable:
    """Return the rows of blocks, in order; each distinct object is there once."""
    ndim = len(target.node.num_chunks)
    if not payloads:
        return ChunkTable.empty(ndim)
    rows = opened(payloads)
    count = rows.num_rows
    index = np.empty((count, ndim), np.uint32)
    for axis in range(ndim):
        index[:, axis] = rows[f"i{axis}"].to_numpy()
    order = np.lexsort(index.T[::-1]) if ndim else np.arange(count)
    index = np.ascontiguousarray(index[order])
    _refuse_twice(target.node.path, index, order, rows)
    url, etag = (_codes(rows, name)[order] for name in ("location", "etag"))
    seconds = rows["last_modified"].to_numpy()[order].astype(np.int64)
    _, pair = first_uses(url * (int(etag.max(initial=0)) + 1) + etag)
    first, source = first_uses(pair * (int(seconds.max(initial=0)) + 1) + seconds)
    return ChunkTable(
        index=index,
        kind=np.full(count, ChunkType.virtual, np.uint8),
        source=source.astype(np.uint32),
        offset=rows["offset"].to_numpy()[order],
        length=rows["length"].to_numpy()[order],
        locations=Locations(
            url=_distinct(rows, "location")[url[first]],
            etag=_distinct(rows, "etag")[etag[first]],
            last_modified=seconds[first].astype(np.uint32),
        ),
    )


def _in_order(table: ChunkTable) -> ChunkTable:
    """Return a table with its locations in the order of first use, whatever it was made of."""
    virtual = np.flatnonzero(table.kind == ChunkType.virtual)
    if not len(virtual):
        return table
    first, number = first_uses(table.source[virtual])
    source = table.source.copy()
    source[virtual] = number
    return ChunkTable(
        index=table.index,
        kind=table.kind,
        source=source,
        offset=table.offset,
        length=table.length,
        locations=table.locations.take(table.source[virtual][first]),
        chunk_ids=table.chunk_ids,
        inline=table.inline,
    )


def _codes(rows: Any, name: str) -> NDArray[np.int64]:
    found: NDArray[np.int64] = rows[name].combine_chunks().indices.to_numpy().astype(np.int64)
    return found


def _distinct(rows: Any, name: str) -> Any:
    return strings_of(rows[name].combine_chunks().dictionary)


def _refuse_twice(
    path: str, index: NDArray[np.uint32], order: NDArray[np.int64], rows: Any
) -> None:
    same = np.all(index[1:] == index[:-1], axis=1)
    if not same.any():
        return
    at = int(same.argmax())
    two = [
        {name: rows[name][int(row)].as_py() for name in ("location", "offset", "length")}
        for row in order[at : at + 2]
    ]
    raise InvalidInputError(
        "two references are for the same chunk",
        do="Leave one of them out, or give them different indices.",
        path=path,
        index=index[at].tolist(),
        first=two[0],
        second=two[1],
    )
