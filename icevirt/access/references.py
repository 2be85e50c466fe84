"""Show an array's references as data: in batches, as an Arrow table, and for one value.

Locations are absolute, even where a container's name replaces its prefix. Listing reads no source
file, so it needs no authorization.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from zarr.abc.store import Store

from icevirt.access.store.keys import chunk_keys
from icevirt.errors import ChunkIndexError, InvalidInputError, UnsupportedError
from icevirt.ids import ObjectId12
from icevirt.model import paths
from icevirt.model.chunks import ChunkTable, ChunkType, Locations
from icevirt.model.config.containers import VirtualChunkContainer
from icevirt.model.snapshot import ArrayNode, Node, Snapshot, document_of
from icevirt.model.strings import Strings
from icevirt.remedy_notation import write_option, write_remedy
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
        native, virtual = part.kind == ChunkType.native, part.kind == ChunkType.virtual
        places = np.full(len(part), "", object)
        places[virtual] = np.array([*absolute(session, part), ""], object)[part.source[virtual]]
        ids = [str(ObjectId12(raw.tobytes())) for raw in part.chunk_ids]
        places[native] = np.array([*ids, ""], object)[part.source[native]]
        is_inline = part.kind == ChunkType.inline
        inline = np.flatnonzero(is_inline).tolist()
        spans = zip(inline, part.offset[inline].tolist(), part.length[inline].tolist(), strict=True)
        inlined = {row: part.inline[low : low + length].tobytes() for row, low, length in spans}
        offset = np.where(is_inline, 0, part.offset).astype(np.uint64)
        yield part.index, part.kind, places.tolist(), offset, part.length, inlined


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
    if table.index.shape[1]:
        numbers: Any = pa.array(np.ascontiguousarray(table.index).ravel())
        index: Any = pa.FixedSizeListArray.from_arrays(numbers, table.index.shape[1])
    else:
        index = pa.array([[]] * len(table), pa.list_(pa.uint32(), 0))
    modified = places.last_modified[source].astype(np.int64)
    return pa.table(
        {
            "index": index,
            "kind": pa.DictionaryArray.from_arrays(table.kind.astype(np.int8), kinds),
            "location": _encode(pa, places.url, source),
            "offset": pa.array(np.where(inline, 0, table.offset).astype(np.uint64)),
            "length": pa.array(table.length),
            "etag": _encode(pa, places.etag, source),
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


def _encode(arrow: Any, values: Strings, row: NDArray[np.int64]) -> Any:
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
        raise ChunkIndexError(
            "the index lies outside the array",
            do="Pass an index inside its shape, one number for each dimension.",
            path=node.path,
            index=tuple(index),
            shape=node.shape,
        )
    grid = document_of(node)["chunk_grid"]
    configuration, is_regular = grid["configuration"], grid["name"] == "regular"
    axes = configuration["chunk_shape" if is_regular else "chunk_shapes"]
    chunk = []
    for i, size, edges in zip(index, node.shape, axes, strict=True):
        at = int(i) % size
        if isinstance(edges, int):
            chunk.append(at // edges)
        else:  # lengths of all chunks, runs of equal ones as (length, count)
            runs = [(each, 1) if isinstance(each, int) else each for each in edges]
            sizes = [length for length, count in runs for _ in range(count)]
            chunk.append(int(np.searchsorted(list(accumulate(sizes)), at, side="right")))
    return tuple(chunk)


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


INLINE_NATIVE = 1 << 20
"""Bytes of native chunks of an array that go along, by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedReferences:
    """The references of one array; rows are in order of their chunks."""

    grid: tuple[int, ...]  # number of chunks along each axis
    index: NDArray[np.uint32]  # (n, ndim) of references into files
    url: NDArray[np.int64]  # (n,) row in ``urls``
    urls: tuple[str, ...]
    offset: NDArray[np.uint64]  # (n,)
    length: NDArray[np.uint64]  # (n,)
    bodies: dict[tuple[int, ...], bytes]  # of other chunks

    @property
    def complete(self) -> bool:
        """Whether every chunk of the array is there."""
        return len(self.index) + len(self.bodies) == int(np.prod(self.grid, dtype=object))


def outgoing(session: Session, node: ArrayNode, inline_native: int) -> ExportedReferences:
    """Collect the references of an array.

    Raises:
        UnsupportedError: Its native chunks have more bytes than may go along.
    """
    table = chunk_tables.compact(session.array_table(node.path))
    virtual = table.kind == ChunkType.virtual
    linked = table.take(virtual)
    native = table.kind == ChunkType.native
    nbytes = int(table.length[native].sum())
    if nbytes > inline_native:
        raise UnsupportedError(
            "some chunks lie in the repository, which exported references cannot point at",
            do=write_remedy(
                "Pass ",
                write_option("inline_native", nbytes),
                " to export them as bytes; an export of kerchunk leaves the array out with ",
                write_option("drop_variables", [node.path]),
                ".",
            ),
            path=node.path,
            chunks=int(native.sum()),
            nbytes=nbytes,
            inline_native=inline_native,
        )
    store, others = session.store, table.take(~virtual)
    others_keys = chunk_keys(node.path, others.index)
    return ExportedReferences(
        grid=node.num_chunks,
        index=linked.index,
        url=linked.source.astype(np.int64),
        urls=tuple(absolute(session, table)),
        offset=linked.offset,
        length=linked.length,
        bodies={
            tuple(index): value.to_bytes()
            for index, key in zip(others.index.tolist(), others_keys, strict=True)
            if (value := store.get_sync(key)) is not None
        },
    )


def nodes_below(session: Session, path: str) -> list[tuple[str, Node]]:
    """Return a node and all below it, by the paths that they have under it; an array by its name.

    Raises:
        NodeNotFoundError: There is no such node.
    """
    top = session.node(path)
    if isinstance(top, ArrayNode):
        return [(f"/{paths.name(top.path)}", top)]
    prefix = top.path.rstrip("/")
    below = (node for node in session.snapshot.below(top.path) if node.path != top.path)
    return [(paths.ROOT, top), *((node.path.removeprefix(prefix), node) for node in below)]
