"""Translate the HDF5 fill value of a dataset to zarr's ``fill_value``.

h5py reads it for elements that were never written. CF's ``_FillValue`` is a different thing and
stays an attribute.
"""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5s

from icevirt.model.json import JSON
from icevirt_scanners.encoding import spelt
from icevirt_scanners.hdf5.types.datatypes import Element
from icevirt_scanners.hdf5.values.libhdf5_values import UnfaithfulError, read

_ALL_FILTERS = 0


def is_filled(plist: Any) -> bool:
    """Say whether a fill value was given, and is written where nothing else is."""
    return bool(
        plist.fill_value_defined() == h5d.FILL_VALUE_USER_DEFINED
        and plist.get_fill_time() != h5d.FILL_TIME_NEVER
    )


def has_default(element: Element) -> bool:
    """Say whether netCDF has a fill value for such elements where a file gives none."""
    kind, size = element.dtype.kind, element.dtype.itemsize
    is_opaque = element.read_as is not None and h5py.check_opaque_dtype(element.read_as)
    return not (element.note or is_opaque) and (kind in "iu" or (kind == "f" and size in (4, 8)))


def fill_of(dsid: Any, plist: Any, element: Element) -> np.ndarray[Any, Any]:
    """Return the fill value as a 0-d array of the element's dtype.

    It is zero where none is defined, or where the file says that it is never to be written: h5py
    reads zeros then.

    Raises:
        UnfaithfulError: It is an array of several values.
    """
    if not is_filled(plist):
        return np.array(b"", object) if element.text else np.zeros((), element.dtype)
    if element.text or element.memory is not None:
        return _of_hole(dsid, plist, element)
    found = np.zeros((), element.read_as or element.dtype)
    plist.get_fill_value(found)
    return found.astype(element.dtype)


def _of_hole(dsid: Any, plist: Any, element: Element) -> np.ndarray[Any, Any]:
    """Return what libhdf5 reads where nothing was written, of types that numpy does not say."""
    contiguous = plist.copy()
    contiguous.remove_filter(_ALL_FILTERS)
    contiguous.set_layout(h5d.CONTIGUOUS)
    kind = dsid.get_type().copy()
    with h5py.File("memory", "w", driver="core", backing_store=False) as file:
        twin = h5d.create(file.id, b"twin", kind, h5s.create_simple((1,)), contiguous)
        found = read(twin, element).reshape(-1)
    first = found[:1]
    if (found[1:] != first).any() and found.tobytes() != first.tobytes() * found.size:
        raise UnfaithfulError("a fill value of several numbers")
    return first.reshape(())


def fill_json(value: Any, element: Element) -> JSON:
    """Spell a fill value as zarr v3 does."""
    return "" if element.text else spelt(value[()], element.dtype)
