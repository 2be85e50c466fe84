"""Read values that libhdf5 lacks a filter for: it finds the chunks, zarr's codecs decode them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import prod
from typing import Any

import h5py
import numpy as np
from h5py import h5z
from numpy.typing import NDArray

from icevirt.archive.scanned import ScannedArray
from icevirt.errors import UnsupportedError
from icevirt.model.attributes import Attributes
from icevirt.model.chunks import ChunkTable
from icevirt.model.json import JSON
from icevirt.scan import values as values_by_zarr
from icevirt_scanners.hdf5.files import LACKS_FILTER, REMEDY
from icevirt_scanners.hdf5.types.filters import Pipeline, filters_of_plist, pipeline_of

_ORDERS = {">": "big"}


def lacks_filter(dataset: h5py.Dataset) -> bool:
    """Say whether libhdf5 could not decode the chunks of a dataset."""
    plist = dataset.id.get_create_plist()
    return not all(map(h5z.filter_avail, (code for code, *_ in filters_of_plist(plist))))


def read_box(
    dataset: h5py.Dataset, region: tuple[slice, ...], facts: Mapping[str, str]
) -> NDArray[Any]:
    """Return the values of a box; ``facts`` are for errors.

    Raises:
        UnsupportedError: Zarr has not got the filters either, or they hold more than plain numbers.
    """
    dtype, chunk = dataset.dtype, dataset.chunks
    filters = filters_of_plist(dataset.id.get_create_plist())
    pipeline = pipeline_of(filters, dtype.itemsize * prod(chunk))
    if pipeline.not_plain or dtype.kind not in "iuf" or dtype.metadata:
        raise UnsupportedError(LACKS_FILTER, do=REMEDY, filter=pipeline.undecodable, **facts)
    box = [
        (part.start // edge, -(-part.stop // edge))
        for part, edge in zip(region, chunk, strict=True)
    ]
    begin = [low * edge for (low, _), edge in zip(box, chunk, strict=True)]
    shape = [(high - low) * edge for (low, high), edge in zip(box, chunk, strict=True)]
    values = np.full(shape, dataset.fillvalue, dtype.newbyteorder("="))
    for place in product(*(range(low, high) for low, high in box)):
        at = tuple(number * edge for number, edge in zip(place, chunk, strict=True))
        if not dataset.id.get_chunk_info_by_coord(at).size:
            continue  # it was never written
        mask, raw = dataset.id.read_direct_chunk(at)
        inside = tuple(
            slice(low - first, low - first + edge)
            for low, first, edge in zip(at, begin, chunk, strict=True)
        )
        values[inside] = _decoded(raw, dtype, chunk, pipeline, mask)
    return values[
        tuple(
            slice(part.start - first, part.stop - first)
            for part, first in zip(region, begin, strict=True)
        )
    ]


def _decoded(
    raw: bytes, dtype: np.dtype[Any], chunk: tuple[int, ...], pipeline: Pipeline, mask: int
) -> NDArray[Any]:
    order: JSON = {"endian": _ORDERS.get(dtype.byteorder, "little")}
    return values_by_zarr.read(
        ScannedArray(
            path="/",
            dimension_names=(None,) * len(chunk),
            shape=chunk,
            chunk_shape=chunk,
            data_type=dtype.name,
            codecs=({"name": "bytes", "configuration": order}, *pipeline.kept(mask)),
            fill_value=0,
            attributes=Attributes(),
            references=ChunkTable.inlined(
                index=np.zeros((1, len(chunk)), np.int64), chunks=[bytes(raw)]
            ),
        ),
        _nothing,
    )


def _nothing(*_: Any) -> bytes:
    raise AssertionError("the chunk is there")
