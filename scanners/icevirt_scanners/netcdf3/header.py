"""Read the header of a NetCDF-3 file, in the words and the order of the specification.

Only the bytes of the header are read: a first piece, and more while it continues.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from icevirt.model.json import JSON
from icevirt.scan.contract import ByteSource

MAGIC = b"CDF"
VERSIONS = (1, 2, 5)  # classic, 64-bit offset, 64-bit data
_DIMENSION, _VARIABLE, _ATTRIBUTE = 10, 11, 12  # tags of the lists
_FIRST = 64 * 1024  # bytes that are read at once; most headers are shorter
LONGEST = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """A dimension."""

    name: bytes
    length: int  # 0: the record dimension, as long as there are records


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """An attribute, its values as they lie in the file."""

    name: bytes
    kind: Kind
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class NetCDF3Variable:
    """A variable. Its ``vsize`` is left out: it follows from the dimensions, or is wrong."""

    name: bytes
    dimensions: tuple[int, ...]  # their numbers
    attributes: tuple[Attribute, ...]
    kind: Kind
    begin: int  # where its values, or those of its first record, lie


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHeader:
    """All that a file says about itself."""

    records: int | None  # None: "streaming", whoever wrote it did not know how many would come
    dimensions: tuple[Dimension, ...]
    attributes: tuple[Attribute, ...]
    variables: tuple[NetCDF3Variable, ...]
    size: int  # bytes


def read_header(source: ByteSource) -> FileHeader:
    """Read as much of a file as its header takes, and parse it.

    Raises:
        DamagedError: It is none.
    """
    size = source.file.size
    data = source.read(0, min(_FIRST, size))
    while True:
        try:
            return parse(data, size)
        except ShortError as short:
            if short.needed > LONGEST:
                raise DamagedError(f"a header longer than {LONGEST} bytes") from short
            known = len(data)
            data += source.read(known, min(max(short.needed, 4 * known), LONGEST, size) - known)
            if len(data) < short.needed:
                raise DamagedError("the file became shorter") from short


def parse(data: bytes, file_size: int) -> FileHeader:
    """Parse the header at the beginning of ``data``.

    Raises:
        DamagedError: It is none.
        ShortError: It goes on behind ``data``.
    """
    if data[:3] != MAGIC or len(data) < 4 or data[3] not in VERSIONS:
        raise DamagedError("no signature of NetCDF-3")
    version = data[3]
    cursor = Cursor(data=data, file_size=file_size, wide=version == 5, far=version > 1, at=4)
    last = max(KINDS) if version == 5 else CLASSIC
    least = 12 if cursor.wide else 8
    records = cursor.size()
    return FileHeader(
        records=None if records == 2 ** (64 if cursor.wide else 32) - 1 else records,
        dimensions=cursor.items(_DIMENSION, least, partial(_dimension, cursor)),
        attributes=_attributes(cursor, last),
        variables=cursor.items(_VARIABLE, 4 * least, partial(_variable, cursor, last)),
        size=cursor.at,
    )


def _dimension(cursor: Cursor) -> Dimension:
    return Dimension(name=cursor.name(), length=cursor.size())


def _attributes(cursor: Cursor, last: int) -> tuple[Attribute, ...]:
    return cursor.items(_ATTRIBUTE, 12, partial(_attribute, cursor, last))


def _attribute(cursor: Cursor, last: int) -> Attribute:
    name, kind = cursor.name(), _kind(cursor, last)
    return Attribute(name=name, kind=kind, raw=cursor.take(kind.size * cursor.size()))


def _variable(cursor: Cursor, last: int) -> NetCDF3Variable:
    name = cursor.name()
    dimensions = cursor.times(cursor.size(), 4, cursor.size)
    attributes, kind = _attributes(cursor, last), _kind(cursor, last)
    cursor.size()  # vsize
    return NetCDF3Variable(
        name=name,
        dimensions=dimensions,
        attributes=attributes,
        kind=kind,
        begin=cursor.offset(),
    )


def _kind(cursor: Cursor, last: int) -> Kind:
    number = cursor.tag()
    if not 1 <= number <= last:
        raise DamagedError(f"a type of number {number}")
    return KINDS[number]


class DamagedError(Exception):
    """The header says something that cannot be; the message says what."""


class ShortError(Exception):
    """The header goes on behind the bytes that were read, at least up to ``needed``."""

    def __init__(self, needed: int) -> None:
        super().__init__(needed)
        self.needed = needed


@dataclass(slots=True, kw_only=True)
class Cursor:
    """A position in the first bytes of a file.

    ``wide`` says that counts have 8 bytes (CDF-5), ``far`` that offsets do (all but classic).
    """

    data: bytes
    file_size: int
    wide: bool
    far: bool
    at: int = 0

    def take(self, length: int) -> bytes:
        """Return the next bytes; padding up to a multiple of 4 is skipped.

        Raises:
            DamagedError: The file ends before.
            ShortError: More of it must be read.
        """
        end = self.at + length
        if end > self.file_size:
            raise DamagedError("the file ends inside its header")
        if end > len(self.data):
            raise ShortError(end)
        taken = self.data[self.at : end]
        self.at = end + -end % 4
        return taken

    def tag(self) -> int:
        """Return a type or the tag of a list."""
        return int.from_bytes(self.take(4), "big")

    def size(self) -> int:
        """Return a count, length or dimension number."""
        return int.from_bytes(self.take(8 if self.wide else 4), "big")

    def offset(self) -> int:
        """Return the position of values in the file."""
        return int.from_bytes(self.take(8 if self.far else 4), "big")

    def name(self) -> bytes:
        """Return a name, which is not empty; netCDF ends it at a NUL."""
        name = self.take(self.size()).partition(b"\0")[0]
        if not name:
            raise DamagedError("a name is empty")
        return name

    def items[T](self, tag: int, least: int, read: Callable[[], T]) -> tuple[T, ...]:
        """Return a list, each item of which has at least ``least`` bytes."""
        found, count = self.tag(), self.size()
        if found != tag and (found, count) != (0, 0):
            raise DamagedError(f"tag {found} where {tag} should be")
        return self.times(count, least, read)

    def times[T](self, count: int, least: int, read: Callable[[], T]) -> tuple[T, ...]:
        """Return ``count`` things; one look at the rest of the file tells an impossible count."""
        if count * least > self.file_size - self.at:
            raise DamagedError(f"a list of {count} items, for which the file is too short")
        return tuple(read() for _ in range(count))


@dataclass(frozen=True, slots=True)
class Kind:
    """An external type."""

    stored: np.dtype[Any]  # as it lies in the file: big-endian
    data_type: JSON  # of zarr
    default_fill: Any  # what netCDF writes where nobody wrote a value

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype values are read as: little-endian."""
        return self.stored.newbyteorder("<")

    @property
    def text(self) -> bool:
        """Whether these are characters."""
        return self.stored.kind == "S"

    @property
    def size(self) -> int:
        """Bytes of a value."""
        return self.stored.itemsize


_CHARACTER: JSON = {"name": "null_terminated_bytes", "configuration": {"length_bytes": 1}}
_FLOAT_FILL = 9.969209968386869e36  # 15 * 2**119, exact in both sizes

KINDS = {
    1: Kind(np.dtype("i1"), "int8", -127),
    2: Kind(np.dtype("S1"), _CHARACTER, b""),
    3: Kind(np.dtype(">i2"), "int16", -(2**15) + 1),
    4: Kind(np.dtype(">i4"), "int32", -(2**31) + 1),
    5: Kind(np.dtype(">f4"), "float32", _FLOAT_FILL),
    6: Kind(np.dtype(">f8"), "float64", _FLOAT_FILL),
    7: Kind(np.dtype("u1"), "uint8", 2**8 - 1),
    8: Kind(np.dtype(">u2"), "uint16", 2**16 - 1),
    9: Kind(np.dtype(">u4"), "uint32", 2**32 - 1),
    10: Kind(np.dtype(">i8"), "int64", -(2**63) + 2),
    11: Kind(np.dtype(">u8"), "uint64", 2**64 - 2),
}
CLASSIC = 6  # the last type of the formats before CDF-5
