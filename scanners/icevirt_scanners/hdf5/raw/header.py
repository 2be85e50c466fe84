"""Read the object headers of HDF5 as lists of messages.

Objects of one name mostly have the same header in all files of an archive, except for the address
of their chunk index. So headers are split once for equal bytes, and what follows from all messages
but the layout is held beside them, for all files: see `SharedMessages`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple

from icevirt_scanners.hdf5.raw.space import (
    CHECKSUM,
    NotUnderstoodError,
    Place,
    Space,
    check_sum,
    number,
    require,
)

SHARED = 2  # flag of a message that stands elsewhere
LAYOUT, ATTRIBUTE, ATTRIBUTE_INFO = 0x08, 0x0C, 0x15  # kinds of messages
DATASPACE, DATATYPE = 0x01, 0x03
LINK_INFO, LINK, SYMBOL_TABLE, EXTERNAL_FILES = 0x02, 0x06, 0x11, 0x07
NEWEST = 0x18  # the last kind that is known
FILL, FILTERS = (0x04, 0x05), (0x0B,)  # all kinds that say it
_GAP, _CONTINUATION, _FILE_SPACE, _CACHE_IMAGE = 0x00, 0x10, 0x17, 0x18
_PAGED = b"\1\1"  # how a file's space is managed: version, strategy
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_TIMES, _PHASES, _ORDER = 32, 16, 4  # flags of a header: optional fields
_MOST = 256  # blocks of a header
NEW_BLOCKS = (b"OHDR", b"OCHK")
"""How blocks begin that end with a checksum."""

GUESS = 1024  # bytes that hold most headers
_REMEMBERED = 4096  # bytes of blocks whose messages are
_OLD = Struct("<HHB3x")  # kind, size and flags of a message
_NEW = Struct("<BHB")
_NEW_ORDERED = Struct("<BHBH")


class Message(NamedTuple):
    """A message of an object header."""

    kind: int
    flags: int
    order: int  # in which attributes were made; 0 where the file does not keep it
    data: bytes


class SharedMessages:
    """All messages of a header but its layout, with what was made of them.

    Headers with equal ones share it, in all files of a process, as long as it is among the most
    recent.
    """

    __slots__ = ("_made", "address_width", "is_kept", "length_width", "messages")

    def __init__(
        self, messages: tuple[Message, ...], widths: tuple[int, int], *, is_kept: bool
    ) -> None:
        self.messages = messages
        self.address_width, self.length_width = widths
        self.is_kept = is_kept
        """Whether headers of other files may get it; it is too large otherwise."""
        self._made: dict[Callable[[SharedMessages], Any], Any] = {}

    def once[T](self, make: Callable[[SharedMessages], T]) -> T:
        """Return what a function of a module makes of the messages; it runs once.

        Raises:
            NotUnderstoodError: The function does, each time.
        """
        if make not in self._made:
            self._made[make] = make(self)
        found: T = self._made[make]
        return found


class SplitHeader(NamedTuple):
    """The messages of an object header."""

    messages: tuple[Message, ...]
    layouts: tuple[Message, ...]  # those that are layouts
    shared: SharedMessages  # all others


def space_of(read: Callable[[int, int], bytes], *, base: int, size: int) -> Space:
    """Read the superblock, which stands behind a user block of ``base`` bytes.

    A file whose metadata may stand in a cache image is left to libhdf5.
    """
    head = read(base, 64)
    require(head.startswith(_SIGNATURE) and len(head) == 64, "no superblock")
    old = head[8] < 2
    require(head[8] <= 3, "a newer superblock")
    widths = head[13:15] if old else head[9:11]
    require(all(width in (4, 8) for width in widths), "addresses of an odd size")
    space = Space(read=read, base=base, size=size, address_width=widths[0], length_width=widths[1])
    if not old:
        extension = head[12 + widths[0] : 12 + 2 * widths[0]]
        if extension != b"\xff" * widths[0]:
            found = messages(space, int.from_bytes(extension, "little"))
            require(all(message.kind != _CACHE_IMAGE for message in found), "a cache image")
            space.page = _page_of(found, space)
    return space.begin()


def _page_of(extension: Sequence[Message], space: Space) -> int:
    """Return the size of the file's pages, 0 where it has none."""
    for message in extension:
        if message.kind == _FILE_SPACE and message.data[:2] == _PAGED:
            return number(message.data, 3 + space.length_width, space.length_width)
    return 0


