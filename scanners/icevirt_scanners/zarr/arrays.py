"""Make arrays of a store: metadata in terms of v3, and a reference for each chunk that is there."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import lt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.scanned import ScannedArray
from icevirt.errors import UnsupportedError
from icevirt.model.attributes import FILL
from icevirt.model.zarr_v2 import NoEquivalentError
from icevirt.remedy_notation import Remedy, write_code, write_option, write_remedy
from icevirt_scanners.context import ScanContext
from icevirt_scanners.given import GivenArray, with_facts
from icevirt_scanners.kerchunk.scanner import Described, array_v2, regular_array
from icevirt_scanners.zarr.chunk_batches import LAST_CHUNK, ChunkBatches, ChunkRows
from icevirt_scanners.zarr.chunk_keys import ChunkKeys
from icevirt_scanners.zarr.documents import damaged


@dataclass(frozen=True, slots=True)
class Found:
    """An array, and the rows of the store's objects that belong to it."""

    array: ScannedArray
    chunks: NDArray[np.int64]  # rows
    outside: NDArray[np.int64]  # rows of chunks behind the end of the array
    others: NDArray[np.int64]  # rows of chunks that belong to other shares
    dtype: np.dtype[Any]


def keys_of(node: Described) -> tuple[ChunkKeys, int]:
    """Return how an array spells the keys of its chunks, and its rank.

    Raises:
        NoEquivalentError: They are spelled in another way.
        KeyError, TypeError, ValueError, AttributeError: Its documents are damaged.
    """
    document = node.array or {}
    keys = ChunkKeys.of_v3(document) if node.v3 else ChunkKeys.of_v2(document)
    return keys, len(document["shape"])


class Descriptions:
    """Describes arrays of a store; those with the same documents once.

    Arrays of a plate differ by their path only. Their descriptions share all parts, so that what
    is decided about these later is decided once too.
    """

    def __init__(self, context: ScanContext) -> None:
        self._context = context
        self._known: dict[tuple[int, int], GivenArray] = {}  # by the ids of documents

    def of(self, path: str, node: Described) -> GivenArray:
        """Return the description of an array. Raises as `scan_array` does."""
        attributes = id(node.attributes) if node.attributes else 0
        key = id(node.array), attributes  # the nodes of the scan hold them
        known = self._known.get(key)
        if known is not None:
            return known
        told = len(self._context.findings)
        given = describe_array(path, node, self._context)
        with _reading(path, self._context):
            keys_of(node)
        if len(self._context.findings) == told:  # else each array is named
            self._known[key] = given
        return given


def scan_array(
    path: str,
    node: Described,
    batches: ChunkBatches,
    descriptions: Descriptions,
    context: ScanContext,
) -> Found:
    """Describe an array.

    Args:
        path: Of the array.
        node: Its documents.
        batches: Has its chunks.
        descriptions: Of the arrays before.
        context: Of the scan.

    Raises:
        ScanError: Its metadata or a chunk is damaged.
        UnsupportedError: Zarr v3 has no words for it, or zarr does not know its codecs.
    """
    source: Any = context.source
    given = descriptions.of(path, node)
    found = _with_chunks(path, given, batches.take(node.folder), context)
    if context.options.run_of(path) is not None:  # only of arrays that need no facts
        return found
    array = with_facts(found.array, given.dtype, context, source.chunks(found.chunks))
    return replace(found, array=array)


def describe_array(path: str, node: Described, context: ScanContext) -> GivenArray:
    """Describe an array by its documents, without its chunks. Raises as `scan_array` does."""
    with _reading(path, context):
        given = _of_v3(path, node) if node.v3 else array_v2(path, node, context)
        _check_readable(given.scanned)
    return given


def propose_copy(path: str) -> Remedy:
    """Return what to do about an array that cannot be referenced."""
    name = path[1:]
    return write_remedy(
        "Have its values stored, if zarr-python reads them: ",
        write_code(
            f'scan_options={{"variable_policy": {{"{name}": "native"}}}}',
            f"--variable-policy '{name}=native'",
        ),
        "; or leave it out with ",
        write_option("drop_variables"),
        ".",
    )


@contextmanager
def _reading(path: str, context: ScanContext) -> Iterator[None]:
    """Name the array whose documents cannot be read."""
    url = context.source.file.url
    try:
        yield
    except NoEquivalentError as error:
        raise UnsupportedError(
            f"a Zarr array that readers of Icechunk cannot read: {error}",
            do=propose_copy(path),
            file=url,
            variable=path,
            cause=str(error),
        ) from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        cause = f"{type(error).__name__}: {error}"
        raise damaged(url, variable=path, cause=f"metadata: {cause}") from error


