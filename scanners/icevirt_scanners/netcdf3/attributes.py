"""Read NetCDF-3 attributes as netCDF4-python shows them: scalars, arrays and text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from icevirt_scanners.cf import FILL
from icevirt_scanners.netcdf3.header import Attribute
from icevirt_scanners.netcdf3.kinds import Kind


def shown(attributes: Sequence[Attribute], tell: Callable[[str, str], None]) -> dict[str, Any]:
    """Return the attributes of the file or of a variable; ``tell`` takes code and message."""
    found: dict[str, Any] = {}
    for attribute in attributes:
        name = attribute.name.decode("utf-8", "backslashreplace")
        if name in found:  # netCDF finds the first one
            tell("attribute-left-out", f"attribute {name!r}: another attribute has this name")
            continue
        if attribute.kind.text:
            found[name] = _text(attribute.raw, name, tell)
        else:
            values = np.frombuffer(attribute.raw, attribute.kind.stored)
            values = values.astype(attribute.kind.dtype)
            found[name] = values[0] if values.size == 1 else values
    return found


def _text(raw: bytes, name: str, tell: Callable[[str, str], None]) -> str:
    text = raw.replace(b"\0", b"")
    try:
        return text.decode()
    except UnicodeDecodeError:
        tell("attribute-latin1", f"attribute {name!r} is not UTF-8")
        return text.decode("latin-1")


def fill_of(attributes: Sequence[Attribute], kind: Kind) -> Any:
    """Return what netCDF reads where nothing was written: ``_FillValue``, or the type's default."""
    for attribute in attributes:
        if attribute.name == FILL.encode() and attribute.kind == kind:
            values = np.frombuffer(attribute.raw, kind.stored).astype(kind.dtype)
            if values.size == 1:
                return values[0]
    return np.array(kind.default_fill, kind.dtype)[()]
