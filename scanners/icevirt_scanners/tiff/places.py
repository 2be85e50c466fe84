"""Find where pixels are: the transform of a GeoTIFF, and the coordinates of rows and columns.

Numbers are those of GDAL and rioxarray to the last bit, which is why sums stand in their order.
Files beside an image (world files, ``.aux.xml``) are not read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from icevirt_scanners.tiff.directories import Directory, TiffDamageError
from icevirt_scanners.tiff.geokeys import RASTER_TYPE, GeoKeys

PIXEL_SCALE, TIE_POINTS, TRANSFORMATION, RPC = 33550, 33922, 34264, 50844
_POINT = 2


@dataclass(frozen=True, slots=True)
class Transform:
    """From columns and rows of pixel corners to x and y: x = a * column + b * row + c."""

    a: float
    b: float
    c: float
    d: float
    e: float
    f: float

    @property
    def is_rectilinear(self) -> bool:
        """Whether x depends on columns only, and y on rows only."""
        return self.b == self.d == 0

    def scale(self, across: float, down: float) -> Transform:
        """Return the transform of an image with larger pixels."""
        return Transform(
            self.a * across, self.b * down, self.c, self.d * across, self.e * down, self.f
        )

    def coordinates(
        self, height: int, width: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return y and x of the centers of pixels."""
        x = np.arange(width, dtype=np.float64) * self.a + (self.a * 0.5 + self.b * 0.5 + self.c)
        y = np.arange(height, dtype=np.float64) * self.e + (self.d * 0.5 + self.e * 0.5 + self.f)
        return y, x

    @property
    def text(self) -> str:
        """As GDAL and rioxarray write it."""
        return " ".join(str(each) for each in (self.c, self.a, self.b, self.f, self.d, self.e))


def find_transform(directory: Directory, keys: GeoKeys) -> tuple[Transform | None, str]:
    """Return the transform of an image, or None and why it has none.

    Raises:
        TiffDamageError: Its tags are damaged.
    """
    scale, ties = directory.floats(PIXEL_SCALE), directory.floats(TIE_POINTS)
    matrix = directory.floats(TRANSFORMATION)
    if not all(np.isfinite(each).all() for each in (scale, ties, matrix)):
        raise TiffDamageError("the place of the image is not a number")
    found = None
    if len(scale) >= 2 and scale[0] and scale[1] and len(ties) >= 6:
        a, e = float(scale[0]), -abs(float(scale[1]))
        column, row, _, x, y = ties[:5].tolist()
        found = Transform(a, 0.0, x - column * a, 0.0, e, y - row * e)
    elif len(matrix) == 16:
        a, b, _, c, d, e, _, f = matrix[:8].tolist()
        found = Transform(a, b, c, d, e, f)
    if found is None:
        if len(ties) >= 6:
            return None, "it has control points only"
        return None, "it has coefficients (RPC) only" if RPC in directory else "it says none"
    if keys.number(RASTER_TYPE) == _POINT:
        a, b, c, d, e, f = found.a, found.b, found.c, found.d, found.e, found.f
        found = Transform(a, b, c - (a * 0.5 + b * 0.5), d, e, f - (d * 0.5 + e * 0.5))
    return found, ""
