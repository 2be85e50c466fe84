"""Exchange virtual datasets with VirtualiZarr, with their references kept as columns.

VirtualiZarr is imported only to make a dataset: a caller who passes one has imported it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from zarr.core.buffer import default_buffer_prototype

from icevirt.access.interop.export import INLINE_NATIVE, ExportedReferences, outgoing
from icevirt.access.store.zarr_store import IcevirtStore
from icevirt.access.virtual_refs import ChecksumLike
from icevirt.access.xarray.attributes import shown
from icevirt.access.xarray.writing import to_icechunk
from icevirt.errors import InvalidInputError, UnsupportedError
from icevirt.model import paths
from icevirt.model.attributes import EXTENSION, Attributes, recorded_dtypes
from icevirt.model.chunks import ChunkTable
from icevirt.model.metadata import document_of
from icevirt.model.snapshot import ArrayNode
from icevirt.repo.session import Session

if TYPE_CHECKING:
    from xarray import Dataset, Variable

_INLINED = "__inlined__"  # VirtualiZarr's word for a chunk whose bytes are in the manifest
_ENCODINGS = (
    "_FillValue",
    "missing_value",
    "scale_factor",
    "add_offset",
    "units",
    "calendar",
)


def from_virtualizarr(
    vds: Dataset, session: Session, *, group: str | None = None, checksum: ChecksumLike = None
) -> None:
    """Write a virtual dataset into a group of a session, without committing.

    Variables that VirtualiZarr loaded are written as values, all others as references.

    Args:
        vds: A dataset from ``virtualizarr.open_virtual_dataset``, or several combined.
        session: A writable session.
        group: The group; the root by default.
        checksum: One for all files: an etag, or the latest modification time. Without it,
            changes of the files go unnoticed.

    Raises:
        AlreadyExistsError: A variable already exists.
        InvalidInputError: No virtual chunk container covers a file.
        ReadOnlyError: The session is read-only.
    """
    top = paths.canonical(group or "/")
    virtual = {str(n): v for n, v in vds.variables.items() if _is_virtual(v.data)}
    loaded = vds.drop_vars(list(virtual))
    to_icechunk(_with_coordinates(loaded, vds), session, group=top.strip("/") or None, mode="a")
    for name, variable in virtual.items():
        _add(session, paths.join(top, name), variable, checksum)


def _is_virtual(data: object) -> bool:
    return hasattr(data, "manifest") and hasattr(data, "metadata")


def _with_coordinates(loaded: Dataset, vds: Dataset) -> Dataset:
    """List the coordinates in the group's attributes, where CF readers look for them."""
    names = " ".join(sorted(str(name) for name in vds.coords if name not in vds.dims))
    return loaded.assign_attrs({**vds.attrs, **({"coordinates": names} if names else {})})


def _add(session: Session, path: str, variable: Variable, checksum: ChecksumLike) -> None:
    data: Any = variable.data
    session.add_array(path, _document(variable, data), ChunkTable.empty(variable.ndim))
    manifest = data.manifest
    located = manifest._paths  # noqa: SLF001 - the columns; what is public is an object per chunk
    is_inline = located == _INLINED
    names, codes = np.unique(np.where(is_inline, "", located).ravel(), return_inverse=True)
    IcevirtStore(session).set_virtual_refs_arr(
        path,
        located.shape,
        names.tolist(),
        manifest._offsets.ravel(),  # noqa: SLF001
        manifest._lengths.ravel(),  # noqa: SLF001
        codes=codes,
        checksum=checksum,
    )
    for index, body in manifest._inlined.items():  # noqa: SLF001
        if len(index) != variable.ndim:
            raise InvalidInputError("a chunk's index does not fit its array", index=index)
        session.set_chunk(path, index, bytes(body))


def _document(variable: Variable, data: Any) -> bytes:
    """Return the zarr.json of a virtual variable, whose attributes are those of the dataset."""
    raw = data.metadata.to_buffer_dict(default_buffer_prototype())["zarr.json"].to_bytes()
    used = {k: variable.encoding[k] for k in _ENCODINGS if k in variable.encoding}
    attributes = Attributes.of({**variable.attrs, **used})
    changed = {"attributes": dict(attributes.values), "dimension_names": list(variable.dims)}
    document = {**json.loads(raw), **changed, **attributes.extension()}
    return json.dumps(document, allow_nan=False).encode()


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
    try:
        from virtualizarr.manifests import ManifestGroup
    except ImportError as error:
        raise InvalidInputError(
            "VirtualiZarr is not installed", do="Run `pip install virtualizarr`."
        ) from error
    top = session.node(group)
    nodes = [
        node
        for node in session.snapshot.below(top.path)
        if isinstance(node, ArrayNode) and paths.parent(node.path) == top.path
    ]
    documents = {paths.name(node.path): document_of(node) for node in nodes}
    arrays = {paths.name(n.path): _array(session, n, inline_native) for n in nodes}
    about = _attributes(document_of(top))
    coordinates = {k: v for k, v in about.items() if k == "coordinates"}
    vds: Dataset = ManifestGroup(arrays=arrays, attributes=coordinates).to_virtual_dataset()
    for name, document in documents.items():
        vds[name].attrs = _attributes(document)
    vds.attrs = {k: v for k, v in about.items() if k != "coordinates"}
    return vds


def _attributes(document: dict[str, Any]) -> dict[str, Any]:
    """Return attributes with their dtypes, but ``_FillValue`` as zarr spells it."""
    dtypes = recorded_dtypes(document)
    dtypes.pop("_FillValue", None)
    return shown({**document, EXTENSION: {"attribute_dtypes": dtypes}})


def _array(session: Session, node: ArrayNode, inline_native: int) -> Any:
    from virtualizarr.manifests import ManifestArray
    from zarr.core.metadata.v3 import ArrayV3Metadata

    document = document_of(node)
    names = document.get("dimension_names") or []
    if document["chunk_grid"]["name"] != "regular" or not all(names or [None] * len(node.shape)):
        raise UnsupportedError(
            "VirtualiZarr needs named dimensions and a regular chunk grid, which this array lacks",
            do="Drop the array, or name its dimensions.",
            path=node.path,
            dimension_names=names,
        )
    kept = {key: value for key, value in document.items() if key != EXTENSION}
    metadata = ArrayV3Metadata.from_dict({**kept, "attributes": {}})
    return ManifestArray(metadata, _manifest(outgoing(session, node, inline_native)))


def _manifest(found: ExportedReferences) -> Any:
    from virtualizarr.manifests import ChunkManifest

    located = np.full(found.grid, "", np.dtypes.StringDType())
    offsets, lengths = np.zeros(found.grid, np.uint64), np.zeros(found.grid, np.uint64)
    at = tuple(found.index.T.astype(np.int64)) if found.grid else ()
    if len(found.index):
        urls = np.array(found.urls, np.dtypes.StringDType())[found.url]
        located[at] = urls if found.grid else urls[0]
        offsets[at] = found.offset if found.grid else found.offset[0]
        lengths[at] = found.length if found.grid else found.length[0]
    for index, body in found.bodies.items():
        located[index], lengths[index] = _INLINED, len(body)
    return ChunkManifest.from_arrays(
        paths=located,
        offsets=offsets,
        lengths=lengths,
        validate_paths=False,
        inlined=dict(found.bodies),
    )
