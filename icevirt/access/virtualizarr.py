"""Exchange virtual datasets with VirtualiZarr, with their references kept as columns.

VirtualiZarr is imported only to make a dataset: a caller who passes one has imported it.
zarr.json keeps icevirt's extension field, which holds the dtypes of attributes, so that a virtual
dataset that comes back decodes to the same values.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from zarr.core.buffer import default_buffer_prototype

from icevirt.access.references import INLINE_NATIVE, ExportedReferences, outgoing
from icevirt.access.store.zarr_store import IcevirtStore
from icevirt.access.virtual_refs import ChecksumLike
from icevirt.access.xarray.datastore import file_attributes
from icevirt.access.xarray.writing import to_icechunk
from icevirt.archive.scanned import ScannedArray, ScannedFile
from icevirt.errors import InvalidInputError, UnsupportedError
from icevirt.model import paths
from icevirt.model.attributes import (
    EXTENSION,
    Attributes,
    read_dtypes,
    read_replacements,
)
from icevirt.model.chunks import ChunkTable, ChunkType
from icevirt.model.json import loads
from icevirt.model.snapshot import ArrayNode, document_of
from icevirt.repo.session import Session

if TYPE_CHECKING:
    from virtualizarr.manifests import ManifestArray, ManifestGroup
    from xarray import Dataset, Variable


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
    from virtualizarr.manifests import ChunkManifest, ManifestArray
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
    located, offsets, lengths = _columns(found)
    for index, body in found.bodies.items():
        located[index], lengths[index] = INLINED, len(body)
    manifest = ChunkManifest.from_arrays(
        paths=located,
        offsets=offsets,
        lengths=lengths,
        validate_paths=False,
        inlined=dict(found.bodies),
    )
    return ManifestArray(ArrayV3Metadata.from_dict(dict(document)), manifest)


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


def manifest_group_of(scanned: ScannedFile, renamed: Mapping[str, str]) -> ManifestGroup:
    """Return what a scan found in a file as a group of manifests.

    Args:
        scanned: The file.
        renamed: Other URLs for files that references lead to.

    Raises:
        UnsupportedError: An array lacks dimension names.
    """
    from virtualizarr.manifests import ManifestGroup

    arrays: dict[str, dict[str, Any]] = {}
    for array in map(_trim, scanned.arrays):
        made = manifest_array(array.path, loads(array.zarr_json()), _references(array, renamed))
        arrays.setdefault(paths.parent(array.path), {})[paths.name(array.path)] = made
    groups: dict[str, dict[str, Any]] = {}
    for group in sorted(
        scanned.groups, key=lambda each: each.path.rstrip("/").count("/"), reverse=True
    ):
        node = ManifestGroup(
            arrays=arrays.get(group.path),
            groups=groups.get(group.path),
            attributes=dict(group.attributes.values),
        )
        if group.path == paths.ROOT:
            return node
        groups.setdefault(paths.parent(group.path), {})[paths.name(group.path)] = node
    raise AssertionError("the root is a group")


def _trim(array: ScannedArray) -> ScannedArray:
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


def _references(array: ScannedArray, renamed: Mapping[str, str]) -> ExportedReferences:
    table = array.references
    virtual = table.kind == ChunkType.virtual
    linked, inline = table.take(virtual), table.take(~virtual)
    ends = (inline.offset + inline.length).tolist()
    spans = zip(inline.index.tolist(), inline.offset.tolist(), ends, strict=True)
    return ExportedReferences(
        grid=tuple(
            -(-size // edge) for size, edge in zip(array.shape, array.chunk_shape, strict=True)
        ),
        index=linked.index,
        url=linked.source.astype(np.int64),
        urls=tuple(renamed.get(url, url) for url in linked.locations.url),
        offset=linked.offset,
        length=linked.length,
        bodies={tuple(index): inline.inline[low:high].tobytes() for index, low, high in spans},
    )


_ENCODINGS = (
    "_FillValue",
    "missing_value",
    "scale_factor",
    "add_offset",
    "units",
    "calendar",
)


def from_virtualizarr(
    vds: Dataset,
    session: Session,
    *,
    group: str | None = None,
    checksum: ChecksumLike | Mapping[str, ChecksumLike] = None,
) -> None:
    """Write a virtual dataset into a group of a session, without committing.

    Variables that VirtualiZarr loaded are written as values, all others as references.

    Args:
        vds: A dataset from ``virtualizarr.open_virtual_dataset``, or several combined.
        session: A writable session.
        group: The group; the root by default.
        checksum: One for all files, or by URL: an etag, or the latest modification time. Without
            it, changes of the files go unnoticed.

    Raises:
        AlreadyExistsError: A variable already exists.
        InvalidInputError: No virtual chunk container covers a file.
        ReadOnlyError: The session is read-only.
    """
    top = paths.canonical(group or "/")
    virtual = {str(n): v for n, v in vds.variables.items() if is_virtual(v.data)}
    loaded = vds.drop_vars(list(virtual))
    to_icechunk(_with_coordinates(loaded, vds), session, group=top.strip("/") or None, mode="a")
    for name, variable in virtual.items():
        _add(session, paths.join(top, name), variable, checksum)


def is_virtual(data: object) -> bool:
    """Say whether the data of a variable are references."""
    return hasattr(data, "manifest") and hasattr(data, "metadata")


def _with_coordinates(loaded: Dataset, vds: Dataset) -> Dataset:
    """List the coordinates in the group's attributes, where CF readers look for them."""
    names = " ".join(sorted(str(name) for name in vds.coords if name not in vds.dims))
    # xarray would list those among the loaded ones in an attribute of the same name
    plain = loaded.reset_coords([n for n in loaded.coords if n not in loaded.xindexes])
    return plain.assign_attrs({**vds.attrs, **({"coordinates": names} if names else {})})


