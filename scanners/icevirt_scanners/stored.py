"""Make arrays of values that are computed, and stored as one chunk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from icevirt.archive.scanned import ScannedArray
from icevirt.model import paths
from icevirt.model.attributes import Attributes
from icevirt.model.chunks import ChunkTable
from icevirt_scanners.encoding import bytes_codec, hash_values


def hold(
    path: str, dimensions: tuple[str, ...], values: Any, attributes: Mapping[str, Any]
) -> ScannedArray:
    """Return an array that is stored as one chunk."""
    held = np.ascontiguousarray(values).astype(np.asarray(values).dtype.newbyteorder("<"))
    held = held.reshape(np.shape(values))
    raw, dtype, path = held.tobytes(), held.dtype, paths.canonical(path)
    more: dict[str, Any] = {}
    if dimensions == (paths.name(path),) or held.size == 1:
        more = {"labels": raw, "labels_dtype": dtype.str}
    return ScannedArray(
        path=path,
        dimension_names=dimensions,
        shape=held.shape,
        chunk_shape=held.shape,
        data_type=dtype.name,
        codecs=(bytes_codec(dtype),),
        fill_value=attributes.get("_FillValue", "NaN" if dtype.kind == "f" else 0),
        attributes=Attributes.of(attributes),
        references=ChunkTable.of_inline(index=np.zeros((1, held.ndim), np.int64), chunks=[raw]),
        whole=True,
        digest=hash_values(dtype.name, held.shape, [raw]),
        **more,
    )
