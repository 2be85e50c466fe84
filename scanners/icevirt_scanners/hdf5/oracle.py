"""Read values with h5py for verification; it shares only opening and names with the scanner.

Where h5py's libhdf5 lacks a filter, it still finds the chunks, and a codec of zarr decodes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import h5py
import numpy as np
from h5py import h5d

from icevirt.model.paths import node_name
from icevirt.scan.contract import ByteSource
from icevirt_scanners.cf import default_fill
from icevirt_scanners.hdf5.files import explained, held
from icevirt_scanners.hdf5.hierarchy.walk import PREFIX, variable_name
from icevirt_scanners.hdf5.values.direct import lacks_filter, read_box


def read_values(source: ByteSource, path: str, region: tuple[slice, ...]) -> np.ndarray[Any, Any]:
    """Return the values of a dataset in a box; variable-length strings as ``str`` objects.

    Raises:
        ScanError: h5py cannot read it.
    """
    with explained(source.file.url, path), held(source, again=True) as file:
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
        return values if values.shape == wanted else _lengthened(values, wanted, _fill(dataset))


def _fill(dataset: Any) -> Any:
    given = dataset.id.get_create_plist().fill_value_defined() == h5d.FILL_VALUE_USER_DEFINED
    dtype = dataset.dtype
    is_plain = h5py.check_enum_dtype(dtype) is None and not h5py.check_opaque_dtype(dtype)
    if given or dtype.kind not in "iuf" or not is_plain:
        return dataset.fillvalue
    return default_fill(dtype)


def _lengthened(
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
