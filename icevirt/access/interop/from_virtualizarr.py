"""Write datasets opened by VirtualiZarr to a session, with their references kept as columns.

This module does not import VirtualiZarr: a caller who has such a dataset has imported it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from zarr.core.buffer import default_buffer_prototype

from icevirt.access.store.zarr_store import IcevirtStore
from icevirt.access.virtual_refs import ChecksumLike
from icevirt.access.xarray.writing import to_icechunk
from icevirt.errors import InvalidInputError, ReadOnlyError
from icevirt.model import paths
from icevirt.model.attributes import Attributes
from icevirt.model.chunks import ChunkTable
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
    if session.read_only:
        raise ReadOnlyError(
            "this session is read-only",
            do="Open a writable one with `repo.writable_session(branch)`.",
            snapshot=session.snapshot_id,
        )
    top = paths.canonical(group or "/")
    virtual = {str(n): v for n, v in vds.variables.items() if _is_virtual(v.data)}
    loaded = vds.drop_vars(list(virtual))
    to_icechunk(_with_coordinates(loaded, vds), session, group=top.strip("/") or None, mode="a")
    for name, variable in virtual.items():
        _add(session, paths.join(top, name), variable, checksum)


def _is_virtual(data: object) -> bool:
    return hasattr(data, "manifest") and hasattr(data, "metadata")


def _with_coordinates(loaded: Dataset, vds: Dataset) -> Dataset:
    """Say in the group's attributes which variables are coordinates, as CF readers look for it."""
    names = sorted(str(name) for name in vds.coords if name not in vds.dims)
    told = " ".join(names)
    return loaded.assign_attrs({**vds.attrs, **({"coordinates": told} if names else {})})


def _add(session: Session, path: str, variable: Variable, checksum: ChecksumLike) -> None:
    data: Any = variable.data
    session.add_array(path, _document(variable, data), ChunkTable.empty(variable.ndim))
    manifest = data.manifest
    located = manifest._paths  # noqa: SLF001 - the columns; what is public is an object per chunk
    is_inline = located == _INLINED
    codes, names = _coded(np.where(is_inline, "", located))
    IcevirtStore(session).set_virtual_refs_arr(
        path,
        located.shape,
        names,
        manifest._offsets.ravel(),  # noqa: SLF001
        manifest._lengths.ravel(),  # noqa: SLF001
        codes=codes,
        checksum=checksum,
    )
    _add_inline(session, path, manifest._inlined, variable.ndim)  # noqa: SLF001


def _document(variable: Variable, data: Any) -> bytes:
    """Return the zarr.json of a virtual variable, whose attributes are those of the dataset."""
    raw = data.metadata.to_buffer_dict(default_buffer_prototype())["zarr.json"].to_bytes()
    used = {k: variable.encoding[k] for k in _ENCODINGS if k in variable.encoding}
    shown = Attributes.of({**variable.attrs, **used})
    changed = {"attributes": dict(shown.values), "dimension_names": list(variable.dims)}
    document = {**json.loads(raw), **changed, **shown.extension()}
    return json.dumps(document, allow_nan=False).encode()


def _coded(located: NDArray[Any]) -> tuple[NDArray[np.int64], list[str]]:
    """Return a number for each chunk's file, and the files, as URLs."""
    names, codes = np.unique(located.ravel(), return_inverse=True)
    return codes, [str(name) for name in names]


def _add_inline(
    session: Session, path: str, chunks: Mapping[tuple[int, ...], bytes], ndim: int
) -> None:
    for index, body in chunks.items():
        if len(index) != ndim:
            raise InvalidInputError("a chunk's index does not fit its array", index=index)
        session.set_chunk(path, index, bytes(body))
