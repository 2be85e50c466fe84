"""Store the values of arrays that cannot be referenced, or that the user wants stored.

What no reader of Icechunk decodes is read by zarr-python, as it is in the store; the values are
stored in the array's own chunks. Pickled objects are never read: that would execute them.
"""

from __future__ import annotations

import json
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.scanned import ScannedArray
from icevirt.errors import UnsupportedError
from icevirt.model.attributes import FILL, Attributes
from icevirt.model.chunks import ChunkTable, Locations
from icevirt.model.json import JSON
from icevirt.scan.contract import ChunkReader, Policy, StoreByteSource
from icevirt.scan.values import read
from icevirt_scanners import blocks
from icevirt_scanners.context import ScanContext
from icevirt_scanners.encoding import GZIP, bytes_codec, spell, squeeze, vlen_bytes
from icevirt_scanners.given import with_facts
from icevirt_scanners.kerchunk.scanner import Described, names_of

_TEXT: JSON = {"name": "vlen-utf8", "configuration": {}}
_PICKLE = "pickle"
_CODECS = ("filters", "compressor", "codecs")  # where documents name them


def open_array(store: StoreByteSource, path: str) -> Any:
    """Open an array of a store, or the one that is all of it, by zarr-python, which may raise.

    What it opened is looked at, not what was read before: a store may say something else each time.

    Raises:
        UnsupportedError: Reading its values would run what is in them.
    """
    import zarr

    root: Any = zarr.open(store.open_zarr(), mode="r")
    array = root if isinstance(root, zarr.Array) else root[path.strip("/")]
    held = array.metadata.to_dict()
    if _PICKLE in json.dumps([held.get(each) for each in _CODECS], default=repr):
        raise UnsupportedError(
            "a Zarr array of Python objects that were pickled: to read them would run their code",
            do="Leave it out with drop_variables.",
            file=store.file.url,
            variable=path,
        )
    return array


def copy_values(
    path: str, node: Described, context: ScanContext, refusal: UnsupportedError
) -> ScannedArray:
    """Return an array that cannot be referenced, with its values as zarr-python reads them.

    Args:
        path: Of the array.
        node: Its documents.
        context: Of the scan; its source is a store.
        refusal: Why it cannot be referenced.

    Raises:
        UnsupportedError: It can be read by nothing here, or is too large.
    """
    store: Any = context.source
    document = node.array or {}
    coded = json.dumps([document.get(each) for each in _CODECS])
    if _PICKLE in coded:
        raise refusal
    try:
        array = open_array(store, node.folder)
        context.budget.spend(array.nbytes, variable=path, cause=str(refusal.facts.get("cause")))
        values, fill = np.asarray(array[...]), array.fill_value
        data_type, dtype = _type_of(values)
    except UnsupportedError:
        raise
    except Exception as error:  # whatever codecs raise
        raise refusal from error
    values = values.astype(dtype)
    attributes = {
        key: value for key, value in node.attributes.items() if key != "_ARRAY_DIMENSIONS"
    }
    text = dtype.hasobject
    given = None if fill is None or text else np.asarray(fill).astype(dtype)[()]
    if given is not None and not node.v3 and dtype.kind in "iuf":
        attributes[FILL] = given  # as readers of v2 take it
    names = names_of(node) or (None,) * values.ndim
    made = ScannedArray(
        path=path,
        dimension_names=names,
        shape=values.shape,
        chunk_shape=tuple(max(int(edge), 1) for edge in array.shards or array.chunks),
        data_type=data_type,
        codecs=(),
        fill_value="" if text else spell(np.zeros(1, dtype)[0] if given is None else given, dtype),
        attributes=Attributes.of(attributes),
        references=ChunkTable.empty(values.ndim),
    )
    return _store(made, values, context, str(refusal.facts.get("cause", refusal.what)))


def copy_chunks(
    array: ScannedArray, dtype: np.dtype[Any], reading: ChunkReader, context: ScanContext
) -> ScannedArray:
    """Return an array that could be referenced, with its values stored.

    Raises:
        ScanError: They cannot be read.
        UnsupportedError: They are too large.
    """
    cause = f"its policy is {context.options.policy_of(array.path).value!r}"
    context.budget.spend(prod(array.shape) * dtype.itemsize, variable=array.path, cause=cause)
    return _store(array, read(array, reading.read), context, cause)


def _store(
    array: ScannedArray, values: NDArray[Any], context: ScanContext, cause: str
) -> ScannedArray:
    """Return an array with its values stored, in its own chunks or in one."""
    context.tell(array.path, "stored-natively", cause)
    if values.dtype.kind in "OT":
        values = values.astype(object)
    edges = array.chunk_shape
    if context.options.policy_of(array.path) is Policy.inline:
        edges = tuple(max(length, 1) for length in array.shape)
    counts = tuple(-(-length // edge) for length, edge in zip(array.shape, edges, strict=True))
    index = blocks.all_chunks(counts)
    whole = np.full(
        tuple(count * edge for count, edge in zip(counts, edges, strict=True)),
        "" if values.dtype.hasobject else 0,
        values.dtype if values.dtype.hasobject else values.dtype.newbyteorder("<"),
    )
    whole[tuple(slice(length) for length in array.shape)] = values
    bodies = []
    for each in index.tolist():
        at = tuple(slice(n * edge, (n + 1) * edge) for n, edge in zip(each, edges, strict=True))
        bodies.append(squeeze(_encode(whole[at])))
    first = _TEXT if values.dtype.hasobject else bytes_codec(values.dtype)
    made = replace(
        array,
        chunk_shape=edges,
        codecs=(first, GZIP),
        references=ChunkTable.of_inline(index=index, chunks=bodies),
        beside=None,
    )
    return with_facts(made, values.dtype, context, _Nothing())


class _Nothing:
    """Reads nothing: all values are stored."""

    def readable(self, locations: Locations) -> bool:
        """Say whether there is nothing to read."""
        return not len(locations)

    def read(self, url: str, offset: int, length: int) -> bytes:  # noqa: ARG002
        """Return nothing."""
        return b""


def _encode(part: NDArray[Any]) -> bytes:
    if part.dtype.hasobject:
        return vlen_bytes([str(text).encode() for text in part.ravel()])
    return np.ascontiguousarray(part).tobytes()


def _type_of(values: NDArray[Any]) -> tuple[JSON, np.dtype[Any]]:
    """Return how Zarr v3 spells a type, and the type in memory. Raises `TypeError`."""
    from zarr.dtype import parse_dtype

    if values.dtype.kind in "OT":
        if not all(isinstance(each, str) for each in values.ravel().tolist()):
            raise TypeError("objects that are no texts")
        return "string", np.dtype(object)
    if values.dtype.names is not None:
        raise TypeError("compound values")
    dtype = values.dtype.newbyteorder("=")
    found: Any = parse_dtype(dtype, zarr_format=3).to_json(zarr_format=3)
    return found, dtype
