"""Read global heaps, which hold values of variable length."""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct

from icevirt_scanners.hdf5.raw.fields import number, require
from icevirt_scanners.hdf5.raw.space import Space

_HEADS = {4: Struct("<H6xI"), 8: Struct("<H6xQ")}  # number and bytes of an object
_USUAL = 4096  # bytes of a collection, mostly
_MOST = 16 * 1024 * 1024  # bytes of collections


@dataclass(slots=True)
class Heap:
    """The global heap of one file; collections that were read are kept while they are few."""

    space: Space
    _known: dict[int, dict[int, bytes]] = field(default_factory=dict)
    _held: int = 0  # bytes of those
    _item: Struct = field(init=False)

    def __post_init__(self) -> None:
        self._item = Struct("<I" + {4: "I", 8: "Q"}[self.space.address_width] + "I")

    def sequences(self, data: bytes, width: int) -> list[bytes]:
        """Return the sequences that ``data`` refers to, of elements of ``width`` bytes."""
        require(len(data) % self._item.size == 0, "sequences that are not in a heap")
        found: list[bytes] = []
        for length, collection, item in self._item.iter_unpack(data):
            if not length:
                found.append(b"")
                continue
            objects = self._known.get(collection)
            if objects is None:
                objects = self._known[collection] = self._collection(collection)
            value = objects.get(item, b"")
            require(len(value) == length * width, "a sequence that is not in its heap")
            found.append(value)
        return found

    def _collection(self, address: int) -> dict[int, bytes]:
        space, long = self.space.begin(), self.space.length_width
        data = space.at_most(address, _USUAL)
        size = number(data, 8, long)
        require(size <= _MOST, "a heap too large")
        if self._held + size > _MOST:
            self._known.clear()
            self._held = 0
        self._held += size
        data = data[:size] if size <= len(data) else space.block(address, size)
        require(data.startswith(b"GCOL\1"), "no heap")
        objects: dict[int, bytes] = {}
        head = _HEADS[long]
        at = 8 + long
        while at + head.size <= size:
            item, length = head.unpack_from(data, at)
            if not item:  # the free space, its own head included
                require(length <= size - at, "an object that leaves its heap")
                break
            at += head.size
            objects[item] = data[at : at + length]
            at += -(-length // 8) * 8
        require(at <= size, "an object that leaves its heap")
        return objects
