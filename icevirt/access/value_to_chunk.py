"""Find the chunk of a value, by index or by the labels of its coordinates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from zarr.abc.store import Store

from icevirt.errors import InvalidInputError
from icevirt.model import paths
from icevirt.model.metadata import document_of
from icevirt.model.snapshot import ArrayNode, Snapshot


def chunk_of(node: ArrayNode, index: Sequence[int]) -> tuple[int, ...]:
    """Return the chunk that holds a value.

    Raises:
        InvalidInputError: The array has no such value.
    """
    inside = len(index) == len(node.shape) and all(
        -size <= at < size for at, size in zip(index, node.shape, strict=True)
    )
    if not inside:
        raise InvalidInputError(
            "the index lies outside the array",
            do="Pass an index inside its shape, one number for each dimension.",
            path=node.path,
            index=tuple(index),
            shape=node.shape,
        )
    at = [int(i) % size for i, size in zip(index, node.shape, strict=True)]
    return tuple(map(_place, at, _edges(document_of(node)["chunk_grid"])))


def _edges(grid: Mapping[str, Any]) -> list[int | list[int]]:
    """Return for each dimension the one chunk length, or the lengths of all chunks."""
    configuration = grid["configuration"]
    if grid["name"] == "regular":
        return list(configuration["chunk_shape"])
    return [
        axis if isinstance(axis, int) else [size for item in axis for size in _run(item)]
        for axis in configuration["chunk_shapes"]
    ]


def _run(item: int | list[int]) -> list[int]:
    return [item] if isinstance(item, int) else [item[0]] * item[1]


def _place(at: int, edges: int | list[int]) -> int:
    if isinstance(edges, int):
        return at // edges
    return int(np.searchsorted(list(accumulate(edges)), at, side="right"))


def index_of(
    store: Store, snapshot: Snapshot, path: str, labels: Mapping[str, Any]
) -> tuple[int, ...]:
    """Return the index of the value that has these labels, one for each dimension.

    Raises:
        InvalidInputError: A dimension has no label, or no coordinate, or a label is not there, or
            is that of several values.
    """
    from icevirt.access.xarray.datasets import dataset_of

    path = paths.canonical(path)
    ds = dataset_of(store, snapshot, paths.parent(path), {})
    dims = [str(dim) for dim in ds[paths.name(path)].dims]
    if set(labels) != set(dims):
        raise InvalidInputError(
            "labels must name each dimension exactly once",
            path=path,
            dimensions=dims,
            labels=list(labels),
        )
    return tuple(_position(ds, dim, labels[dim]) for dim in dims)


def _position(ds: Any, dim: str, label: Any) -> int:
    import xarray as xr

    if dim not in ds.variables:
        raise InvalidInputError(
            "this dimension has no coordinate, so it has no labels",
            do="Pass the index of the value instead.",
            dimension=dim,
        )
    places = xr.DataArray(np.arange(ds.sizes[dim]), coords={dim: ds[dim].values}, dims=dim)
    try:
        found = np.atleast_1d(places.sel({dim: label}).values)
    except KeyError:
        found = np.zeros(0, np.int64)
    if len(found) != 1:
        raise InvalidInputError(
            "this label does not identify exactly one value",
            dimension=dim,
            label=label,
            values=len(found),
        )
    return int(found[0])
