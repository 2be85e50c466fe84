"""Read messages of GRIB with ecCodes, and put their values where coordinates say their points are.

ecCodes gives each point with its latitude and longitude. An array gives each value the coordinates
beside it. They must be the same field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icevirt.archive.scanned import ScannedArray
from icevirt.model import paths
from icevirt.scan.values import Fetch, read

AXES = ("latitude", "longitude")
_MISSING = 1e34
_VALID = ("validityDate", "validityTime")
_DEGREES = 0.01  # that coordinates of one point may differ by, unless points are closer
_RELATIVE = 1e-6  # of the largest value; single precision


def eccodes_lacks() -> str:
    """Return what to install to compare with ecCodes; "" where it is there."""
    try:
        import eccodes  # noqa: F401
    except (ImportError, RuntimeError):  # the latter where its library is missing
        return "with the package eccodes installed, they are compared with ecCodes"
    return ""


class Points:
    """Where the points of arrays of one file are, as latitudes and longitudes beside them say."""

    def __init__(self, arrays: Mapping[str, ScannedArray]) -> None:
        self.arrays = arrays
        self._known: dict[tuple[Any, ...], tuple[NDArray[np.float64], ...]] = {}

    def are_known(self, array: ScannedArray) -> bool:
        """Say whether latitude and longitude stand beside an array."""
        beside = (self._beside(array, name) for name in AXES)
        return len(array.shape) >= 2 and all(each is not None for each in beside)

    def of(self, array: ScannedArray, fetch: Fetch) -> tuple[NDArray[np.float64], ...]:
        """Return latitude and longitude of each point of an array's grid, shape (ny, nx) each."""
        key = paths.parent(array.path), array.dimension_names[-2:], array.shape[-2:]
        if key not in self._known:
            self._known[key] = tuple(self._degrees(array, name, fetch) for name in AXES)
        return self._known[key]

    def _beside(self, array: ScannedArray, name: str) -> ScannedArray | None:
        found = self.arrays.get(paths.join(paths.parent(array.path), name))
        return found if found is not None and len(found.shape) in (1, 2) else None

    def _degrees(self, array: ScannedArray, name: str, fetch: Fetch) -> NDArray[np.float64]:
        beside = self._beside(array, name)
        assert beside is not None, "arrays without coordinates are not compared"
        values = read(beside, fetch).astype(np.float64)
        if values.ndim == 1 and beside.dimension_names[0] == array.dimension_names[-2]:
            values = values[:, None]
        return np.broadcast_to(values, array.shape[-2:])


class GribField:
    """A message as ecCodes reads it, in the order in which its points stand."""

    def __init__(self, message: bytes) -> None:
        import eccodes

        handle = eccodes.codes_new_from_message(message)
        try:
            self._read(handle)
        finally:
            eccodes.codes_release(handle)

    def _read(self, handle: Any) -> None:
        import eccodes

        eccodes.codes_set(handle, "missingValue", _MISSING)
        found = eccodes.codes_get_values(handle)
        self.values = np.where(found == _MISSING, np.nan, found)
        self.grid = str(eccodes.codes_get(handle, "gridType"))
        keys = ("latitudes", "longitudes") if self.grid != "sh" else ()
        self.degrees = [eccodes.codes_get_array(handle, key) for key in keys]
        order = ("jPointsAreConsecutive", "iScansNegatively", "jScansPositively")
        self.order = ", ".join(
            f"{key}={eccodes.codes_get_long(handle, key)}"
            for key in order
            if eccodes.codes_is_defined(handle, key)
        )
        self.seconds = _seconds(*(eccodes.codes_get_long(handle, key) for key in _VALID))
        largest = float(np.nanmax(np.abs(self.values), initial=0.0))
        self.tolerance = max(
            eccodes.codes_get_double(handle, "packingError")
            if eccodes.codes_is_defined(handle, "packingError")
            else 0.0,
            _RELATIVE * largest,
        )


def _seconds(date: int, time: int) -> int:
    """Return the seconds since 1970 of a date like 20240131 and a time like 1830."""
    year, month, day = date // 10_000, date // 100 % 100, date % 100
    return int(datetime(year, month, day, time // 100, time % 100, tzinfo=UTC).timestamp())


def place(
    theirs: GribField, latitude: NDArray[np.float64], longitude: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    """Return the values of ecCodes at the places of the array; None where points differ."""
    if len(theirs.degrees) != 2 or theirs.degrees[0].size != latitude.size:
        return None
    for turned in _orders((*theirs.degrees, theirs.values), latitude.shape):
        by_row = np.abs(_apart(turned[1][0] - longitude[0, 0]))
        shift = -int(np.argmin(by_row))  # parsers may let the rows begin elsewhere
        mine = [np.roll(each, shift, axis=1) for each in turned]
        near = nearness(mine[0])
        if (np.abs(mine[0] - latitude) <= near).all() and (
            np.abs(_apart(mine[1] - longitude)) <= near
        ).all():
            return mine[2]
    return None


def _orders(
    columns: tuple[NDArray[np.float64], ...], shape: tuple[int, ...]
) -> Iterator[list[NDArray[np.float64]]]:
    """Yield the grid in each order in which points can stand in a message."""
    rows, length = shape
    for is_by_column in (False, True):
        grids = [
            each.reshape(length, rows).T if is_by_column else each.reshape(rows, length)
            for each in columns
        ]
        for down in (1, -1):
            for across in (1, -1):
                yield [each[::down, ::across] for each in grids]


def _apart(degrees: NDArray[np.float64]) -> NDArray[np.float64]:
    return (degrees + 180.0) % 360.0 - 180.0


def nearness(latitude: NDArray[np.float64]) -> float:
    """Return by how much coordinates of one point may differ."""
    spacing = np.abs(np.diff(latitude, axis=0))
    spacing = spacing[spacing > 0]
    return min(_DEGREES, float(spacing.min()) / 4) if spacing.size else _DEGREES
