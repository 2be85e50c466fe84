"""Read heaps and B-trees of version 2: values, links and attributes beside object headers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct

from icevirt_scanners.hdf5.raw.space import CHECKSUM, Space, check_sum, number, require

_SUMMED = 2  # flag of a heap: direct blocks have a checksum
_KINDS = 0x30  # bits of an id: which kind of object it is; 0 is a managed one
_MOST_ROWS = 64


class FractalHeap:
    """Objects with ids, in direct blocks that double in size.

    Args:
        space: The file.
        address: Of the header; all blocks are read at once.
    """

    def __init__(self, space: Space, address: int) -> None:
        wide, long = space.address_width, space.length_width
        head = space.read_sealed(address, 22 + 12 * long + 3 * wide + CHECKSUM, b"FRHP\0")
        self.id_length, filters, flags = number(head, 5, 2), number(head, 7, 2), head[9]
        require(not filters, "a heap with filters")
        most_object = number(head, 10, 4)
        at = 14 + long + wide + long + wide + 8 * long
        self._width = number(head, at, 2)
        self._start = number(head, at + 2, long)
        most_direct = number(head, at + 2 + long, long)
        bits = number(head, at + 2 + 2 * long, 2)
        root = number(head, at + 6 + 2 * long, wide)
        rows = number(head, at + 6 + 2 * long + wide, 2)
        for power in (self._start, most_direct, self._width):
            require(power and not power & (power - 1), "a heap of odd sizes")
        require(self._start <= most_direct <= space.size << 8, "a heap of odd sizes")
        require(rows <= _MOST_ROWS and bits <= 64 and most_object, "a heap too large")
        self._offset_width = -(-bits // 8)
        # as libhdf5 counts: of the largest offset in a block, or of the largest object
        in_block = (most_direct.bit_length() + 6) // 8
        self._length_width = min(in_block, (most_object.bit_length() - 1) // 8 + 1)
        self._space, self._address, self._summed = space, address, bool(flags & _SUMMED)
        self._nowhere = (1 << 8 * wide) - 1
        # rows of direct blocks: two of the first size, then each twice as large
        self._direct_rows = (most_direct // self._start).bit_length() + 1
        self._blocks: dict[int, bytes] = {}  # by where in the heap they begin
        if root != self._nowhere and rows:
            self._read_indirect(root, 0, rows)
        elif root != self._nowhere:
            self._read_direct(root, 0, self._start)

    def item(self, identity: bytes) -> bytes:
        """Return the object that an id stands for."""
        require(len(identity) == self.id_length and not identity[0] & 0xC0, "an odd heap id")
        require(not identity[0] & _KINDS, "an object that is not managed")
        offset = number(identity, 1, self._offset_width)
        length = number(identity, 1 + self._offset_width, self._length_width)
        for begin, block in self._blocks.items():
            if begin <= offset and offset + length <= begin + len(block):
                return block[offset - begin : offset - begin + length]
        require(False, "an object that is not in its heap")
        return b""

    def _read_direct(self, address: int, begin: int, size: int) -> None:
        """Read a direct block; objects count from its very beginning, its head included."""
        data = self._space.block(address, size)
        end = self._check_owner(data, b"FHDB\0", begin)
        if self._summed:  # over the whole block, its own field taken for zero
            require(end + CHECKSUM <= size, "a heap of odd sizes")
            zeroed = data[:end] + bytes(CHECKSUM) + data[end + CHECKSUM :]
            check_sum(zeroed + data[end : end + CHECKSUM])
        self._blocks[begin] = data

    def _read_indirect(self, address: int, begin: int, rows: int) -> None:
        """Read an indirect block, and all below it."""
        wide = self._space.address_width
        fixed = 5 + wide + self._offset_width
        data = self._space.block(address, fixed + rows * self._width * wide + CHECKSUM)
        check_sum(data)
        at = self._check_owner(data, b"FHIB\0", begin)
        for row in range(rows):
            size = self._start << max(row - 1, 0)
            for _ in range(self._width):
                child = number(data, at, wide)
                at += wide
                if child != self._nowhere and row < self._direct_rows:
                    self._read_direct(child, begin, size)
                elif child != self._nowhere:  # a block that spans so many bytes of the heap
                    below = (size // (self._start * self._width)).bit_length()
                    self._read_indirect(child, begin, below)
                begin += size

    def _check_owner(self, data: bytes, head: bytes, begin: int) -> int:
        """Check whose block it is, and where it stands in the heap; return where it goes on."""
        wide = self._space.address_width
        require(data.startswith(head), f"no {head[:4]!r}")
        require(number(data, 5, wide) == self._address, "a block of another heap")
        require(number(data, 5 + wide, self._offset_width) == begin, "a block of another place")
        return 5 + wide + self._offset_width


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
        data = space.block(address, size) if size > len(data) else data[:size]
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


_PREFIX = 6  # bytes before the records of a node: signature, version, kind
DEEPEST = 16  # levels of a tree; 4 hold more chunks than any file has


class RecordTree:
    """A B-tree of version 2: records of one length, in leaves and between the nodes below.

    Args:
        space: The file.
        address: Of the header.
    """

    def __init__(self, space: Space, address: int) -> None:
        wide, long = space.address_width, space.length_width
        head = space.read_sealed(address, 18 + wide + long + CHECKSUM, b"BTHD\0")
        self.kind, self.record, self._depth = head[5], number(head, 10, 2), number(head, 12, 2)
        self._total = number(head, 18 + wide, long)
        require(self.record > 0, "records of another kind")
        fits = self._depth <= DEEPEST and self._total * self.record <= space.size
        require(fits, "a tree too large")
        self._space, self._node_size = space, number(head, 6, 4)
        self._root = number(head, 16, wide), number(head, 16 + wide, 2)

    def records(self) -> list[bytes]:
        """Return all records, in the order of the tree."""
        size = self.record
        return [run[at : at + size] for run in self.runs() for at in range(0, len(run), size)]

    def runs(self) -> Iterator[bytes]:
        """Yield all records in the order of the tree, some that stand together at a time."""
        found = 0
        for run in self._below(*self._root, self._depth) if self._total else ():
            found += len(run)
            yield run
        require(found == self._total * self.record, "records that are missing")

    def _below(self, address: int, count: int, depth: int) -> Iterator[bytes]:
        """Yield the records of a node and of all below it."""
        wide, end = self._space.address_width, _PREFIX + count * self.record
        widths = self._pointer(depth) if depth else (0, 0, 0)
        used = end + (count + 1) * sum(widths) + CHECKSUM
        require(used <= self._node_size, "a node of another size")
        head = bytes((*(b"BTIN\0" if depth else b"BTLF\0"), self.kind))
        node = self._space.read_sealed(address, used, head)
        if not depth:
            yield node[_PREFIX:end]
            return
        steps = range(end, used - CHECKSUM, sum(widths))
        children = [(number(node, at, wide), number(node, at + wide, widths[1])) for at in steps]
        self._space.soon((child, self._node_size) for child, _ in children)
        for nth, child in enumerate(children):
            yield from self._below(*child, depth - 1)
            at = _PREFIX + nth * self.record
            yield node[at : min(at + self.record, end)]

    def _pointer(self, depth: int) -> tuple[int, int, int]:
        """Return the bytes of a pointer's fields at a depth: address, records, records below.

        Numbers take as many bytes as the largest that the node size allows.
        """
        room, wide = self._node_size - _PREFIX - CHECKSUM, self._space.address_width
        most = below = room // self.record
        require(most > 0, "nodes without room")
        counted, total = _bytes_for(most), 0
        for _ in range(1, depth):
            pointer = wide + counted + total
            most = (room - pointer) // (self.record + pointer)
            require(most > 0, "nodes without room")
            below = (most + 1) * below + most
            total = _bytes_for(below)
        return wide, counted, total


def _bytes_for(limit: int) -> int:
    return (limit.bit_length() - 1) // 8 + 1
