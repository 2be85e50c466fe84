"""Split uncompressed blocks of a file into chunks, equally for every format.

Every scanner uses the same rule for contiguous values, so files of several formats can be combined
into one dataset.
"""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.joining import LONGEST_RUN, find_edge
from icevirt.errors import ScanError, UnsupportedError
from icevirt.model.chunks import ChunkTable
from icevirt_scanners.context import ScanContext

_LAST_CHUNK = 2**32 - 1
LARGE = 128 * 1024 * 1024
"""Bytes of a chunk beyond which it becomes a finding."""


def virtual(
    path: str,
    index: NDArray[np.int64],
    offset: NDArray[np.int64],
    length: NDArray[np.int64],
    context: ScanContext,
) -> ChunkTable:
    """Make the references of the variable at ``path`` into the scanned file.

    Raises:
        ScanError: One leaves the file.
        UnsupportedError: There are more chunks along an axis than Icechunk can number.
    """
    file = context.source.file
    if index.size and int(index.max()) > _LAST_CHUNK:
        raise UnsupportedError(
            "more chunks along an axis than Icechunk can number",
            do="Leave it out with drop_variables.",
            file=file.url,
            variable=path,
        )
    check_inside(offset, length, size=file.size, url=file.url, variable=path)
    largest = int(length.max(initial=0))
    if largest > LARGE:
        message = (
            f"its chunks have up to {largest} bytes, and reading one value fetches a whole chunk"
        )
        context.tell(path, "large-chunks", message)
    return ChunkTable.virtual(index=index, offset=offset, length=length, locations=context.location)


def check_inside(
    offset: NDArray[np.int64], length: NDArray[np.int64], *, size: int, url: str, variable: str
) -> None:
    """Refuse references that leave the file. Raises `ScanError`."""
    outside = (offset < 0) | (length < 0) | (offset + length > size)
    if outside.any():
        row = int(np.argmax(outside))
        raise ScanError(
            "a chunk lies outside the file",
            do="The file is truncated or damaged; fetch it again.",
            file=url,
            variable=variable,
            offset=int(offset[row]),
            length=int(length[row]),
            size=size,
        )


def grid_of_block(
    shape: tuple[int, ...], itemsize: int, *, limit: int = LONGEST_RUN
) -> tuple[int, ...]:
    """Return the chunk shape into which a contiguous block is split.

    Every chunk is a contiguous run of the block: the leading axes have edge 1, one axis a divisor
    of its length, the others stay whole. Chunks are larger than ``limit`` where the length has no
    divisor that would not make a crowd of tiny ones of it (a prime). Where files are concatenated
    along the first axis, they are cut further: see `icevirt.archive.joining.cut_along`.
    """
    whole = tuple(max(length, 1) for length in shape)
    edges: list[int] = []
    for axis, length in enumerate(whole):
        row = prod(whole[axis + 1 :]) * itemsize
        if row <= limit:
            return (*edges, find_edge(length, limit // max(row, 1)), *whole[axis + 1 :])
        edges.append(1)
    return tuple(edges)


def block_chunks(
    shape: tuple[int, ...], chunk: tuple[int, ...], itemsize: int, at: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return index, offset and length of the chunks of a contiguous block that begins at ``at``."""
    counts = tuple(length // edge for length, edge in zip(shape, chunk, strict=True))
    n = prod(counts)
    size = prod(chunk) * itemsize
    offset = at + size * np.arange(n, dtype=np.int64)
    return all_chunks(counts), offset, np.full(n, size, np.int64)


def all_chunks(counts: tuple[int, ...]) -> NDArray[np.int64]:
    """Return (n, ndim) the index of each chunk of a grid, in C order."""
    return np.indices(counts, np.int64).reshape(len(counts), prod(counts)).T
