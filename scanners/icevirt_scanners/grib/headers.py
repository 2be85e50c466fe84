"""Read the headers of sections of many messages at once, in columns.

Of each message its first bytes are given, in which most headers are. What of a message lies behind
them is read alone. A step of the loop looks at the next section of every message, whatever it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

type Integers = NDArray[np.int64]
type Bytes = NDArray[np.uint8]

HEADERS = 512  # first bytes of a message: in them are the headers of most
PRODUCT, PACKING = 128, 32
"""Bytes that are kept of sections 4 and 5; longer ones have a list that nothing here reads."""
_GRID = 1 << 20  # bytes of a grid section, beyond which nothing is believed
NEXT = {0: (1,), 1: (2, 3), 2: (3,), 3: (4,), 4: (5,), 5: (6,), 6: (7,), 7: (2, 3, 4, 8)}
"""Which section may follow which; 8 is the end."""
_PLACES = 32  # of sections, beyond which rows are not copied place by place
_KINDS = 16  # numbers of sections that are told apart
_MAY_FOLLOW = np.array(
    [[kind in NEXT.get(last, ()) for kind in range(_KINDS)] for last in range(8)]
)
_LEAST, _MOST = np.full(_KINDS, 5), np.full(_KINDS, np.iinfo(np.int64).max)
_LEAST[[1, 3, 4, 5, 6]] = 21, 14, 11, 11, 6
_MOST[3] = _GRID
_OWN_BITMAP, _NO_BITMAP = 0, 255  # indicators of section 6
# templates of section 5: coefficients are no points
_SIMPLE, _IEEE, _LOGARITHMS, _SPECTRAL = 0, 4, 61, (50, 51, 53)
_TEMPLATES = 64  # of section 5 that are told apart
# bytes of sections of packings of which each value has as many bits
_FIXED = np.zeros(_TEMPLATES + 1, np.int64)
_FIXED[[_SIMPLE, _IEEE, _LOGARITHMS]] = 21, 12, 21
_IS_OF_POINTS = np.ones(_TEMPLATES + 1, np.bool_)
_IS_OF_POINTS[[*_SPECTRAL]] = False
_WEIGHTS = 256 ** np.arange(7, -1, -1)  # of the octets of a number


class MessageDamage(NamedTuple):
    """What is wrong with a message."""

    row: int
    what: str
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sections:
    """Where sections of fields are, a row for each field."""

    row: Integers  # (n,) of its message
    part: Integers  # (n,) number of the field in its message, from 0
    begin: Integers  # (n, 8) offset of each section in the message
    length: Integers  # (n, 8)

    def take(self, rows: Integers | NDArray[np.bool_]) -> Sections:
        """Return some of the fields."""
        columns = (self.row, self.part, self.begin, self.length)
        row, part, begin, length = (each[rows] for each in columns)
        return Sections(row=row, part=part, begin=begin, length=length)


@dataclass(slots=True, kw_only=True, eq=False)
class Heads:
    """The first bytes of messages, and how more of them is read."""

    begin: Integers  # (n,) offsets of the messages
    length: Integers  # (n,)
    is_ended: NDArray[np.bool_]  # (n,) whether 7777 is where it has to be
    first: Bytes  # (n, HEADERS), zeros behind the end of a message
    read: Callable[[int, int], bytes]
    damaged: list[MessageDamage] = field(default_factory=list)
    far: dict[int, tuple[int, bytes]] = field(default_factory=dict)  # by row: read behind these

    def follow(self) -> Sections:
        """Follow the sections of all messages to their ends; damaged ones are noted."""
        count = len(self.begin)
        at, last = np.full(count, 16), np.zeros(count, np.int64)
        part, end = np.zeros(count, np.int64), self.length - 4
        begins, lengths = np.zeros((2, count, 8), np.int64)
        found: list[Sections] = []
        rows = np.flatnonzero(at < end)
        while len(rows):
            octets = self.cut(rows, at[rows], np.full(len(rows), 5))
            extent, kind = read_number(octets, 0, 4), np.minimum(octets[:, 4], _KINDS - 1)
            left = end[rows] - at[rows]
            in_order = _MAY_FOLLOW[last[rows], kind]
            fits = (extent >= _LEAST[kind]) & (extent <= np.minimum(left, _MOST[kind]))
            for row in np.flatnonzero(~(in_order & fits)).tolist():
                message, which = int(rows[row]), int(octets[row, 4])
                what = f"behind section {last[message]}" if not in_order[row] else ""
                what = what or f"of {extent[row]} bytes"
                offset = int(self.begin[message] + at[message])
                self.damaged.append(MessageDamage(message, f"section {which} {what}", offset))
            sound = in_order & fits
            rows, kind, extent = rows[sound], kind[sound].astype(np.int64), extent[sound]
            begins[rows, kind], lengths[rows, kind] = at[rows], extent
            if len(ready := rows[kind == 7]):
                found.append(
                    Sections(
                        row=ready, part=part[ready], begin=begins[ready], length=lengths[ready]
                    )
                )
                part[ready] += 1
            at[rows] += extent
            last[rows] = kind
            rows = rows[at[rows] < end[rows]]
        known = {each.row for each in self.damaged}
        for row in np.flatnonzero((at != end) | (last != 7) | ~self.is_ended).tolist():
            if row not in known:
                offset = int(self.begin[row] + max(end[row], 0))
                self.damaged.append(
                    MessageDamage(row, "the message does not end with 7777", offset)
                )
        return _join(found)

    def cut(self, rows: Integers, begin: Integers, length: Integers, width: int = 0) -> Bytes:
        """Return (n, most) bytes of messages from ``begin`` on, zeros behind their length.

        Args:
            rows: Of the messages.
            begin: Where in the message.
            length: How many bytes.
            width: How many zeros and bytes there are at least.
        """
        found = np.zeros((len(rows), int(length.max(initial=width))), np.uint8)
        near = begin + length <= HEADERS
        keys = (begin * HEADERS * 2 + length)[near]
        distinct = keys[:1] if (keys == keys[:1]).all() else np.unique(keys)
        if len(distinct) > _PLACES:
            places = begin[near, None] + np.arange(found.shape[1])
            held = self.first[rows[near, None], np.minimum(places, HEADERS - 1)]
            found[near] = np.where(places < (begin + length)[near, None], held, 0)
        else:
            mine = np.flatnonzero(near)
            for key in distinct.tolist():
                first, size = divmod(key, HEADERS * 2)
                some = mine if len(distinct) == 1 else mine[keys == key]
                found[some, :size] = self.first[rows[some], first : first + size]
        for row in np.flatnonzero(~near).tolist():
            more = self._read(int(rows[row]), int(begin[row]), int(length[row]))
            found[row, : len(more)] = np.frombuffer(more, np.uint8)
        return found

    def _read(self, row: int, at: int, length: int) -> bytes:
        """Return bytes behind the first ones of a message, read with those that follow them."""
        begin, held = self.far.get(row, (0, b""))
        if not begin <= at <= at + length <= begin + len(held):
            most = max(length, min(HEADERS, int(self.length[row]) - at))
            begin, held = self.far[row] = at, self.read(int(self.begin[row]) + at, most)
        return held[at - begin : at - begin + length]

    def note_misfits(self, places: Sections, packing: Bytes) -> None:
        """Note fields whose sections contradict each other.

        Decoders take what a section lacks for zeros, or read behind it.
        """
        rows, begin, length = places.row, places.begin, places.length
        width = np.full(len(rows), 1)
        points = read_number(self.cut(rows, begin[:, 3] + 6, width * 4), 0, 4)
        indicator = self.cut(rows, begin[:, 6] + 5, width)[:, 0]
        values, bitmap, data = read_number(packing, 5, 4), length[:, 6] - 6, length[:, 7]
        misfits = find_misfits(packing, points, indicator, length[:, 5:8])
        counts, maps, short, _ = misfits
        odd = np.logical_or.reduce(misfits)
        for at in np.flatnonzero(odd).tolist():
            if counts[at]:
                what = f"{values[at]} values for {points[at]} points"
            elif maps[at]:
                what = f"a bitmap of {bitmap[at]} bytes for {points[at]} points"
            elif short[at]:
                size = length[at, 5]
                what = f"a section 5 of {size} bytes, too short for its template, before it"
            else:
                size = data[at]
                bits = _read_bits(packing[at : at + 1])[0]
                what = f"{values[at]} values of {bits} bits in a section 7 of {size} bytes"
            row = int(rows[at])
            self.damaged.append(MessageDamage(row, what, int(self.begin[row] + begin[at, 7])))


def find_misfits(
    packing: Bytes, points: Integers, indicator: Bytes, length: Integers
) -> NDArray[np.bool_]:
    """Return (4, n) of which fields sections contradict each other.

    In counts of values, the size of the bitmap, that of section 5, and that of section 7.

    Args:
        packing: (n, PACKING) sections 5.
        points: (n,) of the grid.
        indicator: (n,) of the bitmap, in section 6.
        length: (n, 3) of sections 5, 6 and 7.
    """
    values, template = read_number(packing, 5, 4), read_number(packing, 9, 2)
    template = np.minimum(template, _TEMPLATES)
    (own, bitmap, data), least = length.T, _FIXED[template]
    found = np.empty((4, len(packing)), np.bool_)
    found[0] = (values > points) | ((values < points) & (indicator == _NO_BITMAP))
    found[1] = (indicator == _OWN_BITMAP) & (bitmap - 6 != (points + 7) // 8)
    found[2] = own < least
    found[3] = least > 0
    if found[3].any():
        found[3] &= (values * _read_bits(packing) + 7) // 8 > data - 5
    return found & _IS_OF_POINTS[template]


def _read_bits(packing: Bytes) -> Integers:
    """Return bits of a value, of packings where each has as many."""
    is_ieee = read_number(packing, 9, 2) == _IEEE
    return np.where(is_ieee, 16 << np.minimum(packing[:, 11], 3).astype(np.int64), packing[:, 19])


def read_number(octets: Bytes, at: int, length: int) -> Integers:
    """Return unsigned numbers, a row each."""
    found: Integers = octets[:, at : at + length].astype(np.int64) @ _WEIGHTS[8 - length :]
    return found


def _join(found: Sequence[Sections]) -> Sections:
    """Return fields in the order of the file."""
    if not found:
        none = np.zeros(0, np.int64)
        return Sections(row=none, part=none, begin=none.reshape(0, 8), length=none.reshape(0, 8))
    columns = ("row", "part", "begin", "length")
    joined = Sections(
        **{name: np.concatenate([getattr(each, name) for each in found]) for name in columns}
    )
    return joined if len(found) == 1 else joined.take(np.lexsort((joined.part, joined.row)))
