"""Read the headers of sections of GRIB 2 messages, in the words and the order of the specification.

Of a message only the beginnings of its sections are read, some hundred bytes: values and bitmaps
are skipped. What was read becomes columns, a row for each field; a message has one field or
several, which repeat the sections from 2, 3 or 4 on (regulation 92.1). Nothing is interpreted here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import batched
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.scan.contract import ByteSource, prefetch

MAGIC, _END = b"GRIB", b"7777"
PRODUCT, PACKING = 128, 32
"""Bytes that are kept of sections 4 and 5; longer ones have a list that nothing here reads."""
_GRID = 1 << 20  # bytes of a grid section, beyond which nothing is believed
_HEADERS = 512  # bytes that are read at once: in them are the headers of most messages
_TOGETHER = 1024  # messages whose headers servers are asked for at a time
# bytes of a message that is read with those behind it, and the most that are read with it
_RUN_HERE, _RUN_FAR = (8 * 1024, 64 * 1024), (64 * 1024, 1024 * 1024)
GAP = 64 * 1024  # bytes between two messages, at most
# which section may follow which; 8 is the end
_NEXT = {0: (1,), 1: (2, 3), 2: (3,), 3: (4,), 4: (5,), 5: (6,), 6: (7,), 7: (2, 3, 4, 8)}
_KEPT = {1: 64, 3: _GRID, 4: PRODUCT, 5: PACKING, 6: 6}  # bytes of sections that are read
_OWN_BITMAP, _NO_BITMAP = 0, 255  # indicators of section 6
# templates of section 5: coefficients are no points
_SIMPLE, _IEEE, _LOGARITHMS, _SPECTRAL = 0, 4, 61, (50, 51, 53)
# bytes of sections of packings of which each value has as many bits
_FIXED = {_SIMPLE: 21, _IEEE: 12, _LOGARITHMS: 21}
_LEAST, _MOST = {1: 21, 3: 14, 4: 11, 5: 11, 6: 6}, {3: _GRID}


class DamagedMessageError(Exception):
    """A message says something that cannot be."""

    def __init__(self, what: str, message: int, offset: int) -> None:
        super().__init__(what, message, offset)
        self.what, self.message, self.offset = what, message, offset


class EditionError(DamagedMessageError):
    """A message is of an edition that is not read."""


class NoMessageError(DamagedMessageError):
    """No message begins at an offset."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fields:
    """The fields of a file, a row each, in the order of the file."""

    message: NDArray[np.int64]  # (n,) number of its message in the file, from 1
    part: NDArray[np.int64]  # (n,) number of the field in its message, from 0
    begin: NDArray[np.int64]  # (n,) of the message
    length: NDArray[np.int64]  # (n,) bytes of the message
    discipline: NDArray[np.uint8]  # (n,)
    bitmap: NDArray[np.uint8]  # (n,) the indicator of section 6
    identification: NDArray[np.int64]  # (n,) row in ``identifications``
    grid: NDArray[np.int64]  # (n,) row in ``grids``
    product: NDArray[np.uint8]  # (n, PRODUCT) section 4, its length in octets 1 to 4
    packing: NDArray[np.uint8]  # (n, PACKING) section 5
    identifications: tuple[bytes, ...]  # distinct sections 1
    grids: tuple[bytes, ...]  # distinct sections 3
    between: tuple[tuple[int, int], ...] = ()  # offset and length of bytes that are no message

    def __len__(self) -> int:
        return len(self.message)

    def take(self, rows: NDArray[np.int64]) -> Fields:
        """Return some of the fields."""
        columns = ("message", "part", "begin", "length", "discipline", "bitmap")
        more = ("identification", "grid", "product", "packing")
        return replace(self, **{name: getattr(self, name)[rows] for name in (*columns, *more)})


@dataclass(slots=True)
class _Reader:
    """The bytes around a position, read in blocks."""

    source: ByteSource
    block: int = _HEADERS
    _at: int = 0
    _held: bytes = b""

    def view(self, at: int, length: int) -> bytes:
        """Return bytes, fewer only at the end of the file."""
        first = at - self._at
        if first < 0 or first + length > len(self._held):
            self._at, first = at, 0
            self._held = self.source.read(at, max(length, self.block))
        return self._held[first : first + length]


