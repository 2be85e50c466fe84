"""Read values through libhdf5, encode them as zarr would, and hash them."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5s

from icevirt.model.json import JSON
from icevirt_scanners.encoding import PIECE, hash_values, spell, vlen_bytes
from icevirt_scanners.hdf5.datatypes import Element


class UnfaithfulError(Exception):
    """Values have no exact form under the data type that their HDF5 type maps to."""


def read(
    dsid: Any,
    element: Element,
    start: tuple[int, ...] | None = None,
    count: tuple[int, ...] | None = None,
) -> np.ndarray[Any, Any]:
    """Read all values, or those of one box, as an array of ``element.dtype``.

    Raises:
        UnfaithfulError: The dtype cannot hold them exactly.
    """
    shape = tuple(dsid.shape) if count is None else count
    # zeros, because libhdf5 leaves never-written elements alone when no fill value is defined
    values = np.zeros((*shape, *element.inner), element.read_as or element.dtype)
    if values.size:
        file_space, memory_space = h5s.ALL, h5s.ALL
        if start is not None and count:
            file_space = dsid.get_space()
            file_space.select_hyperslab(start, count)
            memory_space = h5s.create_simple(count)
        dsid.read(memory_space, file_space, values, element.memory)
    if values.dtype == element.dtype:
        return values
    stored = values.astype(element.dtype)
    is_longer = values.dtype.kind == "f" and values.dtype.itemsize > stored.dtype.itemsize
    if is_longer and not np.array_equal(values, stored.astype(values.dtype), equal_nan=True):
        raise UnfaithfulError("extended-precision floats that a float64 cannot hold")
    return stored


def encode(values: np.ndarray[Any, Any], element: Element) -> bytes:
    """Encode values with the codec `bytes_codec` names, little-endian."""
    if not element.text:
        return np.ascontiguousarray(values, element.dtype).tobytes()
    return vlen_bytes([text or b"" for text in values.reshape(-1).tolist()])


def is_utf8(values: np.ndarray[Any, Any]) -> bool:
    """Say whether all byte strings of an object array are UTF-8."""
    try:
        b"\n".join(text or b"" for text in values.reshape(-1).tolist()).decode()
    except UnicodeDecodeError:
        return False
    return True


def digest(dsid: Any, element: Element, chunk: tuple[int, ...] | None) -> str:
    """Hash dtype, shape and values, a bounded piece at a time."""
    shape = tuple(dsid.shape)
    pieces = (
        _buffer(read(dsid, element, start, count), element)
        for start, count in _pieces(shape, element, chunk)
    )
    return hash_values(element.data_type, (*shape, *element.inner), pieces)


def digest_of(values: np.ndarray[Any, Any], element: Element) -> str:
    """Hash values that were read already; equal to `digest` while they fit one piece."""
    return hash_values(element.data_type, values.shape, [_buffer(values, element)])


def _buffer(values: np.ndarray[Any, Any], element: Element) -> Any:
    """Return what `encode` would, without a copy where that is possible."""
    if element.text or not values.size:
        return encode(values, element)
    return np.ascontiguousarray(values, element.dtype).reshape(-1).view(np.uint8)


def _pieces(
    shape: tuple[int, ...], element: Element, chunk: tuple[int, ...] | None
) -> Iterator[tuple[tuple[int, ...] | None, tuple[int, ...] | None]]:
    """Cut along the leading axis, where possible between HDF5 chunks."""
    total = element.dtype.itemsize * prod((*shape, *element.inner))
    if total <= PIECE or not shape or element.text:
        yield None, None
        return
    rows = max(1, PIECE // (total // shape[0]))
    edge = chunk[0] if chunk else 1
    rows = rows // edge * edge or rows
    for first in range(0, shape[0], rows):
        yield (
            (first, *(0,) * (len(shape) - 1)),
            (min(rows, shape[0] - first), *shape[1:]),
        )


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
    return "" if element.text else spell(value[()], element.dtype)
