"""Read the chunk index of a dataset, whichever kind it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from struct import unpack_from

from icevirt_scanners.hdf5.index import arrays, btrees
from icevirt_scanners.hdf5.index.entries import ChunkEntries, ChunkGrid
from icevirt_scanners.hdf5.raw.space import Space, number, require

_READERS: dict[str, Callable[[Space, int, ChunkGrid], ChunkEntries]] = {
    "btree1": btrees.btree1_chunks,
    "btree2": btrees.btree2_chunks,
    "extensible": arrays.extensible_chunks,
    "fixed": arrays.fixed_chunks,
    "implicit": arrays.implicit_chunks,
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
        message: As `header.only` returns it.
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


_CHUNKED = 2
_CONTIGUOUS, _IN_CHUNKS = b"\1", b"\2"
_INDEX_KINDS = {1: "single", 2: "implicit", 3: "fixed", 4: "extensible", 5: "btree2"}
_PARAMETERS = {"implicit": 0, "fixed": 1, "extensible": 5, "btree2": 6}  # their bytes


@dataclass(frozen=True, slots=True)
class IndexLayout:
    """How the chunks of a dataset are indexed."""

    kind: str
    edges: tuple[int, ...]  # of a chunk, then the bytes of an element
    address: int | None  # of the index; None where no chunk was ever written


def layout_of(message: bytes, space: Space) -> IndexLayout:
    """Decode a layout message of version 3 and later."""
    return _layout(message, space.address_width)


@lru_cache(256)  # each dataset's is read twice
def _layout(message: bytes, wide: int) -> IndexLayout:
    version = number(message, 0, 1)
    require(version in (3, 4, 5) and number(message, 1, 1) == _CHUNKED, "another layout")
    return _old(message, wide) if version == 3 else _new(message, wide)


def _old(message: bytes, wide: int) -> IndexLayout:
    count = number(message, 2, 1)
    require(3 + wide + 4 * count <= len(message), "a layout cut short")
    edges = unpack_from(f"<{count}I", message, 3 + wide)
    return IndexLayout("btree1", edges, _address(message, 3, wide))


def _new(message: bytes, wide: int) -> IndexLayout:
    count, width = number(message, 3, 1), number(message, 4, 1)
    require(1 <= width <= 8, "edges of an odd size")
    edges = tuple(number(message, 5 + width * axis, width) for axis in range(count))
    at = 5 + width * count
    kind = _INDEX_KINDS.get(number(message, at, 1), "")
    require(kind in _PARAMETERS, "an index that only libhdf5 reads")
    return IndexLayout(kind, edges, _address(message, at + 1 + _PARAMETERS[kind], wide))


def without_address(message: bytes, wide: int) -> tuple[bytes, bool]:
    """Return what a layout message says beside an address, and whether that leads anywhere.

    It is all of the message where values stand in it, or where only libhdf5 reads it.
    """
    at = address_at(message)
    address = message[at : at + wide] if at else b""
    if len(address) < wide:
        return message, True
    return message[:at] + message[at + wide :], address != b"\xff" * wide


def address_at(message: bytes) -> int:
    """Return where in a layout message the address stands; 0 where it has none."""
    version, kind = message[:1], message[1:2]
    if version not in (b"\3", b"\4", b"\5") or kind not in (_CONTIGUOUS, _IN_CHUNKS):
        return 0
    if kind == _CONTIGUOUS:
        return 2
    if version == b"\3":
        return 3
    index = 5 + number(message, 3, 1) * number(message, 4, 1)
    name = _INDEX_KINDS.get(number(message, index, 1), "")
    return index + 1 + _PARAMETERS[name] if name in _PARAMETERS else 0


def _address(message: bytes, at: int, wide: int) -> int | None:
    address = number(message, at, wide)
    return None if address == (1 << 8 * wide) - 1 else address
