"""The HDF5 fill value of a dataset as zarr's ``fill_value``.

It is what h5py reads where nothing was ever written. CF's ``_FillValue`` is another thing and
stays an attribute.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from h5py import h5d

from icevirt.model.json import JSON
from icevirt_scanners.encoding import spelt
from icevirt_scanners.hdf5.datatypes import Element


def fill_of(plist: Any, element: Element) -> np.ndarray[Any, Any]:
    """Return the fill value as a 0-d array of the element's dtype.

    It is zero where none is defined, or where the file says that it is never to be written: h5py
    reads zeros then.
    """
    zero = np.zeros((), element.dtype)
    if element.text or plist.fill_value_defined() != h5d.FILL_VALUE_USER_DEFINED:
        return zero
    if plist.get_fill_time() == h5d.FILL_TIME_NEVER:
        return zero
    found = np.zeros((), element.read_as or element.dtype)
    if element.memory is not None and element.dtype.kind in "VmM" and not element.dtype.names:
        return zero  # h5py cannot convert opaque fill values; callers store holes of these
    plist.get_fill_value(found)
    return found.astype(element.dtype)


def fill_json(value: Any, element: Element) -> JSON:
    """Spell a fill value as zarr v3 does."""
    return "" if element.text else spelt(value[()], element.dtype)
