"""Read version 2 B-trees of chunks: the index of datasets that grow along several axes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from icevirt_scanners.hdf5.index.entries import ChunkEntries, ChunkGrid, EntryFormat
from icevirt_scanners.hdf5.raw.btree2 import DEEPEST, PREFIX, widths_of
from icevirt_scanners.hdf5.raw.space import (
    CHECKSUM,
    Rows,
    Space,
    check_heads,
    check_sum,
    number,
    numbers,
    require,
    signed,
)

_UNFILTERED, _FILTERED = 10, 11


def chunks(space: Space, address: int, grid: ChunkGrid) -> ChunkEntries:
    """List the chunks of the tree whose header is at ``address``."""
    tree = _ChunkTree.at(space, address, grid)
    if not tree.total:
        return ChunkEntries.joined([], len(grid.chunk))
    parts: list[ChunkEntries] = []
    nodes = tree.root
    for depth in range(tree.depth, 0, -1):
        nodes = tree.descend(nodes, depth, parts)
    tree.leaves(nodes, parts)
    found = ChunkEntries.joined(parts, len(grid.chunk))
    require(len(found.offset) == tree.total, "records that are missing")
    return found


@dataclass(frozen=True, slots=True)
class _Nodes:
    """The nodes of one depth."""

    address: NDArray[np.int64]
    records: NDArray[np.int64]  # in each


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChunkTree:
    space: Space
    kind: int
    entry: EntryFormat
    node_size: int
    record: int  # bytes
    depth: int
    root: _Nodes
    total: int
    ndim: int

    @classmethod
    def at(cls, space: Space, address: int, grid: ChunkGrid) -> _ChunkTree:
        """Read the header."""
        wide, long = space.address_width, space.length_width
        head = space.sealed(address, 18 + wide + long + CHECKSUM, b"BTHD\0")
        kind, record = head[5], number(head, 10, 2)
        require(kind in (_UNFILTERED, _FILTERED), "records of another kind")
        ndim = len(grid.chunk)
        entry = EntryFormat.of(record - 8 * ndim, space, grid, filtered=kind == _FILTERED)
        depth, total = number(head, 12, 2), number(head, 18 + wide, long)
        require(depth <= DEEPEST and total * record <= space.size, "a tree too large")
        root = signed(numbers(np.frombuffer(head[16 : 16 + wide], np.uint8)[None])) if total else 0
        return cls(
            space=space,
            kind=kind,
            entry=entry,
            node_size=number(head, 6, 4),
            record=record,
            depth=depth,
            root=_Nodes(np.atleast_1d(root), np.array([number(head, 16 + wide, 2)])),
            total=total,
            ndim=ndim,
        )

    def leaves(self, nodes: _Nodes, parts: list[ChunkEntries]) -> None:
        """Add the records of all leaves."""
        most = (self.node_size - PREFIX - CHECKSUM) // self.record
        require(most > 0 and (nodes.records <= most).all(), "leaves of another size")
        for some, rows in self.space.rows(nodes.address, self.node_size):
            check_heads(rows, bytes((*b"BTLF\0", self.kind)))
            held = nodes.records[some]
            for row, count in zip(rows, held.tolist(), strict=True):
                check_sum(row[: PREFIX + count * self.record + CHECKSUM].tobytes())
            body = rows[:, PREFIX : PREFIX + most * self.record]
            table = np.ascontiguousarray(body).reshape(len(rows), most, self.record)
            parts.append(self._decoded(table[np.arange(most) < held[:, None]]))

    def descend(self, nodes: _Nodes, depth: int, parts: list[ChunkEntries]) -> _Nodes:
        """Add the records of the inner nodes of a depth; return the nodes below."""
        widths = widths_of(self.node_size, self.record, self.space.address_width, depth)
        pointer = sum(widths)
        addresses: list[NDArray[np.int64]] = []
        counts: list[NDArray[np.int64]] = []
        for some, rows in self.space.rows(nodes.address, self.node_size):
            check_heads(rows, bytes((*b"BTIN\0", self.kind)))
            for row, count in zip(rows, nodes.records[some].tolist(), strict=True):
                middle = PREFIX + count * self.record
                end = middle + (count + 1) * pointer
                require(end + CHECKSUM <= len(row), "a node of another size")
                check_sum(row[: end + CHECKSUM].tobytes())
                parts.append(self._decoded(row[PREFIX:middle].reshape(count, self.record)))
                below = row[middle:end].reshape(count + 1, pointer)
                addresses.append(signed(numbers(below[:, : widths[0]])))
                counts.append(signed(numbers(below[:, widths[0] : widths[0] + widths[1]])))
        return _Nodes(np.concatenate(addresses), np.concatenate(counts))

    def _decoded(self, records: Rows) -> ChunkEntries:
        entry = self.entry.width
        where = np.ascontiguousarray(records[:, entry:]).view("<u8").reshape(-1, self.ndim)
        return self.entry.decode(records[:, :entry], signed(where))
