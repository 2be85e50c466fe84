"""Read the locations of virtual references: the distinct ones, and an index per row.

Spec: "ChunkRef", location, compressed_location and the checksums. Writers may share a string or
repeat it; either way a location that a million rows share is read once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from icevirt.model.chunks import Locations
from icevirt.model.strings import Strings, StringsWithin
from icevirt.wire.flatbuffer.columns_read import Tables
from icevirt.wire.flatbuffer.payload import Payload, array
from icevirt.wire.flatbuffer.reader import Damage, reading
from icevirt.wire.header import FileKind
from icevirt.wire.manifests.dictionary import Dictionary, content_sizes
from icevirt.wire.manifests.distinct_rows import equal_ranges, first_uses, looks_distinct
from icevirt.wire.row_order import Bytes, Places, gather

type Rows = Places | slice  # a slice: all of them

_WORTH_KEEPING = 3  # strings are read where they stand when the payload is not much more than they
_FEW_FRAMES = 1 << 10  # decompressed in a millisecond
_WIDTH = 4  # of the length before each string
_BLOCK = 1 << 18  # stays in the processor's cache


@dataclass(frozen=True)
class LocationReader:
    """Reads locations of one manifest, whose arrays share a payload and a dictionary."""

    payload: Payload
    algorithm: int
    trained: bytes | None

    @cached_property
    def dictionary(self) -> Dictionary:
        """What decompresses locations, made when the first compressed one is met."""
        if self.algorithm != 1 or self.trained is None:
            raise Damage("a compressed location, but no dictionary to decompress it", 0)
        return Dictionary(self.trained)

    def read(self, refs: Tables, rows: Rows) -> tuple[Locations, Places]:
        """Return the distinct locations of ``rows`` of the references, and each row's number."""
        url, rank = self._urls(refs, rows)
        etag, etag_rank = self._etags(refs, rows)
        seconds = self._seconds(refs, rows)
        if etag_rank is None and seconds is None:
            return _without_checksum(url), rank
        keys = rank
        for part in (etag_rank, seconds):
            if part is not None:
                # renumber at every step, so that products stay far below 63 bits
                _, keys = first_uses(keys * (int(part.max(initial=0)) + 1) + part)
        first, keys = first_uses(keys)
        count = len(first)
        found = Locations(
            url=url[rank[first]],
            etag=Strings.empty(count) if etag_rank is None else etag[etag_rank[first]],
            last_modified=np.zeros(count, np.uint32)
            if seconds is None
            else seconds[first].astype(np.uint32),
        )
        return found, keys

    def _urls(self, refs: Tables, rows: Rows) -> tuple[Strings, Places]:
        plain = _ranges(refs, "location", rows)
        packed = _ranges(refs, "compressed_location", rows)
        if packed is None:
            assert plain is not None
            return self._strings(*plain)
        hidden = packed.start != 0  # compressed ones go first
        if plain is None or hidden.all():
            return self._unpacked(*packed)
        names, rank = self._strings(plain.start[~hidden], plain.length[~hidden])
        more, more_rank = self._unpacked(packed.start[hidden], packed.length[hidden])
        both = np.empty(len(hidden), np.int64)
        both[~hidden], both[hidden] = rank, more_rank + len(names)
        return names + more, both

    def _etags(self, refs: Tables, rows: Rows) -> tuple[Strings, Places | None]:
        """Return the distinct etags, and every row's number; None where no row has one."""
        found = _ranges(refs, "checksum_etag", rows)
        return (Strings.empty(0), None) if found is None else self._strings(*found)

    def _seconds(self, refs: Tables, rows: Rows) -> Places | None:
        """Return when the object of every row was last modified; None where no row says so."""
        if refs.places("checksum_last_modified") is None:
            return None
        return refs.numbers("checksum_last_modified", 4)[rows].astype(np.int64)

    def _strings(self, start: Places, length: Places) -> tuple[Strings, Places]:
        """Return the distinct strings among these, and every row's number."""
        first, rank = self._distinct(start, length)
        start, length = _rows(start, first), _rows(length, first)
        if _WORTH_KEEPING * int(length.sum()) > self.payload.size and _stand_apart(
            self.payload.bytes, start, length
        ):
            return StringsWithin(self.payload.bytes, start, length), rank
        return text(*gather(self.payload.bytes, start, length)), rank

    def _unpacked(self, start: Places, length: Places) -> tuple[Strings, Places]:
        first, rank = self._distinct(start, length)
        start, length = _rows(start, first), _rows(length, first)
        size = content_sizes(self.payload.bytes, start, length)
        if len(size) > _FEW_FRAMES and _WORTH_KEEPING * int(size.sum()) > self.payload.size:
            return Frames(self.dictionary, self.payload.bytes, start, length), rank
        return text(*self.dictionary.decompress(*gather(self.payload.bytes, start, length))), rank

    def _distinct(self, start: Places, length: Places) -> tuple[Places, Places]:
        """Tell equal ranges by their place, which is cheap, then by their bytes."""
        first, rank = first_uses(start)
        start, length = _rows(start, first), _rows(length, first)
        if int(length.sum()) > self.payload.size:
            raise Damage("strings overlap", int(start[0]))
        if looks_distinct(self.payload.padded, start, length):
            return first, rank
        again, number = equal_ranges(self.payload.padded, start, length)
        return first[again], number[rank]


