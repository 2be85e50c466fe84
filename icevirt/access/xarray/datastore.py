"""Show groups of a session as the datasets and variables that the netCDF engine would show.

The nodes come from the snapshot, which is in memory, so opening needs no listing and no event loop.
Only reading values uses the zarr store.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from inspect import signature
from typing import Any

import numpy as np
import zarr
from xarray import Dataset, Variable
from xarray.backends import AbstractDataStore, BackendArray
from xarray.backends.store import StoreBackendEntrypoint
from xarray.coding import strings
from xarray.core import indexing
from zarr.abc.store import Store

from icevirt.access.store.arrays import array_of, decoding
from icevirt.access.xarray.attributes import shown
from icevirt.access.xarray.eras import concatenated, eras_around, groups_with_eras, refuse_lacking
from icevirt.errors import IcevirtError, InvalidInputError
from icevirt.model import paths
from icevirt.model.attributes import dtype_metadata, recorded_order
from icevirt.model.snapshot import ArrayNode, GroupNode, Snapshot, document_of, using

_ALL = indexing.IndexingSupport.VECTORIZED


def dataset_of(store: Store, snapshot: Snapshot, group: str, decoders: dict[str, Any]) -> Dataset:
    """Return a group of a snapshot as a dataset, read from a store over it."""
    found = IcevirtDataStore(store, snapshot, group)
    opener = StoreBackendEntrypoint().open_dataset
    signature(opener).bind(found, **decoders)  # raises TypeError for an unknown option
    try:
        return opener(found, **decoders)
    except (IcevirtError, Warning):
        raise
    except Exception as error:
        raise InvalidInputError(
            f"xarray cannot build a dataset from the variables of this group: {error}",
            do="Pass decode_cf=False to read them as they are stored, or leave out the variables"
            " that the error names: drop_variables=[...].",
            group=group,
        ) from error


def of_all_eras(store: Store, snapshot: Snapshot, group: str, decoders: dict[str, Any]) -> Dataset:
    """Return a group of all eras as one dataset; one that has no eras as it is."""
    around = eras_around(snapshot, group)
    if around is None:
        return dataset_of(store, snapshot, group, decoders)
    eras, inner = around
    refuse_lacking(snapshot, eras, inner)
    datasets = [dataset_of(store, snapshot, path, decoders) for path in eras.below(inner)]
    from icevirt.access.xarray.era_arrays import with_durations

    return concatenated(with_durations(datasets, decoders), eras, group=group)


def groups_of_all_eras(
    store: Store, snapshot: Snapshot, group: str, decoders: dict[str, Any]
) -> dict[str, Dataset]:
    """Return a group and those below it, as if eras were one."""
    top = paths.canonical(group)
    return {
        path.removeprefix(top.rstrip("/")) if path != top else paths.ROOT: of_all_eras(
            store, snapshot, path, decoders
        )
        for path in groups_with_eras(snapshot, top)
    }


def groups_below(snapshot: Snapshot, group: str) -> Iterable[tuple[str, str]]:
    """Yield a group and those below it, as (relative path, path)."""
    top = snapshot.node(paths.canonical(group)).path
    yield paths.ROOT, top
    for node in snapshot.below(top):
        if isinstance(node, GroupNode):
            yield node.path.removeprefix(top.rstrip("/")), node.path


class IcevirtDataStore(AbstractDataStore):
    """The arrays directly below one group.

    Args:
        store: The zarr store that values are read from.
        snapshot: The version of the repository that the store shows.
        group: Path of the group.

    Raises:
        NodeNotFoundError: There is no such group.
        InvalidInputError: The path is that of an array.
    """

    __slots__ = ("_group", "_phony", "_snapshot", "_store")

    def __init__(self, store: Store, snapshot: Snapshot, group: str) -> None:
        self._store = store
        self._snapshot = snapshot
        self._group = snapshot.node(paths.canonical(group))
        self._phony: dict[int, list[str]] = {}
        if not isinstance(self._group, GroupNode):
            raise InvalidInputError(
                "this is an array, not a group",
                do=f"Open its group: group={paths.parent(self._group.path)!r}.",
                path=self._group.path,
            )

    def get_attrs(self) -> Mapping[str, Any]:
        """Return the attributes of the group."""
        with using(self._group):
            return shown(document_of(self._group))

    def get_dimensions(self) -> Mapping[str, int]:
        """Return the lengths of all dimensions."""
        return {
            str(name): size
            for variable in self.get_variables().values()
            for name, size in variable.sizes.items()
        }

    def get_variables(self) -> Mapping[str, Variable]:
        """Return the arrays of the group as lazy, undecoded variables, in the files' order."""
        return {paths.name(node.path): self._variable(node) for node in self._arrays()}

    def _arrays(self) -> list[ArrayNode]:
        """Return the arrays as the group orders them, those that it does not know last."""
        found = [
            node
            for node in self._snapshot.below(self._group.path)
            if isinstance(node, ArrayNode) and paths.parent(node.path) == self._group.path
        ]
        with using(self._group):
            place = recorded_order(document_of(self._group))
        return sorted(found, key=lambda node: place.get(paths.name(node.path), math.inf))

    def _variable(self, node: ArrayNode) -> Variable:
        array = array_of(self._store, node)
        with using(node):
            lazy = LazyArray(array)
            dims = self._dims(node)
            data = indexing.LazilyIndexedArray(lazy)
            document, encoding = document_of(node), _encoding(array, dims)
            if (metadata := dtype_metadata(document)) is not None:
                encoding["dtype"] = np.dtype(array.dtype, metadata=metadata)
            return Variable(dims, data, shown(document, lazy.dtype), encoding)

    def _dims(self, node: ArrayNode) -> tuple[str, ...]:
        """Return the dimension names; unnamed ones are shared by length, as netCDF does it."""
        names = node.dimension_names or (None,) * len(node.shape)
        used: dict[int, int] = {}
        dims = []
        for name, size in zip(names, node.shape, strict=True):
            if name is None:
                known = self._phony.setdefault(size, [])
                if (nth := used.setdefault(size, 0)) == len(known):
                    known.append(f"phony_dim_{sum(map(len, self._phony.values()))}")
                used[size] += 1
                dims.append(known[nth])
            else:
                dims.append(name)
        return tuple(dims)