def only(messages: Sequence[Message], kind: int) -> bytes:
    """Return the one message of a kind that stands here. Raises `NotUnderstoodError`."""
    found = [message for message in messages if message.kind == kind]
    require(len(found) == 1 and not found[0].flags & SHARED, "no such message, or elsewhere")
    return found[0].data


class _KnownHeader(NamedTuple):
    """A header that was read at some address."""

    split: SplitHeader
    places: tuple[Place, ...]  # its blocks
    bodies: tuple[bytes, ...]  # the same without heads and checksums
    flags: int
    is_new: bool


_latest: dict[tuple[int, int, int], _KnownHeader] = {}
_HEADERS = 1024  # in it


def header_at(space: Space, address: int) -> SplitHeader:
    """Return all messages of an object header, of its further blocks too.

    Most headers of an archive stand at the same address in all its files. Blocks whose bytes are
    those of the latest header at this address are not parsed again.

    Raises:
        NotUnderstoodError: It is not as expected.
    """
    key = address, space.address_width, space.length_width
    latest = _latest.get(key)
    known = None
    if latest is not None:
        with suppress(NotUnderstoodError):  # of a block that is none here
            known = _renewed(space, latest, key[1:])
    if known is None:
        known = _read(space.begin(), address, key[1:])
    if known is not latest and known.split.shared.is_kept:
        if key not in _latest and len(_latest) >= _HEADERS:
            _latest.clear()
        _latest[key] = known
    return known.split


def _renewed(space: Space, known: _KnownHeader, widths: tuple[int, int]) -> _KnownHeader | None:
    """Return a header with blocks at the places of those of a known one, else None.

    Raises:
        NotUnderstoodError: There is no such block.
    """
    changed = [at for at, place in enumerate(known.places) if not space.holds(*place)]
    if not changed:
        return known
    split = _split_new if known.is_new else _split_old
    places, bodies = [*known.places], [*known.bodies]
    for at in changed:
        address, old = places[at]
        if at:
            places[at], bodies[at] = _block_at(space, address, len(old), new=known.is_new)
        else:
            flags, raw, bodies[0] = _first_block(space, address)
            places[0] = address, raw
            if (flags, len(raw), raw.startswith(b"OHDR")) != (known.flags, len(old), known.is_new):
                return None
        further = split(bodies[at], known.flags).further
        if further != split(known.bodies[at], known.flags).further:
            return None
    found = _joined(tuple(bodies), known.flags, widths, new=known.is_new, is_kept=True)
    return known._replace(split=found, places=tuple(places), bodies=tuple(bodies))


def _read(space: Space, address: int, widths: tuple[int, int]) -> _KnownHeader:
    flags, raw, block = _first_block(space, address)
    new = raw.startswith(b"OHDR")
    split = _split_new if new else _split_old
    blocks, places = [block], [(address, raw)]
    for each in blocks:  # it grows meanwhile
        known = split if len(each) <= _REMEMBERED else split.__wrapped__
        for further in known(each, flags).further:
            require(len(blocks) < _MOST, "a header of too many blocks")
            place, block = _further(space, further, new=new)
            places.append(place)
            blocks.append(block)
    is_kept = sum(map(len, blocks)) <= _REMEMBERED
    joined = _joined if is_kept else _joined.__wrapped__
    found = joined(tuple(blocks), flags, widths, new=new, is_kept=is_kept)
    return _KnownHeader(found, tuple(places), tuple(blocks), flags, new)


def messages(space: Space, address: int) -> tuple[Message, ...]:
    """Return all messages of an object header. Raises as `header_at`."""
    return header_at(space, address).messages


