"""Where the bytes of a dataset lie: chunk indices and offsets as columns.

Offsets are absolute, user block included. No Python runs per chunk but libhdf5's callback into
``list.append``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.errors import ScanError

SPLIT = 16 * 1024 * 1024  # uncompressed blocks are split into chunks of at most this
STEP = 512  # bytes of a step along the concatenated dimension that is worth a chunk of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The stored chunks of a chunked dataset."""

    index: NDArray[np.int64]  # (n, ndim)
    offset: NDArray[np.int64]  # (n,)
    length: NDArray[np.int64]  # (n,)
    mask: NDArray[np.uint32]  # (n,) filters that were skipped

    def take(self, rows: NDArray[np.bool_]) -> Stored:
        """Return the rows where the mask is true."""
        return Stored(
            index=self.index[rows],
            offset=self.offset[rows],
            length=self.length[rows],
            mask=self.mask[rows],
        )


def stored_chunks(dsid: Any, chunk: tuple[int, ...]) -> Stored:
    """Read the chunk index of a chunked dataset in one pass.

    Chunks outside the shape are left out: libhdf5 never reads them either.

    Raises:
        ValueError: The index is damaged.
    """
    found: list[Any] = []
    dsid.chunk_iter(found.append)
    n, ndim = len(found), len(chunk)
    if not n:
        none = np.zeros(0, np.int64)
        return Stored(
            index=np.zeros((0, ndim), np.int64), offset=none, length=none, mask=none.astype("u4")
        )
    corners, masks, offsets, lengths = zip(*found, strict=True)
    corner = np.fromiter(chain.from_iterable(corners), np.int64, n * ndim).reshape(n, ndim)
    index, rest = np.divmod(corner, np.array(chunk, np.int64))
    if rest.any():
        raise ValueError("a chunk that does not lie on the chunk grid")
    stored = Stored(
        index=index,
        offset=np.fromiter(offsets, np.int64, n),
        length=np.fromiter(lengths, np.int64, n),
        mask=np.fromiter(masks, np.uint32, n),
    )
    inside = (corner < np.array(dsid.shape, np.int64)).all(axis=1)
    return stored if inside.all() else stored.take(inside)


def check_inside(
    offset: NDArray[np.int64], length: NDArray[np.int64], *, size: int, url: str, variable: str
) -> None:
    """Refuse references that leave the file.

    Raises:
        ScanError: At least one does.
    """
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
    shape: tuple[int, ...], itemsize: int, *, concat_axis: int | None = None, limit: int = SPLIT
) -> tuple[int, ...]:
    """Return the chunk shape into which a contiguous block is split.

    Every chunk is a contiguous run of the block: the leading axes have edge 1, one axis a divisor
    of its length, the others stay whole. A leading axis that files are concatenated along has edge
    1 (it then joins files of any length), unless its steps are tiny.
    """
    whole = tuple(max(length, 1) for length in shape)
    if concat_axis == 0 and shape and prod(whole[1:]) * itemsize >= STEP:
        inner = grid_of_block(shape[1:], itemsize, limit=limit)
        return (1, *inner)
    edges: list[int] = []
    for axis, length in enumerate(whole):
        row = prod(whole[axis + 1 :]) * itemsize
        if row <= limit:
            return (*edges, _divisor(length, limit // max(row, 1)), *whole[axis + 1 :])
        edges.append(1)
    return tuple(edges)


def _divisor(length: int, most: int) -> int:
    """Return the largest divisor of ``length`` that is at most ``most``."""
    if length <= most:
        return length
    best = 1
    for low in range(1, int(length**0.5) + 1):
        if length % low == 0:
            best = max([best, *(d for d in (low, length // low) if d <= most)])
    return best


def block_chunks(
    shape: tuple[int, ...], chunk: tuple[int, ...], itemsize: int, at: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return index, offset and length of the chunks of a contiguous block that begins at ``at``."""
    counts = tuple(length // edge for length, edge in zip(shape, chunk, strict=True))
    n = prod(counts)
    index = (
        np.stack([axis.reshape(-1) for axis in np.indices(counts, np.int64)], axis=1)
        if counts
        else np.zeros((1, 0), np.int64)
    )
    size = prod(chunk) * itemsize
    return index, at + size * np.arange(n, dtype=np.int64), np.full(n, size, np.int64)
