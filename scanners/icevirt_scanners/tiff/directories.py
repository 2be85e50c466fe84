"""Read the directories of a TIFF file (IFDs): classic and BigTIFF, of both orders of bytes.

Values that do not fit into an entry are read when they are asked for, as numpy columns. Nothing
here is larger than the file: what lies behind its end is damage, before memory is taken for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from icevirt.scan.contract import ByteSource

MAGICS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
SUB_DIRECTORIES = 330
_TYPES = {1: "u1", 2: "S1", 3: "u2", 4: "u4", 5: "u4", 6: "i1", 7: "u1", 8: "i2", 9: "i4"} | {
    10: "i4",
    11: "f4",
    12: "f8",
    13: "u4",
    16: "u8",
    17: "i8",
    18: "u8",
}
_RATIONAL = (5, 10)
_MOST_DIRECTORIES = 10_000
_MOST_ENTRIES = 4096
_MOST_TEXT = 16 << 20  # bytes


class TiffDamageError(Exception):
    """A file is not what its header says; the text is the cause."""


class _Layout(NamedTuple):
    """Bytes of the parts of a directory."""

    number: str  # type of the number of entries
    offset: str  # type of offsets and counts of values
    first: int  # where the offset of the first directory is

    @property
    def entry(self) -> int:
        """Bytes of an entry."""
        return 4 + 2 * np.dtype(self.offset).itemsize


_CLASSIC, _BIG = _Layout("u2", "u4", 4), _Layout("u8", "u8", 8)


@dataclass(frozen=True, slots=True, eq=False)
class Directory:
    """One directory: its entries by tag. ``number`` counts those of the chain from 0."""

    file: TiffFile
    number: int
    entries: dict[int, tuple[int, int, int]]  # type, count of values, where these begin
    within: tuple[int, ...] = ()  # its place among the sub-directories of that number

    def __contains__(self, tag: int) -> bool:
        return tag in self.entries

    def values(self, tag: int) -> NDArray[Any]:
        """Return the values of a tag in native order; none where it is not there.

        Raises:
            TiffDamageError: They lie outside of the file, or are of an unknown type.
        """
        if tag not in self.entries:
            return np.zeros(0, np.int64)
        kind, count, at = self.entries[tag]
        if kind not in _TYPES:
            raise TiffDamageError(f"tag {tag} has values of the unknown type {kind}")
        dtype = np.dtype(_TYPES[kind]).newbyteorder(self.file.order)
        raw = self.file.read(at, count * dtype.itemsize * (2 if kind in _RATIONAL else 1))
        found = np.frombuffer(raw, dtype).astype(dtype.newbyteorder("="))
        if kind in _RATIONAL:
            return found.reshape(-1, 2)
        return found

    def integers(self, tag: int) -> NDArray[np.int64]:
        """Return the values of a tag, which are offsets, lengths or choices.

        Raises:
            TiffDamageError: They are no integers, or larger than any file.
        """
        found = self.values(tag)
        if found.dtype.kind not in "ui" or found.ndim > 1:
            raise TiffDamageError(f"tag {tag} holds no integers")
        if found.dtype == np.uint64 and int(found.max(initial=0)) >= 1 << 62:
            raise TiffDamageError(f"tag {tag} holds {int(found.max())}")
        return found.astype(np.int64)

    def integer(self, tag: int, default: int | None = None) -> int:
        """Return the only value of a tag, or what stands for it.

        Raises:
            TiffDamageError: There is none, and nothing stands for it.
        """
        found = self.integers(tag)
        if len(found):
            return int(found[0])
        if default is None:
            raise TiffDamageError(f"tag {tag} is missing")
        return default

    def floats(self, tag: int) -> NDArray[np.float64]:
        """Return the values of a tag as numbers. Raises `TiffDamageError`."""
        found = self.values(tag)
        if found.dtype.kind not in "uif" or found.ndim > 1:
            raise TiffDamageError(f"tag {tag} holds no numbers")
        return found.astype(np.float64)

    def text(self, tag: int) -> str:
        """Return the text of a tag, up to its first zero; empty where there is none."""
        kind, count, at = self.entries.get(tag, (2, 0, 0))
        if kind not in (1, 2, 7):
            return ""
        if count > _MOST_TEXT:
            raise TiffDamageError(f"tag {tag} has a text of {count:,} bytes")
        return self.file.read(at, count).split(b"\0")[0].decode("utf-8", "replace")


@dataclass(frozen=True, slots=True, eq=False)
class TiffFile:
    """A file, and the order of its bytes."""

    source: ByteSource = field(repr=False)
    order: Any  # "<" or ">"
    layout: _Layout

    @classmethod
    def open(cls, source: ByteSource) -> TiffFile:
        """Read the header. Raises `TiffDamageError`."""
        head = source.read(0, 16)
        if head[:4] not in MAGICS:
            raise TiffDamageError("it does not begin as TIFF does")
        order = "<" if head[:1] == b"I" else ">"
        if head[:4] in MAGICS[:2]:
            return cls(source, order, _CLASSIC)
        if len(head) < 16 or np.frombuffer(head[4:8], f"{order}u2").tolist() != [8, 0]:
            raise TiffDamageError("a header of BigTIFF with other than 8 bytes an offset")
        return cls(source, order, _BIG)

    def read(self, at: int, length: int) -> bytes:
        """Return bytes of the file. Raises `TiffDamageError` if it does not have them."""
        if at < 0 or length < 0 or at + length > self.source.file.size:
            raise TiffDamageError(f"{length:,} bytes at {at:,} lie outside of the file")
        found = self.source.read(at, length)
        if len(found) != length:
            raise TiffDamageError(f"the file ends within {length:,} bytes at {at:,}")
        return found

    def integer(self, at: int, kind: str) -> int:
        """Return an integer at a place of the file."""
        dtype = np.dtype(kind).newbyteorder(self.order)
        return int(np.frombuffer(self.read(at, dtype.itemsize), dtype)[0])

    def directories(self) -> Iterator[Directory]:
        """Yield the directories of the chain, each before those below it.

        Raises:
            TiffDamageError: The chain leaves the file, meets itself, or is endless.
        """
        seen = set[int]()
        at, number = self.integer(self.layout.first, self.layout.offset), 0
        if not at:
            raise TiffDamageError("it has no image")
        while at:
            entries, behind = self._entries(at, seen)
            one = Directory(self, number, entries)
            yield one
            for place, below in enumerate(one.integers(SUB_DIRECTORIES).tolist()):
                if below:
                    yield Directory(self, number, self._entries(below, seen)[0], (place,))
            at, number = behind, number + 1

    def _entries(self, at: int, seen: set[int]) -> tuple[dict[int, tuple[int, int, int]], int]:
        """Return the entries of a directory, and where the next one is."""
        if at in seen:
            raise TiffDamageError(f"the directory at {at:,} is met again")
        if len(seen) == _MOST_DIRECTORIES:
            raise TiffDamageError(f"more than {_MOST_DIRECTORIES:,} directories")
        seen.add(at)
        layout = self.layout
        count = self.integer(at, layout.number)
        if count > _MOST_ENTRIES:
            raise TiffDamageError(f"a directory of {count:,} entries")
        begin, wide = at + np.dtype(layout.number).itemsize, np.dtype(layout.offset).itemsize
        raw = self.read(begin, count * layout.entry + wide)
        dtype = np.dtype(
            [("tag", "u2"), ("type", "u2"), ("count", layout.offset), ("value", layout.offset)]
        ).newbyteorder(self.order)
        found = np.frombuffer(raw, dtype, count)
        entries: dict[int, tuple[int, int, int]] = {}
        for row, (tag, kind, values, place) in enumerate(found.tolist()):
            size = values * np.dtype(_TYPES.get(kind, "u1")).itemsize
            size *= 2 if kind in _RATIONAL else 1
            own = begin + (row + 1) * layout.entry - wide
            entries.setdefault(tag, (kind, values, own if size <= wide else place))
        dtype = np.dtype(layout.offset).newbyteorder(self.order)
        return entries, int(np.frombuffer(raw[-wide:], dtype)[0])