@dataclass(slots=True)
class _SectionColumns:
    """Rows that were read so far."""

    rows: list[tuple[int, ...]] = field(default_factory=list)
    products: bytearray = field(default_factory=bytearray)
    packings: bytearray = field(default_factory=bytearray)
    known: dict[tuple[int, bytes], int] = field(default_factory=dict)  # sections 1 and 3
    sections: dict[int, list[bytes]] = field(default_factory=lambda: {1: [], 3: []})

    def number(self, kind: int, section: bytes) -> int:
        """Return the row of a section among the distinct ones of its kind."""
        found = self.known.get((kind, section))
        if found is None:
            found = self.known[kind, section] = len(self.sections[kind])
            self.sections[kind].append(section)
        return found

    def add(self, message: tuple[int, ...], part: int, held: dict[int, bytes]) -> None:
        """Add a field, given the sections that hold for it."""
        number, begin, length, discipline = message
        own = self.number(1, held[1]), self.number(3, held[3])
        self.rows.append((number, part, begin, length, discipline, held[6][5], *own))
        self.products += held[4].ljust(PRODUCT, b"\0")
        self.packings += held[5].ljust(PACKING, b"\0")

    def fields(self, between: Iterable[tuple[int, int]]) -> Fields:
        """Return the rows as columns."""
        columns = np.array(self.rows, np.int64).reshape(len(self.rows), 8).T
        names = ("message", "part", "begin", "length", "discipline", "bitmap")
        own: dict[str, Any] = dict(zip(names, columns, strict=False))
        own |= {name: own[name].astype(np.uint8) for name in names[4:]}
        return Fields(
            **own,
            identification=columns[6],
            grid=columns[7],
            product=np.frombuffer(bytes(self.products), np.uint8).reshape(-1, PRODUCT),
            packing=np.frombuffer(bytes(self.packings), np.uint8).reshape(-1, PACKING),
            identifications=tuple(self.sections[1]),
            grids=tuple(self.sections[3]),
            between=tuple(between),
        )


def read_file(source: ByteSource) -> Fields:
    """Read the headers of all messages of a file.

    Raises:
        DamagedMessageError: A message is damaged, or the file ends inside it.
        EditionError: A message is of another edition.
    """
    reader, columns, size = _Reader(source), _SectionColumns(), source.file.size
    small, most = _RUN_FAR if source.local_path is None else _RUN_HERE
    at, number, run, between = 0, 0, 0, []
    while at < size:
        begin = _find(reader, at, size, number)
        if begin > at:
            between.append((at, begin - at))
        if begin == size:
            break
        number += 1
        length = _read_message(reader, columns, begin, number, size)
        at = begin + length
        # as many bytes again as the small messages have that came last
        run = run + length if length < small else 0
        reader.block = min(max(run, _HEADERS), most)
    return columns.fields(between)


def read_messages(
    source: ByteSource, places: Iterable[tuple[int, int]], numbers: Iterable[int]
) -> Fields:
    """Read the headers of messages that begin and end at some offsets. Raises as `read_file`."""
    reader, columns = _Reader(source), _SectionColumns()
    for some in batched(zip(places, numbers, strict=True), _TOGETHER):
        if source.local_path is None:
            _announce(source, [place for place, _ in some])
        for (begin, _), number in some:
            _read_message(reader, columns, begin, number, source.file.size)
    return columns.fields(())


def _announce(source: ByteSource, places: Sequence[tuple[int, int]]) -> None:
    """Have what is read of messages fetched side by side."""
    cuts = sorted({at for place in places for at in place})
    prefetch(source, [(max(at - len(_END), 0), at + _HEADERS) for at in cuts])
    rest = (_find_rest(source.read(begin, _HEADERS), begin, end) for begin, end in places)
    prefetch(source, [each for each in rest if each is not None])


def _find_rest(head: bytes, begin: int, end: int) -> tuple[int, int] | None:
    """Return the range of the headers that the first bytes of a message do not hold."""
    at, kind = 16, 0
    while at + 5 <= len(head) and (kind := head[at + 4]) != 7:
        at += max(int.from_bytes(head[at : at + 4], "big"), 5)
    if kind == 7 or begin + at >= end:
        return None
    # a bitmap is skipped, a long section is read
    first = at if kind == 6 else max(min(at, len(head)), at - _GRID)
    return begin + first, begin + at + _HEADERS


