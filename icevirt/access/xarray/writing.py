"""Write datasets to a session: xarray encodes, attributes become JSON, dask uses forks.

NaN and infinities in attributes are written as builds write them. The dtypes of numbers are stored
with them, so that the engine shows what was written. Workers of dask write with a fork of the
session each; a fork pickles, so this works with threads, processes and clusters.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from xarray.backends.common import ArrayWriter

from icevirt.access.store.zarr_store import IcevirtStore
from icevirt.errors import InvalidInputError, ReadOnlyError
from icevirt.model import paths
from icevirt.model.attributes import (
    EXTENSION,
    FILL,
    MISSING,
    Attributes,
    dtype_metadata,
    read_dtypes,
    read_replacements,
    readable,
    with_enumeration,
)
from icevirt.model.paths import problem
from icevirt.model.snapshot import document_of
from icevirt.repo.session import Session

if TYPE_CHECKING:
    from xarray import DataArray, Dataset

_NUMBERS = ("scale_factor", "add_offset", MISSING)  # encodings that become attributes

# what xarray's own writers call an array without a name, and where they keep the name
_UNNAMED, _NAME = "__xarray_dataarray_variable__", "__xarray_dataarray_name__"
_XARRAYS = (FILL, "coordinates")  # attributes that xarray itself reads while it writes

type Mode = Literal["w", "w-", "a", "a-", "r+"]

type Region = Mapping[str, slice | Literal["auto"]] | Literal["auto"]


def to_icechunk(
    obj: DataArray | Dataset,
    session: Session,
    *,
    group: str | None = None,
    mode: Mode | None = None,
    safe_chunks: bool = True,
    align_chunks: bool = False,
    append_dim: Hashable | None = None,
    region: Region | None = None,
    encoding: Mapping[Any, Any] | None = None,
    chunkmanager_store_kwargs: MutableMapping[Any, Any] | None = None,
    split_every: int | None = None,
) -> None:
    """Write a dataset or array into a group of a session. Nothing is committed.

    Dask arrays are written by workers with forks of the session, whatever the scheduler.

    Args:
        obj: What is written.
        session: A writable session.
        group: The group; the root by default.
        mode: As for `xarray.Dataset.to_zarr`. By default ``a`` with ``append_dim``, ``r+`` with
            ``region``, else ``w-``.
        safe_chunks: Refuse dask chunks that share a chunk of the array before anything is written.
            Otherwise tasks of this process take turns, and tasks of other processes are refused at
            the end.
        align_chunks: Rechunk dask arrays so that they do not.
        append_dim: The dimension to append along.
        region: Where to write in the arrays that are there: a slice by dimension, or ``auto``.
        encoding: By variable, as for `xarray.Dataset.to_zarr`.
        chunkmanager_store_kwargs: For `dask.compute`: a scheduler, say.
        split_every: How many forks are merged at once.

    Raises:
        ReadOnlyError: The session is read-only.
        InvalidInputError: An argument has a wrong type, a variable a wrong name, or the numbers of
            an enumeration have other names than those that are there.
        ConflictError: Two tasks of other processes wrote into one chunk.
    """
    from xarray.backends.writers import dump_to_store, get_writable_zarr_store

    if session.read_only:
        raise ReadOnlyError(
            "this session is read-only",
            do="Open a writable one with `repo.writable_session(branch)`.",
            snapshot=session.snapshot_id,
        )
    ds = _as_dataset(obj)
    top = paths.creatable(group or "/")
    for name in ds.variables:
        if why := problem(str(name)):  # Zarr would write it to a path of another name
            raise InvalidInputError(
                f"Zarr cannot store a variable of this name: {why}",
                do='Rename it: ds.rename({"old": "new"}).',
                group=top,
                name=str(name),
            )
    target = get_writable_zarr_store(
        cast("Any", IcevirtStore(session)),
        mode=mode,
        group=group,
        append_dim=append_dim,
        region=region,
        safe_chunks=safe_chunks,
        align_chunks=align_chunks,
        zarr_format=3,
        consolidated=False,
    )
    ds = target._validate_and_autodetect_region(ds)  # noqa: SLF001 - xarray's writers do so
    target._validate_encoding(encoding or {})  # noqa: SLF001
    writer = ForkingWriter(session, split_every)
    given = {name: _fit(ds[name].attrs, each) for name, each in (encoding or {}).items()}
    added = {name for name in ds.variables if session.find(paths.join(top, str(name))) is None}
    used = {name: (encoding or {}).get(name, ds[name].encoding) for name in ds.variables}
    for name in ds.variables:
        _refuse_other_members(session, paths.join(top, str(name)), used[name])
    dump_to_store(_strict(ds), target, writer, encoding=given)  # type: ignore[no-untyped-call]
    writer.run(chunkmanager_store_kwargs or {})
    _record(session, top, ds.attrs)
    for name, variable in ds.variables.items():
        attributes = {**_numbers_in(used[name]), **variable.attrs}
        new = used[name] if name in added else None
        _record(session, paths.join(top, str(name)), attributes, new=new)


def _as_dataset(obj: DataArray | Dataset) -> Dataset:
    import xarray as xr

    if isinstance(obj, xr.Dataset):
        return obj
    if not isinstance(obj, xr.DataArray):
        raise InvalidInputError(
            "this is neither a Dataset nor a DataArray",
            do="Write the nodes of a DataTree one by one, each into its group.",
            type=type(obj).__name__,
        )
    if obj.name is None:
        return obj.to_dataset(name=_UNNAMED)
    if obj.name not in obj.coords and obj.name not in obj.dims:
        return obj.to_dataset()
    return obj.to_dataset(name=_UNNAMED).assign_attrs({_NAME: obj.name})


def _strict(ds: Dataset) -> Dataset:
    """Return the dataset with attributes that JSON can hold."""
    made = ds.copy(deep=False)
    made.attrs = _json_of(ds.attrs)
    for name, variable in ds.variables.items():
        made[name].attrs = _json_of(variable.attrs)
        made[name].encoding = _fit(variable.attrs, variable.encoding)
    return made


def _json_of(attributes: Mapping[str, Any]) -> dict[str, Any]:
    strict = Attributes.of({k: v for k, v in attributes.items() if k not in _XARRAYS}).values
    return {name: strict.get(name, value) for name, value in attributes.items()}


def _fit(attributes: Mapping[Any, Any], encoding: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return an encoding by which xarray writes the same values, without numbers that JSON lacks.

    `_record` says them afterwards.
    """
    missing = np.asarray(encoding.get(MISSING))
    if missing.dtype.kind not in "fc" or (missing.dtype.kind == "f" and np.isfinite(missing).all()):
        return dict(encoding)
    kept = {name: value for name, value in encoding.items() if name != MISSING}
    is_free = encoding.get(FILL, attributes.get(FILL)) is None
    if is_free and missing.size == 1 and not np.isnan(missing).any():
        kept[FILL] = missing.reshape(-1)[0]
    return kept


