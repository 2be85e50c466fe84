"""Read the object headers of one file, and the heap that their attributes point into."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Self

from icevirt.scan.contract import ByteSource, prefetch
from icevirt_scanners.hdf5.raw.header import (
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