def _add(
    session: Session,
    path: str,
    variable: Variable,
    checksum: ChecksumLike | Mapping[str, ChecksumLike],
) -> None:
    data: Any = variable.data
    session.add_array(path, _document(variable, data), ChunkTable.empty(variable.ndim))
    manifest = data.manifest
    located = manifest._paths  # noqa: SLF001 - the columns; what is public is an object per chunk
    is_inline = located == INLINED
    names, codes = distinct_names(np.where(is_inline, "", located).ravel())
    if isinstance(checksum, Mapping):
        each: ChecksumLike | list[ChecksumLike] = [checksum.get(name) for name in names]
    else:
        each = checksum
    IcevirtStore(session).set_virtual_refs_arr(
        path,
        located.shape,
        names,
        manifest._offsets.ravel(),  # noqa: SLF001
        manifest._lengths.ravel(),  # noqa: SLF001
        codes=codes,
        checksum=each,
    )
    for index, body in manifest._inlined.items():  # noqa: SLF001
        if len(index) != variable.ndim:
            raise InvalidInputError("a chunk's index does not fit its array", index=index)
        session.set_chunk(path, index, bytes(body))


def _document(variable: Variable, data: Any) -> bytes:
    """Return the zarr.json of a virtual variable, whose attributes are those of the dataset."""
    raw = data.metadata.to_buffer_dict(default_buffer_prototype())["zarr.json"].to_bytes()
    document = json.loads(raw)
    used = {k: variable.encoding[k] for k in _ENCODINGS if k in variable.encoding}
    held = _attributes({**document, "attributes": {**variable.attrs, **used}})
    attributes = replace(Attributes.of(held), replaced=read_replacements(document))
    document.pop(EXTENSION, None)
    changed = {
        "attributes": dict(attributes.values),
        "dimension_names": list(variable.dims),
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    }
    return json.dumps({**document, **changed, **attributes.extension()}, allow_nan=False).encode()


def to_virtualizarr(
    session: Session, group: str = "/", *, inline_native: int = INLINE_NATIVE
) -> Dataset:
    """Return a VirtualiZarr virtual dataset of the arrays directly in a group.

    Attributes are the files' own, undecoded. Checksums are lost, because VirtualiZarr's
    manifests have none: `from_virtualizarr` takes one for all files.

    Args:
        session: Any session; uncommitted changes are included.
        group: The group; the root by default.
        inline_native: Maximum bytes per array of repository chunks to embed as
            inline chunks.

    Raises:
        NodeNotFoundError: There is no such group.
        UnsupportedError: An array has more bytes inside the repository, no dimension names, or a
            chunk grid that is not regular.
        InvalidInputError: VirtualiZarr is not installed.
    """
    refuse_without_virtualizarr()
    from virtualizarr.manifests import ManifestGroup

    top = session.node(group)
    nodes = [
        node
        for node in session.snapshot.below(top.path)
        if isinstance(node, ArrayNode) and paths.parent(node.path) == top.path
    ]
    documents = {paths.name(node.path): document_of(node) for node in nodes}
    arrays = {
        paths.name(node.path): manifest_array(
            node.path,
            {**document_of(node), "attributes": {}},
            outgoing(session, node, inline_native),
        )
        for node in nodes
    }
    about = _plain(_attributes(document_of(top)))
    coordinates = {k: v for k, v in about.items() if k == "coordinates"}
    vds: Dataset = ManifestGroup(arrays=arrays, attributes=coordinates).to_virtual_dataset()
    for name, document in documents.items():
        vds[name].attrs = _plain(_attributes(document))
    vds.attrs = {k: v for k, v in about.items() if k != "coordinates"}
    return vds


def _attributes(document: dict[str, Any]) -> dict[str, Any]:
    """Return attributes with their dtypes, but ``_FillValue`` as zarr spells it."""
    dtypes = read_dtypes(document)
    dtypes.pop("_FillValue", None)
    return file_attributes({**document, EXTENSION: {"attribute_dtypes": dtypes}})


def _plain(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return values without numpy, which VirtualiZarr's writers do not take.

    Types are in the arrays' metadata, where `from_virtualizarr` finds them.
    """
    return {
        name: value.tolist() if isinstance(value, np.generic | np.ndarray) else value
        for name, value in attributes.items()
    }
