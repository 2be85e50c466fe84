"""Wrap a zarr array as xarray's lazily indexed backend array."""

from __future__ import annotations

from typing import Any

import numpy as np
import zarr
from xarray.backends import BackendArray
from xarray.coding import strings
from xarray.core import indexing

from icevirt.access.store.arrays import decoding

_ALL = indexing.IndexingSupport.VECTORIZED


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
        array = self._array
        match key:
            case indexing.VectorizedIndexer():
                read: Any = array.vindex.__getitem__
            case indexing.OuterIndexer():
                read = array.oindex.__getitem__
            case _:
                read = array.__getitem__
        with decoding(self._array):
            value = indexing.explicit_indexing_adapter(key, self.shape, _ALL, read)
        return self._shown(value)

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> Any:
        """Do the same for xarray's ``load_async``."""
        array = self._array.async_array
        match key:
            case indexing.VectorizedIndexer():
                read: Any = array.vindex.getitem
            case indexing.OuterIndexer():
                read = array.oindex.getitem
            case _:
                read = array.getitem
        with decoding(self._array):
            value = await indexing.async_explicit_indexing_adapter(key, self.shape, _ALL, read)
        return self._shown(value)

    def _shown(self, value: Any) -> Any:
        if self.dtype.kind in "SU":  # a scalar forgets the length of its dtype
            return np.asarray(value, self.dtype)
        return np.asarray(value).astype(self.dtype) if self.dtype.kind == "O" else value
