"""Read the references of one array into a ``ChunkTable``.

Spec: "ChunkRef". The fields of a row decide its kind; if it has several, the official reader's
precedence holds: chunk_id, compressed_location, location, inline.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from icevirt.model.chunks import FARTHEST, ChunkTable, ChunkType, Locations
from icevirt.model.strings import StringsWithin
from icevirt.wire.flatbuffer.columns_read import Tables
from icevirt.wire.flatbuffer.payload import array
from icevirt.wire.flatbuffer.reader import Damage, Span
from icevirt.wire.flatbuffer.schema import CHUNK_REF
from icevirt.wire.manifests.locations_read import LocationReader
from icevirt.wire.row_order import Bytes, ascends, gather

# field, what a row that has it is; later ones win
_KINDS = (
    ("inline", ChunkType.inline),
    ("location", ChunkType.virtual),
    ("compressed_location", ChunkType.virtual),
    ("chunk_id", ChunkType.native),
)


def read_table(locator: LocationReader, span: Span) -> tuple[ChunkTable, bool]:
    """Read one array's references; say too whether that is all there is. Raises ``Damage``."""
    if not span.count:
        return ChunkTable.empty(0), True
    refs = Tables(locator.payload, span, CHUNK_REF)
    index = refs.coordinates("index")
    if not ascends(index):
        raise Damage("references are not in ascending order of their index", span.start)
    rows = _TableColumns(locator, refs)
    locations = rows.virtual()
    if not isinstance(locations.url, StringsWithin):  # which keep the payload for all columns
        index = index.copy()
        rows.copy()
    table = ChunkTable(
        chunk_ids=rows.native(),
        locations=locations,
        inline=rows.inline(),
        index=index,
        kind=rows.kind,
        source=rows.source,
        offset=rows.offset,
        length=rows.length,
    )
    for name, column in (("offset", table.offset), ("length", table.length)):
        if int(column.max()) >= FARTHEST:
            raise Damage(f"the {name} of a reference is larger than any object", span.start)
    return table, not refs.stores_from(CHUNK_REF.slots["extra"])


class _TableColumns:
    """The columns of one array's table, filled in kind by kind."""

    def __init__(self, locator: LocationReader, refs: Tables) -> None:
        self._locator = locator
        self._refs = refs
        self.kind = self._kinds()
        self.source = np.zeros(len(refs), np.uint32)
        self.offset: NDArray[np.uint64] = refs.numbers("offset", 8).astype(np.uint64, copy=False)
        self.length: NDArray[np.uint64] = refs.numbers("length", 8).astype(np.uint64, copy=False)

    def copy(self) -> None:
        """Copy the columns that may still lie in the payload."""
        self.offset, self.length = self.offset.copy(), self.length.copy()

    def _kinds(self) -> NDArray[np.uint8]:
        kind = np.zeros(len(self._refs), np.uint8)
        for name, value in _KINDS:
            if (places := self._refs.places(name)) is None:
                continue
            kind[:] = value if isinstance(places, range) else np.where(places != 0, value, kind)
        if not kind.all():
            raise Damage("a reference is neither native nor virtual nor inline", 0)
        return kind

    def native(self) -> Bytes:
        """Return the ids of chunk objects, one for each native row."""
        if (places := self._refs.places("chunk_id")) is None:
            return np.zeros((0, 12), np.uint8)
        rows = np.flatnonzero(self.kind == ChunkType.native)
        self.source[rows] = np.arange(len(rows))
        found: Bytes = self._locator.payload.bytes[array(places)[rows][:, None] + np.arange(12)]
        return found

    def virtual(self) -> Locations:
        """Return the distinct locations of virtual rows."""
        virtual = self.kind == ChunkType.virtual
        if not virtual.any():
            return Locations.none()
        rows = slice(None) if virtual.all() else np.flatnonzero(virtual)
        locations, self.source[rows] = self._locator.read(self._refs, rows)
        return locations

    def inline(self) -> Bytes:
        """Return the bytes of inline rows, end to end."""
        if (found := self._refs.vectors("inline", 1)) is None:
            return np.zeros(0, np.uint8)
        present, start, count = found
        rows = np.arange(len(self._refs)) if present is None else present
        keep = self.kind[rows] == ChunkType.inline
        rows, start, count = rows[keep], array(start)[keep], count[keep]
        payload = self._locator.payload
        if int(count.sum()) > payload.size:
            raise Damage("inline chunks overlap", int(start[0]))
        data, starts = gather(payload.bytes, start, count)
        self.copy()
        self.offset[rows], self.length[rows] = starts[:-1], count
        return data
