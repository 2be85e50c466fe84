"""Read fractal heaps and B-trees: links and attributes too many for an object header."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct

from icevirt_scanners.hdf5.raw.space import CHECKSUM, Space, check_sum, number, require

_SUMMED = 2  # flag of a heap: direct blocks have a checksum
_KINDS = 0x30  # bits of an id: which kind of object it is; 0 is a managed one
_MOST_ROWS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class FractalHeap:
    """The direct blocks of one heap, by where in the heap they begin."""

    id_length: int  # bytes
    offset_width: int
    length_width: int
    blocks: dict[int, bytes] = field(default_factory=dict)

    @classmethod
    def at(cls, space: Space, address: int) -> FractalHeap:
        """Read the heap whose header is at ``address``, all its blocks included."""
        head = _Head(space, address)
        blocks: dict[int, bytes] = {}
        if head.root is not None:
            if head.rows:
                head.indirect(head.root, 0, head.rows, blocks)
            else:
                head.direct(head.root, 0, head.start, blocks)
        return cls(
            id_length=head.id_length,
            offset_width=head.offset_width,
            length_width=head.length_width,
            blocks=blocks,
        )

    def item(self, identity: bytes) -> bytes:
        """Return the object that an id stands for."""
        require(len(identity) == self.id_length and not identity[0] & 0xC0, "an odd heap id")
        require(not identity[0] & _KINDS, "an object that is not managed")
        offset = number(identity, 1, self.offset_width)
        length = number(identity, 1 + self.offset_width, self.length_width)
        for begin, block in self.blocks.items():
            if begin <= offset and offset + length <= begin + len(block):
                return block[offset - begin : offset - begin + length]
        require(False, "an object that is not in its heap")
        return b""


class _Head:
    """The header of a heap."""

    def __init__(self, space: Space, address: int) -> None:
        wide, long = space.address_width, space.length_width
        size = 22 + 12 * long + 3 * wide + CHECKSUM
        head = space.sealed(address, size, b"FRHP\0")
        self.id_length, filters, flags = number(head, 5, 2), number(head, 7, 2), head[9]
        require(not filters, "a heap with filters")
        self.most_object = number(head, 10, 4)
        at = 14 + long + wide + long + wide + 8 * long
        self.width = number(head, at, 2)
        self.start = number(head, at + 2, long)
        self.most_direct = number(head, at + 2 + long, long)
        bits = number(head, at + 2 + 2 * long, 2)
        root = number(head, at + 6 + 2 * long, wide)
        self.rows = number(head, at + 6 + 2 * long + wide, 2)
        self.root = None if root == (1 << 8 * wide) - 1 else root
        for power in (self.start, self.most_direct, self.width):
            require(power and not power & (power - 1), "a heap of odd sizes")
        require(self.start <= self.most_direct <= space.size << 8, "a heap of odd sizes")
        require(self.rows <= _MOST_ROWS and bits <= 64 and self.most_object, "a heap too large")
        self.offset_width = -(-bits // 8)
        # as libhdf5 counts: of the largest offset in a block, or of the largest object
        in_block = (self.most_direct.bit_length() + 6) // 8
        self.length_width = min(in_block, (self.most_object.bit_length() - 1) // 8 + 1)
        self._space, self._address, self._summed = space, address, bool(flags & _SUMMED)
        self._nowhere = (1 << 8 * wide) - 1
        # rows of direct blocks: two of the first size, then each twice as large
        self.direct_rows = (self.most_direct // self.start).bit_length() + 1

    def direct(self, address: int, begin: int, size: int, blocks: dict[int, bytes]) -> None:
        """Read a direct block; objects count from its very beginning, its head included."""
        data = self._space.block(address, size)
        end = self._checked(data, b"FHDB\0", begin)
        if self._summed:  # over the whole block, its own field taken for zero
            require(end + CHECKSUM <= size, "a heap of odd sizes")
            zeroed = data[:end] + bytes(CHECKSUM) + data[end + CHECKSUM :]
            check_sum(zeroed + data[end : end + CHECKSUM])
        blocks[begin] = data

    def indirect(self, address: int, begin: int, rows: int, blocks: dict[int, bytes]) -> None:
        """Read an indirect block, and all below it."""
        wide = self._space.address_width
        fixed = 5 + wide + self.offset_width
        data = self._space.block(address, fixed + rows * self.width * wide + CHECKSUM)
        check_sum(data)
        at = self._checked(data, b"FHIB\0", begin)
        for row in range(rows):
            size = self.start << max(row - 1, 0)
            for _ in range(self.width):
                child = number(data, at, wide)
                at += wide
                if child != self._nowhere:
                    if row < self.direct_rows:
                        self.direct(child, begin, size, blocks)
                    else:
                        self.indirect(child, begin, self._rows_of(size), blocks)
                begin += size

    def _rows_of(self, size: int) -> int:
        """Return the rows of an indirect block that spans ``size`` bytes of the heap."""
        return (size // (self.start * self.width)).bit_length()

    def _checked(self, data: bytes, head: bytes, begin: int) -> int:
        """Check whose block it is, and where it stands in the heap; return where it goes on."""
        wide = self._space.address_width
        require(data.startswith(head), f"no {head[:4]!r}")
        require(number(data, 5, wide) == self._address, "a block of another heap")
        require(number(data, 5 + wide, self.offset_width) == begin, "a block of another place")
        return 5 + wide + self.offset_width


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


PREFIX = 6  # bytes before the records of a node: signature, version, kind
DEEPEST = 16  # levels of a tree; 4 hold more chunks than any file has


def records(space: Space, address: int, kind: int) -> list[bytes]:
    """Return the records of one kind in the tree whose header is at ``address``, in its order."""
    wide, long = space.address_width, space.length_width
    head = space.sealed(address, 18 + wide + long + CHECKSUM, b"BTHD\0")
    size, depth, total = number(head, 10, 2), number(head, 12, 2), number(head, 18 + wide, long)
    require(head[5] == kind and size > 0, "records of another kind")
    require(depth <= DEEPEST and total * size <= space.size, "a tree too large")
    if not total:
        return []
    tree = _RecordTree(space, kind, size, number(head, 6, 4))
    found = list(tree.below(number(head, 16, wide), number(head, 16 + wide, 2), depth))
    require(len(found) == total, "records that are missing")
    return found


class _RecordTree:
    def __init__(self, space: Space, kind: int, record: int, node_size: int) -> None:
        self._space, self._kind, self._record, self._size = space, kind, record, node_size

    def below(self, address: int, count: int, depth: int) -> Iterator[bytes]:
        """Yield the records of a node and of all below it."""
        record, end = self._record, PREFIX + count * self._record
        head = bytes((*(b"BTIN\0" if depth else b"BTLF\0"), self._kind))
        wide = self._space.address_width
        widths = widths_of(self._size, record, wide, depth) if depth else (0, 0, 0)
        used = end + (count + 1) * sum(widths) + CHECKSUM
        require(used <= self._size, "a node of another size")
        node = self._space.block(address, used)
        require(node.startswith(head), f"no {head[:4]!r}")
        check_sum(node)
        own = [node[at : at + record] for at in range(PREFIX, end, record)]
        if not depth:
            yield from own
            return
        for nth in range(count + 1):
            at = end + nth * sum(widths)
            child = number(node, at, widths[0])
            yield from self.below(child, number(node, at + widths[0], widths[1]), depth - 1)
            yield from own[nth : nth + 1]


def widths_of(node_size: int, record: int, address_width: int, depth: int) -> tuple[int, int, int]:
    """Return the bytes of a pointer's fields at a depth: address, records, records below.

    Numbers take as many bytes as the largest that the node size allows.
    """
    room = node_size - PREFIX - CHECKSUM
    most = below = room // record
    require(most > 0, "nodes without room")
    counted, total = _bytes_for(most), 0
    for _ in range(1, depth):
        most = (room - (address_width + counted + total)) // (
            record + address_width + counted + total
        )
        require(most > 0, "nodes without room")
        below = (most + 1) * below + most
        total = _bytes_for(below)
    return address_width, counted, total


def _bytes_for(limit: int) -> int:
    return (limit.bit_length() - 1) // 8 + 1