def _find(reader: _Reader, at: int, size: int, number: int) -> int:
    """Return where the next message begins; the size where only zeros or white space follow."""
    for extent in (len(MAGIC), _HEADERS, GAP):
        gap = reader.view(at, min(extent, size - at))
        if (found := gap.find(MAGIC)) >= 0:
            return at + found
        if len(gap) == size - at and not gap.strip(b"\0 \r\n\t\x03\x1a"):
            return size
    what = "bytes that are no GRIB message"
    raise DamagedMessageError(what, message=number + 1, offset=at)


def _read_head(reader: _Reader, begin: int, number: int, size: int) -> tuple[int, int]:
    """Return the length and the discipline of a message, from section 0."""
    head = reader.view(begin, 16)
    if len(head) < 16 or head[:4] != MAGIC:
        if len(head) == 16:
            raise NoMessageError("no message begins here", message=number, offset=begin)
        raise DamagedMessageError("the file ends", message=number, offset=begin)
    if head[7] != 2:
        raise EditionError(f"GRIB of edition {head[7]}", message=number, offset=begin)
    length = int.from_bytes(head[8:16], "big")
    if begin + length > size:
        what = f"the file ends inside a message of {length} bytes"
        raise DamagedMessageError(what, message=number, offset=begin)
    return length, head[6]


def _read_message(
    reader: _Reader, columns: _SectionColumns, begin: int, number: int, size: int
) -> int:
    """Read one message; return its length."""

    def damage(what: str, offset: int) -> DamagedMessageError:
        return DamagedMessageError(what, message=number, offset=offset)

    length, discipline = _read_head(reader, begin, number, size)
    end = begin + length - 4  # of the last section
    message = number, begin, length, discipline
    held: dict[int, bytes] = {}
    at, last, part, bitmap = begin + 16, 0, 0, 0
    while at < end:
        head = reader.view(at, 5)
        kind, extent = head[4], int.from_bytes(head[:4], "big")
        if kind not in _NEXT[last]:
            raise damage(f"section {kind} behind section {last}", at)
        if not _LEAST.get(kind, 5) <= extent <= min(end - at, _MOST.get(kind, end)):
            raise damage(f"section {kind} of {extent} bytes", at)
        if kind in _KEPT:
            held[kind] = reader.view(at, min(extent, _KEPT[kind]))
            bitmap = extent  # 6 is the last of these
        elif kind == 7:
            if what := _find_misfit(held, bitmap, extent):
                raise damage(what, at)
            columns.add(message, part, held)
            part += 1
        at, last = at + extent, kind
    if at != end or 8 not in _NEXT[last] or reader.view(end, 4) != _END:
        raise damage("the message does not end with 7777", max(begin, end))
    return length


def _find_misfit(held: dict[int, bytes], bitmap: int, data: int) -> str:
    """Return what contradicts in sections 3, 5, 6 and 7, given the lengths of 6 and 7; "" mostly.

    Decoders take what a section lacks for zeros, or read behind it.
    """
    grid, packing, indicator = held[3], held[5], held[6][5]
    points, values = int.from_bytes(grid[6:10], "big"), int.from_bytes(packing[5:9], "big")
    template = packing[9] << 8 | packing[10]
    if template in _SPECTRAL:
        return ""
    if values > points or (values < points and indicator == _NO_BITMAP):
        return f"{values} values for {points} points"
    if indicator == _OWN_BITMAP and bitmap != 6 + (points + 7) // 8:
        return f"a bitmap of {bitmap - 6} bytes for {points} points"
    if template in _FIXED:
        if len(packing) < _FIXED[template]:
            return f"a section 5 of {len(packing)} bytes, too short for its template, before it"
        bits = 16 << min(packing[11], 3) if template == _IEEE else packing[19]
        if (values * bits + 7) // 8 > data - 5:
            return f"{values} values of {bits} bits in a section 7 of {data} bytes"
    return ""