def _numbers_in(encoding: Mapping[Any, Any]) -> dict[str, Any]:
    """Return what becomes attributes and has a dtype that JSON does not say."""
    held = {name: encoding[name] for name in _NUMBERS if encoding.get(name) is not None}
    return {name: held[name] for name in Attributes.of(held).dtypes}


def _enumeration_in(encoding: Mapping[Any, Any]) -> dict[str, Any] | None:
    """Return the names that xarray keeps for numbers of an enumeration."""
    metadata = getattr(encoding.get("dtype"), "metadata", None) or {}
    return dict(metadata) if isinstance(metadata.get("enum"), Mapping) else None


def _refuse_other_members(session: Session, path: str, encoding: Mapping[Any, Any]) -> None:
    """Refuse numbers that would be joined with numbers of another meaning."""
    node, ours = session.find(path), _enumeration_in(encoding)
    theirs = None if node is None else dtype_metadata(document_of(node))
    if ours is not None and theirs is not None and ours["enum"] != theirs["enum"]:
        raise InvalidInputError(
            "the numbers of this enumeration have other names in the repository",
            do="Number them as the repository does, and give their encoding its dtype.",
            path=path,
            written=ours["enum"],
            stored=theirs["enum"],
        )


def _record(
    session: Session,
    path: str,
    attributes: Mapping[str, Any],
    *,
    new: Mapping[Any, Any] | None = None,
) -> None:
    """Record the dtypes of numbers in a node, and what other readers see of them.

    ``new`` is the encoding of an array that was not there before.
    """
    node = session.find(path)
    ours = Attributes.of({k: v for k, v in attributes.items() if k not in _XARRAYS})
    named = _enumeration_in(new or {})
    if node is None or not (ours.dtypes or named):
        return
    document = document_of(node)
    held = dict(document.get("attributes") or {})
    if new is not None and MISSING in ours.dtypes:
        held[MISSING] = ours.values[MISSING]
    dtypes, replaced = {**read_dtypes(document), **ours.dtypes}, read_replacements(document)
    shown = Attributes(
        values=held,
        dtypes={name: dtypes[name] for name in (*held, *replaced) if name in dtypes},
        replaced=replaced,
    )
    if new is not None:
        shown = readable(shown, document["data_type"])
        shown = with_enumeration(shown, named, np.dtype(new["dtype"])) if named else shown
    extension = document.get(EXTENSION)
    known = dict(extension) if isinstance(extension, Mapping) else {}
    made = {**document, "attributes": dict(shown.values)}
    for key, value in shown.extension().items():
        made[key] = {**known, **cast("Mapping[str, Any]", value)}
    if made != document:
        session.set_metadata(path, json.dumps(made, allow_nan=False).encode())


class ForkingWriter(ArrayWriter):
    """What xarray hands its arrays to: those in memory are written, dask's are kept for `run`."""

    def __init__(self, session: Session, split_every: int | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._session = session
        self._split_every = split_every

    def run(self, options: Mapping[str, Any]) -> None:
        """Write what was kept, and take over the changes; ``options`` are those of dask."""
        if not self.sources:
            return
        from icevirt.access.dask_arrays import Write, write_with_forks

        writes = [
            Write(source, target.path, region or (slice(None),) * source.ndim)
            for source, target, region in zip(self.sources, self.targets, self.regions, strict=True)
        ]
        write_with_forks(self._session, writes, split_every=self._split_every, options=options)
