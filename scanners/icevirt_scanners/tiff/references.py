"""Refer to the pieces of an image, given where its directory says that they lie."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from icevirt.model.chunks import ChunkTable
from icevirt.scan.contract import prefetch
from icevirt_scanners import blocks
from icevirt_scanners.context import ScanContext
from icevirt_scanners.tiff.codecs import fill_up
from icevirt_scanners.tiff.directories import Directory, TiffDamageError
from icevirt_scanners.tiff.images import (
    NONE,
    STRIP_COUNTS,
    STRIP_OFFSETS,
    TILE_COUNTS,
    TILE_OFFSETS,
    Image,
    UnreadImageError,
)

type Edges = tuple[int, int, int]


def refer(
    path: str, image: Image, directory: Directory, context: ScanContext
) -> tuple[Edges, ChunkTable]:
    """Return the chunks of an image and the references to them.

    Pieces that were never written are left out: they have neither a place nor a length.

    Raises:
        TiffDamageError: They do not cover the image, or leave the file.
        UnreadImageError: They are not the chunks of a grid.
    """
    tags = (TILE_OFFSETS, TILE_COUNTS) if image.is_tiled else (STRIP_OFFSETS, STRIP_COUNTS)
    down, across = image.counts
    number = image.planes * down * across
    offset, length = (_column(directory, tag, number) for tag in tags)
    written = length != 0
    if (written & (offset == 0)).any():
        raise TiffDamageError("a piece of the image lies at the begin of the file")
    if image.compression == NONE:
        run = _find_run(image, offset, length)
        if run is not None:
            return _cut(path, image, run, context)
    rows = np.flatnonzero(written)
    if image.compression == NONE:
        expected = _expected(image, rows)
        if (length[rows] < expected).any():
            raise TiffDamageError("a piece of the image is shorter than its pixels")
        length[rows] = expected
    index = _index(image, rows)
    is_short = _is_last(image, rows) if image.last_rows != image.rows else np.zeros(0, np.int64)
    filled, chunks = _fill_up(image, offset[is_short], length[is_short], context, path)
    held = is_short[filled]
    rest = ~np.isin(rows, held)
    virtual = blocks.virtual(path, index[rest], offset[rows][rest], length[rows][rest], context)
    if not chunks:
        return image.chunk, virtual
    inline = ChunkTable.of_inline(index=_index(image, held), chunks=chunks)
    return image.chunk, ChunkTable.concatenate([virtual, inline])


def _column(directory: Directory, tag: int, number: int) -> NDArray[np.int64]:
    if tag not in directory:
        raise UnreadImageError(f"an image without the lengths or places of its pieces (tag {tag})")
    found = directory.integers(tag)
    if len(found) < number:
        raise TiffDamageError(f"{len(found):,} pieces for an image of {number:,} (tag {tag})")
    return found[:number].copy()


def _index(image: Image, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the places of pieces in the grid of chunks: plane, down, across."""
    down, across = image.counts
    plane, within = np.divmod(rows, down * across)
    return np.column_stack([plane, *np.divmod(within, across)])


def _is_last(image: Image, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return those rows that are the last strip of a plane."""
    down, _ = image.counts
    found: NDArray[np.int64] = rows[rows % down == down - 1]
    return found


def _expected(image: Image, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bytes of uncompressed pieces."""
    found = np.full(len(rows), image.rows * image.row_bytes, np.int64)
    if image.last_rows != image.rows:
        found[np.isin(rows, _is_last(image, rows))] = image.last_rows * image.row_bytes
    return found


def _fill_up(
    image: Image,
    offset: NDArray[np.int64],
    length: NDArray[np.int64],
    context: ScanContext,
    path: str,
) -> tuple[list[int], Sequence[bytes]]:
    """Return which of the last strips are short, and the whole strips that are stored instead."""
    url, size = context.source.file.url, context.source.file.size
    blocks.check_inside(offset, length, size=size, url=url, variable=path)
    prefetch(context.source, list(zip(offset.tolist(), (offset + length).tolist(), strict=True)))
    held, chunks = [], []
    for row, (at, count) in enumerate(zip(offset.tolist(), length.tolist(), strict=True)):
        room = image.rows * image.row_bytes
        context.budget.spend(room, variable=path, cause="its last strip is shorter than the others")
        whole = fill_up(image, directory_bytes(context, at, count))
        if whole is not None:
            held.append(row)
            chunks.append(whole)
    if held:
        text = "its last strip is shorter than the others, and stored with rows behind its end"
        context.tell(path, "chunks-stored", text)
    return held, chunks


def directory_bytes(context: ScanContext, at: int, count: int) -> bytes:
    """Return bytes of the file. Raises `TiffDamageError` if it ends before."""
    found = context.source.read(at, count)
    if len(found) != count:
        raise TiffDamageError(f"the file ends within {count:,} bytes at {at:,}")
    return found


def _find_run(image: Image, offset: NDArray[np.int64], length: NDArray[np.int64]) -> int | None:
    """Return where an uncompressed image begins that is one run of bytes; None if it is none."""
    if image.is_tiled or image.is_packed:
        return None
    expected = _expected(image, np.arange(len(offset)))
    if (length != expected).any() or (offset[1:] != offset[:-1] + expected[:-1]).any():
        return None
    return int(offset[0])


def _cut(path: str, image: Image, begin: int, context: ScanContext) -> tuple[Edges, ChunkTable]:
    """Cut the run of an uncompressed image into chunks that divide it."""
    size = image.dtype.itemsize
    if image.is_interleaved:
        shape: Edges = (image.height, image.width, image.samples)
        edges = blocks.grid_of_block(shape, size)
        if edges[2] == image.samples:
            index, offset, length = blocks.block_chunks(shape, edges, size, begin)
            chunk = (edges[2], edges[0], edges[1])
            turned = index[:, [2, 0, 1]]
            return chunk, blocks.virtual(path, turned, offset, length, context)
        raise UnreadImageError(f"pixels of {image.samples * size:,} bytes")
    edges = blocks.grid_of_block(image.shape, size)
    index, offset, length = blocks.block_chunks(image.shape, edges, size, begin)
    return (edges[0], edges[1], edges[2]), blocks.virtual(path, index, offset, length, context)