def _encoding(array: zarr.Array[Any], dims: tuple[str, ...]) -> dict[str, Any]:
    """Return how the array is stored, in the words of xarray's zarr engine."""
    chunks = _chunks(array)
    return {
        "chunks": chunks,
        "preferred_chunks": dict(zip(dims, chunks, strict=True)),
        "compressors": array.compressors,
        "filters": array.filters,
        "serializer": array.serializer,
        "fill_value": array.fill_value,
        "dtype": str if array.dtype.kind == "T" else array.dtype,
        "original_shape": array.shape,
    }


def _chunks(array: zarr.Array[Any]) -> tuple[int | tuple[int, ...], ...]:
    """Return the edges of the chunks for each dimension: one number, or all where they differ."""
    try:
        return tuple(array.chunks)
    except NotImplementedError:  # a rectilinear grid
        return tuple(_edge(sizes) for sizes in array.read_chunk_sizes)


def _edge(sizes: tuple[int, ...]) -> int | tuple[int, ...]:
    regular = all(size == sizes[0] for size in sizes[:-1]) and sizes[-1] <= sizes[0]
    return sizes[0] if regular else sizes


class LazyArray(BackendArray):
    """Reads what is indexed when it is indexed; strings come as Python objects, as from netCDF."""

    __slots__ = ("_array", "dtype", "shape")

    def __init__(self, array: zarr.Array[Any]) -> None:
        text = array.dtype.kind == "T"
        self._array = array
        self.shape = array.shape
        self.dtype: np.dtype[Any] = (
            strings.create_vlen_dtype(str) if text else array.dtype  # type: ignore[no-untyped-call]
        )

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        read = _view(self._array, key).__getitem__
        try:
            with decoding(self._array):
                value = indexing.explicit_indexing_adapter(key, self.shape, _ALL, read)
        except IcevirtError as error:  # 30 frames of zarr's own say nothing about the cause
            raise error.with_traceback(None) from error.__cause__
        return self._shown(value)

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> Any:
        """Do the same for xarray's ``load_async``."""
        read = _view(self._array.async_array, key).getitem
        with decoding(self._array):
            value = await indexing.async_explicit_indexing_adapter(key, self.shape, _ALL, read)
        return self._shown(value)

    def _shown(self, value: Any) -> Any:
        if self.dtype.kind in "SU":  # a scalar forgets the length of its dtype
            return np.asarray(value, self.dtype)
        return np.asarray(value).astype(self.dtype) if self.dtype.kind == "O" else value


def _view(array: Any, key: indexing.ExplicitIndexer) -> Any:
    """Return what zarr indexes an array by with a key of this kind."""
    match key:
        case indexing.VectorizedIndexer():
            return array.vindex
        case indexing.OuterIndexer():
            return array.oindex
        case _:
            return array
