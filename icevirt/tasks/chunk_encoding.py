"""Encode and decode zarr chunks of the few arrays whose values the scan read.

Plain numbers (the ``bytes`` codec, perhaps followed by ``zstd``) are encoded here, because nearly
every coordinate is of that kind and importing zarr costs a worker a second; zarr encodes the rest.
A test compares the two.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import zstandard
from numpy.typing import NDArray

from icevirt.archive.joining import find_fixed_dtype
from icevirt.archive.plan import AxisGrid
from icevirt.archive.schema import ArraySchema
from icevirt.errors import FormatError
from icevirt.ids import ObjectId12
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.snapshot import Extents
from icevirt.model.strings import gather

if TYPE_CHECKING:
    import zarr
    from zarr.storage import MemoryStore

_WORDS = ("NaN", "Infinity", "-Infinity")  # fill values that JSON has no numbers for
_ORDERS: dict[str, Literal["<", ">"]] = {"little": "<", "big": ">"}


def decode_whole(
    schema: ArraySchema, shape: tuple[int, ...], raw: bytes | memoryview
) -> NDArray[Any]:
    """Return the values that a scanner stored as one chunk covering the array.

    Raises:
        FormatError: There are more or fewer bytes than the shape says.
    """
    dtype = plain_dtype(schema.data_type, schema.codecs)
    if dtype is None or len(schema.codecs) > 1:
        return _decode_by_zarr(schema, shape, bytes(raw))
    if len(raw) != dtype.itemsize * math.prod(shape):
        raise FormatError("a chunk has a wrong size", found=len(raw), shape=shape, dtype=str(dtype))
    return np.frombuffer(raw, dtype).reshape(shape).astype(dtype.newbyteorder("="))


def decode_chunk(document: Mapping[str, Any], shape: Sequence[int], raw: bytes) -> NDArray[Any]:
    """Return the values of a full chunk of an array, given its zarr.json.

    Raises:
        FormatError: There are more or fewer bytes than the shape says.
    """
    codecs = document["codecs"]
    dtype = plain_dtype(document["data_type"], codecs)
    if dtype is not None and len(codecs) > 1:
        size = dtype.itemsize * math.prod(shape)
        try:
            if zstandard.frame_content_size(raw) not in (size, -1):
                raise FormatError("a chunk has a wrong size", shape=tuple(shape), dtype=str(dtype))
            raw = zstandard.ZstdDecompressor().decompress(raw, max_output_size=size)
        except zstandard.ZstdError as error:
            raise FormatError("a chunk cannot be decompressed", cause=str(error)) from error
        codecs = codecs[:1]
    schema = ArraySchema(
        dimension_names=(None,) * len(shape),
        chunk_shape=None,
        data_type=document["data_type"],
        codecs=tuple(codecs),
        fill_value=document["fill_value"],
    )
    return decode_whole(schema, tuple(shape), raw)


def encode_chunks(
    zarr_json: bytes, values: NDArray[Any], at: tuple[int, ...], expected: int
) -> ChunkTable:
    """Encode ``values``, which begin at element ``at`` of an array, as inline chunks.

    ``at`` lies on the chunk grid. Every chunk the values touch is stored, also where it holds
    nothing but fill values: what was written in the file is never left to a reader's idea of
    "missing".

    Raises:
        FormatError: There are more or fewer chunks than expected.
    """
    document = json.loads(zarr_json)
    dtype = plain_dtype(document["data_type"], document["codecs"])
    fill = document["fill_value"]
    # what libraries of another version compressed could be other bytes
    spelt = fill in _WORDS or (dtype is not None and dtype.kind == "S")
    spelt &= len(document["codecs"]) == 1
    if dtype is None or not (isinstance(fill, int | float) or spelt):
        chunks = _encode_by_zarr(document, values, at)
    else:
        grids, encoder = grids_of(document), ChunkEncoder(document)
        box = tuple(
            (a // grid.edge, a // grid.edge - (-n // grid.edge))
            for a, n, grid in zip(at, values.shape, grids, strict=True)
        )
        parts = chunks_of(values.astype(dtype), at, box, grids, fill_of(document))
        chunks = {index: encoder.encode(chunk) for index, chunk in parts}
    if len(chunks) != expected:
        raise FormatError("values fill a wrong number of chunks", found=len(chunks), want=expected)
    return inline_table(chunks, values.ndim)


def inline_table(chunks: Mapping[tuple[int, ...], bytes], ndim: int) -> ChunkTable:
    """Return encoded chunks, by index, as inline references."""
    index = np.array(list(chunks), np.uint32).reshape(len(chunks), ndim)
    return ChunkTable.of_inline(index=index, chunks=list(chunks.values()))


class TakesObjects(Protocol):
    """What objects can be put into."""

    def put(self, path: str, body: bytes) -> None:
        """Write an immutable object; see `Storage.put`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Where encoded chunks go."""

    repo: TakesObjects
    inline_threshold: int  # bytes; up to it chunks lie in the manifest


def store_large(table: ChunkTable, sink: Sink) -> ChunkTable:
    """Put inline chunks above the threshold into chunk objects; ids cover their content."""
    if not len(table.inline):
        return table
    inline = table.kind == ChunkType.inline
    is_large = inline & (table.length > sink.inline_threshold)
    large, small = np.flatnonzero(is_large), np.flatnonzero(inline & ~is_large)
    if not len(large):
        return table
    kind, source, offset = table.kind.copy(), table.source.copy(), table.offset.copy()
    ids = []
    for row in large.tolist():
        at, size = int(table.offset[row]), int(table.length[row])
        body = table.inline[at : at + size].tobytes()
        ids.append(ObjectId12.of_content(body))
        sink.repo.put(f"chunks/{ids[-1]}", body)
    kind[large], source[large], offset[large] = ChunkType.native, np.arange(len(ids)), 0
    begins, lengths = (each[small].astype(np.int64) for each in (table.offset, table.length))
    left, starts = gather(table.inline, begins, lengths)
    offset[small] = starts[:-1]
    return replace(
        table,
        kind=kind,
        source=source,
        offset=offset,
        chunk_ids=np.frombuffer(b"".join(ids), np.uint8).reshape(-1, 12).copy(),
        inline=left,
    )


def fill_of(document: Mapping[str, Any]) -> Any:
    """Return the fill value of an array as a scalar."""
    data_type, fill = document["data_type"], document["fill_value"]
    is_plain = isinstance(fill, int | float) or (isinstance(fill, str) and fill in _WORDS)
    if isinstance(data_type, str) and is_plain:
        return float(fill) if isinstance(fill, str) else fill
    from zarr.core.dtype import get_data_type_from_json

    return get_data_type_from_json(data_type, zarr_format=3).from_json_scalar(fill, zarr_format=3)


class ChunkEncoder:
    """Encodes chunks of one array as its metadata says, one at a time."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._plain = plain_dtype(document["data_type"], document["codecs"])
        self._pack: Callable[[bytes], bytes] = bytes
        if self._plain is not None and len(document["codecs"]) > 1:
            codec = document["codecs"][1].get("configuration") or {}
            self._pack = zstandard.ZstdCompressor(
                level=codec.get("level", 0), write_checksum=bool(codec.get("checksum", False))
            ).compress

    def encode(self, chunk: NDArray[Any]) -> bytes:
        """Return the bytes of a full chunk.

        Raises:
            ValueError: The codecs cannot encode, or what they encode decodes to something else.
        """
        if self._plain is not None:
            raw: bytes = self._pack(chunk.astype(self._plain, copy=False).tobytes())
            return raw
        edges = list(chunk.shape)
        document = {**self._document, "shape": edges, "chunk_grid": _grid(edges), "attributes": {}}
        try:
            store = _write(document, chunk, (0,) * chunk.ndim)
            again = np.asarray(_open(store)[...])
        except (RuntimeError, NotImplementedError, TypeError) as error:
            raise ValueError(str(error) or "they decode only") from error
        if again.dtype != chunk.dtype or again.tobytes() != chunk.tobytes():
            raise ValueError("they are lossy")
        (encoded,) = _chunks_in(store).values()
        return encoded


