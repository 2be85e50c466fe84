"""What h5py reads, for verification; nothing of the scanner is used here but the opening."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np

from icevirt.scan.contract import ByteSource
from icevirt_scanners.hdf5.files import explained, opened


def read_values(source: ByteSource, path: str, region: tuple[slice, ...]) -> np.ndarray[Any, Any]:
    """Return the values of a dataset in a box; variable-length strings as ``str`` objects.

    Raises:
        ScanError: h5py cannot read it.
    """
    with explained(source.file.url, path), opened(source) as handle:
        dataset = _dataset(h5py.File(handle), path)
        own = region[: dataset.ndim]  # an array type's own axes follow and are whole
        if h5py.check_string_dtype(dataset.dtype) is not None and dataset.dtype.kind == "O":
            dataset = dataset.asstr(errors="surrogateescape")
        return np.asarray(dataset[own])


def _dataset(file: h5py.File, path: str) -> Any:
    """Find a dataset; netCDF-4 puts a prefix before some names that are dimensions' too."""
    if path in file:
        return file[path]
    above, _, name = path.rpartition("/")
    return file[f"{above}/_nc4_non_coord_{name}"]