def _of_v3(path: str, node: Described) -> GivenArray:
    document = node.array or {}
    grid = document["chunk_grid"]
    if grid["name"] != "regular":
        raise NoEquivalentError(f"the chunk grid {grid['name']!r}")
    dtype = _dtype_of(_text(document["data_type"]))
    attributes = dict(node.attributes)
    fill = attributes.get(FILL)
    if isinstance(fill, str) and dtype.kind == "f":  # as xarray spells it
        attributes[FILL] = _float_of(fill, dtype)
    return regular_array(path, document, dtype, attributes)


def _float_of(text: str, dtype: np.dtype[Any]) -> Any:
    try:
        return np.frombuffer(base64.standard_b64decode(text), "<f8")[0].astype(dtype)
    except ValueError:
        return text


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


@lru_cache(1024)
def _dtype_of(data_type: str) -> np.dtype[Any]:
    """Return the dtype of values in memory; object for texts of any length."""
    from zarr.dtype import parse_dtype

    try:
        dtype: np.dtype[Any] = parse_dtype(json.loads(data_type), zarr_format=3).to_native_dtype()
    except (ValueError, TypeError, KeyError) as error:
        raise NoEquivalentError(f"the data type {data_type}") from error
    if dtype.names is not None:
        raise NoEquivalentError(f"the compound data type {data_type}")
    return np.dtype(object) if dtype.kind in "OT" else dtype.newbyteorder("=")


def _check_readable(array: ScannedArray) -> None:
    """Let zarr read the metadata: it knows its codecs, or names the one that it does not."""
    rank = len(array.shape)
    _check_codecs(
        _text(array.data_type),
        _text(array.codecs),
        _text(array.fill_value),
        array.chunk_shape,
        rank,
    )


@lru_cache(4096)
def _check_codecs(
    data_type: str, codecs: str, fill: str, chunks: tuple[int, ...], rank: int
) -> None:
    from zarr.core.metadata import ArrayV3Metadata

    document: Mapping[str, Any] = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": chunks,
        "data_type": json.loads(data_type),
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": json.loads(fill),
        "codecs": json.loads(codecs),
        "attributes": {},
        "dimension_names": [None] * rank,
    }
    try:
        for codec in ArrayV3Metadata.from_dict(dict(document)).codecs:
            getattr(codec, "_codec", None)  # numcodecs looks at its settings only now
    except Exception as error:  # whatever its codecs raise
        raise NoEquivalentError(f"{type(error).__name__}: {error}") from error


def _with_chunks(path: str, given: GivenArray, found: ChunkRows, context: ScanContext) -> Found:
    """Return the array with a reference for each chunk that is there, all of them checked.

    Beside it are the rows of these chunks, and of those that it does not take.
    """
    chunks, index, table = found.rows, found.index, found.references
    run = context.options.run_of(path)
    if run is None and table is not None and all(map(lt, found.last, given.grid)):
        size = given.chunk_size
        if found.sizes == (size, size) or not len(chunks) or (size is None and found.sizes[0]):
            array, none = replace(given.scanned, path=path, references=table), chunks[:0]
            return Found(array, chunks, none, none, given.dtype)
    source: Any = context.source
    objects = source.objects
    inside = (index < np.array(given.grid, np.int64)).all(axis=1)
    outside = chunks[~inside]
    if len(outside):
        chunks, index = chunks[inside], index[inside]
    others = chunks[:0]
    if run is not None:
        places = np.ravel_multi_index([*index.T], given.grid)
        mine = (places >= run[0]) & (places < run[1])
        chunks, index, others = chunks[mine], index[mine], chunks[~mine]
    if int(index.max(initial=0)) > LAST_CHUNK:
        raise damaged(source.file.url, variable=path, cause="more chunks than Icechunk can number")
    refuse_lengths(
        given,
        objects.sizes[chunks],
        path,
        context,
        name=lambda row: objects.keys[int(chunks[row])],
    )
    table = source.references(index, chunks).sort()
    array = replace(given.scanned, path=path, references=table)
    return Found(array, chunks, outside, others, given.dtype)


def refuse_lengths(
    given: GivenArray,
    sizes: NDArray[np.int64],
    path: str,
    context: ScanContext,
    name: Callable[[int], str] = str,
) -> None:
    """Refuse chunks of another length than their array has; ``name`` gives one for a row.

    Raises:
        ScanError: There is one.
    """
    expected = given.chunk_size
    wrong = sizes == 0 if expected is None else sizes != expected
    if wrong.any():
        row = int(np.argmax(wrong))
        raise damaged(
            context.source.file.url,
            variable=path,
            cause="a chunk of another length than its array has",
            chunk=name(row),
            length=int(sizes[row]),
            **({} if expected is None else {"expected": expected}),
        )
