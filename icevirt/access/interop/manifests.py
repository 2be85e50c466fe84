"""Make VirtualiZarr's manifests of references, with the references kept as columns.

zarr.json keeps icevirt's extension field, which holds the dtypes of attributes, so that a virtual
dataset that comes back decodes to the same values.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from icevirt.access.interop.export import ExportedReferences
from icevirt.archive.scanned import ScannedArray, ScannedFile
from icevirt.errors import InvalidInputError, UnsupportedError
from icevirt.model import paths
from icevirt.model.chunks import ChunkType
from icevirt.model.json import loads

if TYPE_CHECKING:
    from virtualizarr.manifests import ChunkManifest, ManifestArray, ManifestGroup

INLINED = "__inlined__"
"""VirtualiZarr's word for a chunk whose bytes are in the manifest."""


_AT_ONCE = 1 << 16  # names that are Python objects


def distinct_names(located: NDArray[Any]) -> tuple[list[str], NDArray[np.int64]]:
    """Return the distinct names of a column of them, and for each row the number of its name.

    Rows of one file mostly follow one another: only the first of each run is looked at.
    """
    begins = np.ones(len(located), np.bool_)
    begins[1:] = located[1:] != located[:-1]
    heads = located[begins]
    numbers: dict[str, int] = {}
    codes = np.empty(len(heads), np.int64)
    for at in range(0, len(heads), _AT_ONCE):
        part = heads[at : at + _AT_ONCE].tolist()
        codes[at : at + len(part)] = [numbers.setdefault(name, len(numbers)) for name in part]
    return list(numbers), codes[np.cumsum(begins) - 1]


def refuse_without_virtualizarr() -> None:
    """Check that VirtualiZarr is there. Raises `InvalidInputError`."""
    try:
        import virtualizarr.manifests  # noqa: F401
    except ImportError as error:
        raise InvalidInputError(
            "VirtualiZarr is not installed", do="Run `pip install virtualizarr`."
        ) from error


def manifest_array(
    path: str, document: Mapping[str, Any], found: ExportedReferences
) -> ManifestArray:
    """Return the array that a zarr.json describes, over references.

    Raises:
        UnsupportedError: It lacks dimension names, or its chunk grid is not regular.
    """
    from virtualizarr.manifests import ManifestArray
    from zarr.core.metadata.v3 import ArrayV3Metadata

    names = document.get("dimension_names") or []
    unnamed = not all(names or [None] * len(found.grid))
    if document["chunk_grid"]["name"] != "regular" or unnamed:
        raise UnsupportedError(
            "VirtualiZarr needs named dimensions and a regular chunk grid, which this array lacks",
            do="Drop the array, or name its dimensions.",
            path=path,
            dimension_names=names,
        )
    metadata = ArrayV3Metadata.from_dict(dict(document))
    return ManifestArray(metadata, _manifest(found))


def _manifest(found: ExportedReferences) -> ChunkManifest:
    from virtualizarr.manifests import ChunkManifest

    located, offsets, lengths = _columns(found)
    for index, body in found.bodies.items():
        located[index], lengths[index] = INLINED, len(body)
    return ChunkManifest.from_arrays(
        paths=located,
        offsets=offsets,
        lengths=lengths,
        validate_paths=False,
        inlined=dict(found.bodies),
    )


def _columns(found: ExportedReferences) -> tuple[Any, Any, Any]:
    """Return locations, offsets and lengths of all chunks; locations of others are empty."""
    text, grid = np.dtypes.StringDType(), found.grid
    offset, length = found.offset.astype(np.uint64), found.length.astype(np.uint64)
    if len(found.index) == math.prod(grid):  # rows are in C order
        if len(found.urls) == 1:  # without a copy for each chunk
            urls = np.broadcast_to(np.array(found.urls[0], text), grid)
        else:
            urls = np.array(found.urls, text)[found.url]
        return urls.reshape(grid), offset.reshape(grid), length.reshape(grid)
    located = np.full(grid, "", text)
    offsets, lengths = np.zeros(grid, np.uint64), np.zeros(grid, np.uint64)
    if len(found.index):
        at = tuple(found.index.T.astype(np.int64))
        located[at] = np.array(found.urls, text)[found.url]
        offsets[at], lengths[at] = offset, length
    return located, offsets, lengths


def scanned_group(scanned: ScannedFile, renamed: Mapping[str, str]) -> ManifestGroup:
    """Return what a scan found in a file as a group of manifests.

    Args:
        scanned: The file.
        renamed: Other URLs for files that references lead to.

    Raises:
        UnsupportedError: An array lacks dimension names.
    """
    from virtualizarr.manifests import ManifestGroup

    arrays: dict[str, dict[str, Any]] = {}
    for array in map(_trimmed, scanned.arrays):
        made = manifest_array(array.path, loads(array.zarr_json()), _references(array, renamed))
        arrays.setdefault(paths.parent(array.path), {})[paths.name(array.path)] = made
    groups: dict[str, dict[str, Any]] = {}
    for group in sorted(scanned.groups, key=lambda group: _depth(group.path), reverse=True):
        node = ManifestGroup(
            arrays=arrays.get(group.path),
            groups=groups.get(group.path),
            attributes=dict(group.attributes.values),
        )
        if group.path == paths.ROOT:
            return node
        groups.setdefault(paths.parent(group.path), {})[paths.name(group.path)] = node
    raise AssertionError("the root is a group")


def _trimmed(array: ScannedArray) -> ScannedArray:
    """Return an array whose chunk is no longer than the array, if its bytes can be cut there.

    VirtualiZarr concatenates only such arrays. Chunks of an unlimited dimension are often longer.
    """
    shape, edges, table = array.shape, array.chunk_shape, array.references
    is_long = len(shape) > 0 and 0 < shape[0] < edges[0]
    fits = is_long and all(map(operator.le, edges[1:], shape[1:]))
    names = [each["name"] if isinstance(each, dict) else each for each in array.codecs]
    if not (fits and names == ["bytes"] and bool((table.kind == ChunkType.virtual).all())):
        return array
    length = table.length // np.uint64(edges[0]) * np.uint64(shape[0])
    return replace(
        array,
        chunk_shape=(shape[0], *edges[1:]),
        references=replace(table, length=length),
    )


def _depth(path: str) -> int:
    return path.rstrip("/").count("/")


def _ceil(length: int, edge: int) -> int:
    return -(-length // edge)


def _references(array: ScannedArray, renamed: Mapping[str, str]) -> ExportedReferences:
    table = array.references
    virtual = table.kind == ChunkType.virtual
    linked, inline = table.take(virtual), table.take(~virtual)
    ends = (inline.offset + inline.length).tolist()
    spans = zip(inline.index.tolist(), inline.offset.tolist(), ends, strict=True)
    return ExportedReferences(
        grid=tuple(map(_ceil, array.shape, array.chunk_shape)),
        index=linked.index,
        url=linked.source.astype(np.int64),
        urls=tuple(renamed.get(url, url) for url in linked.locations.url),
        offset=linked.offset,
        length=linked.length,
        bodies={tuple(index): inline.inline[low:high].tobytes() for index, low, high in spans},
    )
