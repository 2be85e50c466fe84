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
from icevirt_scanners.grib.headers import HEADERS, PACKING, PRODUCT, Heads, Sections

MAGIC, END = b"GRIB", b"7777"
_LONGEST = 1 << 20  # bytes of headers, beyond which no more are fetched ahead
_TOGETHER = 1024  # messages that are looked at, and whose headers servers are asked for, at a time
# bytes of a message that is read with those behind it, and the most that are read with it
_RUN_HERE, _RUN_FAR = (8 * 1024, 64 * 1024), (64 * 1024, 1024 * 1024)
GAP = 64 * 1024  # bytes between two messages that are looked at
_SHORTEST = 128  # bytes that every message has: as many others may be what is left of one
_PADDING = b"\0 \r\n\t\x03\x1a"
_IDENTIFICATION = 64  # bytes that are kept of section 1
_COLUMNS = (
    *("message", "part", "begin", "length", "discipline", "bitmap"),
    *("identification", "grid", "product", "packing"),
)


class DamagedMessageError(Exception):
    """A message says something that cannot be."""

    def __init__(self, what: str, message: int, offset: int) -> None:
        super().__init__(what, message, offset)
        self.what, self.message, self.offset = what, message, offset


class EditionError(DamagedMessageError):
    """A message is of an edition that is not read."""


class OtherBytesError(DamagedMessageError):
    """Bytes that may have been a message are none."""


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
        return replace(self, **{name: getattr(self, name)[rows] for name in _COLUMNS})


type KeptHeads = tuple[NDArray[np.uint8], Sections]
"""The first bytes of fields, and where their sections are."""


@dataclass(slots=True)
class HeadReader:
    """The bytes around a position, read in blocks."""

    source: ByteSource
    block: int = HEADERS + len(END)
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
class _MessageHeads:
    """Messages of which the first bytes were read, and what they say in columns, some at a time."""

    reader: HeadReader
    parts: list[dict[str, NDArray[Any]]] = field(default_factory=list)
    known: dict[tuple[int, bytes], int] = field(default_factory=dict)  # sections 1 and 3
    sections: dict[int, list[bytes]] = field(default_factory=lambda: {1: [], 3: []})
    held: list[tuple[int, int, int, int, bool]] = field(default_factory=list)
    firsts: list[bytes] = field(default_factory=list)
    kept: list[KeptHeads] = field(default_factory=list)
    keeps: bool = False  # the first bytes of messages, and where their sections are

    def add(self, begin: int, number: int, size: int, first: bytes) -> int:
        """Add a message, given its first bytes; return its length.

        Raises:
            DamagedMessageError: It has none. What is wrong with those before comes first.
        """
        try:
            length = _read_head(first, begin, number, size)
        except DamagedMessageError:
            self.close()
            raise
        last = self.reader.view(max(begin + length - 4, begin), 4)
        self.held.append((number, begin, length, first[6], last == END))
        self.firsts.append(first[:length].ljust(HEADERS, b"\0"))
        if len(self.held) == _TOGETHER:
            self.close()
        return length

    def close(self) -> None:
        """Look at the messages that were added. Raises `DamagedMessageError`."""
        if not self.held:
            return
        message, begin, length, discipline, ended = np.array(self.held, np.int64).T
        first = np.frombuffer(b"".join(self.firsts), np.uint8).reshape(-1, HEADERS)
        read = self.reader.source.read
        heads = Heads(begin=begin, length=length, is_ended=ended > 0, first=first, read=read)
        self.held, self.firsts = [], []
        places = heads.follow()
        rows = places.row
        packing = _cut(heads, places, 5, PACKING)
        if len(rows):
            heads.note_misfits(places, packing)
        if heads.damaged:
            row, what, offset = min(heads.damaged)
            raise DamagedMessageError(what, message=int(message[row]), offset=offset)
        if self.keeps:
            self.kept.append((first[rows], places))
        self.parts.append(
            {
                "message": message[rows],
                "part": places.part,
                "begin": begin[rows],
                "length": length[rows],
                "discipline": discipline[rows].astype(np.uint8),
                "bitmap": heads.cut(rows, places.begin[:, 6] + 5, np.ones_like(rows))[:, 0],
                "identification": self._number(heads, places, 1),
                "grid": self._number(heads, places, 3),
                "product": _cut(heads, places, 4, PRODUCT),
                "packing": packing,
            }
        )

    def _number(self, heads: Heads, places: Sections, kind: int) -> NDArray[np.int64]:
        """Return the rows of sections among the distinct ones of their kind."""
        length = places.length[:, kind]
        length = np.minimum(length, _IDENTIFICATION) if kind == 1 else length
        octets = heads.cut(places.row, places.begin[:, kind], length)
        if (length == length[:1]).all() and (octets == octets[:1]).all():
            return np.full(len(octets), self._row(kind, octets[0].tobytes()), np.int64)
        pairs = zip(octets, length.tolist(), strict=True)
        return np.array([self._row(kind, each[:size].tobytes()) for each, size in pairs], np.int64)

    def _row(self, kind: int, section: bytes) -> int:
        found = self.known.setdefault((kind, section), len(self.sections[kind]))
        if found == len(self.sections[kind]):
            self.sections[kind].append(section)
        return found

    def fields(self, between: Iterable[tuple[int, int]] = ()) -> Fields:
        """Return all fields. Raises `DamagedMessageError`."""
        self.close()
        if not self.parts:
            self.parts.append(_NO_FIELDS)
        return Fields(
            **{name: np.concatenate([part[name] for part in self.parts]) for name in _COLUMNS},
            identifications=tuple(self.sections[1]),
            grids=tuple(self.sections[3]),
            between=tuple(between),
        )


