"""Reads the locations of virtual references: the distinct ones, and which row has which.

Spec: "ChunkRef", location, compressed_location and the checksums. Writers may share a string or
repeat it; either way a location that a million rows have is read once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from icevirt.model.chunks import Locations
from icevirt.model.strings import Strings
from icevirt.wire.columns_read import Tables
from icevirt.wire.dictionary import Dictionary
from icevirt.wire.distinct import equal_ranges, first_uses, looks_distinct
from icevirt.wire.payload import Payload, array
from icevirt.wire.ranges import Places, gather
from icevirt.wire.read import Damage


@dataclass(frozen=True)
class Locator:
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

    def read(self, refs: Tables, rows: Places) -> tuple[Locations, Places]:
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

    def _urls(self, refs: Tables, rows: Places) -> tuple[Strings, Places]:
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
        both = np.empty(len(rows), np.int64)
        both[~hidden], both[hidden] = rank, more_rank + len(names)
        return names + more, both

    def _etags(self, refs: Tables, rows: Places) -> tuple[Strings, Places | None]:
        """Return the distinct etags, and every row's number; None where no row has one."""
        found = _ranges(refs, "checksum_etag", rows)
        return (Strings.empty(0), None) if found is None else self._strings(*found)

    def _seconds(self, refs: Tables, rows: Places) -> Places | None:
        """Return when the object of every row was last modified; None where no row says so."""
        if refs.places("checksum_last_modified") is None:
            return None
        return refs.numbers("checksum_last_modified", 4)[rows].astype(np.int64)

    def _strings(self, start: Places, length: Places) -> tuple[Strings, Places]:
        """Return the distinct strings among these, and every row's number."""
        first, rank = self._distinct(start, length)
        return text(*gather(self.payload.bytes, start[first], length[first])), rank

    def _unpacked(self, start: Places, length: Places) -> tuple[Strings, Places]:
        first, rank = self._distinct(start, length)
        frames, starts = gather(self.payload.bytes, start[first], length[first])
        return text(*self.dictionary.decompress(frames, starts)), rank

    def _distinct(self, start: Places, length: Places) -> tuple[Places, Places]:
        """Tell equal ranges by their place, which is cheap, then by their bytes."""
        first, rank = first_uses(start)
        start, length = start[first], length[first]
        if int(length.sum()) > self.payload.size:
            raise Damage("strings overlap", int(start[0]))
        if looks_distinct(self.payload.padded, start, length):
            return first, rank
        again, number = equal_ranges(self.payload.padded, start, length)
        return first[again], number[rank]


def _without_checksum(url: Strings) -> Locations:
    nothing = np.zeros(len(url), np.uint32)
    return Locations(url=url, etag=Strings.empty(len(url)), last_modified=nothing)


class _Ranges(NamedTuple):
    start: Places  # 0 where the field is absent
    length: Places


def _ranges(refs: Tables, name: str, rows: Places) -> _Ranges | None:
    found = refs.vectors(name, 1)
    if found is None:
        return None
    present, start, count = found
    if present is None and len(refs) == len(rows):
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
