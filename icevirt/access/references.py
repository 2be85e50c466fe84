"""List the references of an array in batches, or one by one.

Locations are absolute, even where a container's name replaces its prefix. Listing reads no source
file, so it needs no authorization.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.ids import ObjectId12
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.objects.authorize import Authorizer
from icevirt.repo import layout
from icevirt.repo.session import Session
from icevirt.versioning import chunk_tables

type Batch = tuple[
    NDArray[np.uint32],
    NDArray[np.uint8],
    list[str],
    NDArray[np.uint64],
    NDArray[np.uint64],
    dict[int, bytes],
]
"""Coordinates, kinds, paths, offsets, lengths, and the bytes of inline rows by row."""


def batches(session: Session, path: str, size: int) -> Iterator[Batch]:
    """Yield the references of an array in order of their chunks, ``size`` at a time at most.

    Row i of each column describes one chunk, as in icechunk's ``array_chunk_iterator``: the path is
    the URL of a virtual chunk, the id of a native one, and empty for an inline one.
    """
    table = session.array_table(path)
    for start in range(0, len(table), size):
        part = chunk_tables.compact(table.take(np.arange(start, min(start + size, len(table)))))
        yield _batch(part, absolute(session, part))


def _batch(part: ChunkTable, urls: Iterable[str]) -> Batch:
    native, virtual = part.kind == ChunkType.native, part.kind == ChunkType.virtual
    paths = np.full(len(part), "", object)
    paths[virtual] = np.array([*urls, ""], object)[part.source[virtual]]
    paths[native] = np.array([*_ids(part), ""], object)[part.source[native]]
    inline = np.flatnonzero(part.kind == ChunkType.inline)
    starts, lengths = part.offset[inline].tolist(), part.length[inline].tolist()
    inlined = {
        row: part.inline[start : start + length].tobytes()
        for row, start, length in zip(inline.tolist(), starts, lengths, strict=True)
    }
    offset = np.where(part.kind == ChunkType.inline, 0, part.offset).astype(np.uint64)
    return part.index, part.kind, paths.tolist(), offset, part.length, inlined


def _ids(part: ChunkTable) -> Iterator[str]:
    return (str(ObjectId12(raw.tobytes())) for raw in part.chunk_ids)


def absolute(session: Session, table: ChunkTable) -> Iterator[str]:
    """Yield the locations of a table with the names of containers resolved."""
    authorizer = _resolver(session)
    return (authorizer.absolute(url) for url in table.locations.url)


def _resolver(session: Session) -> Authorizer:
    return Authorizer(session.config.virtual_chunk_containers, ())


# -- one chunk -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSource:
    """Where the bytes of one encoded chunk lie."""

    chunk: tuple[int, ...]
    kind: ChunkType
    url: str = ""  # empty for inline chunks and those that were never written
    offset: int = 0
    length: int = 0
    etag: str = ""  # of the object when it was scanned; empty: none was recorded
    last_modified: int = 0  # of the object at most, in seconds since 1970; 0: none was recorded


def source_of_chunk(session: Session, path: str, chunk: tuple[int, ...]) -> ChunkSource:
    """Return where the bytes of a chunk lie.

    Raises:
        NodeNotFoundError: There is no such array.
        InvalidInputError: The chunk has not the array's number of dimensions.
    """
    found = session.references(path, np.array([chunk], np.int64).reshape(1, len(chunk)))
    kind, row = ChunkType(int(found.kind[0])), int(found.source[0])
    facts: dict[str, Any] = {"chunk": chunk, "kind": kind, "length": int(found.length[0])}
    if kind == ChunkType.virtual:
        places = found.locations
        facts["url"] = _resolver(session).absolute(places.url[row])
        facts["etag"] = places.etag[row]
        facts["last_modified"] = int(places.last_modified[row])
    elif kind == ChunkType.native:
        key = ObjectId12(found.chunk_ids[row].tobytes())
        facts["url"] = f"{session.assets.storage.url}/{layout.chunk(key)}"
    if "url" in facts:
        facts["offset"] = int(found.offset[0])
    return ChunkSource(**facts)
