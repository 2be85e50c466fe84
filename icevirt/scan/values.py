"""Read the values of a scanned array as a zarr reader would, from references and metadata.

For scanners that get references and need values (digests), for the labels that a plan compares,
whichever scanner it was, and for tests. One run of chunks is in memory at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.array_layouts import LaidOutArrays, own_arrays
from icevirt.archive.joining import Fact
from icevirt.archive.scanned import FactsBeside, ScannedArray, ScannedFile
from icevirt.errors import ScanError
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.planning.combine.hints import Recorded
from icevirt.scan.contract import ByteSource, ScannerOptions, StoreByteSource

_ORDERS: dict[Any, Literal["<", ">"]] = {"little": "<", "big": ">"}
_CHUNKS = 1024  # in a run, unless a row of chunks has more
_BYTES = 64 * 1024 * 1024  # encoded, of a run, unless a row of chunks has more

type Fetch = Callable[[str, int, int], bytes]
"""Returns bytes of a URL: offset, length."""


def read(array: ScannedArray, fetch: Fetch) -> NDArray[Any]:
    """Return all values in native byte order. Raises as `pieces`."""
    found = list(pieces(array, fetch))
    return found[0] if len(found) == 1 else np.concatenate(found)


def pieces(array: ScannedArray, fetch: Fetch) -> Iterator[NDArray[Any]]:
    """Yield the values in runs along the first axis, some rows of chunks each.

    Raises:
        ScanError: A chunk cannot be read or decoded.
    """
    if not array.shape or not array.shape[0]:
        yield _decode(array, fetch)
        return
    edge, length = array.chunk_shape[0], array.shape[0]
    table = array.references
    column = table.index[:, 0]
    step = _rows_at_once(array)
    for first in range(0, -(-length // edge), step):
        low, high = np.searchsorted(column, [first, first + step]).tolist()
        part = table.take(np.arange(low, high)).shift([-first, *[0] * (table.ndim - 1)])
        shape = (min(edge * step, length - edge * first), *array.shape[1:])
        yield _decode(replace(array, shape=shape, references=part), fetch)


def _rows_at_once(array: ScannedArray) -> int:
    """Return how many rows of chunks make a run that is worth the opening of an array."""
    edges = zip(array.shape[1:], array.chunk_shape[1:], strict=True)
    chunks = max(1, prod(-(-length // edge) for length, edge in edges))
    largest = int(array.references.length.max(initial=1))
    return max(1, min(_CHUNKS, _BYTES // max(largest, 1)) // chunks)


def _decode(array: ScannedArray, fetch: Fetch) -> NDArray[Any]:
    import zarr
    from zarr.core.buffer import default_buffer_prototype
    from zarr.core.metadata import ArrayV3Metadata
    from zarr.core.sync import sync
    from zarr.storage import MemoryStore, StorePath

    from icevirt.wire.bounded import limit_array
    from icevirt.wire.panics import raise_panics

    store = MemoryStore({})
    make = default_buffer_prototype().buffer.from_bytes
    for index, data in _chunks(array.references, fetch):
        sync(store.set("/".join(["c", *map(str, index)]), make(data)))
    try:
        metadata = ArrayV3Metadata.from_dict(json.loads(array.zarr_json()))
        opened: Any = zarr.Array(limit_array(metadata, StorePath(store)))
        with raise_panics():
            values = opened[...]
    except Exception as error:
        raise ScanError(
            "a chunk does not decode to the shape and type of its array",
            do="Leave the variable out with drop_variables.",
            variable=array.path,
            codecs=json.dumps(array.codecs),
            cause=f"{type(error).__name__}: {error}",
        ) from error
    # of a 0-d array a scalar comes back, and numpy's S and U forget their length in it
    return np.asarray(values, opened.dtype if opened.dtype.kind in "SUV" else None)


def _chunks(table: ChunkTable, fetch: Fetch) -> Iterator[tuple[list[int], bytes]]:
    for row in range(len(table)):
        at, length = int(table.offset[row]), int(table.length[row])
        if table.kind[row] == ChunkType.inline:
            data = table.inline[at : at + length].tobytes()
        else:
            url = table.locations.url[int(table.source[row])]
            data = fetch(url, at, length)
            if len(data) != length:
                raise ScanError("a chunk lies outside its file", file=url, offset=at, length=length)
        yield table.index[row].tolist(), data


def with_labels(scanned: ScannedFile, source: ByteSource, options: ScannerOptions) -> ScannedFile:
    """Return the file with the values that a plan will look at, beside its description.

    They are those of `CombineHints.label_variables`, where variables with more than one value get
    none, and of `CombineHints.tolerant`, where large ones get none; the plan reports both.
    A coordinate whose texts are stored as characters gets them as its labels.

    Raises:
        ScanError: A value cannot be read.
    """
    found = own_arrays(scanned.arrays)
    own = tuple(_with_values(array, source, options) for array in found)
    if all(one is other for one, other in zip(own, found, strict=True)):
        return scanned
    if isinstance(scanned.arrays, LaidOutArrays):
        return replace(scanned, arrays=replace(scanned.arrays, own=own))
    return replace(scanned, arrays=own)


def _with_values(array: ScannedArray, source: ByteSource, options: ScannerOptions) -> ScannedArray:
    beside = array.beside or FactsBeside()
    known = array.labels is not None or beside.labels is not None
    if known or Fact.labels not in options.wanted_of(array, ()):
        return array
    spelt = options.spells(Recorded.of(array.path, array.shape, array.chunk_shape, array))
    is_within = isinstance(source, StoreByteSource)
    if spelt and not is_within and {*array.references.locations.url} - {source.file.url}:
        return array
    labels, dtype = _labels(array, source, texts=spelt)
    if labels is None:
        return array
    return replace(array, beside=replace(beside, labels=labels, labels_dtype=dtype))


def _labels(array: ScannedArray, source: ByteSource, *, texts: bool) -> tuple[bytes | None, str]:
    value = _plain(array)
    if value is None:
        value = np.asarray(read(array, lambda *where: _fetch(source, *where)))
        if texts:  # a text for each row of characters
            width = max(1, value.shape[1])
            rows = np.ascontiguousarray(value).astype("S1").view(f"S{width}").reshape(-1)
            value = np.array([_text(row) for row in rows.tolist()], "U")
        value = value.reshape(-1)
        if value.dtype.kind in "OT":
            value = np.array([_text(each) for each in value.tolist()])
    if value.dtype.kind not in "iufU":
        return None, ""
    kind = value.dtype.newbyteorder("<")
    return value.astype(kind).tobytes(), kind.str


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _plain(array: ScannedArray) -> NDArray[Any] | None:
    """Return a number that is stored plainly in the references; importing zarr costs a second."""
    table, codec = array.references, array.codecs[0] if len(array.codecs) == 1 else None
    if not isinstance(codec, dict) or codec.get("name") != "bytes" or len(table) != 1:
        return None
    try:
        dtype = np.dtype(str(array.data_type))
    except (TypeError, ValueError):
        return None
    order = (codec.get("configuration") or {}).get("endian", "little")
    if dtype.kind not in "iuf" or table.kind[0] != ChunkType.inline or order not in _ORDERS:
        return None
    at = int(table.offset[0])
    raw = table.inline[at : at + int(table.length[0])].tobytes()
    return np.frombuffer(raw, dtype.newbyteorder(_ORDERS[order]))[: prod(array.shape)]


def _fetch(source: ByteSource, url: str, offset: int, length: int) -> bytes:
    if isinstance(source, StoreByteSource):
        return source.read_url(url, offset, length)
    if url != source.file.url:
        raise ScanError(
            "a label variable lies in another file",
            do="Pass a list of labels.",
            file=source.file.url,
            other=url,
        )
    return source.read(offset, length)
