"""Find the root group in the superblock of a whole file that was closed properly.

libhdf5 checks these things when it opens a file. Anything unusual (a file cut short, still open for
writing, of several parts) is left to libhdf5, for the error or for the answer.
"""

from __future__ import annotations

from icevirt_scanners.hdf5.raw.fields import CHECKSUM, check_sum, number, require
from icevirt_scanners.hdf5.raw.header import messages
from icevirt_scanners.hdf5.raw.space import Space

_OLD_FIXED, _NEW_FIXED = 24, 12  # bytes before the addresses
_INDEXED = 1  # the version that says more about chunked datasets
_SHARED_TABLE, _DRIVER = 0x0F, 0x14  # messages of an extension that change how a file is read


def root_of(space: Space) -> int:
    """Return the address of the root group.

    Raises:
        NotUnderstoodError: libhdf5 must say whether the file can be read at all.
    """
    space.begin()
    version = number(space.at_most(0, 16), 8, 1)
    return _old_root(space, version) if version <= _INDEXED else _new_root(space)


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
