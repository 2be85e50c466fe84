"""Show an array's references as data: in batches, as an Arrow table, and for one value.

Locations are absolute, even where a container's name replaces its prefix. Listing reads no source
file, so it needs no authorization.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from zarr.abc.store import Store

from icevirt.errors import InvalidInputError
from icevirt.ids import ObjectId12
from icevirt.model import paths
from icevirt.model.chunks import ChunkTable, ChunkType, Locations
from icevirt.model.config.containers import VirtualChunkContainer
from icevirt.model.snapshot import ArrayNode, Snapshot, document_of
from icevirt.model.strings import Strings
from icevirt.repo.assets import Assets
from icevirt.repo.session import Session
from icevirt.versioning import chunk_tables

if TYPE_CHECKING:
    import pyarrow as pa

    from icevirt.objects.authorize import Authorizer


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
    ids = [str(ObjectId12(raw.tobytes())) for raw in part.chunk_ids]
    paths[native] = np.array([*ids, ""], object)[part.source[native]]
    inline = np.flatnonzero(part.kind == ChunkType.inline)
    starts, lengths = part.offset[inline].tolist(), part.length[inline].tolist()
    inlined = {
        row: part.inline[start : start + length].tobytes()
        for row, start, length in zip(inline.tolist(), starts, lengths, strict=True)
    }
    offset = np.where(part.kind == ChunkType.inline, 0, part.offset).astype(np.uint64)
    return part.index, part.kind, paths.tolist(), offset, part.length, inlined


def absolute(session: Session, table: ChunkTable) -> Iterator[str]:
    """Yield the locations of a table with the names of containers resolved."""
    authorizer = _resolver(session)
    return (authorizer.absolute(url) for url in table.locations.url)


def _resolver(session: Session) -> Authorizer:
    from icevirt.objects.authorize import Authorizer

    return Authorizer(session.config.virtual_chunk_containers, ())


def refs_table(session: Session, path: str) -> pa.Table:
    """Return the references of an array, a row for each chunk that was written, in order.

    Columns: ``index`` (a list of the chunk's coordinates), ``kind``, ``location`` (null for inline
    chunks), ``offset``, ``length``, and what the scan recorded of the object: ``etag`` and
    ``last_modified``. A distinct location is held once, however many rows refer to it.

    Raises:
        NodeNotFoundError: There is no such array.
        InvalidInputError: There is a group, or pyarrow is not installed.
    """
    try:
        import pyarrow as pa
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            "an Arrow table of references needs pyarrow", do="Run `pip install pyarrow`."
        ) from error
    kinds = [one.name for one in ChunkType]
    table = chunk_tables.compact(session.array_table(path))
    named = names_of(session.config.virtual_chunk_containers)
    places, source = places_of(table, session.assets, named)
    inline = table.kind == ChunkType.inline
    modified = places.last_modified[source].astype(np.int64)
    return pa.table(
        {
            "index": _lists(pa, table.index),
            "kind": pa.DictionaryArray.from_arrays(table.kind.astype(np.int8), kinds),
            "location": _encoded(pa, places.url, source),
            "offset": pa.array(np.where(inline, 0, table.offset).astype(np.uint64)),
            "length": pa.array(table.length),
            "etag": _encoded(pa, places.etag, source),
            "last_modified": pa.array(modified, pa.timestamp("s", "UTC"), mask=modified == 0),
        }
    )


def places_of(
    table: ChunkTable, assets: Assets, named: Sequence[tuple[str, str]]
) -> tuple[Locations, NDArray[np.int64]]:
    """Return all objects, and the row of each chunk's; the last is empty, for inline chunks.

    Args:
        table: References.
        assets: Of the repository.
        named: (url_prefix, name) of the containers that have names.
    """
    from icevirt.planning import containers

    files = replace(table.locations, url=containers.absolute(table.locations.url, named))
    urls = assets.chunk_urls(table.chunk_ids)
    n = len(urls)
    objects = Locations(url=urls, etag=Strings.empty(n), last_modified=np.zeros(n, np.uint32))
    places = files + objects + Locations.one("")
    source = table.source.astype(np.int64)
    source[table.kind == ChunkType.native] += len(files)
    source[table.kind == ChunkType.inline] = len(places) - 1
    return places, source


def names_of(known: Mapping[str, VirtualChunkContainer]) -> tuple[tuple[str, str], ...]:
    """Return (url_prefix, name) of the containers that have names."""
    return tuple((each.url_prefix, each.name) for each in known.values() if each.name is not None)


def _lists(arrow: Any, index: NDArray[np.uint32]) -> Any:
    if not index.shape[1]:
        return arrow.array([[]] * len(index), arrow.list_(arrow.uint32(), 0))
    flat = arrow.array(np.ascontiguousarray(index).ravel())
    return arrow.FixedSizeListArray.from_arrays(flat, index.shape[1])


def _encoded(arrow: Any, values: Strings, row: NDArray[np.int64]) -> Any:
    """Return a column that holds each distinct value once; empty ones are null."""
    starts, data = arrow.py_buffer(values.starts), arrow.py_buffer(values.data)
    distinct = arrow.LargeStringArray.from_buffers(len(values), starts, data)
    codes = arrow.array(row.astype(np.int32), mask=values.lengths[row] == 0)
    return arrow.DictionaryArray.from_arrays(codes, distinct)


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
        facts["url"] = session.assets.chunk_urls(found.chunk_ids[row : row + 1])[0]
    if "url" in facts:
        facts["offset"] = int(found.offset[0])
    return ChunkSource(**facts)


def chunk_of(node: ArrayNode, index: Sequence[int]) -> tuple[int, ...]:
    """Return the chunk that holds a value.

    Raises:
        InvalidInputError: The array has no such value.
    """
    inside = len(index) == len(node.shape) and all(
        -size <= at < size for at, size in zip(index, node.shape, strict=True)
    )
    if not inside:
        raise InvalidInputError(
            "the index lies outside the array",
            do="Pass an index inside its shape, one number for each dimension.",
            path=node.path,
            index=tuple(index),
            shape=node.shape,
        )
    at = [int(i) % size for i, size in zip(index, node.shape, strict=True)]
    return tuple(map(_place, at, _edges(document_of(node)["chunk_grid"])))


def _edges(grid: Mapping[str, Any]) -> list[int | list[int]]:
    """Return for each dimension the one chunk length, or the lengths of all chunks."""
    configuration = grid["configuration"]
    if grid["name"] == "regular":
        return list(configuration["chunk_shape"])
    return [
        axis if isinstance(axis, int) else [size for item in axis for size in _run(item)]
        for axis in configuration["chunk_shapes"]
    ]


def _run(item: int | list[int]) -> list[int]:
    return [item] if isinstance(item, int) else [item[0]] * item[1]


def _place(at: int, edges: int | list[int]) -> int:
    if isinstance(edges, int):
        return at // edges
    return int(np.searchsorted(list(accumulate(edges)), at, side="right"))


def index_of(
    store: Store, snapshot: Snapshot, path: str, labels: Mapping[str, Any]
) -> tuple[int, ...]:
    """Return the index of the value that has these labels, one for each dimension.

    Raises:
        InvalidInputError: A dimension has no label, or no coordinate, or a label is not there, or
            is that of several values.
    """
    from icevirt.access.xarray.datastore import dataset_of

    path = paths.canonical(path)
    ds = dataset_of(store, snapshot, paths.parent(path), {})
    dims = [str(dim) for dim in ds[paths.name(path)].dims]
    if set(labels) != set(dims):
        raise InvalidInputError(
            "labels must name each dimension exactly once",
            path=path,
            dimensions=dims,
            labels=list(labels),
        )
    return tuple(_position(ds, dim, labels[dim]) for dim in dims)


def _position(ds: Any, dim: str, label: Any) -> int:
    import xarray as xr

    if dim not in ds.variables:
        raise InvalidInputError(
            "this dimension has no coordinate, so it has no labels",
            do="Pass the index of the value instead.",
            dimension=dim,
        )
    places = xr.DataArray(np.arange(ds.sizes[dim]), coords={dim: ds[dim].values}, dims=dim)
    try:
        found = np.atleast_1d(places.sel({dim: label}).values)
    except KeyError:
        found = np.zeros(0, np.int64)
    if len(found) != 1:
        raise InvalidInputError(
            "this label does not identify exactly one value",
            dimension=dim,
            label=label,
            values=len(found),
        )
    return int(found[0])