def plain_dtype(data_type: object, codecs: Sequence[Any]) -> np.dtype[Any] | None:
    """Return the dtype in its stored byte order where the codecs are ``bytes`` and ``zstd``."""
    dtype = find_fixed_dtype(data_type)
    if dtype is None:
        return None
    names = [codec.get("name") if isinstance(codec, Mapping) else codec for codec in codecs]
    if names not in (["bytes"], ["bytes", "zstd"]):
        return None
    configuration = codecs[0].get("configuration") if isinstance(codecs[0], Mapping) else None
    order = _ORDERS.get((configuration or {}).get("endian", "little"))
    return None if order is None else dtype.newbyteorder(order)


def grids_of(document: Mapping[str, Any]) -> list[AxisGrid]:
    """Return the chunks along each axis, which are of one length."""
    edges = document["chunk_grid"]["configuration"]["chunk_shape"]
    return [AxisGrid(total=n, edge=e) for n, e in zip(document["shape"], edges, strict=True)]


def chunks_of(
    values: NDArray[Any],
    at: Sequence[int],
    box: Extents,
    grids: Sequence[AxisGrid],
    fill: Any,
) -> Iterator[tuple[tuple[int, ...], NDArray[Any]]]:
    """Yield index and elements of each chunk in a box, those at the end of the array filled up.

    Args:
        values: Of the box.
        at: The element of the array at which they begin.
        box: In chunks, along each axis.
        grids: The chunks along each axis.
        fill: For elements behind the end of the array.
    """
    spans: list[list[tuple[int, slice, int]]] = []  # number, place in values, length
    for grid, chunks, begin in zip(grids, box, at, strict=True):
        ends = (grid.begins(np.arange(chunks[0], chunks[1] + 1)) - begin).tolist()
        numbered = zip(range(*chunks), itertools.pairwise(ends), strict=True)
        spans.append([(number, slice(*span), grid.edge_of(number)) for number, span in numbered])
    for chunk in itertools.product(*spans):
        inside: tuple[Any, ...] = (..., *(span for _, span, _ in chunk))  # an array even of 0-d
        part = values[inside]
        edges = tuple(edge for _, _, edge in chunk)
        if part.shape != edges:
            full = np.full(edges, fill, values.dtype)
            full[tuple(map(slice, part.shape))] = part
            part = full
        yield tuple(number for number, _, _ in chunk), part


