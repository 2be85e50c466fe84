"""Read the header of a NetCDF-3 file, in the words and the order of the specification.

Only the bytes of the header are read: a first piece, and more while it continues.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from icevirt.scan.contract import ByteSource
from icevirt_scanners.netcdf3.cursor import Cursor, DamagedError, ShortError
from icevirt_scanners.netcdf3.kinds import CLASSIC, KINDS, Kind

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
