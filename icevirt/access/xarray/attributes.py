"""Restore attributes from zarr.json as the source file had them: dtypes and fill values.

Repositories written by other tools carry no dtypes. Their attributes stay as JSON gave them, and
``_FillValue`` is read in the spellings that xarray and others use.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from icevirt.model.attributes import ENUMERATION, EXTENSION, FILL, Attributes, restore


def shown(metadata: Mapping[str, Any], dtype: np.dtype[Any] | None = None) -> dict[str, Any]:
    """Return the attributes of a zarr.json document; ``dtype`` is an array's, None for groups."""
    extension = metadata.get(EXTENSION)
    extension = extension if isinstance(extension, Mapping) else {}
    dtypes = extension.get("attribute_dtypes") or {}
    values = {
        name: _with_dtype(name, value, dtypes[name]) if name in dtypes else value
        for name, value in _as_in_file(metadata.get("attributes") or {}, extension).items()
    }
    if FILL in values and FILL not in dtypes and dtype is not None:
        values[FILL] = fill_value(values[FILL], dtype)
    return values


def _with_dtype(name: str, value: Any, dtype: str) -> Any:
    """Give a value the dtype recorded for it, unless it was changed since to one that it has not.

    Edits of attributes through zarr leave the record as it is.
    """
    try:
        restored = restore({name: value}, {name: dtype})[name]
    except (ValueError, TypeError, OverflowError, LookupError):
        return value
    return restored if Attributes.of({name: restored}).values[name] == value else value


def _as_in_file(values: Mapping[str, Any], extension: Mapping[str, Any]) -> dict[str, Any]:
    """Undo what was changed for other readers: ``{"replaced_attributes": {name: [was, is]}}``.

    None stands for an attribute that is not there. What was changed again since stays.
    """
    replaced = extension.get("replaced_attributes") or {}
    if any(values.get(name) != shown for name, (_, shown) in replaced.items()):
        return dict(values)
    kept = {name: value for name, value in values.items() if name not in replaced}
    file = {name: was for name, (was, _) in replaced.items() if was is not None} | kept
    return {name: value for name, value in file.items() if name != ENUMERATION}


def fill_value(value: Any, dtype: np.dtype[Any]) -> Any:
    """Read a ``_FillValue`` that was written without its dtype.

    xarray writes floats as base64 of eight bytes, others as plain numbers; text is text, except
    that fixed-length bytes want bytes.
    """
    match dtype.kind:
        case "f" if isinstance(value, str):
            return _float(value)
        case "c" if isinstance(value, list) and len(value) == 2:
            real, imaginary = (_float(v) if isinstance(v, str) else float(v) for v in value)
            return complex(real, imaginary)
        case "S" if isinstance(value, str):
            return np.bytes_(value.encode())
        case _:
            return value


def _float(text: str) -> float:
    try:
        (number,) = struct.unpack("<d", base64.standard_b64decode(text))
    except (struct.error, binascii.Error):
        return float(text)  # "NaN", "Infinity", or a number in quotes
    return float(number)
