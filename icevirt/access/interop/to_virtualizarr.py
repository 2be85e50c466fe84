"""Convert a group of a session to a virtual dataset of VirtualiZarr."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from icevirt.access.interop.export import INLINE_NATIVE, ExportedReferences, outgoing
from icevirt.access.xarray.attributes import shown
from icevirt.errors import InvalidInputError, UnsupportedError
from icevirt.model import paths
from icevirt.model.attributes import EXTENSION, recorded_dtypes
from icevirt.model.metadata import document_of
from icevirt.model.snapshot import ArrayNode
from icevirt.repo.session import Session

if TYPE_CHECKING:
    from xarray import Dataset

_INLINED = "__inlined__"  # VirtualiZarr's word for a chunk whose bytes are in the manifest


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
