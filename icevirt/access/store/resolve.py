"""Plan fetches for zarr keys: which metadata, and which ranges of which objects. Pure.

Looking up references may fetch manifests, so a request takes two steps: `sort_out` groups the keys
by what they name, and `plan` turns the references found for one array into ranges, cut to the bytes
requested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, SuffixByteRequest

from icevirt.access.store.keys import ChunkKey, MetadataKey, parse
from icevirt.model.chunks import ChunkType
from icevirt.repo.reader import FoundChunks

type Request = tuple[str, ByteRequest | None]


@dataclass(frozen=True, slots=True, eq=False)
class ChunksWanted:
    """Chunks of one array; row i of ``index`` answers request ``rows[i]``."""

    path: str
    rows: tuple[int, ...]
    index: NDArray[np.int64]  # (k, ndim)


@dataclass(frozen=True, slots=True, eq=False)
class GroupedRequests:
    """Requests by what they name; those that name nothing are in neither group."""

    requests: tuple[Request, ...]
    metadata: tuple[tuple[int, str], ...]  # (request, path of the node)
    chunks: tuple[ChunksWanted, ...]


def sort_out(requests: Sequence[Request]) -> GroupedRequests:
    """Group requests: metadata, and chunks by array."""
    metadata = []
    arrays: dict[tuple[str, int], tuple[list[int], list[tuple[int, ...]]]] = {}
    for row, (key, _) in enumerate(requests):
        match parse(key):
            case MetadataKey(path=path):
                metadata.append((row, path))
            case ChunkKey(path=path, index=index):
                rows, indices = arrays.setdefault((path, len(index)), ([], []))
                rows.append(row)
                indices.append(index)
            case None:
                pass
    return GroupedRequests(
        tuple(requests),
        tuple(metadata),
        tuple(
            ChunksWanted(path, tuple(rows), np.array(indices, np.int64).reshape(len(rows), ndim))
            for (path, ndim), (rows, indices) in arrays.items()
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FetchPlan:
    """Ranges to read, ordered by object and offset; ``rows`` says which request each answers.

    Chunks that were never written are not in it. ``source`` is a row of the references' locations
    or chunk ids, according to ``kind``.
    """

    rows: NDArray[np.int64]  # (k,)
    kind: NDArray[np.uint8]  # (k,) ChunkType
    source: NDArray[np.uint32]  # (k,)
    offset: NDArray[np.int64]  # (k,) bytes
    length: NDArray[np.int64]  # (k,) bytes
    found: FoundChunks

    def __len__(self) -> int:
        return len(self.rows)


def plan(
    found: FoundChunks, rows: Sequence[int], byte_ranges: Sequence[ByteRequest | None]
) -> FetchPlan:
    """Return what to read for the references found, cut to the bytes asked for."""
    start, end = all_bounds(byte_ranges, found.length)
    offset = found.offset.astype(np.int64) + start
    order = np.lexsort((offset, found.source, found.kind))
    order = order[found.kind[order] != ChunkType.uninitialized]
    return FetchPlan(
        rows=np.asarray(rows, np.int64)[order],
        kind=found.kind[order],
        source=found.source[order],
        offset=offset[order],
        length=(end - start)[order],
        found=found,
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
