"""Read the object headers of HDF5 as lists of messages.

Objects of one name mostly have the same header in all files of an archive, except for the address
of their chunk index. So headers are split once for equal bytes, and what follows from all messages
but the layout is held beside them, for all files: see `SharedMessages`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from struct import Struct
from typing import Any, NamedTuple, Self

from icevirt.scan.contract import ByteSource, prefetch
from icevirt_scanners.hdf5.raw.heaps import Heap
from icevirt_scanners.hdf5.raw.space import (
    CHECKSUM,
    NotUnderstoodError,
    Pages,
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
            for message in found:
                if message.kind == _FILE_SPACE and message.data[:2] == _PAGED:
                    long = space.length_width
                    space.page = number(message.data, 3 + long, long)
    return space.begin()


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
            known = _renew(space, latest, key[1:])
    if known is None:
        known = _read(space.begin(), address, key[1:])
    if known is not latest and known.split.shared.is_kept:
        if key not in _latest and len(_latest) >= _HEADERS:
            _latest.clear()
        _latest[key] = known
    return known.split


def _renew(space: Space, known: _KnownHeader, widths: tuple[int, int]) -> _KnownHeader | None:
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
    found = _join(tuple(bodies), known.flags, widths, new=known.is_new, is_kept=True)
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
            wide = space.address_width
            at, length = number(further, 0, wide), number(further, wide, space.length_width)
            place, block = _block_at(space, at, length, new=new)
            places.append(place)
            blocks.append(block)
    is_kept = sum(map(len, blocks)) <= _REMEMBERED
    joined = _join if is_kept else _join.__wrapped__
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
def _join(
    blocks: tuple[bytes, ...], flags: int, widths: tuple[int, int], *, new: bool, is_kept: bool
) -> SplitHeader:
    split = _split_new if new else _split_old
    known = split if is_kept else split.__wrapped__
    found = tuple(message for block in blocks for message in known(block, flags).messages)
    shared = _share if is_kept else _share.__wrapped__
    rest = tuple(message for message in found if message.kind != LAYOUT)
    layouts = tuple(message for message in found if message.kind == LAYOUT)
    return SplitHeader(found, layouts, shared(rest, widths, is_kept=is_kept))


@lru_cache(512)
def _share(
    messages: tuple[Message, ...], widths: tuple[int, int], *, is_kept: bool
) -> SharedMessages:
    return SharedMessages(messages, widths, is_kept=is_kept)


def _first_block(space: Space, address: int) -> tuple[int, bytes, bytes]:
    """Return flags, bytes and messages of the first block of a header."""
    start = space.at_most(address, GUESS)
    require(len(start) >= 16, "no object header")
    new = start.startswith(b"OHDR")
    require(new or start[0] == 1, "no object header")
    flags, begin = 0, 16  # the prefix of an old one is padded to a multiple of 8
    end = 16 + number(start, 8, 4)
    if new:
        require(start[4] == 2, "a newer object header")
        flags = start[5]
        at = 6 + (16 if flags & _TIMES else 0) + (4 if flags & _PHASES else 0)
        begin = at + (1 << (flags & 3))
        end = begin + number(start, at, begin - at) + CHECKSUM
    raw = start[:end] if end <= len(start) else space.block(address, end)
    if new:
        check_sum(raw)
    return flags, raw, raw[begin : -CHECKSUM if new else None]


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
        space = self.space.begin()
        wide, nowhere = space.address_width, (1 << 8 * space.address_width) - 1
        version = number(space.at_most(0, 16), 8, 1)
        is_old = version <= _INDEXED
        at = _OLD_FIXED + 4 * (version == _INDEXED) if is_old else _NEW_FIXED
        head = space.block(0, at + (6 * wide if is_old else 4 * wide + CHECKSUM))
        base, extension, end, last = (number(head, at + n * wide, wide) for n in range(4))
        if is_old:
            require(not any((head[9], head[10], head[12])), "a newer superblock")  # of its parts
            require(number(head, 20, 4) == 0, "a file open for writing")
            require(last == nowhere, "a file of several parts")
            root = number(head, at + 5 * wide, wide)  # of a symbol: its name's place, its address
        else:
            check_sum(head)
            require(head[11] == 0, "a file open for writing")
            root = last
        require(base == space.base, "addresses that count from elsewhere")
        require(base < end <= space.size, "a file cut short")
        if not is_old and extension != nowhere:
            kinds = {message.kind for message in messages(space, extension)}
            require(not kinds & {_SHARED_TABLE, _DRIVER}, "a file of several parts")
        return root

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


def place_values(layout: bytes, space: Space) -> StorageLayout:
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
