"""Say by its bytes that a message is that of another file at another time.

Headers of the files of one kind differ in lengths, in times, in how values are packed, and in
sections of local use. Of a known file the first bytes of all messages are held. A message with the
same bytes but there is the same field, and its sections need not be read one by one. What is not
the same is no error here: its headers are read as if nothing were known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Self

import numpy as np

from icevirt.scan.contract import ByteSource
from icevirt_scanners.grib.headers import (
    HEADERS,
    PACKING,
    Bytes,
    Integers,
    find_misfits,
    read_number,
)
from icevirt_scanners.grib.products import FACTS, TEMPLATES, Products
from icevirt_scanners.grib.sections import END, Fields, KeptHeads, announce

_BEHIND = 5  # octets of section 7 before its data
_TIME = 28  # of the reference time, in section 1, which follows the 16 octets of section 0
_NO_WINDOW = 0
_END = np.frombuffer(END, np.uint8)
_DENSE, _MOST = 8 * 1024, 8 << 20  # bytes for each message, and all, that are read at once


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KnownHeads:
    """The first bytes of the messages of a file, a row each."""

    width: int  # of what is read of a message
    octets: Bytes  # (n, most) zeros where another file of the kind has others
    same: Bytes  # (n, most) 255 where it has the same, else 0
    begin: Integers  # (n, 8) offsets of sections in the message
    lead: Integers  # (n,) offset of the time to the beginning
    window: Integers  # (n,) and of the length of the interval, _NO_WINDOW where it has none

    @classmethod
    def of(cls, fields: Fields, kept: Sequence[KeptHeads]) -> Self | None:
        """Take the headers that were read of a file; None where some are longer than these."""
        if not kept or any(places.part.any() for _, places in kept):
            return None
        first = np.concatenate([each for each, _ in kept])
        begin = np.concatenate([places.begin for _, places in kept])
        width, count = int((begin[:, 6] + 6).max()), len(fields)
        if width > HEADERS:
            return None
        shift, interval = np.zeros((2, count), np.int64)
        template = read_number(fields.product, 7, 2)
        for number, where in TEMPLATES.items():
            rows = template == number
            shift[rows], interval[rows] = where.shift, max(where.interval, 0)
        at, product = np.arange(width), begin[:, 4, None]
        lead = product + 18 + shift[:, None]
        end = np.where(interval[:, None] > 0, product + interval[:, None], width)
        own_bitmap = (fields.bitmap == 0)[:, None]
        packing, local = begin[:, 5, None], begin[:, 2, None]
        other = (
            ((at >= 8) & (at < 16))
            | ((at >= _TIME) & (at < _TIME + 7))
            | ((at >= local + 5) & (at < begin[:, 3, None]) & (local > 0))
            | ((at >= lead) & (at < lead + 4))
            | ((at >= end) & (at < end + 7))
            | ((at >= end + 15) & (at < end + 19))
            | (own_bitmap & (at >= packing + 5) & (at < packing + 9))
            | ((at >= packing + 11) & (at < begin[:, 6, None]))
            | (at >= begin[:, 6, None] + 6)
        )
        same = np.where(other, 0, 255).astype(np.uint8)
        return cls(
            width=min(int(begin[:, 7].max()) + _BEHIND, HEADERS),
            octets=first[:, :width] & same,
            same=same,
            begin=begin,
            lead=lead[:, 0],
            window=np.where(interval > 0, begin[:, 4] + interval + 15, _NO_WINDOW),
        )

    def find(
        self,
        source: ByteSource,
        rows: Integers,
        places: Integers,
        products: Products,
        leads: Integers,
    ) -> Bytes | None:
        """Return sections 5 of some messages; None where one is another field, or at another time.

        Args:
            source: The file.
            rows: Of the messages.
            places: (rows, 2) Where they begin and end.
            products: All of the file, with its times.
            leads: (rows,) what the messages have to say of the time to their beginning.
        """
        if source.local_path is None:
            announce(source, [*zip(*places.T.tolist(), strict=True)])
        first, ends = _read_heads(source, places[:, 0], places[:, 1], self.width)
        length = places[:, 1] - places[:, 0]
        begin, window = self.begin[rows], self.window[rows]
        has_window = window != _NO_WINDOW
        octets = first[:, : self.same.shape[1]]
        is_same = (
            (ends == _END).all()
            and (octets & self.same[rows] == self.octets[rows]).all()
            and (read_number(first, 8, 8) == length).all()
            and (first[:, _TIME : _TIME + 7] == _write_all(products.time[rows])).all()
            and (_read(first, self.lead[rows], 4) == leads).all()
        )
        if is_same and has_window.any():
            lengths = products.facts[rows, FACTS.index("length")]
            is_same = ((_read(first, window, 4) == lengths) | ~has_window).all()
        if not is_same:
            return None
        at, data = begin[:, 7], length - len(END) - begin[:, 7]
        heads = _cut(first, at, _BEHIND)
        for row in np.flatnonzero(at > self.width - _BEHIND).tolist():  # behind a bitmap
            behind = source.read(int(places[row, 0] + at[row]), _BEHIND)
            heads[row] = np.frombuffer(behind.ljust(_BEHIND, b"\0"), np.uint8)
        if (read_number(heads, 0, 4) != data).any() or (heads[:, 4] != 7).any():
            return None
        own, bitmap = begin[:, 6] - begin[:, 5], begin[:, 7] - begin[:, 6]
        packing = _cut(first, begin[:, 5], PACKING)
        packing[np.arange(PACKING) >= own[:, None]] = 0
        points, indicator = _read(first, begin[:, 3] + 6, 4), _cut(first, begin[:, 6] + 5, 1)[:, 0]
        extents = np.stack([own, bitmap, data], axis=1)
        odd = find_misfits(packing, points, indicator, extents)
        return None if odd.any() else packing


def _read_heads(
    source: ByteSource, begin: Integers, end: Integers, width: int
) -> tuple[Bytes, Bytes]:
    """Return (n, width) first bytes of messages, zeros behind their ends, and (n, 4) last ones."""
    first, last = int(begin[0]), int(end[-1])
    extent = last - first
    if source.local_path and extent <= min(_DENSE * len(begin), _MOST):
        raw = source.read(first, extent)  # in less time than message by message
        octets = np.frombuffer(raw.ljust(extent, b"\0") + bytes(width), np.uint8)
        heads = np.lib.stride_tricks.sliding_window_view(octets, width)[begin - first]
        ends = np.lib.stride_tricks.sliding_window_view(octets, len(END))[end - first - len(END)]
        if (is_short := end - begin < width).any():
            heads[is_short] *= np.arange(width) < (end - begin)[is_short, None]
        return heads, ends
    read, places = source.read, [*zip(begin.tolist(), end.tolist(), strict=True)]
    heads = _stack([read(at, min(width, stop - at)) for at, stop in places], width)
    return heads, _stack([read(stop - len(END), len(END)) for _, stop in places], len(END))


def _stack(texts: Iterable[bytes], width: int) -> Bytes:
    """Return (n, width) bytes, zeros behind the end of shorter ones."""
    joined = b"".join([each.ljust(width, b"\0") for each in texts])
    return np.frombuffer(joined, np.uint8).reshape(-1, width)


def _cut(first: Bytes, at: Integers, width: int) -> Bytes:
    """Return (n, width) bytes of each row from another place on."""
    places = np.minimum(at[:, None] + np.arange(width), first.shape[1] - 1)
    found: Bytes = first[np.arange(len(first))[:, None], places]
    return found


def _read(first: Bytes, at: Integers, length: int) -> Integers:
    return read_number(_cut(first, at, length), 0, length)


def _write_all(times: Integers) -> Bytes:
    """Return (n or 1, 7) reference times as sections 1 have them."""
    if (times == times[:1]).all():
        times = times[:1]
    return _stack(map(_write, times.tolist()), 7)


@lru_cache(1024)
def _write(time: int) -> bytes:
    """Return a reference time as section 1 has it."""
    when = datetime.fromtimestamp(int(time), UTC)
    return when.year.to_bytes(2, "big") + bytes(when.timetuple()[1:6])
