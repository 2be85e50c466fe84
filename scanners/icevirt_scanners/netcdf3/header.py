"""Read the header of a NetCDF-3 file, in the words and the order of the specification.

Only the bytes of the header are read: a first piece, and more while it continues. Attributes are
shown as by netCDF4-python: scalars, arrays and text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from icevirt.model.attributes import FILL
from icevirt.model.json import JSON
from icevirt.scan.contract import ByteSource
from icevirt_scanners.encoding import default_fill

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

    records: int | None  # None: "streaming": not known when the header was written
    dimensions: tuple[Dimension, ...]
    attributes: tuple[Attribute, ...]
    variables: tuple[NetCDF3Variable, ...]
    size: int  # bytes


def read_header(source: ByteSource) -> FileHeader:
    """Read as much of a file as its header takes, and parse it. Raises `DamagedError`."""
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
        dimensions=cursor.items(
            _DIMENSION, least, lambda: Dimension(name=cursor.name(), length=cursor.size())
        ),
        attributes=_attributes(cursor, last),
        variables=cursor.items(_VARIABLE, 4 * least, partial(_variable, cursor, last)),
        size=cursor.at,
    )


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
        """Return ``count`` things; a count that the rest of the file cannot hold is refused."""
        if count * least > self.file_size - self.at:
            raise DamagedError(f"a list of {count} items, for which the file is too short")
        return tuple(read() for _ in range(count))


@dataclass(frozen=True, slots=True)
class Kind:
    """An external type."""

    stored: np.dtype[Any]  # as it lies in the file: big-endian

    @property
    def data_type(self) -> JSON:
        """The zarr data type."""
        if self.text:
            return {"name": "null_terminated_bytes", "configuration": {"length_bytes": 1}}
        return self.dtype.name

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


_TYPES = ("i1", "S1", ">i2", ">i4", ">f4", ">f8", "u1", ">u2", ">u4", ">i8", ">u8")
KINDS = {number: Kind(np.dtype(text)) for number, text in enumerate(_TYPES, 1)}  # by `nc_type`
CLASSIC = 6  # the last type of the formats before CDF-5


def show(attributes: Sequence[Attribute], tell: Callable[[str, str], None]) -> dict[str, Any]:
    """Return the attributes of the file or of a variable; ``tell`` takes code and message."""
    found: dict[str, Any] = {}
    for attribute in attributes:
        name = attribute.name.decode("utf-8", "backslashreplace")
        if name in found:  # netCDF finds the first one
            tell("attribute-left-out", f"attribute {name!r}: another attribute has this name")
            continue
        if attribute.kind.text:
            found[name] = _text(attribute.raw, name, tell)
        else:
            values = np.frombuffer(attribute.raw, attribute.kind.stored)
            values = values.astype(attribute.kind.dtype)
            found[name] = values[0] if values.size == 1 else values
    return found


def _text(raw: bytes, name: str, tell: Callable[[str, str], None]) -> str:
    text = raw.replace(b"\0", b"")
    try:
        return text.decode()
    except UnicodeDecodeError:
        tell("attribute-latin1", f"attribute {name!r} is not UTF-8")
        return text.decode("latin-1")


def fill_of(attributes: Sequence[Attribute], kind: Kind) -> Any:
    """Return what netCDF reads where nothing was written: ``_FillValue``, or the type's default."""
    for attribute in attributes:
        if attribute.name == FILL.encode() and attribute.kind == kind:
            values = np.frombuffer(attribute.raw, kind.stored).astype(kind.dtype)
            if values.size == 1:
                return values[0]
    return np.array(b"" if kind.text else default_fill(kind.dtype), kind.dtype)[()]
