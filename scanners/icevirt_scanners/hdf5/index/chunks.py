"""Read the chunk index of a dataset, whichever kind it is."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from icevirt_scanners.hdf5.index import btree1, btree2, extensible_array, fixed_array
from icevirt_scanners.hdf5.index.entries import ChunkEntries, ChunkGrid
from icevirt_scanners.hdf5.index.layout import layout_of
from icevirt_scanners.hdf5.raw.fields import require
from icevirt_scanners.hdf5.raw.space import Space

_READERS: dict[str, Callable[[Space, int, ChunkGrid], ChunkEntries]] = {
    "btree1": btree1.chunks,
    "btree2": btree2.chunks,
    "extensible": extensible_array.chunks,
    "fixed": fixed_array.chunks,
    "implicit": fixed_array.implicit_chunks,
}
_RUNS = ("btree1", "fixed")  # whose readers can read runs


def found_chunks(
    space: Space,
    message: bytes,
    *,
    chunk: tuple[int, ...],
    shape: tuple[int, ...],
    limits: tuple[int | None, ...],
    run: tuple[int, int] | None = None,
) -> ChunkEntries:
    """List the chunks of a dataset by its layout message.

    Args:
        space: The file.
        message: As `header.layout_message` returns it.
        chunk: Edges of a chunk, which the layout message must repeat.
        shape: Of the dataset.
        limits: How far its axes may grow; None without limit.
        run: Of places in its chunk grid, in C order; None for all chunks.

    Raises:
        NotUnderstoodError: The message or the index is not as this reader expects it.
    """
    layout = layout_of(message, space)
    require(layout.edges[:-1] == chunk, "chunks of another shape")
    grid = ChunkGrid(
        chunk=chunk, shape=shape, limits=limits, chunk_bytes=prod(layout.edges), run=run
    )
    require(run is None or layout.kind in _RUNS, "an index that is not in the order of the grid")
    if layout.address is None:
        return ChunkEntries.joined([], len(chunk))
    return _READERS[layout.kind](space, layout.address, grid)
