"""Read the object headers of one file, and the heap that their attributes point into."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Self

from icevirt.scan.contract import ByteSource, prefetch
from icevirt_scanners.hdf5.raw.fields import NotUnderstoodError
from icevirt_scanners.hdf5.raw.header import SHARED, Message, messages, space_of
from icevirt_scanners.hdf5.raw.heap import Heap
from icevirt_scanners.hdf5.raw.space import Pages, Space
from icevirt_scanners.hdf5.raw.superblock import root_of


class ObjectHeader(NamedTuple):
    """The messages of one object."""

    messages: list[Message]
    heap: Heap

    def key(self, kinds: tuple[int, ...]) -> tuple[tuple[int, bytes], ...] | None:
        """Return the messages of some kinds: equal ones, or none at all, mean equal things.

        None where they may say it elsewhere.
        """
        found = [message for message in self.messages if message.kind in kinds]
        if any(message.flags & SHARED for message in found):
            return None
        return tuple((message.kind, message.data) for message in found)


@dataclass(frozen=True, slots=True)
class RawFile:
    """A file whose headers may be read from its bytes."""

    space: Space
    heap: Heap
    _headers: dict[int, ObjectHeader | None] = field(default_factory=dict)

    @property
    def root(self) -> int:
        """The address of the root group. Raises `NotUnderstoodError` where libhdf5 must judge."""
        return root_of(self.space)

    @classmethod
    def of(cls, source: ByteSource, *, base: int) -> Self | None:
        """Begin to read a file behind a user block of ``base`` bytes; None if that cannot be."""
        try:
            space = space_of(Pages(source.read), base=base, size=source.file.size)
        except NotUnderstoodError:
            return None
        if source.local_path is None:
            space.announce = partial(prefetch, source)
        return cls(space, Heap(space))

    def header(self, address: int) -> ObjectHeader | None:
        """Return the header of the object at an address, None where libhdf5 must be asked."""
        if address in self._headers:
            return self._headers[address]
        found = None
        with suppress(NotUnderstoodError):
            found = ObjectHeader(messages(self.space.begin(), address), self.heap)
        self._headers[address] = found
        return found