_NO_FIELDS: dict[str, NDArray[Any]] = {name: np.zeros(0, np.int64) for name in _COLUMNS} | {
    "discipline": np.zeros(0, np.uint8),
    "bitmap": np.zeros(0, np.uint8),
    "product": np.zeros((0, PRODUCT), np.uint8),
    "packing": np.zeros((0, PACKING), np.uint8),
}


def _cut(heads: Heads, places: Sections, kind: int, width: int) -> NDArray[np.uint8]:
    """Return (n, width) the first bytes of sections."""
    length = np.minimum(places.length[:, kind], width)
    return heads.cut(places.row, places.begin[:, kind], length, width)


def read_file(source: ByteSource) -> Fields:
    """Read the headers of all messages of a file.

    Raises:
        DamagedMessageError: A message is damaged, or the file ends inside it.
        EditionError: A message is of another edition.
    """
    reader, size = HeadReader(source), source.file.size
    messages = _MessageHeads(reader)
    small, most = _RUN_FAR if source.local_path is None else _RUN_HERE
    at, number, run, between = 0, 0, 0, []
    while at < size:
        first, begin = reader.view(at, min(HEADERS, size - at)), at
        if not first.startswith(MAGIC):
            begin = _find(messages, at, size, number)
            between.append((at, begin - at))
            if begin == size:
                break
            first = reader.view(begin, min(HEADERS, size - begin))
        number += 1
        length = messages.add(begin, number, size, first)
        at = begin + length
        # as many bytes again as the small messages have that came last
        run = run + length if length < small else 0
        reader.block = min(max(run, HEADERS + len(END)), most)
    return messages.fields(between)


def read_messages(
    source: ByteSource,
    places: Iterable[tuple[int, int]],
    numbers: Iterable[int],
    *,
    keeps: bool = False,
) -> tuple[Fields, Sequence[KeptHeads]]:
    """Read the headers of messages that begin and end at some offsets. Raises as `read_file`.

    Returns:
        Their fields; and if wanted the first bytes of fields and where their sections are, in runs.
    """
    messages = _MessageHeads(HeadReader(source), keeps=keeps)
    for some in batched(zip(places, numbers, strict=True), _TOGETHER):
        if source.local_path is None:
            announce(source, [place for place, _ in some])
        for (begin, end), number in some:
            first = messages.reader.view(begin, min(HEADERS, max(end - begin, 16)))
            messages.add(begin, number, source.file.size, first)
    return messages.fields(), messages.kept


def announce(source: ByteSource, places: Sequence[tuple[int, int]]) -> None:
    """Have what is read of messages fetched side by side."""
    cuts = sorted({at for place in places for at in place})
    prefetch(source, [(max(at - len(END), 0), at + HEADERS + len(END)) for at in cuts])
    rest = (_find_rest(source.read(begin, HEADERS), begin, end) for begin, end in places)
    prefetch(source, [each for each in rest if each is not None])


def _find_rest(head: bytes, begin: int, end: int) -> tuple[int, int] | None:
    """Return the range of the headers that the first bytes of a message do not hold."""
    at, kind = 16, 0
    while at + 5 <= len(head) and (kind := head[at + 4]) != 7:
        at += max(int.from_bytes(head[at : at + 4], "big"), 5)
    if kind == 7 or begin + at >= end:
        return None
    # a bitmap is skipped, a long section is read
    first = at if kind == 6 else max(min(at, len(head)), at - _LONGEST)
    return begin + first, begin + at + HEADERS


def _find(messages: _MessageHeads, at: int, size: int, number: int) -> int:
    """Return where the next message begins; the size where only zeros or white space follow.

    Raises:
        OtherBytesError: A message may have been there.
    """
    for extent in (len(MAGIC), HEADERS, GAP):
        gap = messages.reader.view(at, min(extent, size - at))
        found = gap.find(MAGIC)
        if found < 0 and len(gap) == size - at and not gap.strip(_PADDING):
            found = len(gap)
        if 0 <= found < _SHORTEST:
            return at + found
        if found >= 0:
            break
    messages.close()
    is_whole = found >= 0 or at + len(gap) == size
    gap = gap[:found] if found >= 0 else gap
    count = len(gap) if is_whole else f"more than {len(gap)}"
    what = f"{count} bytes that are no GRIB message"
    what = f"{what} ({repr(gap[:16]) if gap.strip(bytes(1)) else 'zeros'})"
    raise OtherBytesError(what, message=number + 1, offset=at)


def _read_head(head: bytes, begin: int, number: int, size: int) -> int:
    """Return the length of a message, from section 0."""
    if len(head) < 16:
        raise DamagedMessageError("the file ends", message=number, offset=begin)
    if head[:4] != MAGIC:
        raise NoMessageError("no message begins here", message=number, offset=begin)
    if head[7] != 2:
        raise EditionError(f"GRIB of edition {head[7]}", message=number, offset=begin)
    length = int.from_bytes(head[8:16], "big")
    if begin + length > size:
        what = f"the file ends inside a message of {length} bytes"
        raise DamagedMessageError(what, message=number, offset=begin)
    return length