# -- everything else, by zarr --------------------------------------------------------------------


def _decode_by_zarr(schema: ArraySchema, shape: tuple[int, ...], raw: bytes) -> NDArray[Any]:
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": schema.data_type,
        "chunk_grid": _grid([max(1, length) for length in shape]),
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": schema.fill_value,
        "codecs": list(schema.codecs),
        "attributes": {},
    }
    store = _store(document, **{"/".join(["c", *("0" for _ in shape)]): raw})
    return np.asarray(_open(store)[...])


def _encode_by_zarr(
    document: dict[str, Any], values: NDArray[Any], at: tuple[int, ...]
) -> dict[tuple[int, ...], bytes]:
    chunks = _chunks_in(_write(document, values, at))
    return {tuple(map(int, key.split("/")[1:])): raw for key, raw in chunks.items()}


def _write(document: Mapping[str, Any], values: NDArray[Any], at: tuple[int, ...]) -> MemoryStore:
    """Return a store with an array that holds values from element ``at`` on."""
    import zarr

    store = _store(document)
    region = tuple(slice(a, a + n) for a, n in zip(at, values.shape, strict=True))
    # zarr looks at its setting when it opens an array, not when it writes
    with zarr.config.set({"array.write_empty_chunks": True}):
        _open(store)[region or ...] = values
    return store


def _chunks_in(store: MemoryStore) -> dict[str, bytes]:
    held = store._store_dict.items()  # noqa: SLF001  # the dict that `_store` made
    return {key: buffer.to_bytes() for key, buffer in held if key != "zarr.json"}


def _grid(edges: list[int]) -> dict[str, Any]:
    return {"name": "regular", "configuration": {"chunk_shape": edges}}


def _store(document: Mapping[str, Any], **chunks: bytes) -> MemoryStore:
    from zarr.core.buffer import default_buffer_prototype
    from zarr.core.sync import sync
    from zarr.storage import MemoryStore

    store, make = MemoryStore({}), default_buffer_prototype().buffer.from_bytes
    for key, raw in {"zarr.json": json.dumps(document).encode(), **chunks}.items():
        sync(store.set(key, make(raw)))
    return store


def _open(store: MemoryStore) -> zarr.Array[Any]:
    import zarr

    array: zarr.Array[Any] = zarr.open_array(store, mode="r+", zarr_format=3)
    return array
