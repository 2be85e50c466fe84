"""Read version 2 B-trees of links and attributes."""

from __future__ import annotations

from collections.abc import Iterator

from icevirt_scanners.hdf5.raw.space import CHECKSUM, Space, check_sum, number, require

PREFIX = 6  # bytes before the records of a node: signature, version, kind
DEEPEST = 16


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
