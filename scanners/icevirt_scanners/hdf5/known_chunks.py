"""Read the chunks of a variable by comparison with an earlier file of the archive.

If files are alike, their chunks have the same corners in a B-tree of one node, no filter is
skipped, and the array differs only in offsets and lengths. These are decoded, and all else is
compared. If anything else differs, the readers of indices find the chunks or raise the error.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.scanned import ScannedArray
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt_scanners.blocks import LARGE
from icevirt_scanners.hdf5.index.btrees import Leaf
from icevirt_scanners.hdf5.index.entries import ChunkEntries
from icevirt_scanners.hdf5.raw.file import ObjectHeader, RawFile
from icevirt_scanners.hdf5.raw.space import NotUnderstoodError


class _KnownArray(NamedTuple):
    """An array without the offsets and lengths of its chunks."""

    rows: NDArray[np.uint32]  # index of the references
    kind: NDArray[np.uint8]
    source: NDArray[np.uint32]
    chunks: NDArray[np.int64]  # the index of the entries it was made of
    rest: dict[str, Any]  # of `ScannedArray`


class KnownChunks:
    """What is known of the chunks of one variable in all files of a pattern."""

    __slots__ = ("_array", "_leaf")

    def __init__(self) -> None:
        self._leaf: Leaf | None = None
        self._array: _KnownArray | None = None

    def entries(self, header: ObjectHeader | None, raw: RawFile | None) -> ChunkEntries | None:
        """Return the chunks of a file, or None if they are not like those that were kept."""
        leaf = self._leaf
        if leaf is None or header is None or raw is None:
            return None
        try:
            return leaf.read(raw.space, header.layouts[0].data)
        except NotUnderstoodError:
            return None

    def keep_entries(
        self, found: ChunkEntries, header: ObjectHeader | None, raw: RawFile | None
    ) -> None:
        """Keep how the chunks of a file are stored; none may have been added or removed."""
        self._leaf = self._array = None
        if header is None or raw is None:
            return
        try:
            self._leaf = Leaf.of(found, raw.space, header.layout)
        except NotUnderstoodError:
            return

    def array(self, found: ChunkEntries, *, size: int, context: Any) -> ScannedArray | None:
        """Return the array of a file of ``size`` bytes, or None if it is not like the kept one."""
        known = self._array
        if known is None or found.index is not known.chunks:
            return None
        offset, length = found.offset, found.length
        inside = np.minimum.reduce(offset) >= 0 and np.maximum.reduce(offset) <= size
        if not inside or np.maximum.reduce(offset + length) > size:
            return None
        if np.maximum.reduce(length) > LARGE:
            return None
        table = ChunkTable(
            index=known.rows,
            kind=known.kind,
            source=known.source,
            offset=offset.view(np.uint64),
            length=length.view(np.uint64),
            locations=context.location,
        )
        return ScannedArray(**known.rest, references=table)

    def keep_array(self, array: ScannedArray, found: ChunkEntries) -> None:
        """Keep an array if only its references depend on offsets and lengths."""
        table = array.references
        leaf, count = self._leaf, len(found.index)
        if leaf is None or leaf.index is not found.index or table.count(ChunkType.virtual) != count:
            return
        if len(table) != count or not np.array_equal(table.index, found.index):
            return
        rest = {name: getattr(array, name) for name in _REST}
        self._array = _KnownArray(table.index, table.kind, table.source, found.index, rest)


_REST = tuple(name for name in ScannedArray.__dataclass_fields__ if name != "references")
