"""The superblock and the object headers of HDF5, as far as the way to a chunk index needs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from icevirt_scanners.hdf5.index.fields import CHECKSUM, check_sum, number, require
from icevirt_scanners.hdf5.index.space import Space

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_CONTINUATION, _LAYOUT, _CACHE_IMAGE = 0x10, 0x08, 0x18
_SHARED = 2  # flag of a message that stands elsewhere
_TIMES, _PHASES, _ORDER = 32, 16, 4  # flags of a header: optional fields
_MOST = 256  # blocks of a header


@dataclass(frozen=True, slots=True)
class Message:
    """A message of an object header."""

    kind: int
    flags: int
    data: bytes


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
            require(all(m.kind != _CACHE_IMAGE for m in found), "a cache image")
    return space


def layout_message(space: Space, address: int) -> bytes:
    """Return the layout message of the dataset whose header is at ``address``."""
    found = [message for message in messages(space, address) if message.kind == _LAYOUT]
    require(len(found) == 1 and not found[0].flags & _SHARED, "no layout message")
    return found[0].data


def messages(space: Space, address: int) -> Iterator[Message]:
    """Yield all messages of an object header, those of its further blocks included."""
    start = space.block(address, 4)
    new = start == b"OHDR"
    require(new or start[0] == 1, "no object header")
    pending = [_first_new(space, address) if new else _first_old(space, address)]
    flags = pending[0][0]
    for _ in range(_MOST):
        if not pending:
            return
        block = pending.pop()[1]
        for message in _split_new(block, flags) if new else _split_old(block):
            if message.kind == _CONTINUATION:
                pending.append((flags, _further(space, message.data, new=new)))
            else:
                yield message
    require(truth=False, what="a header of too many blocks")


def _first_old(space: Space, address: int) -> tuple[int, bytes]:
    prefix = space.block(address, 16)  # padded to a multiple of 8
    return 0, space.block(address + 16, number(prefix, 8, 4))


def _first_new(space: Space, address: int) -> tuple[int, bytes]:
    prefix = space.block(address, 6)
    require(prefix[4] == 2, "a newer object header")
    flags = prefix[5]
    at = 6 + (16 if flags & _TIMES else 0) + (4 if flags & _PHASES else 0)
    width = 1 << (flags & 3)
    size = number(space.block(address + at, width), 0, width)
    block = space.block(address, at + width + size + CHECKSUM)
    check_sum(block)
    return flags, block[at + width : -CHECKSUM]


def _further(space: Space, data: bytes, *, new: bool) -> bytes:
    address = number(data, 0, space.address_width)
    length = number(data, space.address_width, space.length_width)
    return space.sealed(address, length, b"OCHK")[4:] if new else space.block(address, length)


def _split_old(block: bytes) -> Iterator[Message]:
    at = 0
    while at + 8 <= len(block):
        size = number(block, at + 2, 2)
        require(at + 8 + size <= len(block), "a message that leaves its block")
        yield Message(number(block, at, 2), block[at + 4], block[at + 8 : at + 8 + size])
        at += 8 + size


def _split_new(block: bytes, flags: int) -> Iterator[Message]:
    prefix = 6 if flags & _ORDER else 4
    at = 0
    while at + prefix <= len(block):  # what is shorter is a gap
        size = number(block, at + 1, 2)
        require(at + prefix + size <= len(block), "a message that leaves its block")
        yield Message(block[at], block[at + 3], block[at + prefix : at + prefix + size])
        at += prefix + size
