"""Read the object headers of one file, what they say of a dataset, and the heap of attributes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from struct import Struct
from typing import NamedTuple, Self

from icevirt.scan.contract import ByteSource, prefetch
from icevirt_scanners.hdf5.raw.header import (
    DATASPACE,
    DATATYPE,
    LAYOUT,
    SHARED,
    Message,
    SharedMessages,
    header_at,
    messages,
    only,
    space_of,
)
from icevirt_scanners.hdf5.raw.heaps import Heap
from icevirt_scanners.hdf5.raw.space import (
    CHECKSUM,
    NotUnderstoodError,
    Pages,
    Space,
    check_sum,
    number,
    require,
)

_OLD_FIXED, _NEW_FIXED = 24, 12  # bytes before the addresses
_INDEXED = 1  # the version that says more about chunked datasets
_SHARED_TABLE, _DRIVER = 0x0F, 0x14  # messages of an extension that change how a file is read


class ObjectHeader(NamedTuple):
    """The messages of one object."""

    messages: tuple[Message, ...]
    layouts: tuple[Message, ...]  # those that are layouts
    shared: SharedMessages  # all others
    heap: Heap

    @property
    def layout(self) -> bytes:
        """The layout message. Raises `NotUnderstoodError` where it does not stand here."""
        return only(self.layouts, LAYOUT)

    @property
    def datatype(self) -> bytes:
        """The message of the type. Raises `NotUnderstoodError` where it does not stand here."""
        return self.shared.once(_datatype)

    def key(self, kinds: tuple[int, ...]) -> tuple[tuple[int, bytes], ...] | None:
        """Return the messages of some kinds: equal ones, or none at all, mean equal things.

        None where they may say it elsewhere.
        """
        found = [message for message in self.messages if message.kind in kinds]
        if any(message.flags & SHARED for message in found):
            return None
        return tuple((message.kind, message.data) for message in found)


def _datatype(shared: SharedMessages) -> bytes:
    return only(shared.messages, DATATYPE)


@dataclass(frozen=True, slots=True)
class RawFile:
    """A file whose headers may be read from its bytes."""

    space: Space
    heap: Heap
    _headers: dict[int, ObjectHeader | None] = field(default_factory=dict)

    @property
    def root(self) -> int:
        """The address of the root group. Raises `NotUnderstoodError` where libhdf5 must judge.

        libhdf5 checks some things when it opens a file. Anything unusual (a file cut short, still
        open for writing, of several parts) is left to it, for the error or for the answer.
        """
        version = number(self.space.begin().at_most(0, 16), 8, 1)
        return _old_root(self.space, version) if version <= _INDEXED else _new_root(self.space)

    @classmethod
    def of(cls, source: ByteSource, *, base: int) -> Self | None:
        """Begin to read a file behind a user block of ``base`` bytes; None if that cannot be."""
        try:
            space = space_of(Pages(source.read), base=base, size=source.file.size)
        except NotUnderstoodError:
            return None
        if source.local_path is None:
            space.announce = partial(prefetch, source)
        return cls(space, Heap(space))

    def header(self, address: int) -> ObjectHeader | None:
        """Return the header of the object at an address, None where libhdf5 must be asked."""
        if address in self._headers:
            return self._headers[address]
        found = None
        with suppress(NotUnderstoodError):
            found = ObjectHeader(*header_at(self.space.begin(), address), self.heap)
        self._headers[address] = found
        return found


def _old_root(space: Space, version: int) -> int:
    wide = space.address_width
    at = _OLD_FIXED + 4 * (version == _INDEXED)
    head = space.block(0, at + 6 * wide)
    require(not any((head[9], head[10], head[12])), "a newer superblock")  # versions of its parts
    require(number(head, 20, 4) == 0, "a file open for writing")
    base, _, end, driver = (number(head, at + n * wide, wide) for n in range(4))
    _check(space, base, end)
    require(driver == (1 << 8 * wide) - 1, "a file of several parts")
    return number(head, at + 5 * wide, wide)  # of a symbol: its name's place, then its address


def _new_root(space: Space) -> int:
    wide = space.address_width
    head = space.block(0, _NEW_FIXED + 4 * wide + CHECKSUM)
    check_sum(head)
    require(head[11] == 0, "a file open for writing")
    base, extension, end, root = (number(head, _NEW_FIXED + n * wide, wide) for n in range(4))
    _check(space, base, end)
    if extension != (1 << 8 * wide) - 1:
        kinds = {message.kind for message in messages(space, extension)}
        require(not kinds & {_SHARED_TABLE, _DRIVER}, "a file of several parts")
    return root


def _check(space: Space, base: int, end: int) -> None:
    require(base == space.base, "addresses that count from elsewhere")
    require(base < end <= space.size, "a file cut short")


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
