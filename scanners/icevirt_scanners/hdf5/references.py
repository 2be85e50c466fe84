"""Where the bytes of a dataset lie: chunk indices and offsets as columns.

Offsets are absolute, user block included. No Python runs per chunk but libhdf5's callback into
``list.append``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray


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
