"""Attributes as the source file had them, out of zarr.json: dtypes restored, fill values decoded.

Repositories that icevirt did not write carry no dtypes; their attributes stay as JSON gave them,
and ``_FillValue`` is read in the spellings that xarray and others use.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from icevirt.archive.attributes import EXTENSION, restore

FILL = "_FillValue"


def shown(metadata: Mapping[str, Any], dtype: np.dtype[Any] | None = None) -> dict[str, Any]:
    """Return the attributes of a zarr.json document; ``dtype`` is an array's, None for groups."""
    extension = metadata.get(EXTENSION)
    extension = extension if isinstance(extension, Mapping) else {}
    recorded = extension.get("attribute_dtypes") or {}
    dtypes = {name: text for name, text in recorded.items() if isinstance(text, str)}
    values = restore(_as_in_file(metadata.get("attributes") or {}, extension), dtypes)
    if FILL in values and FILL not in dtypes and dtype is not None:
        values[FILL] = fill_value(values[FILL], dtype)
    return values


def _as_in_file(values: Mapping[str, Any], extension: Mapping[str, Any]) -> dict[str, Any]:
    """Undo what was changed for other readers' sake: ``{"replaced_attributes": {name: original}}``.

    An original of None says that the file has no such attribute.
    """
    originals = extension.get("replaced_attributes") or {}
    kept = {name: value for name, value in values.items() if name not in originals}
    return {name: value for name, value in originals.items() if value is not None} | kept


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
