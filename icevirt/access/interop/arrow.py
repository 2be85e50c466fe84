"""Build an Arrow table of an array's references, column by column, without a loop over chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from icevirt.access.references import absolute
from icevirt.errors import InvalidInputError
from icevirt.model.chunks import ChunkTable, ChunkType, Locations
from icevirt.model.strings import Strings
from icevirt.repo.session import Session
from icevirt.versioning import chunk_tables

if TYPE_CHECKING:
    import pyarrow as pa

_ALPHABET = np.frombuffer(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ", np.uint8)


def refs_table(session: Session, path: str) -> pa.Table:
    """Return the references of an array, a row for each chunk that was written, in order.

    Columns: ``index`` (a list of the chunk's coordinates), ``kind``, ``location`` (null for inline
    chunks), ``offset``, ``length``, and what the scan recorded of the object: ``etag`` and
    ``last_modified``. A distinct location is held once, however many rows refer to it.

    Raises:
        NodeNotFoundError: There is no such array.
        InvalidInputError: There is a group, or pyarrow is not installed.
    """
    arrow = _pyarrow()
    table = chunk_tables.compact(session.array_table(path))
    places, source = _places(session, table)
    inline = table.kind == ChunkType.inline
    modified = places.last_modified[source].astype(np.int64)
    made: pa.Table = arrow.table(
        {
            "index": _lists(arrow, table.index),
            "kind": _named(arrow, table.kind),
            "location": _encoded(arrow, places.url, source),
            "offset": arrow.array(np.where(inline, 0, table.offset).astype(np.uint64)),
            "length": arrow.array(table.length),
            "etag": _encoded(arrow, places.etag, source),
            "last_modified": arrow.array(modified, arrow.timestamp("s", "UTC"), mask=modified == 0),
        }
    )
    return made


def _pyarrow() -> Any:
    try:
        import pyarrow as pa
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            "an Arrow table of references needs pyarrow", do="Run `pip install pyarrow`."
        ) from error
    return pa


def _places(session: Session, table: ChunkTable) -> tuple[Locations, NDArray[np.int64]]:
    """Return all objects, source files and the repository's own, and each row's.

    The last place is none: inline chunks lie there.
    """
    files = Locations(
        url=Strings.of(absolute(session, table)),
        etag=table.locations.etag,
        last_modified=table.locations.last_modified,
    )
    objects = _objects(session.assets.storage.url, table.chunk_ids)
    places = files + _unchecked(objects) + Locations.one("")
    source = table.source.astype(np.int64)
    source[table.kind == ChunkType.native] += len(files)
    source[table.kind == ChunkType.inline] = len(places) - 1
    return places, source


def _unchecked(urls: Strings) -> Locations:
    n = len(urls)
    return Locations(url=urls, etag=Strings.empty(n), last_modified=np.zeros(n, np.uint32))


def _objects(root: str, ids: NDArray[np.uint8]) -> Strings:
    """Return the URLs of native chunks, whose ids are spelt in base32."""
    bits = np.zeros((len(ids), 100), np.uint8)
    bits[:, :96] = np.unpackbits(ids, axis=1).reshape(len(ids), 96)
    letters = _ALPHABET[bits.reshape(len(ids), 20, 5) @ np.array([16, 8, 4, 2, 1], np.uint8)]
    folder = np.frombuffer(f"{root}/chunks/".encode(), np.uint8)
    urls = np.hstack([np.broadcast_to(folder, (len(ids), len(folder))), letters])
    return Strings(urls.ravel(), np.arange(len(ids) + 1, dtype=np.int64) * urls.shape[1])


def _lists(arrow: Any, index: NDArray[np.uint32]) -> Any:
    if not index.shape[1]:
        return arrow.array([[]] * len(index), arrow.list_(arrow.uint32(), 0))
    flat = arrow.array(np.ascontiguousarray(index).ravel())
    return arrow.FixedSizeListArray.from_arrays(flat, index.shape[1])


def _named(arrow: Any, kind: NDArray[np.uint8]) -> Any:
    names = [one.name for one in ChunkType]
    return arrow.DictionaryArray.from_arrays(arrow.array(kind.astype(np.int8)), arrow.array(names))


def _encoded(arrow: Any, values: Strings, row: NDArray[np.int64]) -> Any:
    """Return a column that holds each distinct value once; empty ones are null."""
    starts, data = arrow.py_buffer(values.starts), arrow.py_buffer(values.data)
    distinct = arrow.LargeStringArray.from_buffers(len(values), starts, data)
    codes = arrow.array(row.astype(np.int32), mask=values.lengths[row] == 0)
    return arrow.DictionaryArray.from_arrays(codes, distinct)
