"""Read storage properties from a dataset's header: space, fill value, filters, layout."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from icevirt_scanners.hdf5.raw.header import DATASPACE, Message, SharedMessages, only
from icevirt_scanners.hdf5.raw.space import Space, number, require

FILL_VALUE, FILTER_PIPELINE = 0x05, 0x0B
_SCALAR, _SIMPLE, _NULL = 0, 1, 2
_LIMITED = 1  # flag of a dataspace: it says how far axes may grow
_MOST_AXES = 32
_NEVER = 1  # when fill values are written
_UNNAMED = 256  # numbers of filters below this have no name in newer messages


class Extent(NamedTuple):
    """The shape of a dataset."""

    shape: tuple[int, ...] | None  # None without a dataspace
    limits: tuple[int, ...]  # how far each axis may grow


type Filter = tuple[int, int, tuple[int, ...], bytes]
"""Number, flags, values and name, as h5py's property lists return them."""


class StorageLayout(NamedTuple):
    """Where the values of a dataset without chunks stand."""

    inside: bytes | None  # the values themselves, of a compact one
    address: int | None  # of a contiguous one; None where nothing was ever written
    nbytes: int


def extent_of(shared: SharedMessages) -> Extent:
    """Read the shape of a dataset. Raises `NotUnderstoodError`."""
    data = only(shared.messages, DATASPACE)
    version, rank, flags = number(data, 0, 1), number(data, 1, 1), number(data, 2, 1)
    require(version in (1, 2) and rank <= _MOST_AXES and not flags & ~_LIMITED, "an odd dataspace")
    kind = number(data, 3, 1) if version == 2 else (_SIMPLE if rank else _SCALAR)
    require(kind <= _NULL and (kind == _SIMPLE) == (rank > 0), "an odd dataspace")
    if kind == _NULL:
        return Extent(None, ())
    long = shared.length_width
    at = 4 if version == 2 else 8
    count = 2 * rank if flags & _LIMITED else rank
    require(at + long * count <= len(data), "a dataspace cut short")
    axes = Struct(f"<{count}{'Q' if long == 8 else 'I'}").unpack_from(data, at)
    shape, limits = axes[:rank], axes[rank:] or axes
    if long < 8:
        require(not any(limit == (1 << 8 * long) - 1 for limit in limits), "narrow lengths")
    require(all(n <= limit for n, limit in zip(shape, limits, strict=True)), "an odd dataspace")
    return Extent(shape, limits)


def fill_of(messages: Sequence[Message]) -> bytes | None:
    """Return the fill value as stored, None where none is given or ever written.

    Raises:
        NotUnderstoodError: It is not said as expected.
    """
    data = only(messages, FILL_VALUE)
    version = number(data, 0, 1)
    require(version in (2, 3), "another fill value")
    if version == 2:
        when, is_given, at = number(data, 2, 1), number(data, 3, 1), 4
        require(is_given <= 1, "another fill value")
    else:
        flags, at = number(data, 1, 1), 2
        when, is_given = flags >> 2 & 3, flags >> 5 & 1
        require(not flags >> 6, "another fill value")
    require(when <= 2, "another fill value")
    if not is_given:
        return None
    size = number(data, at, 4)
    value = data[at + 4 : at + 4 + size]
    require(len(value) == size, "a fill value cut short")
    return value if size and when != _NEVER else None


def filters_of(messages: Sequence[Message]) -> tuple[Filter, ...]:
    """Read the filter pipeline. Raises `NotUnderstoodError`."""
    if not any(message.kind == FILTER_PIPELINE for message in messages):
        return ()
    data = only(messages, FILTER_PIPELINE)
    version, count = number(data, 0, 1), number(data, 1, 1)
    require(version in (1, 2) and 0 < count <= 32, "an odd filter pipeline")
    at = 8 if version == 1 else 2
    found: list[Filter] = []
    for _ in range(count):
        code, at = number(data, at, 2), at + 2
        length = 0
        if version == 1 or code >= _UNNAMED:
            length, at = number(data, at, 2), at + 2
        flags, n = number(data, at, 2), number(data, at + 2, 2)
        at += 4
        name, at = data[at : at + length].split(b"\0", 1)[0], at + length
        values = tuple(number(data, at + 4 * one, 4) for one in range(n))
        at += 4 * (n + (n & 1 if version == 1 else 0))
        found.append((code, flags, values, name))
    return tuple(found)


def placed(layout: bytes, space: Space) -> StorageLayout:
    """Read the layout message of a dataset that is not chunked. Raises `NotUnderstoodError`."""
    version, kind = number(layout, 0, 1), number(layout, 1, 1)
    require(version in (3, 4, 5) and kind in (0, 1), "another layout")
    if kind == 0:
        size = number(layout, 2, 2)
        require(4 + size <= len(layout), "values cut short")
        return StorageLayout(layout[4 : 4 + size], None, size)
    wide = space.address_width
    address, size = number(layout, 2, wide), number(layout, 2 + wide, space.length_width)
    nowhere = address == (1 << 8 * wide) - 1
    require(nowhere or space.base + address + size <= space.size, "values outside the file")
    return StorageLayout(None, None if nowhere else address, size)