class Frames(StringsWithin):
    """Compressed strings, decompressed when they are asked for.

    What only decompression can find wrong is told then, as a ``FormatError``.
    """

    _dictionary: Dictionary
    _left: int

    def __init__(self, dictionary: Dictionary, around: Bytes, at: Places, size: Places) -> None:
        """Take over frames whose headers were checked."""
        super().__init__(around, at, size)
        vars(self).update(_dictionary=dictionary, _left=_FEW_FRAMES)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Bytes of each string, shape (n,)."""
        return self._all.lengths

    def _one(self, row: int) -> str:
        vars(self)["_left"] -= 1
        if self._left > 0:
            return self._gathered(np.array([row]))[0]
        return self._all[row]  # whoever asks for so many one by one wants all

    def _gathered(self, rows: NDArray[np.int64]) -> Strings:
        frames = super()._gathered(rows)
        with reading(FileKind.manifest.name):
            return text(*self._dictionary.decompress(frames.data, frames.starts))


def _rows(column: Places, rows: Places) -> Places:
    """Return rows of a column, of which none comes twice; all of them without a copy."""
    return column if len(rows) == len(column) and rows[-1:] == len(rows) - 1 else column[rows]


def _stand_apart(data: Bytes, start: Places, length: Places) -> bool:
    """Say whether strings lie one behind the other, each behind its length, and are ASCII.

    No look at each string is needed for that: every byte above 0x7F between the first and the last
    must belong to one of the lengths.
    """
    if not bool((start[1:] - _WIDTH >= start[:-1] + length[:-1]).all()):
        return False
    in_lengths = np.count_nonzero(length.astype("<u4").view(np.uint8) >= 0x80)
    between = data[int(start[0]) - _WIDTH : int(start[-1] + length[-1])]
    blocks = (between[at : at + _BLOCK] for at in range(0, len(between), _BLOCK))
    return sum(int(np.count_nonzero(block >= 0x80)) for block in blocks) == in_lengths


def _without_checksum(url: Strings) -> Locations:
    nothing = np.zeros(len(url), np.uint32)
    return Locations(url=url, etag=Strings.empty(len(url)), last_modified=nothing)


class _Ranges(NamedTuple):
    start: Places  # 0 where the field is absent
    length: Places


def _ranges(refs: Tables, name: str, rows: Rows) -> _Ranges | None:
    found = refs.vectors(name, 1)
    if found is None:
        return None
    present, start, count = found
    if present is None and isinstance(rows, slice):
        return _Ranges(array(start), count)
    all_starts, all_lengths = np.zeros((2, len(refs)), np.int64)
    held = slice(None) if present is None else present
    all_starts[held], all_lengths[held] = array(start), count
    return _Ranges(all_starts[rows], all_lengths[rows])


def text(data: NDArray[np.uint8], starts: Places) -> Strings:
    """Return strings, made sure that each is UTF-8 by itself. Raises ``Damage``."""
    if int(data.max(initial=0)) < 0x80:
        return Strings(data, starts)
    try:
        data.tobytes().decode()
    except UnicodeDecodeError as error:
        raise Damage("a string is not UTF-8", error.start) from None
    begins = starts[:-1][np.diff(starts) > 0]
    if bool((data[begins] & 0xC0 == 0x80).any()):  # a character cut in two
        raise Damage("a string is not UTF-8", 0)
    return Strings(data, starts)
