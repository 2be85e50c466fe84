"""Convert zarr's byte requests to ranges of chunks, for one chunk or many at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from zarr.abc.store import (
    ByteRequest,
    OffsetByteRequest,
    RangeByteRequest,
    SuffixByteRequest,
)


def bounds(request: ByteRequest | None, length: int) -> tuple[int, int]:
    """Return where a request begins and ends in a value of ``length`` bytes.

    What lies beyond the end is cut off, so the range may be empty.

    Raises:
        TypeError: It is none of zarr's byte requests.
    """
    match request:
        case None:
            return 0, length
        case RangeByteRequest(start=start, end=end):
            start = min(start, length)
            return start, max(start, min(end, length))
        case OffsetByteRequest(offset=offset):
            return min(offset, length), length
        case SuffixByteRequest(suffix=suffix):
            return max(0, length - suffix), length
        case _:
            raise TypeError(f"Unexpected byte_range, got {request}.")


def all_bounds(
    requests: Sequence[ByteRequest | None], length: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the begins and ends of one request for each value; whole values cost no loop."""
    end = length.astype(np.int64)
    start = np.zeros_like(end)
    for row, request in enumerate(requests):
        if request is not None:
            start[row], end[row] = bounds(request, int(end[row]))
    return start, end
