"""Exchange virtual datasets with VirtualiZarr, with their references kept as columns.

VirtualiZarr is imported only to make a dataset: a caller who passes one has imported it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from zarr.core.buffer import default_buffer_prototype

from icevirt.access.interop.export import INLINE_NATIVE, outgoing
from icevirt.access.interop.manifests import (
    INLINED,
    distinct_names,
    manifest_array,
    refuse_without_virtualizarr,
)
from icevirt.access.store.zarr_store import IcevirtStore
from icevirt.access.virtual_refs import ChecksumLike
from icevirt.access.xarray.attributes import shown
from icevirt.access.xarray.writing import to_icechunk
from icevirt.errors import InvalidInputError
from icevirt.model import paths
from icevirt.model.attributes import (
    EXTENSION,
    Attributes,
    recorded_dtypes,
    recorded_replacements,
)
from icevirt.model.chunks import ChunkTable
from icevirt.model.metadata import document_of
from icevirt.model.snapshot import ArrayNode
from icevirt.repo.session import Session

if TYPE_CHECKING:
    from xarray import Dataset, Variable

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
    attributes = replace(Attributes.of(held), replaced=recorded_replacements(document))
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
    arrays = {paths.name(n.path): _array(session, n, inline_native) for n in nodes}
    about = _plain(_attributes(document_of(top)))
    coordinates = {k: v for k, v in about.items() if k == "coordinates"}
    vds: Dataset = ManifestGroup(arrays=arrays, attributes=coordinates).to_virtual_dataset()
    for name, document in documents.items():
        vds[name].attrs = _plain(_attributes(document))
    vds.attrs = {k: v for k, v in about.items() if k != "coordinates"}
    return vds


def _attributes(document: dict[str, Any]) -> dict[str, Any]:
    """Return attributes with their dtypes, but ``_FillValue`` as zarr spells it."""
    dtypes = recorded_dtypes(document)
    dtypes.pop("_FillValue", None)
    return shown({**document, EXTENSION: {"attribute_dtypes": dtypes}})


def _plain(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return values without numpy, which VirtualiZarr's writers do not take.

    Types are in the arrays' metadata, where `from_virtualizarr` finds them.
    """
    return {
        name: value.tolist() if isinstance(value, np.generic | np.ndarray) else value
        for name, value in attributes.items()
    }


def _array(session: Session, node: ArrayNode, inline_native: int) -> Any:
    document = {**document_of(node), "attributes": {}}
    return manifest_array(node.path, document, outgoing(session, node, inline_native))
