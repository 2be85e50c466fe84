"""Read the layout message of a chunked dataset: which index it has, and where."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from struct import unpack_from

from icevirt_scanners.hdf5.raw.fields import number, require
from icevirt_scanners.hdf5.raw.space import Space

_CHUNKED = 2
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


@lru_cache(256)  # a dataset's is asked for twice
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


def _address(message: bytes, at: int, wide: int) -> int | None:
    address = number(message, at, wide)
    return None if address == (1 << 8 * wide) - 1 else address
