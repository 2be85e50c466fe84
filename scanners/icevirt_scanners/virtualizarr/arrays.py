"""Convert VirtualiZarr's manifest arrays to scanned arrays, keeping manifests as columns."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from icevirt.errors import UnsupportedError
from icevirt_scanners.given import GivenArray, ReferenceColumns
from icevirt_scanners.kerchunk.arrays import regular_array

_INLINE = "__inlined__"  # VirtualiZarr's word for a chunk whose bytes are in the manifest


def given_array(path: str, array: Any, file: str) -> GivenArray:
    """Describe a manifest array.

    Raises:
        UnsupportedError: Its chunk grid is not regular.
    """
    document = _document(array.metadata)
    if document["chunk_grid"]["name"] != "regular":
        raise UnsupportedError(
            "an array with a chunk grid that is not regular",
            do="Leave it out with drop_variables.",
            file=file,
            variable=path,
        )
    dtype = array.dtype if array.dtype.kind != "T" else np.dtype(object)
    dtype = dtype.newbyteorder("=") if dtype.names is None else dtype
    return regular_array(path, document, dtype, array.metadata.attributes)


def _document(metadata: Any) -> dict[str, Any]:
    from zarr.core.buffer import default_buffer_prototype

    raw = metadata.to_buffer_dict(default_buffer_prototype())["zarr.json"].to_bytes()
    document: dict[str, Any] = json.loads(raw)
    return document


def columns_of(manifest: Any) -> ReferenceColumns:
    """Return the references of a manifest."""
    # what is public of a manifest is an object for each chunk
    located = manifest._paths  # noqa: SLF001
    linked = (located != "") & (located != _INLINE)
    index = np.argwhere(linked).reshape(int(linked.sum()), located.ndim)
    names, codes = np.unique(located[linked], return_inverse=True)
    inline = dict(manifest._inlined)  # noqa: SLF001
    return ReferenceColumns(
        index=index.astype(np.int64),
        name=codes.astype(np.int64).reshape(-1),
        names=tuple(str(name) for name in names),
        offset=manifest._offsets[linked].astype(np.int64).reshape(-1),  # noqa: SLF001
        length=manifest._lengths[linked].astype(np.int64).reshape(-1),  # noqa: SLF001
        inline_index=np.array(list(inline), np.int64).reshape(len(inline), located.ndim),
        inline=tuple(bytes(body) for body in inline.values()),
    )
