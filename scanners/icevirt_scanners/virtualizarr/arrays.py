"""Convert VirtualiZarr's manifest arrays to scanned arrays, keeping manifests as columns."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from icevirt.archive.scanned import ScannedArray
from icevirt.errors import UnsupportedError
from icevirt.model.attributes import Attributes
from icevirt.model.chunks import ChunkTable
from icevirt.model.paths import dimension_name
from icevirt_scanners.kerchunk.columns import ReferenceColumns

_INLINE = "__inlined__"  # VirtualiZarr's word for a chunk whose bytes are in the manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundArray:
    """A manifest array."""

    scanned: ScannedArray  # without references
    dtype: np.dtype[Any]
    columns: ReferenceColumns

    @property
    def grid(self) -> tuple[int, ...]:
        """How many chunks the array has along each axis."""
        edges = zip(self.scanned.shape, self.scanned.chunk_shape, strict=True)
        return tuple(-(-length // edge) for length, edge in edges)


def found_array(path: str, array: Any, file: str) -> FoundArray:
    """Take a manifest array apart.

    Raises:
        UnsupportedError: Its chunk grid is not regular.
    """
    document = _document(array.metadata)
    grid = document["chunk_grid"]
    if grid["name"] != "regular":
        raise UnsupportedError(
            "an array with a chunk grid that is not regular",
            do="Leave it out with drop_variables.",
            file=file,
            variable=path,
        )
    shape = tuple(document["shape"])
    dtype = array.dtype if array.dtype.kind != "T" else np.dtype(object)
    return FoundArray(
        scanned=ScannedArray(
            path=path,
            dimension_names=tuple(
                dimension_name(name)
                for name in document.get("dimension_names") or [None] * len(shape)
            ),
            shape=shape,
            chunk_shape=tuple(max(edge, 1) for edge in grid["configuration"]["chunk_shape"]),
            data_type=document["data_type"],
            codecs=tuple(document["codecs"]),
            fill_value=document["fill_value"],
            attributes=Attributes.of(array.metadata.attributes),
            references=ChunkTable.empty(len(shape)),
        ),
        dtype=dtype.newbyteorder("=") if dtype.names is None else dtype,
        columns=_columns(array.manifest),
    )


def _document(metadata: Any) -> dict[str, Any]:
    from zarr.core.buffer import default_buffer_prototype

    raw = metadata.to_buffer_dict(default_buffer_prototype())["zarr.json"].to_bytes()
    document: dict[str, Any] = json.loads(raw)
    return document


def _columns(manifest: Any) -> ReferenceColumns:
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