class _HeaderBlock(NamedTuple):
    """The messages of one block of a header, and those that lead to further blocks."""

    messages: tuple[Message, ...]
    further: tuple[bytes, ...]

    @classmethod
    def of(cls, found: list[Message]) -> _HeaderBlock:
        further = tuple(each.data for each in found if each.kind == _CONTINUATION)
        return cls(tuple(each for each in found if each.kind != _CONTINUATION), further)


@lru_cache(512)
def _joined(
    blocks: tuple[bytes, ...], flags: int, widths: tuple[int, int], *, new: bool, is_kept: bool
) -> SplitHeader:
    split = _split_new if new else _split_old
    known = split if is_kept else split.__wrapped__
    found = tuple(message for block in blocks for message in known(block, flags).messages)
    shared = _shared if is_kept else _shared.__wrapped__
    rest = tuple(message for message in found if message.kind != LAYOUT)
    layouts = tuple(message for message in found if message.kind == LAYOUT)
    return SplitHeader(found, layouts, shared(rest, widths, is_kept=is_kept))


@lru_cache(512)
def _shared(
    messages: tuple[Message, ...], widths: tuple[int, int], *, is_kept: bool
) -> SharedMessages:
    return SharedMessages(messages, widths, is_kept=is_kept)


def _first_block(space: Space, address: int) -> tuple[int, bytes, bytes]:
    """Return flags, bytes and messages of the first block of a header."""
    start = space.at_most(address, GUESS)
    require(len(start) >= 16, "no object header")
    new = start.startswith(b"OHDR")
    require(new or start[0] == 1, "no object header")
    return (_first_new if new else _first_old)(space, address, start)


def _first_old(space: Space, address: int, start: bytes) -> tuple[int, bytes, bytes]:
    end = 16 + number(start, 8, 4)  # the prefix is padded to a multiple of 8
    raw = start[:end] if end <= len(start) else space.block(address, end)
    return 0, raw, raw[16:]


def _first_new(space: Space, address: int, start: bytes) -> tuple[int, bytes, bytes]:
    require(start[4] == 2, "a newer object header")
    flags = start[5]
    at = 6 + (16 if flags & _TIMES else 0) + (4 if flags & _PHASES else 0)
    width = 1 << (flags & 3)
    end = at + width + number(start, at, width) + CHECKSUM
    raw = start[:end] if end <= len(start) else space.block(address, end)
    check_sum(raw)
    return flags, raw, raw[at + width : -CHECKSUM]


def _further(space: Space, data: bytes, *, new: bool) -> tuple[Place, bytes]:
    length = number(data, space.address_width, space.length_width)
    return _block_at(space, number(data, 0, space.address_width), length, new=new)


def _block_at(space: Space, address: int, length: int, *, new: bool) -> tuple[Place, bytes]:
    raw = space.block(address, length)
    if not new:
        return (address, raw), raw
    require(raw.startswith(b"OCHK"), "no further block")
    check_sum(raw)
    return (address, raw), raw[4:-CHECKSUM]


@lru_cache(512)
def _split_old(block: bytes, _: int) -> _HeaderBlock:
    at, end = 0, len(block)
    found: list[Message] = []
    while at + 8 <= end:
        kind, size, flags = _OLD.unpack_from(block, at)
        at += 8 + size
        if kind != _GAP:
            found.append(Message(kind, flags, 0, block[at - size : at]))
    require(at <= end, "a message that leaves its block")
    return _HeaderBlock.of(found)


@lru_cache(512)
def _split_new(block: bytes, header_flags: int) -> _HeaderBlock:
    prefix = _NEW_ORDERED if header_flags & _ORDER else _NEW
    at, end = 0, len(block)
    found: list[Message] = []
    while at + prefix.size <= end:  # what is shorter is a gap
        kind, size, flags, *order = prefix.unpack_from(block, at)
        at += prefix.size + size
        found.append(Message(kind, flags, order[0] if order else 0, block[at - size : at]))
    require(at <= end, "a message that leaves its block")
    return _HeaderBlock.of(found)
