"""Complete arrays whose references another tool made with the facts that a build needs.

Values are read through the references: coordinates and arrays that do not align are stored whole,
and arrays that do not follow all concatenated dimensions get a digest. If the values lie in remote
files, none of that happens; a build of several files then reports what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from icevirt.archive.joining import Fact
from icevirt.archive.scanned import FactsBeside, ScannedArray
from icevirt.model import paths
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.json import JSON
from icevirt.scan.elsewhere import Elsewhere, Targets
from icevirt.scan.values import pieces, read
from icevirt_scanners.context import ScanContext
from icevirt_scanners.digest import hashed
from icevirt_scanners.encoding import bytes_codec, vlen_bytes


def completed(
    array: ScannedArray, dtype: np.dtype[Any], context: ScanContext, elsewhere: Elsewhere
) -> ScannedArray:
    """Return the array with labels or a digest, stored whole where that is better.

    Raises:
        ScanError: Its values cannot be read.
        UnsupportedError: They must be stored, and are too many.
    """
    given = array.references.count(ChunkType.inline)
    if given:
        nbytes = len(array.references.inline)
        context.budget.spend(nbytes, variable=array.path, cause="given as bytes")
    if not elsewhere.readable(array.references.locations):
        return array
    wanted = context.wanted(array)
    if Fact.values in wanted:
        beside = context.values_of(lambda: _whole(array, dtype, context, elsewhere))
        return replace(array, beside=beside)
    if Fact.digest in wanted:
        return replace(array, beside=FactsBeside(digest=digest_of(array, dtype, elsewhere)))
    return array


def digest_of(array: ScannedArray, dtype: np.dtype[Any], elsewhere: Elsewhere) -> str:
    """Hash type, shape and values, which are read through the references.

    Raises:
        UnsupportedError: They lie in remote files.
    """
    # text is encoded with its count, so that pieces of it would hash to something else
    found = (
        iter([read(array, elsewhere.read)]) if dtype.hasobject else pieces(array, elsewhere.read)
    )
    return hashed(array.data_type, array.shape, (_buffer(piece, dtype) for piece in found))


def _whole(
    array: ScannedArray, dtype: np.dtype[Any], context: ScanContext, elsewhere: Elsewhere
) -> ScannedArray:
    nbytes = prod(array.shape) * dtype.itemsize
    context.budget.spend(nbytes, variable=array.path, cause="stored whole")
    found = read(array, elsewhere.read)
    raw = bytes(_buffer(found, dtype))
    more: dict[str, Any] = {}
    texts = dtype.hasobject
    labels = found.reshape(-1)
    labels = np.array(labels.tolist()) if texts else labels.astype(dtype.newbyteorder("<"))
    if array.shape or labels.dtype.kind in "iufU":
        more = {"labels": labels.tobytes(), "labels_dtype": labels.dtype.str}
    text: JSON = {"name": "vlen-utf8", "configuration": {}}
    ndim = len(array.shape)
    return replace(
        array,
        chunk_shape=tuple(max(length, 1) for length in array.shape),
        codecs=(text if texts else bytes_codec(dtype),),
        references=ChunkTable.inlined(index=np.zeros((1, ndim), np.int64), chunks=[raw])
        if found.size
        else ChunkTable.empty(ndim),
        whole=True,
        digest=hashed(array.data_type, array.shape, [raw]),
        **more,
    )


def _buffer(values: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> Any:
    if dtype.hasobject:
        texts = (text if isinstance(text, bytes) else str(text).encode() for text in values.flat)
        return vlen_bytes(list(texts))
    return np.ascontiguousarray(values, dtype.newbyteorder("<")).reshape(-1).view(np.uint8)


def tell_unverifiable(found: Iterator[Targets], context: ScanContext) -> None:
    """Warn of targets without a checksum, whose changes nobody will notice."""
    unknown = {
        url
        for targets in found
        if targets.unverifiable
        for url, etag, seconds in zip(
            targets.locations.url,
            targets.locations.etag,
            targets.locations.last_modified.tolist(),
            strict=True,
        )
        if not etag and not seconds
    }
    if unknown:
        context.warn(
            paths.ROOT,
            "unverifiable",
            f"{len(unknown)} referenced files have no checksum; changes of these files will go "
            "unnoticed",
        )
