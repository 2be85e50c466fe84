"""Reads the references of one array into a ``ChunkTable``.

Spec: "ChunkRef". What a row is follows from the fields it has; when it has several, the official
reader's precedence holds: chunk_id, compressed_location, location, inline.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from icevirt.model.chunks import ChunkTable, ChunkType, Locations
from icevirt.wire.columns_read import Payload, Tables
from icevirt.wire.locations_read import Locator
from icevirt.wire.ranges import Bytes, ascends, gather
from icevirt.wire.read import Damage, Span
from icevirt.wire.schema import CHUNK_REF


def read_table(payload: Payload, span: Span, locator: Locator) -> ChunkTable:
    """Read one array's references. Raises ``Damage``."""
    if not span.count:
        return ChunkTable.empty(0)
    refs = payload.tables(span, CHUNK_REF)
    index = refs.coordinates("index")
    if not ascends(index):
        raise Damage("references are not in ascending order of their index", span.start)
    kind = _kinds(refs)
    source = np.zeros(len(refs), np.uint32)
    offset, length = refs.numbers("offset", 8), refs.numbers("length", 8)
    chunk_ids = _chunk_ids(payload, refs, kind, source)
    locations = _locations(locator, refs, kind, source)
    inline = _inline(payload, refs, kind, offset, length)
    return ChunkTable(
        index=index,
        kind=kind,
        source=source,
        offset=offset.astype(np.uint64),
        length=length.astype(np.uint64),
        locations=locations,
        chunk_ids=chunk_ids,
        inline=inline,
    )


def _kinds(refs: Tables) -> NDArray[np.uint8]:
    kind = np.zeros(len(refs), np.uint8)
    fields = (
        ("inline", ChunkType.inline),
        ("location", ChunkType.virtual),
        ("compressed_location", ChunkType.virtual),
        ("chunk_id", ChunkType.native),
    )
    for name, value in fields:
        if (places := refs.places(name)) is not None:
            kind[places != 0] = value
    if not kind.all():
        raise Damage("a reference is neither native nor virtual nor inline", 0)
    return kind


def _chunk_ids(
    payload: Payload, refs: Tables, kind: NDArray[np.uint8], source: NDArray[np.uint32]
) -> Bytes:
    places = refs.places("chunk_id")
    if places is None:
        return np.zeros((0, 12), np.uint8)
    rows = np.flatnonzero(kind == ChunkType.native)
    source[rows] = np.arange(len(rows))
    found: Bytes = payload.bytes[places[rows][:, None] + np.arange(12)]
    return found


def _inline(
    payload: Payload,
    refs: Tables,
    kind: NDArray[np.uint8],
    offset: NDArray[np.unsignedinteger],
    length: NDArray[np.unsignedinteger],
) -> Bytes:
    found = refs.vectors("inline", 1)
    if found is None:
        return np.zeros(0, np.uint8)
    rows, start, count = found
    keep = kind[rows] == ChunkType.inline
    rows, start, count = rows[keep], start[keep], count[keep]
    if int(count.sum()) > payload.size:
        raise Damage("inline chunks overlap", int(start[0]))
    data, starts = gather(payload.bytes, start, count)
    offset[rows], length[rows] = starts[:-1], count
    return data


def _locations(
    locator: Locator, refs: Tables, kind: NDArray[np.uint8], source: NDArray[np.uint32]
) -> Locations:
    rows = np.flatnonzero(kind == ChunkType.virtual)
    if not len(rows):
        return Locations.none()
    locations, rank = locator.read(refs, rows)
    source[rows] = rank
    return locations
