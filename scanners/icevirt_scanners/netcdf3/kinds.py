"""Define the external types of NetCDF-3: numbers, sizes and default fill values.

Spec: "The NetCDF Classic Format Specification", `nc_type`; the second half is CDF-5's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from icevirt.model.json import JSON


@dataclass(frozen=True, slots=True)
class Kind:
    """An external type."""

    stored: np.dtype[Any]  # as it lies in the file: big-endian
    data_type: JSON  # of zarr
    default_fill: Any  # what netCDF writes where nobody wrote a value

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype values are read as: little-endian."""
        return self.stored.newbyteorder("<")

    @property
    def text(self) -> bool:
        """Whether these are characters."""
        return self.stored.kind == "S"

    @property
    def size(self) -> int:
        """Bytes of a value."""
        return self.stored.itemsize


_CHARACTER: JSON = {"name": "null_terminated_bytes", "configuration": {"length_bytes": 1}}
_FLOAT_FILL = 9.969209968386869e36  # 15 * 2**119, exact in both sizes

KINDS = {
    1: Kind(np.dtype("i1"), "int8", -127),
    2: Kind(np.dtype("S1"), _CHARACTER, b""),
    3: Kind(np.dtype(">i2"), "int16", -(2**15) + 1),
    4: Kind(np.dtype(">i4"), "int32", -(2**31) + 1),
    5: Kind(np.dtype(">f4"), "float32", _FLOAT_FILL),
    6: Kind(np.dtype(">f8"), "float64", _FLOAT_FILL),
    7: Kind(np.dtype("u1"), "uint8", 2**8 - 1),
    8: Kind(np.dtype(">u2"), "uint16", 2**16 - 1),
    9: Kind(np.dtype(">u4"), "uint32", 2**32 - 1),
    10: Kind(np.dtype(">i8"), "int64", -(2**63) + 2),
    11: Kind(np.dtype(">u8"), "uint64", 2**64 - 2),
}
CLASSIC = 6  # the last type of the formats before CDF-5
