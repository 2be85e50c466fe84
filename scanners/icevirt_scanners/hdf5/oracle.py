"""Read values with h5py for verification; it shares only opening and names with the scanner.

Where h5py's libhdf5 lacks a filter, it still finds the chunks, and a codec of zarr decodes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from math import prod
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5z
from numpy.typing import NDArray

from icevirt.archive.scanned import ScannedArray
from icevirt.errors import UnsupportedError
from icevirt.model.attributes import Attributes
from icevirt.model.chunks import ChunkTable
from icevirt.model.json import JSON
from icevirt.model.paths import node_name
from icevirt.scan import values as values_by_zarr
from icevirt.scan.contract import ByteSource
from icevirt_scanners.encoding import default_fill
from icevirt_scanners.hdf5.files import LACKS_FILTER, REMEDY, explained, hold_open
from icevirt_scanners.hdf5.filters import IMAGECODECS, Pipeline, filters_of_plist, pipeline_of
from icevirt_scanners.hdf5.hierarchy import PREFIX, variable_name


def read_values(source: ByteSource, path: str, region: tuple[slice, ...]) -> np.ndarray[Any, Any]:
    """Return the values of a dataset in a box; variable-length strings as ``str`` objects.

    Raises:
        ScanError: h5py cannot read it.
    """
    with explained(source.file.url, path), hold_open(source, again=True) as file:
        dataset = _dataset(h5py.File(file.fid), path)
        own = tuple(  # an array type's own axes follow and are whole
            slice(min(part.start, length), min(part.stop, length))
            for part, length in zip(region, dataset.shape, strict=False)
        )
        if h5py.check_string_dtype(dataset.dtype) is not None and dataset.dtype.kind == "O":
            values = np.asarray(dataset.asstr(errors="surrogateescape")[own])
        else:
            facts = {"file": source.file.url, "variable": path}
            direct = lacks_filter(dataset)
            values = read_box(dataset, own, facts) if direct else np.asarray(dataset[own])
        wanted = tuple(part.stop - part.start for part in region)
        return values if values.shape == wanted else _lengthen(values, wanted, _fill(dataset))


def _fill(dataset: Any) -> Any:
    given = dataset.id.get_create_plist().fill_value_defined() == h5d.FILL_VALUE_USER_DEFINED
    dtype = dataset.dtype
    is_plain = h5py.check_enum_dtype(dtype) is None and not h5py.check_opaque_dtype(dtype)
    if given or dtype.kind not in "iuf" or not is_plain:
        return dataset.fillvalue
    return default_fill(dtype)


def _lengthen(
    values: np.ndarray[Any, Any], shape: tuple[int, ...], fill: Any
) -> np.ndarray[Any, Any]:
    """Fill up to netCDF's lengths: an unlimited axis is as long as the longest variable's."""
    text = fill.decode("utf-8", "surrogateescape") if isinstance(fill, bytes) else fill
    full = np.full(shape, text if values.dtype.kind == "O" else fill, values.dtype)
    full[tuple(slice(length) for length in values.shape)] = values
    return full


def _dataset(file: h5py.File, path: str) -> Any:
    """Find a dataset by its path in zarr, whose names may not be those of the links."""
    group, _, name = path.rpartition("/")
    here: Any = file
    for part in filter(None, group.split("/")):
        here = here[_link(here, part, node_name)]
    # netCDF-4 puts a prefix before names of variables that are those of dimensions, too
    return here[PREFIX + name if PREFIX + name in here else _link(here, name, variable_name)]


def _link(group: h5py.Group, name: str, named: Callable[[bytes], tuple[str, bool]]) -> str | bytes:
    """Return the link whose node name this is, the very name itself where it is a link."""
    return name if name in group else next((raw for raw in group.id if named(raw)[0] == name), name)


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
    pipeline = pipeline_of(filters, dtype.itemsize * prod(chunk), (IMAGECODECS,))
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
        values[inside] = _decode(raw, dtype, chunk, pipeline, mask)
    return values[
        tuple(
            slice(part.start - first, part.stop - first)
            for part, first in zip(region, begin, strict=True)
        )
    ]


def _decode(
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
            codecs=({"name": "bytes", "configuration": order}, *pipeline.keep(mask)),
            fill_value=0,
            attributes=Attributes(),
            references=ChunkTable.of_inline(
                index=np.zeros((1, len(chunk)), np.int64), chunks=[bytes(raw)]
            ),
        ),
        _nothing,
    )


def _nothing(*_: Any) -> bytes:
    raise AssertionError("the chunk is there")
