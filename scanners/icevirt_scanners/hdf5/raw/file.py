"""The object headers of one file, and the heap that their attributes point into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

from icevirt.scan.contract import ByteSource
from icevirt_scanners.hdf5.raw.fields import NotUnderstoodError
from icevirt_scanners.hdf5.raw.header import SHARED, Message, messages, space_of
from icevirt_scanners.hdf5.raw.heap import Heap
from icevirt_scanners.hdf5.raw.space import Space


class Header(NamedTuple):
    """The messages of one object."""

    messages: list[Message]
    heap: Heap

    def key(self, kind: int) -> bytes | None:
        """Return the bytes of the only message of a kind.

        Equal bytes mean equal things. None where they may say it elsewhere, or in parts.
        """
        found = [m for m in self.messages if m.kind == kind]
        return found[0].data if len(found) == 1 and not found[0].flags & SHARED else None


@dataclass(frozen=True, slots=True)
class RawFile:
    """A file whose headers may be read from its bytes."""

    space: Space
    heap: Heap

    @classmethod
    def of(cls, source: ByteSource, *, base: int) -> Self | None:
        """Begin to read a file behind a user block of ``base`` bytes; None if that cannot be."""
        try:
            space = space_of(source.read, base=base, size=source.file.size)
        except NotUnderstoodError:
            return None
        return cls(space, Heap(space))

    def header(self, address: int) -> Header | None:
        """Return the header of the object at an address, None where libhdf5 must be asked."""
        try:
            return Header(messages(self.space.begin(), address), self.heap)
        except NotUnderstoodError:
            return None
